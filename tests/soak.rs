//! Everything at once, in an order drawn at random, for as many minutes as are asked for: see `tests/soak`.
//!
//! After each round the faults end. Then everybody has the truth, and the daemon has no more descriptors, no
//! more memory and no more processes than after the first rounds, and sleeps.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and tells what it measured"
)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keepwatch::wire::arp::{self, Operation};
use lab::agent::{Agent, Manners};
use lab::capture::Capture;
use lab::daemon::{Running, Setup};
use lab::files::{content, write_program};
use lab::rtnl::Rtnl;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;

const VIP: &str = "169.254.0.5/24";
/// Rounds until the memory is what it will be.
const WARM_UP: u32 = 10;
/// What a round may add to the log: each action a few lines, and what is said once a minute.
const LINES_PER_ACTION: usize = 12;

/// What happens to the daemon.
#[derive(Clone, Copy, Debug)]
enum Action {
    Flip,
    /// The VIP comes and goes so many times without a pause.
    Flap(u32),
    /// So many addresses come to another interface, and go.
    Flood(u32),
    /// The same, while the daemon is stopped: its queue overflows.
    Overrun,
    AgentGoes,
    AgentComes,
    AgentBehaves(u32),
    RotateLog,
    InterfaceMadeAnew,
    InterfaceDown,
    DiskFull,
    DiskFree,
    /// So many stations claim the VIP.
    Claims(u32),
    Pause,
    Sleep(u32),
}

/// xorshift32.
struct Random(u32);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % bound
    }

    fn action(&mut self) -> Action {
        let many = self.below(50) + 1;
        match self.below(19) {
            0..4 => Action::Flip,
            4 => Action::Flap(many),
            5 => Action::Flood(many * 10),
            6 => Action::Overrun,
            7 => Action::AgentGoes,
            8 => Action::AgentComes,
            9 | 10 => Action::AgentBehaves(self.below(6)),
            11 => Action::RotateLog,
            12 => Action::InterfaceMadeAnew,
            13 => Action::InterfaceDown,
            14 => Action::DiskFull,
            15 => Action::DiskFree,
            16 => Action::Claims(many),
            17 => Action::Pause,
            _ => Action::Sleep(many),
        }
    }
}

fn manners(which: u32) -> Manners {
    match which {
        0 => Manners::newest(),
        1 => Manners::eventlet(),
        2 => Manners::CloseEarly,
        3 => Manners::CloseUnread,
        4 => Manners::Reply(vec![b"HTTP/1.1 500 Internal Server Error\r\n\r\n"]),
        _ => Manners::Dribble(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    }
}

/// What the daemon uses once it sleeps.
#[derive(Debug)]
struct Use {
    descriptors: usize,
    /// In kB.
    resident: u64,
}

struct Soak<'a> {
    setup: &'a Setup,
    keepwatch: Running<'a>,
    rtnl: Rtnl,
    agent: Option<Agent>,
    /// What the last agent was told.
    told: Option<String>,
    active: bool,
    actions: u32,
}

