//! A VIP moves back and forth, another address with it, and a person sees what keepwatch makes of it.
//!
//! `cargo run --release --example failover` needs nothing but Rust and Linux: it builds keepwatch,
//! makes namespaces of its own, starts the daemon and a small agent, and ends by itself. The exit
//! code is 0 only if every move arrived in the state file and at the agent, and on the wire.

#![expect(clippy::print_stdout, reason = "it talks to a person")]

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use lab::agent::Agent;
use lab::capture::{Capture, Frame};
use lab::daemon::{Running, Setup};
use lab::namespace;
use lab::rtnl::Rtnl;

mod build;

/// An address that keepalived would move together with the VIP.
const LAN_ADDRESS: &str = "192.0.2.10/24";
/// How often the VIP moves.
const MOVES: usize = 20;
/// Between two moves, so that each is seen by itself.
const PAUSE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let program = build::build()?;
    namespace::enter().map_err(|error| format!("namespaces: {error}: try it as root"))?;
    let rtnl = Rtnl::new();
    for name in ["ha0", "lan0"] {
        rtnl.add_ethernet(name);
    }
    let setup = Setup::new(program);
    let (agent, station) = (Agent::start(&setup.state_path), Capture::new("lan0-peer"));
    println!("keepwatch watches {} on ha0; {LAN_ADDRESS} on lan0 moves with it\n", setup.vip);
    let started = Instant::now();
    let keepwatch = setup.spawn();
    println!("{}", line("start", "absent", "backup", seen(&keepwatch, &agent, "backup", started)));
    let (mut to_file, mut to_agent, mut to_station) = (Vec::new(), Vec::new(), Vec::new());
    for n in 1..=MOVES {
        sleep(PAUSE);
        let added = n % 2 == 1;
        let (what, word) = if added { ("added", "master") } else { ("removed", "backup") };
        rtnl.set_address("ha0", &setup.vip, added);
        // The kernel has acknowledged; the daemon may already be at it.
        let latencies = seen(&keepwatch, &agent, word, Instant::now());
        rtnl.set_address("lan0", LAN_ADDRESS, added);
        print!("{}", line(&n.to_string(), what, word, latencies));
        if added {
            let latency = announced(&station, SystemTime::now())?;
            print!("   announced: {:>9}", show(latency));
            to_station.push(latency);
        }
        println!();
        to_file.push(latencies.0);
        to_agent.push(latencies.1);
    }
    drop(keepwatch);
    println!("\n{:<27}{:>12}{:>12}", "from the kernel's event", "median", "worst");
    for (what, mut latencies) in [
        ("to the state file", to_file),
        ("to the agent", to_agent),
        ("to the station on the LAN", to_station),
    ] {
        latencies.sort_unstable();
        let median = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
        let worst = latencies.last().copied().unwrap_or_default();
        println!("{what:<27}{:>12}{:>12}", show(median), show(worst));
    }
    println!("\nevery move arrived");
    Ok(())
}

/// Waits until the state file has the word and the agent has been told. Returns when each was seen, counted from the
/// kernel's acknowledgement.
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
    (file, at.saturating_duration_since(since))
}

/// Waits for the first announcement since then, by the clock of the kernel.
fn announced(station: &Capture, since: SystemTime) -> Result<Duration, Box<dyn Error>> {
    let since = since.duration_since(SystemTime::UNIX_EPOCH)?;
    // It may even be earlier than the acknowledgement; the last one was a pause ago.
    let is_news = |frame: &&Frame| frame.is_arp() && frame.at + PAUSE / 2 > since;
    let frames = station.wait("an announcement", |frames| frames.iter().any(|f| is_news(&f)));
    let at = frames.iter().find(is_news).map_or(since, |frame| frame.at);
    Ok(at.saturating_sub(since))
}

fn line(n: &str, what: &str, word: &str, (file, agent): (Duration, Duration)) -> String {
    let (file, agent) = (show(file), show(agent));
    format!("{n:>5}  VIP {what:<7}   state file: {word} {file:>9}   agent told: {agent:>9}")
}

fn show(latency: Duration) -> String {
    format!("{:.3} ms", latency.as_secs_f64() * 1e3)
}
