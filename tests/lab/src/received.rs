//! Values that one thread receives and others wait for.

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::ending::Deadline;

/// Text that is formatted only when it is displayed.
pub struct Late<F>(pub F);

impl<F: Fn() -> String> Display for Late<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0())
    }
}

/// The values received so far, oldest first.
#[derive(Debug)]
pub struct Received<T> {
    all: Mutex<Vec<T>>,
    more: Condvar,
}

impl<T: Debug> Received<T> {
    pub fn push(&self, received: T) {
        self.lock().push(received);
        self.more.notify_all();
    }

    pub fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.all.lock().expect("the received values")
    }

    /// Waits until the values so far satisfy a condition.
    pub fn wait(
        &self,
        patience: Duration,
        what: impl Display,
        condition: impl Fn(&[T]) -> bool,
    ) -> MutexGuard<'_, Vec<T>> {
        let mut deadline = Deadline::after(patience);
        let mut all = self.lock();
        while !condition(&all) {
            let nap = deadline.nap(&Late(|| {
                let last = all.iter().skip(all.len().saturating_sub(20));
                let each: String = last.map(|one| format!("\n{one:?}")).collect();
                format!("{what}; received: {}, the last:{each}", all.len())
            }));
            all = self.more.wait_timeout(all, nap).expect("the received values").0;
        }
        all
    }
}

impl<T> Default for Received<T> {
    fn default() -> Self {
        Self { all: Mutex::default(), more: Condvar::new() }
    }
}
