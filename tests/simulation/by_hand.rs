//! What the simulated world meets too seldom.

use std::iter::from_fn;
use std::net::Ipv4Addr;

use keepwatch::monitor::{
    Action, ActiveWord, AnnounceTiming, ExitReason, HelperKind, HookState, Input, Instant,
    LogEvent, Monitor, MonitorConfig, Outcome, State, SyncCommand, Tables,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::helper::{MAX_OUTPUT, MAX_REPORT};
use keepwatch::wire::rtnl::{Address, Body, Message};
use netlink_packet_route::address::AddressFlags;

use super::world::config;
use super::world::kernel::{Kernel, PORT, address, link};

/// What there is no room for is counted, and said once a minute.
#[test]
fn tables_that_are_full_are_no_secret() {
    let mut tables = Box::new(Tables::new());
    let announce = Some((AnnounceTiming::default(), &mut *tables));
    let mut monitor = Monitor::new(MonitorConfig { announce, ..config() });
    let mut said = |bodies: &mut dyn Iterator<Item = Body>| -> Vec<Action> {
        for body in bodies {
            let event = Message { body, sequence: 0, port: 0, interrupted: false };
            monitor.handle(&Input::Netlink(event), Instant::ZERO);
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
fn leads_to(monitor: &mut Monitor<'_>, input: &Input, wanted: &Action) -> bool {
    monitor.handle(input, Instant::ZERO);
    let mut next = || {
        let action = monitor.next_action(Instant::ZERO)?;
        if let Action::WriteState(state) = action {
            monitor.handle(&Input::StateFile(Ok(state)), Instant::ZERO);
        }
        Some(action)
    };
    from_fn(&mut next).any(|action| action == *wanted)
}

fn event(body: Body) -> Input {
    Input::Netlink(Message { body, sequence: 0, port: 0, interrupted: false })
}

#[test]
fn daemon_that_has_told_of_its_namespaces_end_leaves_at_once() {
    let mut monitor = Monitor::new(config());
    let leaves = Action::Exit(ExitReason::NamespaceGone);
    for (input, expected) in [
        (event(Body::NewLink(link(5, "ha"))), false),
        (event(Body::DelLink(link(5, "ha"))), false),
        (Input::Agent(Outcome::Delivered), false),
        (Input::Agent(Outcome::Closed), false),
        (Input::NamespaceGone, true),
    ] {
        assert_eq!(leads_to(&mut monitor, &input, &leaves), expected, "{input:?}");
    }
}

/// The dump under way is repeated, and says nothing of the other one.
#[test]
fn vip_with_two_peers_may_lose_one_while_they_are_listed() {
    let vip = address(5, Kernel::default().vip(), AddressFlags::Permanent);
    let other = Address { peer: Ipv4Addr::new(10, 9, 0, 1).into(), ..vip };
    let mut monitor = Monitor::new(config());
    let reply =
        |sequence, body| Input::Netlink(Message { body, sequence, port: PORT, interrupted: false });
    for input in [
        event(Body::NewLink(link(5, "ha"))),
        event(Body::NewAddress(vip)),
        event(Body::NewAddress(other)),
        Input::QueueEmpty,
        reply(1, Body::NewLink(link(5, "ha"))),
        reply(1, Body::Done(None)),
        Input::QueueEmpty,
        event(Body::DelAddress(other)),
        reply(2, Body::NewAddress(vip)),
        reply(2, Body::Done(None)),
    ] {
        leads_to(&mut monitor, &input, &Action::ReopenLog);
    }
    assert_eq!(monitor.status().state, Some(State::Active));
}
