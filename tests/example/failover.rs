//! A VIP moves back and forth, another address with it, and a person sees what keepwatch makes of it.
//!
//! `cargo run --release --example failover` needs nothing but Rust and Linux: it builds keepwatch,
//! makes namespaces of its own, starts the daemon and a small agent, and ends by itself. The exit
//! code is 0 only if every move arrived in the state file and at the agent, and on the wire.

#![expect(clippy::print_stdout, reason = "it talks to a person")]

use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use lab::capture::{Capture, Frame};
use lab::daemon::Setup;
use lab::rtnl::Rtnl;
use lab::{NEWEST_REPLY, namespace};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

mod build;

/// An address that keepalived would move together with the VIP.
const LAN_ADDRESS: &str = "192.0.2.10/24";
/// How often the VIP moves.
const MOVES: usize = 20;
/// Between two moves, so that each is seen by itself.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a move may take to arrive before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let program = build::build()?;
    let version = build::version(&program)?;
    namespace::enter().map_err(|error| format!("namespaces: {error}: try it as root"))?;
    let rtnl = Rtnl::new();
    for name in ["ha0", "lan0"] {
        rtnl.add_ethernet(name);
    }
    let setup = Setup::new(program);
    let observer = Observer::new(&setup)?;
    println!("{version} watches {} on ha0; {LAN_ADDRESS} on lan0 moves with it\n", setup.vip);
    let started = Instant::now();
    let keepwatch = setup.spawn();
    let start = observer.watch_until("backup", started);
    println!("{}", line("start", "absent", "backup", &start));
    let mut moves = Vec::new();
    for n in 1..=MOVES {
        observer.idle(PAUSE);
        let seen = if n % 2 == 1 {
            rtnl.add_address("ha0", &setup.vip);
            // The kernel has acknowledged; the daemon may already be at it.
            let seen = observer.watch_until("master", Instant::now());
            rtnl.add_address("lan0", LAN_ADDRESS);
            Seen { wire: observer.announced(SystemTime::now()), ..seen }
        } else {
            rtnl.delete_address("lan0", LAN_ADDRESS);
            rtnl.delete_address("ha0", &setup.vip);
            observer.watch_until("backup", Instant::now())
        };
        let (what, word) = if n % 2 == 1 { ("added", "master") } else { ("removed", "backup") };
        println!("{}", line(&n.to_string(), what, word, &seen));
        moves.push(seen);
    }
    drop(keepwatch);
    Ok(summary(&moves))
}

/// When a change was seen, counted from the kernel's acknowledgement.
#[derive(Default)]
struct Seen {
    file: Option<Duration>,
    agent: Option<Duration>,
    /// The first announcement of the address on the LAN.
    wire: Option<Duration>,
}

/// Sees the state file change and is the agent, in one thread, so that there is one clock and no
/// hand-over.
struct Observer {
    files: Inotify,
    agent: UnixListener,
    state_file: PathBuf,
    /// A station on the LAN.
    station: Capture,
}

impl Observer {
    fn new(setup: &Setup) -> Result<Self, Box<dyn Error>> {
        let files = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        files.add_watch(&setup.conf_dir, AddWatchFlags::IN_MOVED_TO)?;
        let agent = UnixListener::bind(setup.state_path.join("keepalived-state-change"))?;
        let station = Capture::new("lan0-peer");
        Ok(Self { files, agent, state_file: setup.state_file(), station })
    }

    /// Waits until the word has been seen in the state file and told to the agent.
    fn watch_until(&self, word: &str, since: Instant) -> Seen {
        let mut seen = Seen::default();
        while (seen.file.is_none() || seen.agent.is_none()) && since.elapsed() < PATIENCE {
            let (file, agent) = self.wait(PATIENCE.saturating_sub(since.elapsed()));
            let now = since.elapsed();
            if file && std::fs::read_to_string(&self.state_file).is_ok_and(|state| state == word) {
                seen.file.get_or_insert(now);
            }
            if agent && self.serve().is_ok_and(|state| state == word) {
                seen.agent.get_or_insert(now);
            }
        }
        seen
    }

    /// Waits for the first announcement since then, by the clock of the kernel.
    fn announced(&self, since: SystemTime) -> Option<Duration> {
        let since = since.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        // It may even be earlier than the acknowledgement; the last one was a pause ago.
        let is_news = |frame: &&Frame| frame.is_arp() && frame.at + PAUSE / 2 > since;
        let frames = self.station.wait("an announcement", |f| f.iter().any(|f| is_news(&f)));
        frames.iter().find(is_news).map(|frame| frame.at.saturating_sub(since))
    }

    /// Lets time pass in which nothing should happen.
    fn idle(&self, time: Duration) {
        let (file, agent) = self.wait(time);
        if file || agent {
            println!("          something else happened");
        }
    }

    /// Waits for the state file to be replaced, and for the agent to be called.
    fn wait(&self, time: Duration) -> (bool, bool) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [readable(self.files.as_fd()), readable(self.agent.as_fd())];
        let _ = poll(&mut fds, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX));
        let [file, agent] = fds.map(|fd| fd.any() == Some(true));
        if file {
            let _ = self.files.read_events();
        }
        (file, agent)
    }

    /// Takes one notification and answers as the newest agent does.
    fn serve(&self) -> std::io::Result<String> {
        let (mut connection, _) = self.agent.accept()?;
        let mut request = [0; 4096];
        let length = connection.read(&mut request)?;
        connection.write_all(NEWEST_REPLY)?;
        let request = String::from_utf8_lossy(request.get(..length).unwrap_or_default());
        let state = request.lines().find_map(|line| line.strip_prefix("X-Neutron-State: "));
        Ok(state.unwrap_or_default().to_string())
    }
}

fn line(n: &str, what: &str, word: &str, seen: &Seen) -> String {
    let (file, agent) = (show(seen.file), show(seen.agent));
    let wire = seen.wire.map(|wire| format!("   announced: {:>9}", show(Some(wire))));
    let wire = wire.unwrap_or_default();
    format!("{n:>5}  VIP {what:<7}   state file: {word} {file:>9}   agent told: {agent:>9}{wire}")
}

fn show(latency: Option<Duration>) -> String {
    latency.map_or("lost".into(), |latency| format!("{:.3} ms", latency.as_secs_f64() * 1e3))
}

fn summary(moves: &[Seen]) -> ExitCode {
    let mut text = format!("\n{:<27}{:>12}{:>12}\n", "from the kernel's event", "median", "worst");
    let mut arrived = true;
    let latencies =
        |latency: fn(&Seen) -> Option<Duration>| moves.iter().filter_map(latency).collect();
    let rows: [(&str, usize, Vec<Duration>); 3] = [
        ("to the state file", MOVES, latencies(|seen| seen.file)),
        ("to the agent", MOVES, latencies(|seen| seen.agent)),
        ("to the station on the LAN", MOVES / 2, latencies(|seen| seen.wire)),
    ];
    for (what, expected, mut latencies) in rows {
        arrived &= latencies.len() == expected;
        latencies.sort_unstable();
        let median = latencies.get(latencies.len() / 2).copied();
        let worst = latencies.last().copied();
        let _ = writeln!(text, "{what:<27}{:>12}{:>12}", show(median), show(worst));
    }
    println!("{text}\n{}", if arrived { "every move arrived" } else { "NOT every move arrived" });
    if arrived { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
