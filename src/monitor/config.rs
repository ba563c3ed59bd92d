//! What to watch, and which features are on.

use super::{AnnounceTiming, Duration, NamespaceCheck, Renotify, Tables};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;

/// What to watch.
#[derive(Debug)]
pub struct MonitorConfig<'a> {
    /// The interface that carries the VIP.
    pub interface: InterfaceName,
    /// The VIP.
    pub vip: Cidr,
    /// The port of the netlink socket, by which replies to its requests are known.
    pub port: u32,
    /// Differs between processes.
    pub seed: u32,
    /// Announce addresses like this.
    pub announce: Option<(AnnounceTiming, &'a mut Tables)>,
    /// Listen for other stations that claim the VIP.
    pub detect_split_brain: bool,
    /// Tell an agent.
    pub notify_agent: bool,
    /// When to tell an agent that was away again.
    pub renotify: Renotify,
    /// Run conntrackd's commands on each transition.
    pub sync_conntrack: bool,
    /// Run the hook on each change of what it is told.
    pub hook: bool,
    /// Write metrics.
    pub write_metrics: bool,
    /// What tells that the network namespace may have been deleted.
    pub check_namespace: NamespaceCheck,
    /// Tell a service manager how the daemon fares.
    pub tell_manager: bool,
    /// Give it a sign of life this often.
    pub watchdog: Option<Duration>,
}

impl MonitorConfig<'_> {
    /// Watches a VIP and does nothing else: every feature is off. `port` is the netlink socket's.
    #[must_use]
    pub fn new(interface: InterfaceName, vip: Cidr, port: u32) -> Self {
        Self {
            interface,
            vip,
            port,
            seed: 1,
            announce: None,
            detect_split_brain: false,
            notify_agent: false,
            renotify: Renotify::new(),
            sync_conntrack: false,
            hook: false,
            write_metrics: false,
            check_namespace: NamespaceCheck::Never,
            tell_manager: false,
            watchdog: None,
        }
    }
}
