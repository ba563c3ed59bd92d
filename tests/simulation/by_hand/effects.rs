//! Lines, commands, files and frames that follow a state.

use keepwatch::monitor::{
    Action, ActiveWord, Cause, CommandResult, Control, Duration, ExitReason, Failure, HelperKind,
    HelperNews, HookState, Input, LimitedEvent, LogEvent, MonitorConfig, Outcome, Source, State,
    SyncCommand,
};
use keepwatch::wire::helper::{MAX_OUTPUT, MAX_REPORT};
use keepwatch::wire::rtnl::{Address, Body, Link};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::{DELIVERED, EBUSY, Lab, WATCHED, down, elsewhere, vip};
use crate::world::kernel::{UP, address, link};
use crate::world::{config, timing};

/// The loop reports a failed epoll at each turn.
#[test]
fn failed_source_ends_the_daemon_once_the_agent_has_the_state() {
    let mut lab = Lab::active(config());
    lab.agent_hangs = true;
    let failed = Input::SourceFailed(Source::Poll, EBUSY);
    lab.feed(&failed);
    let lines = |lab: &Lab<'_>| lab.lines(|line| matches!(line, LogEvent::SourceFailed(..))).len();
    assert_eq!(lines(&lab), 1);
    lab.event(Body::DelAddress(vip()));
    let exit = Action::Exit(ExitReason::SourceFailed(Source::Poll));
    let delivered = Input::Agent(DELIVERED);
    for input in [&failed, &Input::QueueEmpty, &delivered, &Input::Agent(Outcome::Closed)] {
        assert!(!lab.has(&exit), "{input:?}");
        lab.feed(input);
    }
    assert_eq!(lab.last(), Some(&exit));
    assert_eq!(lab.written().last(), Some(&State::Backup));
    assert_eq!(lines(&lab), 1);
}

/// The namespace's interfaces and addresses are gone, too.
#[test]
fn no_trouble_with_addresses_in_a_deleted_namespace() {
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    for addresses in [vec![vip(), elsewhere()], vec![failed]] {
        let mut lab = Lab { addresses, agent_hangs: true, ..Lab::new(config()) }.started();
        lab.feed(&Input::NamespaceGone);
        assert_eq!(
            (lab.misplaced(), lab.monitor.status().troubles),
            (0, keepwatch::monitor::Troubles::default())
        );
    }
}

#[test]
fn misplaced_address_that_stays_has_a_line_after_a_flap() {
    let mut lab = Lab::new(config()).started();
    for body in [Body::NewAddress, Body::DelAddress, Body::NewAddress] {
        lab.event(body(elsewhere()));
        lab.addresses = if lab.addresses.is_empty() { vec![elsewhere()] } else { vec![] };
        lab.pass(Duration::from_secs(5));
    }
    assert_eq!(lab.misplaced(), 1);
    lab.pass(Duration::from_secs(60));
    assert_eq!(lab.misplaced(), 2);
}

#[test]
fn failed_detection_after_a_success_has_a_line_at_once() {
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    for (between, lines) in [(failed, 1), (vip(), 2)] {
        let mut lab = Lab::active(config());
        lab.events([failed, between, failed].map(Body::NewAddress).into_iter());
        assert_eq!(lab.limited(|event| matches!(event, LimitedEvent::DadFailed)), lines);
    }
}

/// An event of another address is none of the VIP.
#[test]
fn failed_detection_has_no_line_for_other_addresses() {
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    let other = Address { cidr: "10.9.9.9/24".parse().unwrap(), ..vip() };
    let mut lab = Lab::active(config());
    lab.event(Body::NewAddress(failed));
    lab.pass(Duration::from_secs(100));
    lab.events([other, elsewhere()].map(Body::NewAddress).into_iter());
    assert_eq!(lab.limited(|event| matches!(event, LimitedEvent::DadFailed)), 1);
}

/// Even if the state is unknown during the reload, and then that of the last run.
#[test]
fn hook_runs_again_after_a_reload_during_detection() {
    let config = MonitorConfig { hook: Some(timing(false)), ..config() };
    let mut lab = Lab::new(config).started();
    lab.feed(&Input::Helper(HelperKind::Hook, HelperNews::Ended(CommandResult::Exited(0))));
    lab.addresses = vec![Address { flags: AddressFlags::Tentative, ..vip() }];
    lab.event(Body::NewAddress(lab.addresses[0]));
    lab.feed(&Input::Control(Control::Reload));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.runs(), []);
    lab.addresses.clear();
    lab.event(Body::DelAddress(vip()));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.runs(), [HookState::Backup]);
}

