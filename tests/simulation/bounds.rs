//! What there is no room for is counted and said.

use keepwatch::monitor::{
    Action, AnnounceTiming, Control, Input, Instant, LogEvent, Monitor, MonitorConfig,
    NamespaceCheck, Renotify, Tables,
};
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::{Body, Link, Message};
use netlink_packet_route::link::LinkFlags;

#[test]
fn links_beyond_the_table_are_counted_and_said_once_a_minute() {
    let mut tables = Box::new(Tables::new());
    let mut monitor = Monitor::new(MonitorConfig {
        interface: InterfaceName::new(b"ha0").expect("a legal name"),
        vip: "169.254.0.5/24".parse().expect("an address"),
        port: 0,
        seed: 1,
        announce: Some((AnnounceTiming::default(), &mut tables)),
        detect_split_brain: false,
        renotify: Renotify::new(),
        sync_conntrack: false,
        check_namespace: NamespaceCheck::Never,
    });
    let mut said = Vec::new();
    for ifindex in 1..=1026 {
        let link = Link {
            ifindex,
            name: InterfaceName::new(b"eth0").ok(),
            flags: LinkFlags::empty(),
            ethernet: true,
            mac: Some([2, 0, 0, 0, 0, 1]),
            carrier_changes: Some(0),
            ipv6_forwarding: None,
        };
        let message =
            Message { body: Body::NewLink(link), port: 0, sequence: 0, interrupted: false };
        said.extend(monitor.on(&Input::Netlink(message), Instant::ZERO));
    }
    assert_eq!(said, [Action::Log(LogEvent::TooManyLinks { ignored: 1 })]);
    let actions = monitor.on(&Input::Control(Control::Status), Instant::ZERO);
    assert_eq!(actions[..], [Action::LogStatus]);
    let counters = monitor.status().counters;
    assert_eq!((counters.ignored_links, counters.unannounced), (2, 0));
}
