//! When to check that the agent's socket and the files of this daemon are still its own.

use super::{Action, Duration, Instant};

/// Seconds from a report to the first check, and from each check to the next.
const PAUSES: [u64; 4] = [10, 20, 90, 480];
/// The same from then on.
const LAST_PAUSE: u64 = 600;

/// What [`Action::CheckFiles`] found at the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFiles {
    /// The pid file is another daemon's, or has been removed.
    pub pid_file_lost: bool,
    /// The socket at the agent's path is not the one that answered the last request with 200.
    pub agent_replaced: bool,
    /// The log file has been renamed or removed.
    pub log_renamed: bool,
    /// Another process has removed the metrics file, or replaced it by one that no instance has.
    pub metrics_lost: bool,
    /// The state file.
    pub state_file: FoundStateFile,
}

/// The state file at its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundStateFile {
    /// This daemon's last file, with its last word.
    Intact,
    /// The same, but another process has removed or replaced the spare.
    WithoutSpare,
    /// This daemon's last file with another content, mode or owner, or no file.
    Changed,
    /// Another process's file.
    Foreign,
}

#[derive(Debug)]
pub(super) struct FileCheck {
    is_on: bool,
    due: Option<Instant>,
    /// The number of checks since the last report.
    checks: usize,
    /// The last check, or the first report.
    last: Option<Instant>,
}

impl FileCheck {
    /// Returns a schedule that begins with the first report, if it `is_on`.
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, due: None, checks: 0, last: None }
    }

    /// Begins anew, after a report or its delivery.
    pub(super) fn restart(&mut self, now: Instant) {
        self.checks = 0;
        self.last.get_or_insert(now);
        self.schedule(now);
    }

    fn schedule(&mut self, now: Instant) {
        let seconds = PAUSES.get(self.checks).copied().unwrap_or(LAST_PAUSE);
        self.due = self.is_on.then_some(now + Duration::from_secs(seconds));
    }

    /// Returns the check that is due, if any. A late one delays the rest.
    pub(super) fn next_action(&mut self, now: Instant) -> Option<Action> {
        self.deadline().filter(|deadline| now >= *deadline)?;
        self.last = Some(now);
        self.checks += usize::from(self.due.is_some_and(|due| now >= due));
        self.schedule(now);
        Some(Action::CheckFiles)
    }

    /// Reports of a VIP that comes and goes all the time do not put off a check for good.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let latest = self.last? + Duration::from_secs(LAST_PAUSE + PAUSES[0]);
        self.due.map(|due| due.min(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_go_on_for_good_and_a_late_one_delays_the_rest() {
        let mut check = FileCheck::new(true);
        check.restart(Instant::ZERO);
        let mut seconds = std::vec![];
        for _ in 0..6 {
            let due = check.deadline().unwrap();
            assert!(check.next_action(due - Duration::from_millis(1)).is_none());
            assert!(check.next_action(due).is_some());
            seconds.push(due.secs());
        }
        assert_eq!(seconds, [10, 30, 120, 600, 1200, 1800]);
        let late = Instant::from_secs(9000);
        assert!(check.next_action(late).is_some() && check.next_action(late).is_none());
        assert_eq!(check.deadline(), Some(Instant::from_secs(9600)));
    }

    #[test]
    fn reports_do_not_put_off_the_checks_for_good() {
        let mut check = FileCheck::new(true);
        let mut checked = std::vec![];
        for second in (0..2000).step_by(7) {
            let now = Instant::from_secs(second);
            checked.extend(check.next_action(now).map(|_| second));
            check.restart(now);
        }
        assert_eq!(checked, [616, 1232, 1848]);
    }

    #[test]
    fn check_that_was_put_off_takes_no_place_behind_a_report() {
        let mut check = FileCheck::new(true);
        for (reports, checks) in [
            (&[0][..], &[10, 30, 120, 600][..]),
            (&[1195], &[1205, 1225, 1315, 1795]),
            (&[2390, 2399], &[2405, 2415, 2435]),
        ] {
            for second in reports {
                check.restart(Instant::from_secs(*second));
            }
            for second in checks {
                let now = Instant::from_secs(*second);
                assert_eq!(check.deadline(), Some(now));
                assert!(check.next_action(now).is_some());
            }
        }
    }
}
