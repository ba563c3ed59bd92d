//! The log of a keepwatch. A test waits for each line only once, and fails by unexpected warnings and errors.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::mem::take;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Mutex;
use std::thread::{self, panicking};

use nix::sys::signal::Signal;

use crate::daemon::{Running, Setup};
use crate::files::look;

/// The last number of a status.
const END_OF_STATUS: &str = "metrics_write_failures=";

thread_local! {
    /// Unexpected warnings and errors of this thread's test.
    static UNEXPECTED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// The lines of a log that a test knows.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Lines that a test has waited for, each with its position.
    seen: Mutex<HashSet<(usize, String)>>,
    /// Texts of warnings and errors that may come.
    expected: Mutex<Vec<String>>,
}

impl Lines {
    /// Takes the first line with this text that has not been taken yet. Returns whether the log has one.
    fn take(&self, log: &str, text: &str) -> bool {
        let mut seen = self.seen.lock().expect("the lines seen");
        let mut start = 0;
        log.split_inclusive('\n').any(|line| {
            let here = start;
            start += line.len();
            line.contains(text) && seen.insert((here, line.into()))
        })
    }
}

impl Setup {
    /// Returns the log's content.
    pub fn log(&self) -> String {
        self.log_in(&self.log_file())
    }

    /// Returns the content of another log file.
    pub fn log_in(&self, path: &Path) -> String {
        self.text(std::fs::read(path).unwrap_or_default())
    }

    /// Allows warnings and errors with these texts. Lines that a test waits for are always allowed.
    pub fn expect(&self, texts: &[&str]) {
        let mut expected = self.lines.expected.lock().expect("the lines expected");
        expected.extend(texts.iter().map(|text| text.trim_end().to_string()));
    }

    /// Collects the unexpected warnings and errors of the log.
    pub(crate) fn collect_unexpected(&self) {
        // A failing test has its own message.
        if panicking() {
            return;
        }
        let expected = self.lines.expected.lock().expect("the lines expected");
        // `cross/test` and `cross/defmt` name warnings that the emulator causes, one on each line.
        let emulated = std::env::var("KEEPWATCH_EXPECT").unwrap_or_default();
        // A test may end a daemon before the agent has its state.
        let always = emulated.lines().chain(["before the exit"]);
        let expected: Vec<_> = expected.iter().map(String::as_str).chain(always).collect();
        let is_unexpected = |line: &&str| {
            [" WARNING keepwatch [-] ", " ERROR keepwatch [-] "].iter().any(|l| line.contains(l))
                && !expected.iter().any(|text| line.contains(text))
        };
        let log = self.log();
        let lines = log.split_inclusive('\n').filter(is_unexpected).map(String::from);
        UNEXPECTED.with_borrow_mut(|all| all.extend(lines));
    }
}

/// Runs a function in a thread of its own. The unexpected lines of its daemons are the caller's.
pub fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let run = || (f(), UNEXPECTED.with_borrow_mut(take));
    let ended = thread::scope(|scope| scope.spawn(run).join());
    let (result, lines) = ended.unwrap_or_else(|panic| resume_unwind(panic));
    UNEXPECTED.with_borrow_mut(|all| all.extend(lines));
    result
}

/// Takes the unexpected lines of this thread's daemons.
pub(crate) fn take_unexpected() -> String {
    UNEXPECTED.with_borrow_mut(take).into_iter().collect()
}

impl Running<'_> {
    /// Waits for `times` lines with this text, without those of earlier waits.
    pub fn wait_log(&self, text: &str, times: usize) {
        self.setup.expect(&[text]);
        for _ in 0..times {
            let is_there = || self.setup.lines.take(&self.setup.log(), text);
            self.wait(&format!("{text:?} in the log"), is_there);
        }
    }

    /// Requests a status with SIGUSR1. Returns its lines without their prefixes.
    pub fn status(&self) -> String {
        while self.setup.lines.take(&self.setup.log(), END_OF_STATUS) {}
        self.signal(Signal::SIGUSR1);
        self.wait_log(END_OF_STATUS, 1);
        let log = self.setup.log();
        let block = log.rfind("status: state=").expect("the beginning of the status");
        log[block..]
            .lines()
            .filter_map(|line| line.split_once("status:"))
            .fold(String::new(), |text, (_, line)| text + line.trim_start() + "\n")
    }

    /// Returns a number of the status by its name.
    pub fn counter(&self, name: &str) -> u64 {
        counter(&self.status(), name)
    }

    /// Waits until a number of the status is at least `least`.
    pub fn wait_counter(&self, name: &str, least: u64) {
        look(self.and_log(format!("{least} {name}")), || self.counter(name) >= least);
    }
}

/// Returns a number of a status by its name.
pub fn counter(status: &str, name: &str) -> u64 {
    let (_, rest) = status.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{status}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}
