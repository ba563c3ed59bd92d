//! Many routers that become active together, and one agent with a backlog of 5.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::candidate::{Candidate, Kind};
use crate::descendants;
use crate::observer::{Observer, state_path};
use crate::router::Router;
use crate::statistics::{median, milliseconds};

/// How many fail over together, of the fast ones.
pub const ROUTERS: [usize; 2] = [250, 1000];
/// And of the shell generation.
pub const ROUTERS_SHELL: usize = 100;
/// How often the VIPs come, and how often they go, in each run.
const TURNS: usize = 2;
/// Before each.
const PAUSE: Duration = Duration::from_millis(500);
/// When the agent has been told nothing for so long, nothing more will come: keepwatch waits for 4.5 s at most,
/// the shell generation does not try again.
const SILENCE: Duration = Duration::from_secs(6);
const SILENCE_SHELL: Duration = Duration::from_secs(2);

/// What some routers took. Times are from the first VIP's change to the agent's receipt of the last state
/// that arrives, in milliseconds: the median of each run.
#[derive(Debug, Default)]
pub struct FailOver {
    pub routers: usize,
    pub up: Vec<f64>,
    pub down: Vec<f64>,
    /// States that the agent was to be told.
    deliveries: usize,
    lost: usize,
    /// Attempts that failed. None for those that make only one.
    failures: Option<u64>,
    /// CPU time for each delivery in milliseconds, of each run. None of those that start others.
    pub cpu: Vec<f64>,
}

impl FailOver {
    /// Whether this candidate takes part with so many routers.
    pub fn has(candidate: &Candidate, routers: usize) -> bool {
        match candidate.kind {
            Kind::Floor { same_job } => !same_job && routers != ROUTERS_SHELL,
            Kind::Keepwatch { .. } => routers != ROUTERS_SHELL,
            Kind::Shell => routers == ROUTERS_SHELL,
            Kind::Python => false,
        }
    }

    /// Attempts for each delivery; none if they are not counted.
    pub fn attempts(&self) -> Vec<f64> {
        let attempts = |failures| 1.0 + failures as f64 / self.deliveries as f64;
        self.failures.map(attempts).into_iter().collect()
    }

    /// States that never arrived, of a hundred.
    pub fn lost(&self) -> Vec<f64> {
        vec![100.0 * self.lost as f64 / self.deliveries as f64]
    }

    /// Measures one run more.
    pub fn run(
        &mut self,
        candidate: &Candidate,
        routers: &[Router],
        observer: &Observer,
    ) -> Result<(), Box<dyn Error>> {
        self.routers = routers.len();
        let result = self.try_run(candidate, routers, observer);
        descendants::kill_all();
        result
    }

    fn try_run(
        &mut self,
        candidate: &Candidate,
        routers: &[Router],
        observer: &Observer,
    ) -> Result<(), Box<dyn Error>> {
        let agent = Agent::start()?;
        let daemons = start(candidate, routers, &agent, observer)?;
        let before = failures(candidate, routers, &daemons)?;
        let cpu_before = cpu(&daemons);
        let silence = if candidate.is_slow() { SILENCE_SHELL } else { SILENCE };
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for turn in 0..2 * TURNS {
            let present = turn % 2 == 0;
            thread::sleep(PAUSE);
            agent.forget();
            let from = Instant::now();
            for router in routers {
                router.set_vip(present)?;
            }
            let word = if present { "primary" } else { "backup" };
            let (last, lost) = agent.told(routers, word, silence, observer)?;
            self.deliveries += routers.len();
            self.lost += lost;
            let times = if present { &mut up } else { &mut down };
            times.push(milliseconds(last.saturating_duration_since(from)));
        }
        if !candidate.is_slow() {
            let deliveries = routers.len() * 2 * TURNS;
            self.cpu.push((cpu(&daemons) - cpu_before) / deliveries as f64);
        }
        self.up.push(median(up));
        self.down.push(median(down));
        if let (Some(before), Some(after)) = (before, failures(candidate, routers, &daemons)?) {
            *self.failures.get_or_insert(0) += after - before;
        }
        Ok(())
    }
}

