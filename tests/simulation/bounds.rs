//! What there is no room for is counted and said.

use keepwatch::monitor::{
    Action, AnnounceTiming, Control, Input, Instant, LogEvent, Monitor, MonitorConfig, Tables,
};
use keepwatch::wire::rtnl::Body;

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
        said.extend(monitor.on(&Input::Event(Body::NewLink(link(ifindex, "eth0"))), Instant::ZERO));
    }
    assert_eq!(said, [Action::Log(LogEvent::TooManyLinks { ignored: 1 })]);
    let actions = monitor.on(&Input::Control(Control::Status), Instant::ZERO);
    assert_eq!(actions[..], [Action::LogStatus]);
    assert_eq!((monitor.status().ignored_links, monitor.status().unannounced), (2, 0));
}