/// Programs can bind to an optimistic address.
#[test]
fn hook_waits_for_the_end_of_detection() {
    let tentative = AddressFlags::Tentative;
    for (flags, states) in [
        (tentative, &[][..]),
        (tentative | AddressFlags::Optimistic, &[HookState::Master]),
        (AddressFlags::Permanent, &[HookState::Master]),
    ] {
        let there = Address { flags, ..vip() };
        let config = MonitorConfig { hook: Some(timing(false)), ..config() };
        let mut lab = Lab { addresses: vec![there], ..Lab::new(config) };
        lab.pass(Duration::from_secs(1));
        assert_eq!(lab.runs(), states, "{flags:?}");
    }
}

/// The kernel has begun it since an answer in which it had ended.
#[test]
fn hook_waits_for_detection_that_has_begun_again() {
    let vip = "fd00::5/64".parse().unwrap();
    let there = |flags| address(WATCHED, vip, flags);
    let [tentative, permanent] = [AddressFlags::Tentative, AddressFlags::Permanent].map(there);
    let config = MonitorConfig { hook: Some(timing(false)), vip, ..config() };
    let mut lab = Lab { addresses: vec![permanent], ..Lab::new(config) }.started();
    let ended = Input::Helper(HelperKind::Hook, HelperNews::Ended(CommandResult::Exited(0)));
    lab.feed(&ended);
    lab.feed(&Input::Control(Control::Reload));
    lab.addresses = vec![tentative];
    lab.event(Body::NewLink(down()));
    lab.feed(&ended);
    lab.event(Body::NewLink(link(WATCHED, "ha")));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.runs(), [HookState::Fault]);
    lab.addresses = vec![permanent];
    lab.event(Body::NewAddress(permanent));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.runs(), [HookState::Fault, HookState::Master]);
}

/// Beside an agent the end of the delivery has them written.
#[test]
fn metrics_are_written_at_a_reload_without_an_agent() {
    let mut lab =
        Lab::active(MonitorConfig { notify_agent: false, write_metrics: true, ..config() });
    lab.feed(&Input::Control(Control::Reload));
    lab.pass(Duration::ZERO);
    assert!(lab.has(&Action::WriteMetrics));
}

/// An interface that is down may be about to be deleted, so the line waits.
#[test]
fn cause_of_a_change() {
    let link = |flags| Body::NewLink(Link { flags, ..link(WATCHED, "ha") });
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    for (events, cause, millis) in [
        ([link(LinkFlags::empty()), Body::DelAddress(vip())], Cause::InterfaceDown, 1000),
        ([link(LinkFlags::Up), Body::DelAddress(vip())], Cause::CarrierLost, 0),
        ([link(UP), Body::DelAddress(vip())], Cause::AddressRemoved, 0),
        ([link(UP), Body::NewAddress(failed)], Cause::DuplicateAddress, 0),
    ] {
        let mut lab = Lab::active(config());
        lab.events(events.into_iter());
        let causes = |lab: &Lab| lab.lines(|event| matches!(event, LogEvent::Changed(_)));
        for (at, time) in [(0, 0), (999, 999), (1000, 1)] {
            lab.pass(Duration::from_millis(time));
            let expected = if at >= millis { vec![LogEvent::Changed(cause)] } else { vec![] };
            assert_eq!(causes(&lab), expected, "{cause:?} after {at} ms");
        }
    }
}

#[test]
fn cause_of_a_change_is_logged_before_the_exit() {
    let mut lab = Lab::active(config());
    lab.events([Body::NewLink(down()), Body::DelAddress(vip())].into_iter());
    lab.feed(&Input::QueueEmpty);
    lab.feed(&Input::Control(Control::Exit(15)));
    let is_meant = |event: &_| *event == LogEvent::Changed(Cause::InterfaceDown);
    assert_eq!(lab.lines(is_meant).len(), 1);
}

/// Unless it is deleted soon.
#[test]
fn interface_that_is_down_has_a_line() {
    let mut lab = Lab::active(config());
    lab.event(Body::NewLink(down()));
    for (millis, expected) in [(0, 0), (999, 0), (1, 1)] {
        lab.now += Duration::from_millis(millis);
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lines_about_down(&lab), expected, "{}", lab.now);
    }
}

fn lines_about_down(lab: &Lab<'_>) -> usize {
    lab.limited(|event| matches!(event, LimitedEvent::InterfaceDown(_)))
}

#[test]
fn interface_that_stays_down_has_a_line_after_a_flap() {
    let mut lab = Lab::active(config());
    for link in [down(), link(WATCHED, "ha"), down()] {
        lab.event(Body::NewLink(link));
        lab.pass(Duration::from_secs(5));
    }
    assert_eq!(lines_about_down(&lab), 1);
    lab.pass(Duration::from_secs(60));
    assert_eq!(lines_about_down(&lab), 2);
}