impl Soak<'_> {
    fn act(&mut self, action: Action) {
        self.actions += 1;
        match action {
            Action::Flip => self.flip(),
            Action::Flap(times) => (0..times).for_each(|_| self.flip()),
            Action::Flood(addresses) => self.flood(addresses),
            Action::Overrun => {
                self.keepwatch.signal(Signal::SIGSTOP);
                self.flood(600);
                self.flip();
                self.keepwatch.signal(Signal::SIGCONT);
            }
            Action::AgentGoes => {
                if let Some(mut agent) = self.agent.take() {
                    agent.stop(false);
                    self.told = agent.acknowledged().or(self.told.take());
                }
            }
            Action::AgentComes => drop(self.agent()),
            Action::AgentBehaves(which) => self.agent().behave(manners(which)),
            Action::RotateLog => {
                let old = self.setup.conf_dir.join("old.log");
                let _ = fs::rename(self.setup.log_file(), old);
                self.keepwatch.signal(Signal::SIGHUP);
            }
            Action::InterfaceMadeAnew => {
                self.rtnl.delete("ha0");
                self.rtnl.add_ethernet("ha0");
                self.active = false;
            }
            Action::InterfaceDown => {
                self.rtnl.down("ha0");
                self.rtnl.up("ha0");
            }
            Action::DiskFull => drop(fs::write(self.ballast(), vec![0; DISK])),
            Action::DiskFree => drop(fs::remove_file(self.ballast())),
            Action::Claims(stations) => {
                let wire = Capture::new("ha0-peer");
                for station in 0..stations {
                    let mac = [2, 9, 9, 9, 9, station.try_into().unwrap()];
                    let vip = "169.254.0.5".parse().unwrap();
                    wire.send(&arp::announcement(Operation::Request, mac, vip));
                }
            }
            Action::Pause => {
                self.keepwatch.signal(Signal::SIGSTOP);
                sleep(Duration::from_millis(50));
                self.keepwatch.signal(Signal::SIGCONT);
            }
            Action::Sleep(milliseconds) => sleep(Duration::from_millis(milliseconds.into())),
        }
    }

    fn flip(&mut self) {
        self.active = !self.active;
        self.rtnl.set_address("ha0", VIP, self.active);
    }

    fn flood(&self, addresses: u32) {
        let address = |n: u32| format!("10.{}.{}.1/32", n / 250, n % 250);
        (0..addresses).for_each(|n| self.rtnl.add_address("other0", &address(n)));
        (0..addresses).for_each(|n| self.rtnl.delete_address("other0", &address(n)));
    }

    fn agent(&mut self) -> &Agent {
        self.agent.get_or_insert_with(|| Agent::start(&self.setup.state_path))
    }

    fn told(&self) -> Option<String> {
        self.agent.as_ref().and_then(Agent::acknowledged).or_else(|| self.told.clone())
    }

    /// Waits until something is so, which has to be looked at now and then.
    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let by = Instant::now() + Duration::from_secs(90);
        while !is_so() {
            assert!(Instant::now() < by, "waited in vain for {what}:\n{}", self.setup.log());
            sleep(Duration::from_millis(20));
        }
    }

    fn ballast(&self) -> PathBuf {
        self.setup.conf_dir.join("ballast")
    }

    /// Ends the faults, and waits until everybody has the truth.
    fn settle(&mut self) -> Use {
        let _ = fs::remove_file(self.ballast());
        self.agent().behave(Manners::newest());
        let word = if self.active { "master" } else { "backup" };
        let told = format!("state={word} undelivered=none");
        self.keepwatch.wait_state(word);
        self.wait(&told, || self.keepwatch.status().contains(&told));
        self.wait("the agent to be told", || self.told().as_deref() == Some(word));
        // Beside the daemon: one for the hook, and one for conntrackd.
        self.wait("two helpers", || others(self.keepwatch.pid()) == 2);
        // What is said once a minute is left to be said.
        let sleeps = || self.keepwatch.sleeps_for().is_some_and(|milliseconds| milliseconds > 1000);
        self.wait("a daemon that sleeps for more than a second", sleeps);
        assert_eq!(self.setup.state(), word, "{}", self.setup.log());
        let has = |file: &Path, is_it: &dyn Fn(&str) -> bool| content(file).lines().any(is_it);
        let upper = word.to_uppercase();
        self.wait("the hook", || has(&hooked(self.setup), &|line| line == upper));
        let active = if self.active { "} 1" } else { "} 0" };
        let says = |line: &str| line.starts_with("keepwatch_active{") && line.ends_with(active);
        self.wait("the metrics", || has(&metrics(self.setup), &says));
        let descriptors = format!("/proc/{}/fd", self.keepwatch.pid());
        let resident = self.keepwatch.proc_status("VmRSS");
        Use {
            descriptors: fs::read_dir(descriptors).unwrap().count(),
            resident: resident.trim_end_matches(" kB").parse().unwrap(),
        }
    }
}

/// How many processes are in this network namespace beside this one and the daemon, whoever their parent is.
fn others(daemon: u32) -> usize {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let ours = namespace(process::id());
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok()));
    let others = pids.filter(|pid| ![process::id(), daemon].contains(pid));
    others.filter(|pid| namespace(*pid) == ours).count()
}

/// Of the file system that has the state file, the metrics and the log, in bytes.
const DISK: usize = 4 << 20;

/// Notes the state that it is told, but fails one time in three, and hangs one time in seven.
const HOOK: &str = r#"#!/bin/sh
[ $(($$ % 7)) != 1 ] || sleep 60
[ $(($$ % 3)) != 1 ] || exit 1
echo "$3" >HOOKED
"#;

/// The state that a hook was told that succeeded.
fn hooked(setup: &Setup) -> PathBuf {
    setup.directory().join("hooked")
}

fn metrics(setup: &Setup) -> PathBuf {
    setup.conf_dir.join("metrics")
}