/// The agent, and what it was told.
struct Agent {
    child: Child,
    arrivals: Receiver<(Instant, String)>,
}

impl Agent {
    /// In place of the observer.
    fn start() -> Result<Self, Box<dyn Error>> {
        let socket = state_path().join("keepalived-state-change");
        let _ = fs::remove_file(&socket);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(&socket).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = BufReader::new(child.stdout.take().ok_or("its output")?);
        let (sender, arrivals) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send((Instant::now(), line));
            }
        });
        while !socket.exists() {
            if child.try_wait()?.is_some() {
                return Err("the agent does not start".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { child, arrivals })
    }

    /// Forgets what it was told until now.
    fn forget(&self) {
        while self.arrivals.try_recv().is_ok() {}
    }

    /// Waits until it has been told this state of every router, or of nobody else. Returns when the last was
    /// told, and how many were not.
    fn told(
        &self,
        routers: &[Router],
        state: &str,
        silence: Duration,
        observer: &Observer,
    ) -> Result<(Instant, usize), Box<dyn Error>> {
        let mut missing: HashSet<_> =
            routers.iter().map(|router| format!("{} {state}", router.id)).collect();
        let mut last = Instant::now();
        while !missing.is_empty() {
            observer.go_on()?;
            match self.arrivals.recv_timeout(Duration::from_millis(100)) {
                Ok((at, line)) if missing.remove(&line) => last = at,
                Err(RecvTimeoutError::Timeout) if last.elapsed() >= silence => break,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the agent has ended".into()),
            }
        }
        Ok((last, missing.len()))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(
    candidate: &Candidate,
    routers: &[Router],
    agent: &Agent,
    observer: &Observer,
) -> Result<Vec<Child>, Box<dyn Error>> {
    let mut daemons = Vec::new();
    for router in routers {
        router.clear()?;
        daemons.push(candidate.command(router).spawn()?);
    }
    if candidate.reports_at_start() {
        let (_, lost) = agent.told(routers, "backup", SILENCE, observer)?;
        if lost > 0 {
            return Err(format!("{}: {lost} do not report at their start", candidate.name).into());
        }
    } else {
        descendants::wait_settled();
        if let Some(router) = routers.iter().find(|router| router.state() != "backup") {
            return Err(format!("{}: {} does not start", candidate.name, router.id).into());
        }
    }
    Ok(daemons)
}

/// The CPU time of some processes in milliseconds, as the scheduler counts it.
fn cpu(daemons: &[Child]) -> f64 {
    let of = |daemon: &Child| {
        let text = lab::files::content(Path::new(&format!("/proc/{}/schedstat", daemon.id())));
        text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok())
    };
    daemons.iter().filter_map(of).sum::<f64>() / 1e6
}

/// How many attempts have failed until now, by the status of each keepwatch.
fn failures(
    candidate: &Candidate,
    routers: &[Router],
    daemons: &[Child],
) -> Result<Option<u64>, Box<dyn Error>> {
    let Kind::Keepwatch { .. } = candidate.kind else { return Ok(None) };
    let mut sum = 0;
    for (router, daemon) in routers.iter().zip(daemons) {
        let numbers = || {
            let log = lab::files::content(&router.log_file());
            let numbers = log.split(" notification_failures=").skip(1);
            numbers
                .filter_map(|rest| rest.split_whitespace().next()?.parse().ok())
                .collect::<Vec<u64>>()
        };
        let before = numbers().len();
        let until = Instant::now() + SILENCE;
        kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGUSR1)?;
        sum += loop {
            if let Some(number) = numbers().get(before).copied() {
                break number;
            }
            if Instant::now() > until {
                return Err(format!("{}: {} tells no status", candidate.name, router.id).into());
            }
            thread::sleep(Duration::from_millis(1));
        };
    }
    Ok(Some(sum))
}