/// It may be set up, and then have no carrier.
#[test]
fn line_about_an_interface_that_is_down_names_the_present_cause() {
    let without_carrier = Link { flags: LinkFlags::Up, ..link(WATCHED, "ha") };
    let mut lab = Lab::active(config());
    for link in [down(), without_carrier] {
        lab.event(Body::NewLink(link));
        lab.pass(Duration::from_secs(90));
    }
    let named =
        lab.lines(|line| matches!(line, LogEvent::Limited(LimitedEvent::InterfaceDown(_), _)));
    let expected = [Cause::InterfaceDown, Cause::CarrierLost];
    assert_eq!(
        named,
        expected.map(|cause| LogEvent::Limited(LimitedEvent::InterfaceDown(cause), 1))
    );
}

/// The agent may have been stopped, too.
#[test]
fn repetitions_keep_their_distance_after_a_stop_of_the_process() {
    let renotify = [30, 120, 600].map(Duration::from_secs).into_iter().collect();
    let mut lab = Lab::new(MonitorConfig { renotify, ..config() });
    let sent = |lab: &Lab<'_>| lab.all(|act| matches!(act, Action::Notify(_)).then_some(())).len();
    lab.agent_hangs = true;
    lab.pass(Duration::from_millis(10));
    lab.feed(&Input::Agent(Outcome::Failed(Failure::NoSocket)));
    lab.agent_hangs = false;
    let mut lab = lab.started();
    lab.now += Duration::from_secs(3600);
    lab.pass(Duration::from_secs(1));
    assert_eq!(sent(&lab), 1, "at the end of the stop");
    lab.pass(Duration::from_secs(3600));
    assert_eq!(sent(&lab), 3);
}

#[test]
fn exit_follows_delivery_of_the_namespace_end() {
    let mut lab = Lab { addresses: vec![vip()], agent_hangs: true, ..Lab::new(config()) };
    lab.feed(&Input::QueueEmpty);
    lab.feed(&Input::QueueEmpty);
    let delivered = Input::Agent(DELIVERED);
    let closed = Input::Agent(Outcome::Closed);
    for input in [&delivered, &closed, &Input::NamespaceGone, &delivered, &closed] {
        assert!(!lab.has(&Action::Exit(ExitReason::NamespaceGone)), "{input:?}");
        lab.feed(input);
    }
    assert_eq!(lab.last(), Some(&Action::Exit(ExitReason::NamespaceGone)));
}

#[test]
fn state_is_unknown_to_an_agent_that_does_not_answer() {
    for hangs in [false, true] {
        let mut lab = Lab { addresses: vec![vip()], agent_hangs: hangs, ..Lab::new(config()) };
        lab.pass(Duration::from_secs(1));
        assert_eq!(lab.monitor.unknown_to_agent(), hangs.then_some(State::Active));
    }
}

/// A failure that repeats itself does so without its output.
#[test]
fn output_of_conntrackd_is_logged_once() {
    let helper = HelperKind::Conntrackd;
    for syncs in [true, false] {
        let config = MonitorConfig { sync_conntrack: syncs, ..config() };
        let mut lab = Lab { addresses: vec![vip()], ..Lab::new(config) };
        lab.pass(Duration::from_secs(1));
        let (end, mut logged) = (CommandResult::Exited(1), vec![]);
        for _ in 0..2 {
            // All commands of the state fail, and are repeated.
            for _ in 0..4 {
                logged.push(lab.monitor.logs_output(helper, end, lab.now));
                lab.feed(&Input::Helper(helper, HelperNews::Ended(end)));
            }
            lab.pass(Duration::from_secs(60));
        }
        let expected = if syncs { [[true; 4], [false; 4]] } else { [[false; 4]; 2] };
        assert_eq!(logged, expected.concat());
    }
}

/// Other programs rely on them.
#[test]
fn words_and_numbers_are_stable() {
    let states = [(State::Active, ActiveWord::Primary), (State::Backup, ActiveWord::Primary)];
    assert_eq!(states.map(|(state, active)| state.word(active)), ["primary", "backup"]);
    let words = [HookState::Master, HookState::Backup, HookState::Fault].map(HookState::word);
    assert_eq!(words, ["MASTER", "BACKUP", "FAULT"]);
    assert_eq!([SyncCommand::Commit, SyncCommand::Bulk].map(SyncCommand::flag), ["-c", "-B"]);
    let helpers = [HelperKind::Conntrackd, HelperKind::Hook].map(HelperKind::name);
    assert_eq!(helpers, ["conntrackd", "hook"]);
    assert_eq!([Source::Poll, Source::Signals].map(Source::name), ["epoll", "signalfd"]);
    assert_eq!((MAX_OUTPUT, MAX_REPORT), (15_425, 15_445));
}