fn setup() -> Setup {
    let mut setup = Setup::new(env!("CARGO_BIN_EXE_keepwatch"))
        .with("--enable_conntrackd")
        .with("--garp_master_delay=0.1")
        // The smallest queue there is, so that it overflows.
        .with("--netlink-rcvbuf=4096")
        .with("--renotify=1");
    let none: Option<&str> = None;
    let size = format!("size={DISK}");
    mount(none, &setup.conf_dir, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).unwrap();
    let programs = setup.directory().join("programs");
    fs::create_dir(&programs).unwrap();
    let hook = programs.join("hook");
    let conntrackd = "#!/bin/sh\necho \"$3\"\nexit $(($$ % 2))\n";
    write_program(&programs.join("conntrackd"), conntrackd);
    write_program(&hook, &HOOK.replace("HOOKED", hooked(&setup).to_str().unwrap()));
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
    setup.environment.push(("PATH".into(), path.into()));
    fs::write(setup.conf_dir.join("conntrackd.conf"), "").unwrap();
    let metrics = metrics(&setup);
    setup
        .with(format!("--metrics-file={}", metrics.display()))
        .with(format!("--hook={}", hook.display()))
        .with("--hook-timeout=1")
}

fn soak(minutes: f64, seed: u32) {
    let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let mut random = Random(seed.max(1));
    let rtnl = Rtnl::new();
    rtnl.add_ethernet("ha0");
    rtnl.add_ethernet("other0");
    let setup = setup();
    let agent = Agent::start(&setup.state_path);
    let keepwatch = setup.start();
    let mut soak = Soak {
        setup: &setup,
        keepwatch,
        rtnl,
        agent: Some(agent),
        told: None,
        active: false,
        actions: 0,
    };
    let mut allowed = None;
    let mut round = 0;
    while Instant::now() < end || round <= WARM_UP {
        let lines = lines(&setup);
        let actions: Vec<_> = (0..=random.below(30)).map(|_| random.action()).collect();
        if env::var_os("VERBOSE").is_some() {
            println!("round {round}: {actions:?}");
        }
        for action in &actions {
            soak.act(*action);
        }
        let used = soak.settle();
        round += 1;
        let written = self::lines(&setup).saturating_sub(lines);
        let most = LINES_PER_ACTION * (actions.len() + flips(&actions)) + 200;
        assert!(written <= most, "{written} lines for {actions:?}");
        if round == WARM_UP {
            println!("after {round} rounds: {used:?}");
            allowed = Some(used);
        } else if let Some(allowed) = &allowed {
            let mut used = used;
            let by = Instant::now() + Duration::from_mins(1);
            // It may be telling the agent again.
            while used.descriptors != allowed.descriptors {
                assert!(Instant::now() < by, "{used:?} after {actions:?}");
                sleep(Duration::from_millis(100));
                used = soak.settle();
            }
            assert!(used.resident <= allowed.resident + 64, "{used:?} after {actions:?}");
            if round % 100 == 0 {
                println!("after {round} rounds, {} actions: {used:?}", soak.actions);
            }
        }
        // The disk is to become full when that is drawn, not of the log.
        if fs::metadata(setup.log_file()).is_ok_and(|log| log.len() > DISK as u64 / 8) {
            fs::remove_file(setup.log_file()).unwrap();
            soak.keepwatch.signal(Signal::SIGHUP);
            soak.settle();
        }
    }
    println!("{round} rounds, {} actions: {}", soak.actions, soak.keepwatch.status());
    let status = soak.keepwatch.terminate().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!setup.pid_file().exists(), "pid file left behind");
}

/// In the log, without those that were asked for.
fn lines(setup: &Setup) -> usize {
    setup.log().lines().filter(|line| !line.contains("status: ")).count()
}

/// Changes of the state.
fn flips(actions: &[Action]) -> usize {
    let flips = |action: &Action| {
        if let Action::Flap(times) = action { usize::try_from(*times).unwrap() } else { 1 }
    };
    actions.iter().map(flips).sum()
}

fn main() -> ExitCode {
    let minutes = env::args().nth(1).and_then(|minutes| minutes.parse().ok());
    let Some(minutes) = minutes.filter(|minutes: &f64| *minutes > 0.0) else {
        eprintln!("soak: wants the minutes that it is to take");
        return ExitCode::from(2);
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed = env::var("SEED").ok().map_or(now, |seed| seed.parse().expect("SEED: a number"));
    println!("SEED={seed}");
    lab::namespace::enter().expect("namespaces: wants root or unprivileged user namespaces");
    soak(minutes, seed);
    ExitCode::SUCCESS
}
