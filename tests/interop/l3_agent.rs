//! The part of Neutron's L3 agent that starts and stops monitors: `process_manager.py`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use lab::files::{content, read_line, wait_readable};

use crate::agent_server::PATIENCE;
use crate::world::Killed;

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

    /// Executes a command for every router. Returns a word for each.
    pub fn answers(&mut self, command: &str) -> Vec<String> {
        writeln!(self.stdin.as_ref().unwrap(), "{command}").unwrap();
        wait_readable(&self.stdout, PATIENCE);
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
