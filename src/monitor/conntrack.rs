//! Connection tracking: what conntrackd is asked to do on each transition, one command after another.

use super::{Duration, Instant, State};
use crate::wire::helper::SyncCommand;

/// How long to wait for the configuration, which Neutron's agent writes after it has started the monitor. Its
/// functional tests have none, and wait 15 s for the end of the commands.
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to look for it. The process that runs the commands looks.
const RETRY: Duration = Duration::from_secs(1);

/// The commands still to be run.
#[derive(Debug)]
pub(super) struct Conntrack {
    state: State,
    rest: &'static [SyncCommand],
    running: Option<SyncCommand>,
    /// No command is begun before this.
    not_before: Instant,
    /// Since when there is no configuration for the commands of this state.
    unconfigured_since: Option<Instant>,
}

impl Conntrack {
    pub(super) fn new() -> Self {
        Self {
            state: State::Backup,
            rest: &[],
            running: None,
            not_before: Instant::ZERO,
            unconfigured_since: None,
        }
    }

    /// Handles a new state, whose commands replace what is left of an older one's.
    pub(super) fn post(&mut self, state: State) {
        const ACTIVE: [SyncCommand; 4] =
            [SyncCommand::Commit, SyncCommand::Flush, SyncCommand::Resync, SyncCommand::Bulk];
        const BACKUP: [SyncCommand; 2] = [SyncCommand::Timers, SyncCommand::Control];
        self.state = state;
        self.rest = match state {
            State::Active => &ACTIVE,
            State::Backup => &BACKUP,
        };
        (self.not_before, self.unconfigured_since) = (Instant::ZERO, None);
    }

    /// Begins the next command, if it is time. Returns it.
    pub(super) fn begin(&mut self, now: Instant) -> Option<SyncCommand> {
        if self.running.is_some() || now < self.not_before {
            return None;
        }
        let (command, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.running = Some(*command);
        self.running
    }

    /// Records the end of a command. Returns the command, and the state if this was its last.
    pub(super) fn end(&mut self) -> Option<(SyncCommand, Option<State>)> {
        let command = self.running.take()?;
        Some((command, self.rest.is_empty().then_some(self.state)))
    }

    /// Handles the end of a command for which there was no configuration. Returns whether all of the state's
    /// commands are tried again; otherwise none is.
    pub(super) fn on_unconfigured(&mut self, now: Instant) -> bool {
        if self.running.is_none() {
            return false;
        }
        let since = *self.unconfigured_since.get_or_insert(now);
        if now >= since + CONFIGURATION_TIMEOUT {
            self.rest = &[];
            return false;
        }
        self.post(self.state);
        (self.running, self.not_before) = (None, now + RETRY);
        self.unconfigured_since = Some(since);
        true
    }

    /// When to begin a command that has to wait.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waits = self.running.is_none() && !self.rest.is_empty();
        waits.then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Active, Backup};

    const T0: Instant = Instant::ZERO;

    #[test]
    fn configuration_is_waited_for_and_not_for_ever() {
        let mut conntrack = Conntrack::new();
        conntrack.post(Active);
        conntrack.begin(T0);
        assert!(conntrack.on_unconfigured(T0));
        assert_eq!((conntrack.begin(T0), conntrack.deadline()), (None, Some(T0 + RETRY)));
        assert_eq!(conntrack.begin(T0 + RETRY), Some(SyncCommand::Commit), "the first again");
        let late = T0 + CONFIGURATION_TIMEOUT;
        assert!(!conntrack.on_unconfigured(late));
        assert_eq!(conntrack.end(), Some((SyncCommand::Commit, Some(Active))));
        assert_eq!((conntrack.begin(late), conntrack.deadline()), (None, None));
        conntrack.post(Backup);
        assert_eq!(conntrack.begin(late), Some(SyncCommand::Timers));
        assert!(conntrack.on_unconfigured(late), "for a newer state it is waited for anew");
    }
}
