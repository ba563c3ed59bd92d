//! What one thread hears, and others wait for.

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::ending::Deadline;

/// Text that is put together only if it is needed, and then is what it would be at that time.
pub struct Late<F>(pub F);

impl<F: Fn() -> String> Display for Late<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0())
    }
}

/// What has been heard so far, the oldest first.
#[derive(Debug)]
pub struct Heard<T> {
    all: Mutex<Vec<T>>,
    more: Condvar,
}

impl<T: Debug> Heard<T> {
    pub fn push(&self, heard: T) {
        self.lock().push(heard);
        self.more.notify_all();
    }

    pub fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.all.lock().expect("what was heard")
    }

    /// Waits until what has been heard satisfies a condition.
    pub fn wait(
        &self,
        patience: Duration,
        what: impl Display,
        condition: impl Fn(&[T]) -> bool,
    ) -> MutexGuard<'_, Vec<T>> {
        let mut deadline = Deadline::after(patience);
        let mut all = self.lock();
        while !condition(&all) {
            let nap = deadline.nap(&Late(|| format!("{what}; there was {all:#?}")));
            all = self.more.wait_timeout(all, nap).expect("what was heard").0;
        }
        all
    }
}

impl<T> Default for Heard<T> {
    fn default() -> Self {
        Self { all: Mutex::default(), more: Condvar::new() }
    }
}
