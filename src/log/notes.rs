//! The words of the log. Operators and their tools search for some of these lines, so those keep
//! their exact text.

use super::words::{Words, times};
use super::{Text, error, info, warning};
use crate::core::{ActiveWord, Note, State, Status};
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;

/// What the lines call things.
#[derive(Debug)]
pub struct Labels {
    /// The router.
    pub router: RouterId,
    /// The active state.
    pub active: ActiveWord,
    /// The watched interface.
    pub interface: InterfaceName,
    /// The VIP.
    pub vip: Cidr,
}

impl Labels {
    /// Writes the line for a note.
    pub fn note(&self, note: &Note) {
        let router = &self.router;
        let word = |state: State| state.word(self.active);
        match *note {
            Note::Initial(state) => {
                info!("Initial status of router {} is {}", router, word(state));
            }
            Note::Wrote(state) => info!("Wrote router {} state {}", router, word(state)),
            Note::NotWritten { errno, count } => {
                error!("state file not written: {}; retrying{}", Text(errno), times(count));
            }
            Note::Notified(state) => {
                info!("Notified agent router {}, state {}", router, word(state));
            }
            Note::AgentBack { failures } => {
                info!("agent took it after {} failed attempts", failures);
            }
            Note::NotNotified { failure, count } => {
                warning!("agent not notified: {}; retrying{}", Words(failure), times(count));
            }
            Note::InterfaceFound { ifindex } => info!("watched interface has index {}", ifindex),
            Note::InterfaceMissing => warning!("watched interface is not there; waiting for it"),
            Note::AlternativeName { owner } => {
                let name = self.interface;
                warning!(
                    "{} is an alternative name of {}; waiting for an interface of its own",
                    name,
                    owner
                );
            }
            Note::Overrun { count } => {
                warning!("netlink events were lost; reading everything anew{}", times(count));
            }
            Note::Unreadable { count } => {
                error!("unreadable netlink message; reading everything anew{}", times(count));
            }
            Note::DumpFailed { stage, end, count } => {
                error!("dump of {} failed: {}; retrying{}", Words(stage), Words(end), times(count));
            }
            Note::ForeignSender { port, count } => {
                warning!("ignored a netlink message from port {}{}", port, times(count));
            }
            Note::SplitBrain { mac, ifindex, count } => {
                warning!(
                    "split brain: {} claims {} on {} (index {}){}",
                    Words(mac),
                    Text(self.vip.address()),
                    Text(&self.interface),
                    ifindex,
                    times(count)
                );
            }
            Note::MoreClaims { ifindex, count } => {
                warning!(
                    "split brain: {} more claims of {} on {} (index {})",
                    count,
                    Text(self.vip.address()),
                    Text(&self.interface),
                    ifindex
                );
            }
            Note::DadFailed { count } => {
                warning!(
                    "VIP {} failed duplicate address detection: another station has it{}",
                    Text(self.vip),
                    times(count)
                );
            }
            Note::NotAnnounced { interface, sent, count } => {
                let (interface, why) = (Text(interface), Words(sent));
                warning!("announcement not sent on {}: {}{}", interface, why, times(count));
            }
            Note::TooManyAddresses { total } => {
                error!("too many addresses at once: {} are not announced", total);
            }
            Note::TooManyLinks { ignored } => {
                error!("too many interfaces: addresses on {} of them are not announced", ignored);
            }
            Note::Synced(state) => {
                // Always "primary", whatever the active word.
                let state = state.word(ActiveWord::Primary);
                info!("Synced connection tracking state on {} for router {}", state, router);
            }
            Note::CommandFailed { command, end } => {
                error!("conntrackd {}: {}", Words(command), Words(end));
            }
            Note::ConntrackdRestarted { count } => {
                error!("process for conntrackd was killed; begun anew{}", times(count));
            }
            Note::ConntrackdUnconfigured => info!("waiting for conntrackd's configuration"),
            Note::ConntrackdGone => {
                error!("conntrackd can be run no more; not syncing");
            }
            Note::NamespaceGone => error!("the network namespace has been deleted; leaving"),
            Note::Reloading => info!("SIGHUP: reading, writing and reporting everything anew"),
        }
    }

    /// Writes the block of lines for a status.
    pub fn status(&self, status: &Status) {
        let word = |state: Option<State>| state.map_or("none", |state| state.word(self.active));
        info!(
            "status: state={} undelivered={} ifindex={}",
            word(status.state),
            word(status.undelivered),
            status.ifindex.unwrap_or(0)
        );
        info!(
            "status: events={} overruns={} unreadable={} foreign={} dumps={} dump_failures={}",
            status.events,
            status.overruns,
            status.unreadable,
            status.foreign,
            status.dumps,
            status.dump_failures
        );
        info!(
            "status: transitions={} writes={} write_failures={} notifications={} notification_failures={}",
            status.transitions,
            status.writes,
            status.write_failures,
            status.notifications,
            status.notification_failures
        );
        info!(
            "status: announcements={} announcement_failures={} unannounced={} ignored_links={} claims={} claimant={}",
            status.announcements,
            status.announcement_failures,
            status.unannounced,
            status.ignored_links,
            status.claims,
            Words(status.claimant.unwrap_or_default())
        );
        info!("status: commands={} command_failures={}", status.commands, status.command_failures);
    }
}
