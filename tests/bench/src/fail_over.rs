//! Many routers that become active together, and one agent with a short backlog.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::candidate::{Candidate, Kind};
use crate::descendants;
use crate::observer::state_path;
use crate::router::Router;
use crate::statistics::Summary;

/// Transitions of each router, after the one at the start.
const TRANSITIONS: usize = 6;
/// Before each, and for a status to be written.
const PAUSE: Duration = Duration::from_secs(1);
/// Nothing takes as long, unless it is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent, and what it was told.
struct Agent {
    child: Child,
    arrivals: Receiver<(Instant, String)>,
}

impl Agent {
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

    /// Waits until it has been told this state of every router. Returns when that was.
    fn told_all(&self, routers: &[Router], state: &str) -> Result<Instant, Box<dyn Error>> {
        let mut missing: HashSet<_> =
            routers.iter().map(|router| format!("{} {state}", router.id)).collect();
        let mut last = Instant::now();
        while !missing.is_empty() {
            let (at, line) = self
                .arrivals
                .recv_timeout(PATIENCE)
                .map_err(|_| format!("{} are not told", missing.len()))?;
            if missing.remove(&line) {
                last = at;
            }
        }
        Ok(last)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What one fleet took.
struct Took {
    /// Milliseconds from the first change to the last receipt, of each transition.
    times: Vec<f64>,
    /// Attempts that failed, of each router. None for the floor, which has only one and waits.
    failures: Vec<u64>,
}

/// Lets the candidates take turns, the floor first. Prints how long it takes until all are told.
pub fn run(
    candidates: &[Candidate],
    routers: &[Router],
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let mut all: Vec<Vec<f64>> = candidates.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (candidate, times) in candidates.iter().zip(&mut all) {
            let took = one(candidate, routers)?;
            let shown: String = took.times.iter().map(|time| format!(" {time:.0}")).collect();
            println!("{}:{shown} ms", candidate.name);
            if let Some(most) = took.failures.iter().max() {
                let failures: u64 = took.failures.iter().sum();
                let deliveries = routers.len() * TRANSITIONS;
                println!(
                    "  {failures} failed attempts in {deliveries} deliveries; at most {most} of a router"
                );
            }
            times.extend(took.times);
        }
    }
    let medians = all.into_iter().map(|times| Summary::new(times).median);
    let mut floor = None;
    for (candidate, median) in candidates.iter().zip(medians) {
        let ratio = median / *floor.get_or_insert(median);
        println!("{}: median {median:.0} ms, {ratio:.2} times the floor", candidate.name);
    }
    Ok(())
}

fn one(candidate: &Candidate, routers: &[Router]) -> Result<Took, Box<dyn Error>> {
    let agent = Agent::start()?;
    let took = start(candidate, routers, &agent).and_then(|daemons| {
        let before = failures(candidate, routers, &daemons)?;
        let mut times = Vec::new();
        for transition in 0..TRANSITIONS {
            let present = transition % 2 == 0;
            thread::sleep(PAUSE);
            let from = Instant::now();
            for router in routers {
                router.set_vip(present)?;
            }
            let until = agent.told_all(routers, if present { "primary" } else { "backup" })?;
            times.push((until - from).as_secs_f64() * 1e3);
        }
        let after = failures(candidate, routers, &daemons)?;
        let failures = after.iter().zip(before).map(|(after, before)| after - before).collect();
        Ok(Took { times, failures })
    });
    descendants::kill_all();
    took
}

fn start(
    candidate: &Candidate,
    routers: &[Router],
    agent: &Agent,
) -> Result<Vec<Child>, Box<dyn Error>> {
    let mut daemons = Vec::new();
    for router in routers {
        router.clear()?;
        daemons.push(candidate.command(router).spawn()?);
    }
    agent.told_all(routers, "backup")?;
    Ok(daemons)
}

/// How many attempts of each router have failed, by its status.
fn failures(
    candidate: &Candidate,
    routers: &[Router],
    daemons: &[Child],
) -> Result<Vec<u64>, Box<dyn Error>> {
    if candidate.kind == Kind::Floor {
        return Ok(Vec::new());
    }
    for daemon in daemons {
        kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGUSR1)?;
    }
    thread::sleep(PAUSE);
    routers
        .iter()
        .map(|router| {
            let log = fs::read_to_string(router.log_file())?;
            let (_, rest) = log.rsplit_once(" notification_failures=").ok_or("no status")?;
            let number = rest.split_whitespace().next().ok_or("a number")?;
            Ok(number.parse()?)
        })
        .collect()
}
