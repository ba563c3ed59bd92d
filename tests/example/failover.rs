//! Moves a VIP and another address back and forth, and prints how fast keepwatch reports and announces that.
//!
//! `cargo run --release --example failover` needs only Rust and Linux: it builds keepwatch, creates namespaces, and
//! starts the daemon and a small agent. The exit code is 0 only if every move arrived in the state file, at the agent
//! and on the wire.

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use lab::agent::Agent;
use lab::capture::{Capture, Frame};
use lab::daemon::{Running, Setup};
use lab::namespace;
use lab::rtnl::Rtnl;

mod build;

/// The address that moves with the VIP.
const LAN_ADDRESS: &str = "192.0.2.10/24";
/// The number of moves.
const MOVES: usize = 20;
/// The pause between two moves, so that they do not overlap.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    match show_moves(&mut io::stdout()) {
        // In `failover | head`, it ends with its reader, and so does the daemon.
        Err(error) if is_broken_pipe(&*error) => Ok(()),
        other => other,
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn show_moves(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let program = build::build()?;
    namespace::enter().map_err(|error| format!("namespaces: {error}: try it as root"))?;
    let rtnl = Rtnl::new();
    for name in ["ha0", "lan0"] {
        rtnl.add_ethernet(name);
    }
    let setup = Setup::new(program);
    let (agent, station) = (Agent::start(&setup.state_path), Capture::new("lan0-peer"));
    writeln!(out, "keepwatch watches {} on ha0; {LAN_ADDRESS} on lan0 moves with it\n", setup.vip)?;
    let started = Instant::now();
    let keepwatch = setup.spawn();
    let latencies = seen(&keepwatch, &agent, "backup", started);
    writeln!(out, "{}", line("start", "absent", "backup", latencies))?;
    let (mut to_file, mut to_agent, mut to_station) = (Vec::new(), Vec::new(), Vec::new());
    for n in 1..=MOVES {
        sleep(PAUSE);
        let added = n % 2 == 1;
        let (what, word) = if added { ("added", "master") } else { ("removed", "backup") };
        // Before the change, as the daemon may be faster than this thread.
        let since = Instant::now();
        rtnl.set_address("ha0", &setup.vip, added);
        let latencies = seen(&keepwatch, &agent, word, since);
        let since = SystemTime::now();
        rtnl.set_address("lan0", LAN_ADDRESS, added);
        write!(out, "{}", line(&n.to_string(), what, word, latencies))?;
        if added {
            let latency = announced(&station, since)?;
            write!(out, "   announced: {:>9}", show(latency))?;
            to_station.push(latency);
        }
        writeln!(out)?;
        to_file.push(latencies.0);
        to_agent.push(latencies.1);
    }
    drop(keepwatch);
    writeln!(out, "\n{:<27}{:>12}{:>12}", "from the change", "median", "worst")?;
    for (what, mut latencies) in [
        ("to the state file", to_file),
        ("to the agent", to_agent),
        ("to the station on the LAN", to_station),
    ] {
        latencies.sort_unstable();
        let median = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
        let worst = latencies.last().copied().unwrap_or_default();
        writeln!(out, "{what:<27}{:>12}{:>12}", show(median), show(worst))?;
    }
    Ok(writeln!(out, "\nevery move arrived")?)
}

/// Waits until the state file has the word and the agent has acknowledged it. Returns both latencies.
fn seen(
    keepwatch: &Running<'_>,
    agent: &Agent,
    word: &str,
    since: Instant,
) -> (Duration, Duration) {
    keepwatch.wait_state(word);
    let file = since.elapsed();
    agent.wait_acknowledged(word);
    let at = agent.arrivals().last().map_or(since, |arrival| arrival.at);
    (file, at.duration_since(since))
}

/// Waits for the first announcement after `since`. Returns its latency by the clock of the kernel.
fn announced(station: &Capture, since: SystemTime) -> Result<Duration, Box<dyn Error>> {
    let since = since.duration_since(SystemTime::UNIX_EPOCH)?;
    let is_news = |frame: &&Frame| frame.is_arp() && frame.at > since;
    let frames = station.wait("an announcement", |frames| frames.iter().any(|f| is_news(&f)));
    let at = frames.iter().find(is_news).map_or(since, |frame| frame.at);
    Ok(at.saturating_sub(since))
}

fn line(n: &str, what: &str, word: &str, (file, agent): (Duration, Duration)) -> String {
    let (file, agent) = (show(file), show(agent));
    format!("{n:>5}  VIP {what:<7}   state file: {word} {file:>9}   agent notified: {agent:>9}")
}

fn show(latency: Duration) -> String {
    format!("{:.3} ms", latency.as_secs_f64() * 1e3)
}
