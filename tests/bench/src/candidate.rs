//! What is compared, and how each is started.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::observer::state_path;
use crate::router::{Router, VIP, WATCHED};

#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    pub kind: Kind,
    pub program: PathBuf,
    /// A program that runs it, with options; mostly none.
    pub under: Vec<String>,
    /// What is on the disk for its sake.
    pub installed: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With `same_job`, it does what keepwatch does besides the least.
    Floor {
        same_job: bool,
    },
    Keepwatch {
        announces: bool,
    },
    Shell,
    Python,
}

impl Candidate {
    /// For one router. It is to say `primary` and to send its reports to the observer.
    pub fn command(&self, router: &Router) -> Command {
        let mut command = match self.under.split_first() {
            None => Command::new(&self.program),
            Some((program, options)) => {
                let mut command = Command::new(program);
                command.args(options).arg(&self.program);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Kind::Floor { same_job } = self.kind {
            let socket = state_path().join("keepalived-state-change");
            let netns = format!("/run/netns/{}", router.namespace);
            command.args([netns.as_str(), WATCHED]).args([&router.conf_dir, &socket]);
            command.arg(&router.id).args(same_job.then(|| router.log_file()));
            return command;
        }
        // In two arguments each, which is the only style that the shell generation understands.
        command.args(["--router_id", &router.id, "--namespace", &router.namespace]);
        command.args(["--monitor_interface", WATCHED, "--monitor_cidr", VIP]);
        command.arg("--conf_dir").arg(&router.conf_dir).arg("--state_path").arg(state_path());
        command.arg("--pid_file").arg(router.pid_file());
        command.arg("--log-file").arg(router.log_file());
        if let Kind::Keepwatch { announces } = self.kind {
            command.args(["--foreground", "--active-word", "primary"]);
            command.args((!announces).then_some("--no-announce"));
            // Valgrind makes system calls of its own in the daemon's name.
            command.args((!self.under.is_empty()).then_some("--no-seccomp"));
        }
        command
    }

    /// One of the generations that are replaced, which take a thousand times longer.
    pub fn is_slow(&self) -> bool {
        matches!(self.kind, Kind::Shell | Kind::Python)
    }

    /// The shell generation says nothing to the agent before there is an address event.
    pub fn reports_at_start(&self) -> bool {
        self.kind != Kind::Shell
    }

    /// From one transition to the next: the generations still work for a while after the agent was
    /// told.
    pub fn pause(&self) -> Duration {
        Duration::from_millis(if self.is_slow() { 100 } else { 20 })
    }
}
