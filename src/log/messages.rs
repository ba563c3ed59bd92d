//! The lines of the log. Operators and their tools search for four of them, whose text is fixed: `Initial status`,
//! `Wrote router`, `Notified agent` and `Synced connection tracking state`.

use core::fmt::{self, Display};
use std::path::PathBuf;

use nix::unistd::Uid;

use super::describe::{at, counters, of_user, times};
use super::{debug, error, info, warning};
use crate::errno::Errno;
use crate::metrics::figures;
use crate::monitor::{
    ActiveWord, Cause, CommandResult, Ending, HookState, LimitedEvent, LogEvent, State, Status,
    Trouble,
};
use crate::options::Config;
use crate::trouble::{list_troubles, mac_text};

/// The names in log lines: options, and what would later take an allocation or a system call.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    pub(crate) config: &'a Config,
    pub(crate) state_file: PathBuf,
    pub(crate) user: Uid,
    /// The user who started the daemon, as whom conntrackd runs.
    pub(crate) starter: Uid,
}

impl LogEvent {
    /// Logs the event with these names.
    pub(crate) fn log(&self, names: &Names<'_>) {
        let Config { router_id, interface, vip, active_word, .. } = names.config;
        let router = router_id.as_str();
        let word = |state: State| state.word(*active_word);
        match *self {
            Self::Limited(event, count) => event.log(count, names),
            Self::Initial(state) => info!("Initial status of router {} is {}", router, word(state)),
            Self::Changed(cause) => names.log_change(cause),
            Self::Wrote(state) => info!("Wrote router {} state {}", router, word(state)),
            Self::Notified(state) => {
                info!("Notified agent router {}, state {}", router, word(state));
            }
            Self::AgentBack { failures } => {
                info!("agent notified after {} failed attempts", failures);
            }
            Self::AgentReplaced => {
                info!("agent's socket was replaced or changed since its reply; notifying it again");
            }
            Self::InterfaceFound { ifindex } => {
                info!("watched interface {} has index {}", interface, ifindex);
            }
            Self::InterfaceMissing => {
                warning!("watched interface {} not found; waiting", interface);
            }
            Self::Elsewhere { interface: place, cidr } => {
                info!("{} is on {}; --monitor_interface is {}", cidr, place, interface);
            }
            Self::SplitBrain { mac, ifindex } => {
                let (mac, ip) = (mac_text(Some(mac)), vip.address());
                warning!("split brain: {} claims {} on {} (index {})", mac, ip, interface, ifindex);
            }
            Self::SplitBrainOver { mac, claims, lasted, silent, ending } => {
                let mac = mac_text(Some(mac));
                // The time is right to a second.
                let [lasted, silent] =
                    [lasted, silent].map(|time| (time.total_millis() + 500) / 1000);
                let why = match ending {
                    Ending::NoLongerAnswers => "it no longer answers",
                    Ending::NeverAnswered => "it claims nothing, and could not be asked",
                    Ending::VipRemoved => "the VIP was removed here",
                };
                info!(
                    "split brain over: by {} for {} s (claims: {}), silent for {} s: {}",
                    mac, lasted, claims, silent, why
                );
            }
            Self::Synced { state, done } => {
                // Always "primary", whatever the active word.
                let state = state.word(ActiveWord::Primary);
                if done {
                    info!("Synced connection tracking state on {} for router {}", state, router);
                } else {
                    debug!("Synced connection tracking state on {} for router {}", state, router);
                }
            }
            Self::CommandFailed { command, end } => {
                let is_own = matches!(end, CommandResult::NotConfigured(_));
                let end = of_user(end, if is_own { names.user } else { names.starter });
                error!("conntrackd {}: {}", command.flag(), end);
            }
            Self::ConntrackdRestarted => {
                info!("conntrackd was restarted; synchronising again");
            }
            Self::HookSucceeded { state, failures: 0 } => {
                info!("hook succeeded for {}", state.word());
            }
            Self::HookSucceeded { state, failures } => {
                info!("hook succeeded for {} after {} failed runs", state.word(), failures);
            }
            Self::Reloading => info!("SIGHUP: resynchronising and reporting everything again"),
            Self::LinesLost { count } => warning!("log lines lost: {}", count),
            Self::Superseded => error!("pid file was removed or replaced; exiting"),
            Self::HelperGone(helper) => error!("{} helper gone; exiting", helper.name()),
            Self::SourceFailed(source, errno) => error!("{}: {}; exiting", source.name(), errno),
            Self::NamespaceGone => error!("network namespace deleted; exiting"),
        }
    }
}

