//! What the simulated world meets too seldom.

use std::iter::from_fn;
use std::net::Ipv4Addr;

use keepwatch::monitor::{
    Action, ActiveWord, AnnounceTiming, Cause, ExitReason, HelperKind, HookState, Input, Instant,
    LogEvent, Monitor, MonitorConfig, Outcome, State, SyncCommand, Tables,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::helper::{MAX_OUTPUT, MAX_REPORT};
use keepwatch::wire::rtnl::{Address, Body, Link, Message};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::world::config;
use super::world::kernel::{Kernel, PORT, UP, address, link};

/// What there is no room for is counted, and said once a minute.
#[test]
fn tables_that_are_full_are_no_secret() {
    let mut tables = Box::new(Tables::new());
    let announce = Some((AnnounceTiming::default(), &mut *tables));
    let mut monitor = Monitor::new(MonitorConfig { announce, ..config() });
    let mut said = |bodies: &mut dyn Iterator<Item = Body>| -> Vec<Action> {
        for body in bodies {
            monitor.handle(&event(body), Instant::ZERO);
        }
        from_fn(|| monitor.next_action(Instant::ZERO)).collect()
    };
    let mut links = (1..=1026).map(|ifindex| Body::NewLink(link(ifindex, "eth0")));
    assert_eq!(said(&mut links), [Action::Log(LogEvent::TooManyLinks { ignored: 1 })]);
    let mut addresses = (0..4098).map(|n| {
        let cidr = Cidr::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 32);
        Body::NewAddress(address(3, cidr.expect("an address"), AddressFlags::Permanent))
    });
    assert_eq!(said(&mut addresses), [Action::Log(LogEvent::TooManyAddresses { total: 1 })]);
    let counters = monitor.status().counters;
    assert_eq!((counters.ignored_links, counters.unannounced), (2, 2));
}

/// What others know them by.
#[test]
fn words_and_numbers_are_what_they_were() {
    let states = [(State::Active, ActiveWord::Primary), (State::Backup, ActiveWord::Primary)];
    assert_eq!(states.map(|(state, active)| state.word(active)), ["primary", "backup"]);
    let told = [HookState::Master, HookState::Backup, HookState::Fault].map(HookState::word);
    assert_eq!(told, ["MASTER", "BACKUP", "FAULT"]);
    assert_eq!([SyncCommand::Commit, SyncCommand::Bulk].map(SyncCommand::flag), ["-c", "-B"]);
    let helpers = [HelperKind::Conntrackd, HelperKind::Hook].map(HelperKind::name);
    assert_eq!(helpers, ["conntrackd", "hook"]);
    assert_eq!((MAX_OUTPUT, MAX_REPORT), (15_425, 15_445));
}

/// Hands this in and has what is to be done until there is nothing, or this. Returns whether it was to be done.
fn leads_to(monitor: &mut Monitor<'_>, input: &Input, now: Instant, wanted: &Action) -> bool {
    monitor.handle(input, now);
    let mut next = || {
        let action = monitor.next_action(now)?;
        if let Action::WriteState(state) = action {
            monitor.handle(&Input::StateFile(Ok(state)), now);
        }
        Some(action)
    };
    from_fn(&mut next).any(|action| action == *wanted)
}

fn event(body: Body) -> Input {
    Input::Netlink(Message { body, sequence: 0, port: 0, interrupted: false })
}

fn reply(sequence: u32, body: Body) -> Input {
    Input::Netlink(Message { body, sequence, port: PORT, interrupted: false })
}

fn vip() -> Address {
    address(5, Kernel::default().vip(), AddressFlags::Permanent)
}

/// A monitor that is active, and for which addresses are being listed.
fn listing(addresses: &[Address]) -> Monitor<'static> {
    let mut monitor = Monitor::new(config());
    let addresses = addresses.iter().map(|address| event(Body::NewAddress(*address)));
    let begin = [event(Body::NewLink(link(5, "ha")))].into_iter().chain(addresses);
    for input in begin.chain([
        Input::QueueEmpty,
        reply(1, Body::NewLink(link(5, "ha"))),
        reply(1, Body::Done(None)),
        Input::QueueEmpty,
    ]) {
        leads_to(&mut monitor, &input, Instant::ZERO, &Action::ReopenLog);
    }
    monitor
}

