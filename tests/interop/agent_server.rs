//! The server of Neutron's own L3 agent, in a virtual environment of `tests/run`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lab::files::{Watch, content};
use lab::received::{Late, Received};

use crate::world::Killed;

/// Importing Neutron takes seconds, and a minute if several processes do that on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// Returns the command that runs a script beside this file with a release of Neutron.
pub fn python(release: &str, script: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let interpreter = root.join(format!("target/neutron-{release}/bin/python"));
    assert!(interpreter.exists(), "no {}: tests/run makes it", interpreter.display());
    let mut command = Command::new(interpreter);
    command.arg(root.join("tests/interop").join(script));
    command
}

/// The router and the state of a notification.
type Arrival = (String, String);

pub struct AgentServer {
    _child: Killed,
    arrived: Arc<Received<Arrival>>,
    errors: PathBuf,
}

impl AgentServer {
    /// Starts it, and waits for its socket.
    pub fn start(release: &str, state_path: &Path) -> Self {
        let (errors, socket) =
            (state_path.join("errors"), state_path.join("keepalived-state-change"));
        let files = Watch::new(state_path);
        let mut command = python(release, "agent_server.py");
        command.arg(state_path).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().expect("the agent's server");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let arrived = Arc::new(Received::default());
        let shared = Arc::clone(&arrived);
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let (router, state) = line.split_once(' ').expect("router and state");
                shared.push((router.into(), state.into()));
            }
        });
        files.within(PATIENCE, "the agent's socket", || socket.exists().then_some(()));
        Self { _child: Killed(child), arrived, errors }
    }

    /// Returns all notifications so far.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrived.lock().clone()
    }

    /// Waits until the notifications so far satisfy a condition.
    pub fn wait(&self, what: &str, condition: impl Fn(&[Arrival]) -> bool) {
        let and_errors = Late(|| format!("{what}, {}", content(&self.errors)));
        drop(self.arrived.wait(PATIENCE, and_errors, condition));
    }

    /// Waits until this is the state of the last notification.
    pub fn wait_state(&self, state: &str) {
        self.wait(state, |arrivals| arrivals.last().is_some_and(|last| last.1 == state));
    }
}