impl LimitedEvent {
    #[expect(clippy::too_many_lines, reason = "a line for each event")]
    fn log(&self, count: u32, names: &Names<'_>) {
        let (vip, interface, times) = (names.config.vip, names.config.interface, times(count));
        match *self {
            Self::NotWritten { errno } => {
                let (errno, path) = (of_user(errno, names.user), at(Some(&names.state_file)));
                warning!("state file not written: {}; retrying{}{}", errno, path, times);
            }
            Self::NotPrepared { errno } => {
                let (errno, path) = (of_user(errno, names.user), at(Some(&names.state_file)));
                warning!("no spare state file: {}; retrying{}{}", errno, path, times);
            }
            Self::StateFileChanged => {
                let path = at(Some(&names.state_file));
                info!("state file was removed or changed; writing it again{}{}", path, times);
            }
            Self::StateFileShared => {
                let path = at(Some(&names.state_file));
                warning!("another process writes the state file{}{}", path, times);
            }
            Self::MetricsNotWritten { errno: Errno::EXISTS } => {
                warning!("metrics file not written: in use by another instance{}", times);
            }
            Self::MetricsNotWritten { errno } => {
                let errno = of_user(errno, names.user);
                let path = at(names.config.metrics_file.as_deref());
                warning!("metrics file not written: {}; retrying{}{}", errno, path, times);
            }
            Self::NotNotified { failure } => {
                let failure = of_user(failure, names.user);
                let path = at(names.config.agent_socket.as_deref());
                warning!("agent not notified: {}; retrying{}{}", failure, path, times);
            }
            Self::AlternativeName { owner } => warning!(
                "{} is an alternative name of {}; waiting for an interface of that name",
                interface,
                owner
            ),
            Self::InterfaceDown(cause) => {
                warning!("{}: {}", interface, Trouble::InterfaceDown(cause));
            }
            Self::Overrun => warning!("netlink events lost; resynchronising{}", times),
            Self::MalformedMessage { ifindex: Some(ifindex) } => {
                warning!("ignored a malformed message about interface {}{}", ifindex, times);
            }
            Self::MalformedMessage { ifindex: None } => {
                warning!("malformed netlink message; resynchronising{}", times);
            }
            Self::QuestionFailed { question, answer } => {
                warning!("dump of {} failed: {}; retrying{}", question, answer, times);
            }
            Self::ForeignSender { port } => {
                warning!("ignored a netlink message from port {}{}", port, times);
            }
            Self::Misplaced { interface: name, cidr } => {
                let place = Trouble::Misplaced(name, cidr);
                warning!("{}; expected {} on {}", place, vip, interface);
            }
            Self::DadFailed => warning!(
                "VIP {} failed duplicate address detection: another station has it{}",
                vip,
                times
            ),
            Self::ClaimUnconfirmed { mac } => {
                let (mac, ip) = (mac_text(Some(mac)), vip.address());
                info!("{} claimed {} once and has not answered{}", mac, ip, times);
            }
            Self::NamespaceUnseen { errno } => {
                let errno = of_user(errno, names.user);
                warning!("cannot watch the network namespace: {}; retrying{}", errno, times);
            }
            Self::KeepalivedGone => {
                warning!("keepalived does not run (--keepalived-pid-file){}", times);
            }
            Self::NotListening { errno } => {
                warning!("cannot listen for claims of the VIP: {}{}", errno, times);
            }
            Self::NotProbed { errno } => {
                warning!("probe not sent on {}: {}{}", interface, errno, times);
            }
            Self::NoSender => {
                warning!(
                    "no probe on {}: no MAC and address of its own to ask from{}",
                    interface,
                    times
                );
            }
            Self::NotAnnounced { interface, errno } => {
                warning!("announcement not sent on {}: {}{}", interface, errno, times);
            }
            Self::TooManyAddresses { total } => {
                error!("announcement table full: {} addresses not announced so far", total);
            }
            Self::TooManyLinks { ignored } => {
                error!(
                    "interface table full: addresses of {} interfaces not announced so far",
                    ignored
                );
            }
            Self::ConntrackdUnconfigured => info!("waiting for conntrackd's configuration"),
            Self::HookFailed { state, end: CommandResult::TimedOut, limit } => warning!(
                "hook failed for {}: timed out after {} (--hook-timeout) and killed; retrying{}",
                state.word(),
                limit,
                times
            ),
            Self::HookFailed { state, end, .. } => {
                let hook_user = names.config.run_hook_as().user.unwrap_or(names.user);
                let end = of_user(end, hook_user);
                warning!("hook failed for {}: {}; retrying{}", state.word(), end, times);
            }
        }
    }
}

impl Names<'_> {
    /// Returns the state and the troubles in one line.
    pub(crate) fn summary(&self, status: &Status) -> impl Display + use<> {
        let Config { vip, interface, active_word, .. } = *self.config;
        let word = status.state.map_or("unknown", |state| state.word(active_word));
        let verb = if status.state == Some(State::Active) { "is on" } else { "is not on" };
        let troubles = list_troubles(&status.troubles);
        fmt::from_fn(move |f| write!(f, "{word}: {vip} {verb} {interface}{troubles}"))
    }

    fn log_change(&self, cause: Cause) {
        let Config { vip, interface, .. } = self.config;
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
        let active_word = self.config.active_word;
        let word = |state: Option<State>| state.map_or("none", |state| state.word(active_word));
        let claimant = fmt::from_fn(|f| match status.claimant {
            None if !status.listens => f.write_str("-"),
            claimant => mac_text(claimant).fmt(f),
        });
        info!(
            "status: state={} undelivered={} hook_pending={} ifindex={} claimant={} notification_failures={}{}",
            word(status.state),
            word(status.undelivered),
            status.hook_pending.map_or("none", HookState::word),
            status.ifindex.unwrap_or(0),
            claimant,
            status.counters.notification_failures.iter().sum::<u64>(),
            list_troubles(&status.troubles)
        );
        for figures in figures(status, 0).chunks(6) {
            info!("status:{}", counters(figures, status));
        }
    }
}
