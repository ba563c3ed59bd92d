//! What there is no room for is counted and said.

use std::net::Ipv4Addr;

use keepwatch::monitor::{
    Action, AnnounceTiming, Control, Input, Instant, LogEvent, Monitor, MonitorConfig, Tables,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Body, Message};
use netlink_packet_route::address::AddressFlags;

use super::world::config;
use super::world::kernel::{address, link};

/// A monitor that announces.
fn announcing(tables: &mut Tables) -> Monitor<'_> {
    Monitor::new(MonitorConfig { announce: Some((AnnounceTiming::default(), tables)), ..config() })
}

/// What a monitor does about these events.
fn actions(monitor: &mut Monitor, events: impl Iterator<Item = Body>) -> Vec<Action> {
    let messages = events.map(|body| Message { body, port: 0, sequence: 0, interrupted: false });
    messages.flat_map(|message| monitor.on(&Input::Netlink(message), Instant::ZERO)).collect()
}

#[test]
fn addresses_beyond_the_table_are_counted_and_said_once_a_minute() {
    let mut tables = Box::new(Tables::new());
    let mut monitor = announcing(&mut tables);
    let cidrs = (0..4098).map(|n| Cidr::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 32));
    let address = |cidr| Body::NewAddress(address(3, cidr, AddressFlags::Permanent));
    let said = actions(&mut monitor, cidrs.map(|cidr| address(cidr.expect("an address"))));
    assert_eq!(said, [Action::Log(LogEvent::TooManyAddresses { total: 1 })]);
    assert_eq!(monitor.status().counters.unannounced, 2);
}

#[test]
fn links_beyond_the_table_are_counted_and_said_once_a_minute() {
    let mut tables = Box::new(Tables::new());
    let mut monitor = announcing(&mut tables);
    let said =
        actions(&mut monitor, (1..=1026).map(|ifindex| Body::NewLink(link(ifindex, "eth0"))));
    assert_eq!(said, [Action::Log(LogEvent::TooManyLinks { ignored: 1 })]);
    let actions = monitor.on(&Input::Control(Control::Status), Instant::ZERO);
    assert_eq!(actions[..], [Action::LogStatus]);
    let counters = monitor.status().counters;
    assert_eq!((counters.ignored_links, counters.unannounced), (2, 0));
}
