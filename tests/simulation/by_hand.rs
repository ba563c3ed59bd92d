//! What the simulated world meets too seldom.

use std::iter::from_fn;
use std::net::Ipv4Addr;

use keepwatch::monitor::{
    Action, AnnounceTiming, Input, Instant, LogEvent, Monitor, MonitorConfig, Tables,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Body, Message};
use netlink_packet_route::address::AddressFlags;

use super::world::config;
use super::world::kernel::{address, link};

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
