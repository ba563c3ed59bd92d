//! keepalived, as its pid file shows it.

use keepwatch::monitor::{Duration, Instant, Keepalived};

/// How long it may be away without a trouble.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct PidFile {
    wanted: bool,
    pub shows: Keepalived,
    /// The last check and its result.
    checked: Option<(Instant, Keepalived)>,
    /// When the checks began to find it gone.
    gone_since: Option<Instant>,
}

impl PidFile {
    pub fn new(wanted: bool) -> Self {
        Self { wanted, shows: Keepalived::Runs, checked: None, gone_since: None }
    }

    /// Asserts that a check is due.
    pub fn check(&mut self, now: Instant) -> Keepalived {
        assert!(self.due().is_some_and(|due| now >= due), "p21_checks_are_few");
        self.checked = Some((now, self.shows));
        match self.shows {
            Keepalived::Gone => self.gone_since = self.gone_since.or(Some(now)),
            _ => self.gone_since = None,
        }
        self.shows
    }

    /// Returns when the next check is due.
    pub fn due(&self) -> Option<Instant> {
        let period = |found| if found == Keepalived::Gone { 2 } else { 10 };
        let due = self.checked.map(|(at, found)| at + Duration::from_secs(period(found)));
        self.wanted.then_some(due.unwrap_or(Instant::ZERO))
    }

    pub fn is_trouble(&self) -> bool {
        let is_long = |(checked, _)| self.gone_since.is_some_and(|since| checked >= since + GRACE);
        self.checked.is_some_and(is_long)
    }
}
