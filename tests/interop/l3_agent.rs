//! The part of Neutron's L3 agent that starts and stops monitors: `process_manager.py`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lab::files::{content, read_line, wait_readable};

use crate::host::processor_time;
use crate::world::Killed;

/// How long nothing may work before a wait fails.
const STANDSTILL: Duration = Duration::from_mins(1);

/// The name by which the agent finds its monitor.
pub const NAME: &str = "neutron-keepalived-state-change";

/// The router's port, as in `process_manager.py`.
pub const INTERFACE: &str = "ha-aaaaaaaa-aa";

/// Returns the path of a file for Neutron.
pub fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cross/neutron").join(name)
}

pub fn cmdline(pid: u32) -> String {
    content(Path::new(&format!("/proc/{pid}/cmdline"))).replace('\0', " ")
}

pub struct L3Agent {
    child: Killed,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    errors: PathBuf,
}

impl L3Agent {
    /// Starts it, with its errors in a file.
    pub fn start(mut command: Command, errors: PathBuf) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().expect("the agent's process manager");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child: Killed(child), stdin, stdout, errors }
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Waits for an answer, for as long as the agent or a process that it has started works. Neutron's import and a
    /// monitor's start take seconds, and many minutes on a busy machine.
    fn await_answer(&self, command: &str) {
        let mut before = None;
        while !wait_readable(&self.stdout, STANDSTILL) {
            let used = Some(processor_time(self.pid()));
            assert_ne!(used, before, "{command}: standstill\n{}", content(&self.errors));
            before = used;
        }
    }

    /// Executes a command for every router. Returns a word for each.
    pub fn answers(&mut self, command: &str) -> Vec<String> {
        writeln!(self.stdin.as_ref().unwrap(), "{command}").unwrap();
        self.await_answer(command);
        let answer = read_line(&mut self.stdout);
        let known =
            |word: &&str| ["inactive", "refused"].contains(word) || word.parse::<u32>().is_ok();
        let words: Vec<_> = answer.split_whitespace().collect();
        let understood = !words.is_empty() && words.iter().all(known);
        assert!(understood, "{command}: {answer:?}\n{}", content(&self.errors));
        words.into_iter().map(String::from).collect()
    }

    /// Executes a command for its only router. Returns the pid of the monitor if that is active.
    pub fn ask(&mut self, command: &str) -> Option<u32> {
        let answers = self.answers(command);
        assert_eq!(answers.len(), 1);
        assert_ne!(answers[0], "refused", "{command}:\n{}", content(&self.errors));
        answers[0].parse().ok()
    }

    /// Closes its input and waits for its end.
    pub fn quit(mut self) {
        drop(self.stdin.take());
        let status = self.child.0.wait().unwrap();
        assert!(status.success(), "{}", content(&self.errors));
    }
}
