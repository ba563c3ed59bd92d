//! What the simulated world does not depend on, or meets too seldom.

use std::net::Ipv4Addr;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, AnnounceTiming, Dump, Duration, Failure, Input, Instant, LogEvent, Monitor,
    MonitorConfig, Outcome, State, Tables,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Body, Message};
use netlink_packet_route::address::AddressFlags;

use super::world::config;
use super::world::kernel::{address, link};

const T0: Instant = Instant::ZERO;

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

/// What there is no room for is counted, and said once a minute.
#[test]
fn tables_that_are_full_are_no_secret() {
    let mut tables = Box::new(Tables::new());
    let announce = Some((AnnounceTiming::default(), &mut *tables));
    let mut monitor = Monitor::new(MonitorConfig { announce, ..config() });
    let mut said = |bodies: &mut dyn Iterator<Item = Body>| -> Vec<Action> {
        bodies.flat_map(|body| feed(&mut monitor, &event(body), T0, WORKS)).collect()
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
