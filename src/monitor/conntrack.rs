//! Connection tracking: what conntrackd is asked to do on each transition, one command after another.

use super::{Duration, Instant, State};
use crate::wire::helper::SyncCommand;

/// For so long the configuration is waited for: Neutron's agent writes it after it has started the monitor.
/// Its functional tests have none, and wait for the end of the commands for 15 s.
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

    /// Takes a new state, whose commands replace what is left of an older one's.
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

    /// The command to be run now.
    pub(super) fn begin(&mut self, now: Instant) -> Option<SyncCommand> {
        if self.running.is_some() || now < self.not_before {
            return None;
        }
        let (command, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.running = Some(*command);
        self.running
    }

    /// Takes the end of the command that ran; tells which one that was, and the state with which all
    /// that was to be done for it is done now.
    pub(super) fn end(&mut self) -> Option<(SyncCommand, Option<State>)> {
        let command = self.running.take()?;
        Some((command, self.rest.is_empty().then_some(self.state)))
    }

    /// Takes the end of a command for which there was no configuration. Tells whether all of them are to be
    /// tried again; else none of them is.
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

    /// Runs to the end and returns the flags, and what was done in the end.
    fn run(conntrack: &mut Conntrack) -> (String, Option<State>) {
        let (mut flags, mut done) = (String::new(), None);
        while let Some(command) = conntrack.begin(T0) {
            assert_eq!(conntrack.begin(T0), None, "one at a time");
            flags += command.flag().to_str().unwrap();
            let (ended, synced) = conntrack.end().unwrap();
            assert_eq!(ended, command);
            done = synced;
        }
        (flags, done)
    }

    #[test]
    fn each_state_has_its_commands() {
        let mut conntrack = Conntrack::new();
        assert_eq!(run(&mut conntrack), (String::new(), None));
        conntrack.post(Active);
        assert_eq!(run(&mut conntrack), ("-c-f-R-B".into(), Some(Active)));
        conntrack.post(Backup);
        assert_eq!(run(&mut conntrack), ("-t-n".into(), Some(Backup)));
    }

    #[test]
    fn newer_state_replaces_what_is_left() {
        let mut conntrack = Conntrack::new();
        conntrack.post(Active);
        assert_eq!(conntrack.begin(T0), Some(SyncCommand::Commit));
        conntrack.post(Backup);
        assert_eq!(conntrack.begin(T0), None, "what runs is not interrupted");
        assert_eq!(conntrack.end(), Some((SyncCommand::Commit, None)));
        assert_eq!(run(&mut conntrack), ("-t-n".into(), Some(Backup)));
    }

    #[test]
    fn last_command_of_an_older_state_does_not_finish_the_newer() {
        let mut conntrack = Conntrack::new();
        conntrack.post(Backup);
        conntrack.begin(T0);
        conntrack.end();
        assert_eq!(conntrack.begin(T0), Some(SyncCommand::Control));
        conntrack.post(Active);
        assert_eq!(conntrack.end(), Some((SyncCommand::Control, None)));
    }

    #[test]
    fn end_of_nothing_is_nothing() {
        assert_eq!(Conntrack::new().end(), None);
    }

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
