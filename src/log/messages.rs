//! The texts of the log. Operators and their tools search for four of these lines, which keep their exact
//! text.

use super::describe::{CounterList, MacText, Retries, TroubleList, times};
use super::{DisplayArg, error, info, warning};
use crate::errno::Errno;
use crate::metrics::figures;
use crate::monitor::{ActiveWord, Cause, HookState, LogEvent, State, Status};
use crate::options::Config;

impl Config {
    pub(crate) fn log_event(&self, event: &LogEvent) {
        let router = self.router_id.as_str();
        let (interface, vip) = (DisplayArg(self.interface), DisplayArg(self.vip));
        let word = |state: State| state.word(self.active_word);
        match *event {
            LogEvent::Initial(state) => {
                info!("Initial status of router {} is {}", router, word(state));
            }
            LogEvent::Changed(cause) => self.changed(cause),
            LogEvent::Wrote(state) => info!("Wrote router {} state {}", router, word(state)),
            LogEvent::NotWritten { errno, count } => not_written("state", errno, count),
            LogEvent::MetricsNotWritten { errno: Errno::EXISTS, count } => {
                warning!("metrics file is another instance's now; left alone{}", times(count));
            }
            LogEvent::MetricsNotWritten { errno, count } => not_written("metrics", errno, count),
            LogEvent::Notified(state) => {
                info!("Notified agent router {}, state {}", router, word(state));
            }
            LogEvent::AgentBack { failures } => {
                info!("agent notified after {} failed attempts", failures);
            }
            LogEvent::NotNotified { failure, count } => {
                let failure = DisplayArg(failure);
                warning!("agent not notified: {}; retrying{}", failure, times(count));
            }
            LogEvent::InterfaceFound { ifindex } => {
                info!("watched interface {} has index {}", interface, ifindex);
            }
            LogEvent::InterfaceMissing => {
                warning!("watched interface {} not found; waiting", interface);
            }
            LogEvent::AlternativeName { owner } => warning!(
                "{} is an alternative name of {}; waiting for an interface of that name",
                interface,
                DisplayArg(owner)
            ),
            LogEvent::Overrun { count } => {
                warning!("netlink events lost; resynchronising{}", times(count));
            }
            LogEvent::MalformedMessage { count } => {
                warning!("malformed netlink message; resynchronising{}", times(count));
            }
            LogEvent::DumpFailed { dump, result, count } => {
                let (dump, result) = (DisplayArg(dump), DisplayArg(result));
                warning!("dump of {} failed: {}; retrying{}", dump, result, times(count));
            }
            LogEvent::ForeignSender { port, count } => {
                warning!("ignored a netlink message from port {}{}", port, times(count));
            }
            LogEvent::Misplaced(place) => {
                let place = DisplayArg(place);
                warning!("{}, but what is watched is {} on {}", place, vip, interface);
            }
            LogEvent::SplitBrain { mac, ifindex } => {
                let (mac, ip) = (DisplayArg(MacText(Some(mac))), DisplayArg(self.vip.address()));
                warning!("split brain: {} claims {} on {} (index {})", mac, ip, interface, ifindex);
            }
            LogEvent::SplitBrainOver { mac, claims, lasted } => {
                let (mac, seconds) = (DisplayArg(MacText(Some(mac))), lasted.secs());
                info!("split brain over: by {} for {} s (claims: {})", mac, seconds, claims);
            }
            LogEvent::NotProbed { errno, count } => {
                let errno = DisplayArg(errno);
                warning!("probe not sent on {}: {}{}", interface, errno, times(count));
            }
            LogEvent::DadFailed { count } => warning!(
                "VIP {} failed duplicate address detection: another station has it{}",
                vip,
                times(count)
            ),
            LogEvent::NotAnnounced { interface, errno, count } => {
                let (interface, errno) = (DisplayArg(interface), DisplayArg(errno));
                warning!("announcement not sent on {}: {}{}", interface, errno, times(count));
            }
            LogEvent::TooManyAddresses { total } => {
                error!("announcement table full: {} addresses not announced", total);
            }
            LogEvent::TooManyLinks { ignored } => {
                error!("interface table full: addresses of {} interfaces not announced", ignored);
            }
            LogEvent::Synced(state) => {
                // Always "primary", whatever the active word.
                let state = state.word(ActiveWord::Primary);
                info!("Synced connection tracking state on {} for router {}", state, router);
            }
            LogEvent::CommandFailed { command, end } => {
                error!("conntrackd {}: {}", command.flag(), DisplayArg(end));
            }
            LogEvent::ConntrackdUnconfigured => info!("waiting for conntrackd's configuration"),
            LogEvent::HelperGone(helper) => error!("{} helper gone; exiting", helper.name()),
            LogEvent::HookSucceeded { state, failures } => {
                info!("hook succeeded for {}{}", state.word(), DisplayArg(Retries(failures)));
            }
            LogEvent::HookFailed { state, end, count } => {
                let end = DisplayArg(end);
                warning!("hook failed for {}: {}; retrying{}", state.word(), end, times(count));
            }
            LogEvent::NamespaceGone => error!("network namespace deleted; exiting"),
            LogEvent::LinesLost { count } => warning!("log lines lost: {}", count),
            LogEvent::Reloading => info!("SIGHUP: resynchronising and reporting everything again"),
        }
    }

    fn changed(&self, cause: Cause) {
        let (vip, interface) = (DisplayArg(self.vip), DisplayArg(self.interface));
        let reason = match cause {
            Cause::AddressAdded => return info!("{} is on {}: address added", vip, interface),
            Cause::AddressRemoved => "address removed",
            Cause::DuplicateAddress => "duplicate address detection failed",
            Cause::InterfaceDown => "interface down",
            Cause::CarrierLost => "carrier lost",
            Cause::InterfaceGone => "interface gone",
            Cause::NamespaceGone => "network namespace gone",
        };
        info!("{} is no longer on {}: {}", vip, interface, reason);
    }

    pub(crate) fn log_status(&self, status: &Status) {
        let word =
            |state: Option<State>| state.map_or("none", |state| state.word(self.active_word));
        info!(
            "status: state={} undelivered={} hook_pending={} ifindex={} claimant={} notification_failures={}{}",
            word(status.state),
            word(status.undelivered),
            status.hook_pending.map_or("none", HookState::word),
            status.ifindex.unwrap_or(0),
            DisplayArg(MacText(status.claimant)),
            status.counters.notification_failures.iter().sum::<u64>(),
            DisplayArg(TroubleList(&status.troubles))
        );
        for figures in figures(status, 0).chunks(6) {
            info!("status:{}", DisplayArg(CounterList(figures)));
        }
    }
}

fn not_written(file: &str, errno: Errno, count: u32) {
    warning!("{} file not written: {}; retrying{}", file, DisplayArg(errno), times(count));
}