#[test]
fn daemon_that_has_told_of_its_namespaces_end_leaves_at_once() {
    let mut monitor = listing(&[vip()]);
    let leaves = Action::Exit(ExitReason::NamespaceGone);
    for (input, expected) in [
        (Input::Agent(Outcome::Delivered), false),
        (Input::Agent(Outcome::Closed), false),
        (Input::NamespaceGone, false),
        (Input::Agent(Outcome::Delivered), false),
        (Input::Agent(Outcome::Closed), true),
    ] {
        assert_eq!(leads_to(&mut monitor, &input, Instant::ZERO, &leaves), expected, "{input:?}");
    }
}

/// The dump under way is repeated, and says nothing of the other one.
#[test]
fn vip_with_two_peers_may_lose_one_while_they_are_listed() {
    let other = Address { peer: Ipv4Addr::new(10, 9, 0, 1).into(), ..vip() };
    let mut monitor = listing(&[vip(), other]);
    for input in [
        event(Body::DelAddress(other)),
        reply(2, Body::NewAddress(vip())),
        reply(2, Body::Done(None)),
    ] {
        leads_to(&mut monitor, &input, Instant::ZERO, &Action::ReopenLog);
    }
    assert_eq!(monitor.status().state, Some(State::Active));
}

/// Of one of more than it keeps it learns when others have gone.
#[test]
fn vip_with_many_peers_may_lose_most() {
    let vips = [1, 2, 3, 4, 5, 6, 7, 8, 9]
        .map(|n| Address { peer: Ipv4Addr::new(10, 9, 0, n).into(), ..vip() });
    let mut monitor = listing(&vips);
    let end = vips
        .map(|vip| reply(2, Body::NewAddress(vip)))
        .into_iter()
        .chain([reply(2, Body::Done(None)), Input::QueueEmpty]);
    let gone = vips[..8].iter().map(|vip| event(Body::DelAddress(*vip)));
    let last = [Input::QueueEmpty, reply(4, Body::NewAddress(vips[8])), reply(4, Body::Done(None))];
    for input in end.chain([reply(3, Body::Done(None))]).chain(gone).chain(last) {
        leads_to(&mut monitor, &input, Instant::ZERO, &Action::ReopenLog);
    }
    assert_eq!(monitor.status().state, Some(State::Active));
}

/// An interface that is down may be about to be deleted, so the line waits.
#[test]
fn cause_of_a_change() {
    let link = |flags| Body::NewLink(Link { flags, ..link(5, "ha") });
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    for (events, cause, millis) in [
        ([link(LinkFlags::empty()), Body::DelAddress(vip())], Cause::InterfaceDown, 200),
        ([link(LinkFlags::Up), Body::DelAddress(vip())], Cause::CarrierLost, 0),
        ([link(UP), Body::DelAddress(vip())], Cause::AddressRemoved, 0),
        ([link(UP), Body::NewAddress(failed)], Cause::DuplicateAddress, 0),
    ] {
        let mut monitor = listing(&[vip()]);
        let is_said = |monitor: &mut _, input: &_, millis| {
            let wanted = Action::Log(LogEvent::Changed(cause));
            leads_to(monitor, input, Instant::from_millis(millis), &wanted)
        };
        let listed = [reply(2, Body::NewAddress(vip())), reply(2, Body::Done(None))];
        for input in listed.into_iter().chain(events.map(event)) {
            assert!(!is_said(&mut monitor, &input, 0), "there is more to be read");
        }
        assert!(millis == 0 || !is_said(&mut monitor, &Input::QueueEmpty, millis - 1), "{cause:?}");
        assert!(is_said(&mut monitor, &Input::QueueEmpty, millis), "{cause:?}");
    }
}
