//! What the simulated world does not depend on, or meets too seldom.

use std::net::Ipv4Addr;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, AnnounceTiming, Control, Dump, Duration, ExitReason, Failure, Input, Instant, LogEvent,
    Monitor, MonitorConfig, Outcome, State, Tables,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Body, Message};
use netlink_packet_route::address::AddressFlags;

use super::world::config;
use super::world::kernel::{address, link};

const T0: Instant = Instant::ZERO;
const EXIT: Action = Action::Exit(ExitReason::Signal(15));

/// Hands this in and returns what is to be done. Each write of the state file takes so long and has this result; no
/// request to the agent or the kernel is answered.
fn feed(
    monitor: &mut Monitor<'_>,
    input: &Input,
    mut now: Instant,
    written: (Duration, Result<(), Errno>),
) -> Vec<Action> {
    let mut actions = Vec::new();
    monitor.handle(input, now);
    while let Some(action) = monitor.next_action(now) {
        if let Action::WriteState(state) = action {
            now += written.0;
            monitor.handle(&Input::StateFile(written.1.map(|()| state)), now);
        }
        if action == Action::HangUp {
            monitor.handle(&Input::Agent(Outcome::Failed(Failure::TimedOut)), now);
        }
        let is_last = matches!(action, Action::Exit(_));
        actions.push(action);
        if is_last {
            break;
        }
    }
    actions
}

const WORKS: (Duration, Result<(), Errno>) = (Duration::ZERO, Ok(()));

fn event(body: Body) -> Input {
    Input::Netlink(Message { body, sequence: 0, port: 0, interrupted: false })
}

/// Brings up a monitor whose first state is backup.
fn start(written: (Duration, Result<(), Errno>)) -> (Monitor<'static>, Vec<Action>) {
    let mut monitor = Monitor::new(config());
    feed(&mut monitor, &event(Body::NewLink(link(5, "ha"))), T0, written);
    let actions = feed(&mut monitor, &event(Body::DelLink(link(5, "ha"))), T0, written);
    (monitor, actions)
}

#[test]
fn addresses_are_heard_of_on_the_watched_interface_only() {
    let mut monitor = Monitor::new(config());
    let mut filter = |body| {
        let actions = feed(&mut monitor, &event(body), T0, WORKS);
        actions.into_iter().find(|action| matches!(action, Action::SetAddressFilter(_)))
    };
    let new = || Body::NewLink(link(5, "ha"));
    assert_eq!(filter(new()), Some(Action::SetAddressFilter(Some(5))));
    assert_eq!(filter(new()), None, "it is so already");
    assert_eq!(filter(Body::DelLink(link(5, "ha"))), Some(Action::SetAddressFilter(None)));
}

#[test]
fn agent_that_was_away_is_said_to_be_back() {
    let (mut monitor, _) = start(WORKS);
    feed(&mut monitor, &Input::Agent(Outcome::Failed(Failure::Refused)), T0, WORKS);
    let later = Instant::from_secs(1);
    let actions = feed(&mut monitor, &Input::QueueEmpty, later, WORKS);
    assert!(actions.contains(&Action::Notify(State::Backup)));
    let said = [LogEvent::Notified(State::Backup), LogEvent::AgentBack { failures: 1 }];
    let actions = feed(&mut monitor, &Input::Agent(Outcome::Delivered), later, WORKS);
    assert_eq!(actions, said.map(Action::Log));
}

/// The time for the reply begins when the request goes out, however long the file took.
#[test]
fn request_has_all_its_time() {
    let (monitor, actions) = start((Duration::from_secs(6), Ok(())));
    assert!(actions.ends_with(&[Action::Notify(State::Backup)]), "{actions:?}");
    assert_eq!(monitor.deadline(), Some(T0), "a dump");
    let (mut monitor, _) = start((Duration::from_secs(6), Ok(())));
    let actions = feed(&mut monitor, &Input::QueueEmpty, T0 + Duration::from_secs(10), WORKS);
    assert_eq!(actions, [Action::RequestDump { dump: Dump::Links, sequence: 1 }]);
    let actions = feed(&mut monitor, &Input::QueueEmpty, T0 + Duration::from_secs(11), WORKS);
    assert_eq!(actions.first(), Some(&Action::HangUp), "5 s after the 6");
}

#[test]
fn to_be_asked_again_is_no_reason_to_stay_for_longer() {
    let (mut monitor, _) = start(WORKS);
    for millis in [0, 500, 900] {
        let now = T0 + Duration::from_millis(millis);
        for input in [Input::Control(Control::Exit(15)), Input::QueueEmpty] {
            let actions = feed(&mut monitor, &input, now, WORKS);
            assert!(!actions.contains(&EXIT), "a request is in flight");
        }
        assert_eq!(monitor.deadline(), Some(T0 + Duration::from_secs(1)));
    }
    let late = T0 + Duration::from_secs(1);
    assert!(feed(&mut monitor, &Input::QueueEmpty, late, WORKS).contains(&EXIT));
}

#[test]
fn deleted_namespace_is_not_left_before_the_file_says_backup_but_soon() {
    const GONE: Action = Action::Exit(ExitReason::NamespaceGone);
    let fails = (Duration::ZERO, Err(Errno(28)));
    for works in [true, false] {
        let (mut monitor, _) = start(fails);
        for input in
            [Input::NamespaceGone, Input::Agent(Outcome::Delivered), Input::Agent(Outcome::Closed)]
        {
            assert!(!feed(&mut monitor, &input, T0, fails).contains(&GONE), "{input:?}");
        }
        let soon = T0 + Duration::from_millis(4999);
        let written = if works { WORKS } else { fails };
        assert_eq!(feed(&mut monitor, &Input::QueueEmpty, soon, written).contains(&GONE), works);
        let late = T0 + Duration::from_secs(5);
        assert!(feed(&mut monitor, &Input::QueueEmpty, late, written).contains(&GONE));
    }
}

/// A monitor that announces.
fn announcing(tables: &mut Tables) -> Monitor<'_> {
    Monitor::new(MonitorConfig { announce: Some((AnnounceTiming::default(), tables)), ..config() })
}

#[test]
fn addresses_beyond_the_table_are_counted_and_said_once_a_minute() {
    let mut tables = Box::new(Tables::new());
    let mut monitor = announcing(&mut tables);
    let cidrs = (0..4098).map(|n| Cidr::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 32));
    let address = |cidr| Body::NewAddress(address(3, cidr, AddressFlags::Permanent));
    let bodies = cidrs.map(|cidr| address(cidr.expect("an address")));
    let said: Vec<_> = bodies.flat_map(|b| feed(&mut monitor, &event(b), T0, WORKS)).collect();
    assert_eq!(said, [Action::Log(LogEvent::TooManyAddresses { total: 1 })]);
    assert_eq!(monitor.status().counters.unannounced, 2);
}

#[test]
fn links_beyond_the_table_are_counted_and_said_once_a_minute() {
    let mut tables = Box::new(Tables::new());
    let mut monitor = announcing(&mut tables);
    let bodies = (1..=1026).map(|ifindex| Body::NewLink(link(ifindex, "eth0")));
    let said: Vec<_> = bodies.flat_map(|b| feed(&mut monitor, &event(b), T0, WORKS)).collect();
    assert_eq!(said, [Action::Log(LogEvent::TooManyLinks { ignored: 1 })]);
    let actions = feed(&mut monitor, &Input::Control(Control::Status), T0, WORKS);
    assert_eq!(actions, [Action::LogStatus]);
    let counters = monitor.status().counters;
    assert_eq!((counters.ignored_links, counters.unannounced), (2, 0));
}
