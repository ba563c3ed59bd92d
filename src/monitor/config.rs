//! The configuration of a monitor.

use super::{
    AnnounceTiming, Duration, HookTiming, Instant, NamespaceCheck, Renotify, State, Tables,
};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;

/// The state in a predecessor's state file, and since when, if that is known.
pub type Predecessor = (State, Option<Instant>);

/// What to watch, and which features are on.
#[derive(Debug)]
pub struct MonitorConfig<'a> {
    /// The interface that carries the VIP.
    pub interface: InterfaceName,
    /// The VIP.
    pub vip: Cidr,
    /// The number of netlink datagrams for which the event queue has room, at most.
    pub queue_len: usize,
    /// Differs between processes.
    pub seed: u32,
    /// Announce addresses with this timing and memory.
    pub announce: Option<(AnnounceTiming, &'a mut Tables)>,
    /// Announce addresses when they appear, and all when the router becomes active. Otherwise only after a split brain.
    pub announce_changes: bool,
    /// Announce again after a split brain, or after a claim without an answer.
    pub announce_again: bool,
    /// Listen for other stations that claim the VIP.
    pub detect_split_brain: bool,
    /// Probe for them this often.
    pub probe_interval: Option<Duration>,
    /// Notify an agent.
    pub notify_agent: bool,
    /// What a predecessor has left.
    pub predecessor: Option<Predecessor>,
    /// When to repeat a notification after an outage of the agent.
    pub renotify: Renotify,
    /// Run conntrackd's commands on each transition.
    pub sync_conntrack: bool,
    /// Run the hook on each change of its state.
    pub hook: Option<HookTiming>,
    /// Write metrics.
    pub write_metrics: bool,
    /// How a deletion of the network namespace is noticed.
    pub check_namespace: NamespaceCheck,
    /// Check the files after each report, and every ten minutes.
    pub check_files: bool,
    /// Check that keepalived runs.
    pub check_keepalived: bool,
    /// Notify a service manager.
    pub notify_manager: bool,
    /// Send the service manager a keep-alive this often.
    pub watchdog: Option<Duration>,
}

impl MonitorConfig<'_> {
    /// Returns a configuration in which every feature is off.
    #[must_use]
    pub fn new(interface: InterfaceName, vip: Cidr) -> Self {
        Self {
            interface,
            vip,
            queue_len: 1024,
            seed: 1,
            announce: None,
            announce_changes: true,
            announce_again: true,
            detect_split_brain: false,
            probe_interval: None,
            notify_agent: false,
            predecessor: None,
            renotify: Renotify::new(),
            sync_conntrack: false,
            hook: None,
            write_metrics: false,
            check_namespace: NamespaceCheck::Never,
            check_files: false,
            check_keepalived: false,
            notify_manager: false,
            watchdog: None,
        }
    }
}
