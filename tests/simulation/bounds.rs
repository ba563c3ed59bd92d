//! What there is no room for is counted and said.

use keepwatch::monitor::{
    Action, AnnounceTiming, Control, Input, Instant, LogEvent, Monitor, MonitorConfig, Tables,
};
use keepwatch::wire::rtnl::{Body, Message};

use super::world::config;
use super::world::kernel::link;

#[test]
fn links_beyond_the_table_are_counted_and_said_once_a_minute() {
    let mut tables = Box::new(Tables::new());
    let mut monitor = Monitor::new(MonitorConfig {
        announce: Some((AnnounceTiming::default(), &mut tables)),
        ..config()
    });
    let mut said = Vec::new();
    for ifindex in 1..=1026 {
        let body = Body::NewLink(link(ifindex, "eth0"));
        let message = Message { body, port: 0, sequence: 0, interrupted: false };
        said.extend(monitor.on(&Input::Netlink(message), Instant::ZERO));
    }
    assert_eq!(said, [Action::Log(LogEvent::TooManyLinks { ignored: 1 })]);
    let actions = monitor.on(&Input::Control(Control::Status), Instant::ZERO);
    assert_eq!(actions[..], [Action::LogStatus]);
    let counters = monitor.status().counters;
    assert_eq!((counters.ignored_links, counters.unannounced), (2, 0));
}
