//! Random actions and faults for a number of minutes: see `tests/soak`.
//!
//! Three daemons run, each in a network namespace. After each round the faults end. Then each consumer has the kernel's
//! state, only daemons and helpers run, and all sleep. The first daemon is never restarted, and must not leak
//! descriptors or memory.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and prints measurements"
)]

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use keepwatch::wire::arp::{self, Operation};
use lab::agent::{Agent, Behaviour, FullBacklog};
use lab::capture::Capture;
use lab::daemon::{Running, Setup};
use lab::files::{content, look, write_program};
use lab::namespace::{Netns, mount_tmpfs_with, unbind};
use lab::received::Late;
use lab::rtnl::Rtnl;
use lab::users::{NOBODY, OTHER_USER, has_others, run_as};
use nix::mount::MsFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const VIP: &str = "169.254.0.5/24";
const LIVES: usize = 3;
/// Rounds until memory grows no more.
const WARM_UP: u32 = 10;
/// The bytes of each file system that may become full.
const DISK: usize = 4 << 20;

/// Actions on a daemon or its world. Frequent ones occur several times.
const ACTIONS: &str = "flip, flip, flip, flip, flap, flood, overrun, overrun, log rotated, SIGHUP, SIGUSR1, SIGSTOP, \
    SIGSTOP, SIGCONT, interface recreated, interface recreated, interface moved, interface down, disk full, disk full, \
    disks free, claims, sleep, sleep, sleep";
/// Actions that end and restart a daemon.
const ENDS: &str = "SIGTERM, SIGKILL, helpers killed, namespace deleted, overlap, overlap";

fn agents() -> [(&'static str, Option<Behaviour>); 17] {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let reply = |text| Behaviour::Reply(vec![text]);
    let late = |milliseconds| Behaviour::Late(Duration::from_millis(milliseconds));
    [
        ("agent absent", None),
        ("agent does not listen", None),
        ("agent with a full backlog", None),
        ("agent of a stranger", None),
        ("agent as the newest", Some(Behaviour::newest())),
        ("agent as older ones", Some(Behaviour::eventlet())),
        ("agent closes early", Some(Behaviour::CloseEarly)),
        ("agent closes unread", Some(Behaviour::CloseUnread)),
        ("agent answers 500", Some(reply(b"HTTP/1.1 500 Internal Server Error\r\n\r\n"))),
        ("agent answers nonsense", Some(reply(b"SSH-2.0-OpenSSH_9.2\r\n"))),
        ("agent with huge headers", Some(Behaviour::Reply(vec![OK, &[b'x'; 100_000]]))),
        ("agent answers in single bytes", Some(Behaviour::Dribble(OK))),
        ("agent hangs", Some(Behaviour::Hang)),
        ("agent hangs after 200", Some(Behaviour::ReplyAndHang(OK))),
        ("agent answers late", Some(late(300))),
        ("agent answers too late", Some(late(5100))),
        ("agent babbles", Some(Behaviour::Babble)),
    ]
}

/// What a hook does before it records the state. Its background jobs end by themselves.
const HOOKS: [(&str, &str); 12] = [
    ("hook succeeds", ":"),
    ("hook fails", "exit 1"),
    ("hook hangs", "sleep 5"),
    ("hook stops itself", "kill -STOP $$"),
    ("hook prints a lot", "yes | head -c 2000000"),
    ("hook leaves a job", "sleep 0.3 9>&- &"),
    ("hook leaves a session", "setsid sleep 0.3 9>&- &"),
    ("hook fails with jobs", "setsid sleep 0.3 9>&- & sleep 5 & exit 1"),
    ("hook kills itself", "kill -KILL $$"),
    ("hook is slow", "sleep 0.2"),
    ("hook is capricious", "[ $(($$ % 7)) != 1 ] || sleep 5; [ $(($$ % 3)) != 1 ] || exit 1"),
    ("hook may not be run", ":"),
];

/// Records the state if the hook succeeds, and any concurrent run of the same helper.
const HOOK: &str = r#"#!/bin/sh
cd DIRECTORY
exec 9>>lock-$PPID
flock -w 0.5 9 || echo "$3" >>twice
. ./how
echo "$3" >succeeded
"#;

/// Draws a life, an action and its amount.
fn draw(random: &mut Rng) -> (usize, &'static str, u32) {
    let life = random.usize(..LIVES);
    let name = match random.u8(..8) {
        0 => random.choice(agents().map(|(name, _)| name)),
        1 => random.choice(HOOKS.map(|(name, _)| name)),
        2 if life > 0 => random.choice(ENDS.split(", ").collect::<Vec<_>>()),
        _ => random.choice(ACTIONS.split(", ").collect::<Vec<_>>()),
    };
    (life, name.unwrap(), random.u32(1..=50))
}

/// A daemon and its world.
struct Life<'a> {
    setup: &'a Setup,
    netns: Netns,
    rtnl: Rtnl,
    /// All but the last are exiting.
    daemons: Vec<Running<'a>>,
    agent: Agent,
    stranger: Option<Agent>,
    full_backlog: Option<FullBacklog>,
    /// No action has happened since the last delivery.
    is_at_rest: bool,
}

impl<'a> Life<'a> {
    fn begin(setup: &'a Setup) -> Self {
        let (netns, rtnl) = namespace(&setup.router);
        let mut life = Self {
            setup,
            netns,
            rtnl,
            daemons: Vec::new(),
            agent: Agent::start(&setup.state_path),
            stranger: None,
            full_backlog: None,
            is_at_rest: false,
        };
        life.set_hook("hook succeeds");
        life.start(true);
        life
    }

    /// Starts a daemon, in the foreground if the disk is full, as it would not be ready then.
    fn start(&mut self, foreground: bool) {
        // Without an executable hook it would not start.
        fs::set_permissions(self.record("hook"), Permissions::from_mode(0o755)).unwrap();
        let foreground = foreground || self.ballast(0).exists();
        let daemon = if foreground { self.setup.spawn() } else { self.setup.daemonize() };
        self.wait("a daemon that waits for events", || daemon.sleeps_for().is_some());
        self.daemons.push(daemon);
    }

    fn daemon(&self) -> &Running<'a> {
        self.daemons.last().expect("a daemon")
    }

    fn signal(&self, signal: Signal) {
        self.daemon().signal(signal);
    }

    fn act(&mut self, name: &'static str, number: u32) {
        self.netns.enter();
        match name {
            "flip" => self.rtnl.set_address("ha0", VIP, truth() == "backup"),
            "flap" => (0..number).for_each(|_| self.act("flip", 0)),
            "flood" => {
                let address = |n: u32| format!("10.{}.{}.1/32", n / 250, n % 250);
                for present in [true, false] {
                    let set = |n| self.rtnl.set_address("other0", &address(n), present);
                    (0..number * 10).for_each(set);
                }
            }
            "overrun" => self.act_all(&["SIGSTOP", "flood", "flip", "SIGCONT"]),
            "log rotated" => {
                let _ = fs::rename(self.setup.log_file(), self.setup.conf_dir.join("old.log"));
                self.signal(Signal::SIGHUP);
            }
            "SIGHUP" | "SIGUSR1" | "SIGSTOP" | "SIGCONT" => self.signal(name.parse().unwrap()),
            // It has a new index, or the same one, or the same one and the VIP before its name.
            "interface recreated" => {
                let index = self.rtnl.ifindex("ha0");
                let (index, name) =
                    [(0, "ha0"), (index, "ha0"), (index, "ha1")][number as usize % 3];
                self.rtnl.delete("ha0");
                self.rtnl.add_veth_at(index, name, "ha0-peer");
                if name == "ha1" {
                    self.rtnl.add_address(name, VIP);
                    self.rtnl.rename(name, "ha0");
                }
                self.rtnl.up("ha0");
                self.rtnl.up("ha0-peer");
            }
            "interface moved" => {
                let elsewhere = Netns::new();
                self.rtnl.move_to("ha0", &elsewhere);
                sleep(Duration::from_millis(number.into()));
                elsewhere.run(|| Rtnl::new().move_to("ha0", &self.netns));
                self.rtnl.up("ha0");
            }
            "interface down" => {
                self.rtnl.down("ha0");
                self.rtnl.up("ha0");
            }
            // The disk of state file and log, or that of the metrics.
            "disk full" => drop(fs::write(self.ballast(number), vec![0; DISK])),
            "disks free" => {
                (0..2).for_each(|number| drop(fs::remove_file(self.ballast(number))));
            }
            "claims" => {
                let wire = Capture::new("ha0-peer");
                for station in 0..number {
                    let mac = [2, 9, 9, 9, 9, station.try_into().unwrap()];
                    let vip = "169.254.0.5".parse().unwrap();
                    wire.send(&arp::announcement(Operation::Request, mac, vip));
                }
            }
            "sleep" => sleep(Duration::from_millis((number * 5).into())),
            "SIGTERM" => {
                self.signal(Signal::SIGTERM);
                self.expect_end(Some(0));
                // Where the user may not remove the pid file, it is empty.
                assert_eq!(content(&self.setup.pid_file()), "");
                self.start(false);
            }
            "SIGKILL" => {
                self.signal(Signal::SIGKILL);
                self.expect_end(None);
                self.start(true);
            }
            // One helper or both.
            "helpers killed" => {
                let was_at_rest = self.is_at_rest;
                if was_at_rest {
                    self.act_all(&["SIGSTOP", "flip"]);
                }
                for (which, helper) in (0..).zip(self.daemon().children()) {
                    if number % 3 != which {
                        // The second may be gone already, as the daemon ends with the first.
                        let _ = kill(Pid::from_raw(helper.cast_signed()), Signal::SIGKILL);
                    }
                }
                self.is_at_rest = was_at_rest;
                self.expect_loss(truth());
                self.start(false);
            }
            "namespace deleted" => {
                unbind(&self.setup.router);
                self.expect_loss("backup");
                (self.netns, self.rtnl) = namespace(&self.setup.router);
                self.start(true);
            }
            "overlap" => self.overlap(number),
            hook if hook.starts_with("hook ") => self.set_hook(hook),
            agent => self.set_agent(agent),
        }
        self.is_at_rest = false;
    }

    /// Starts a successor like Neutron. The predecessor may be stopped meanwhile.
    fn overlap(&mut self, number: u32) {
        if number.is_multiple_of(2) {
            self.signal(Signal::SIGSTOP);
        }
        self.daemons.last_mut().expect("a daemon").allow_end();
        self.signal(Signal::SIGTERM);
        let pid_file = self.setup.pid_file();
        let owner = fs::metadata(&pid_file).map_or(0, |file| file.uid());
        let _ = fs::remove_file(&pid_file);
        if owner != 0 {
            give_pid_file(&pid_file);
        }
        self.start(false);
        self.daemons[self.daemons.len() - 2].signal(Signal::SIGCONT);
    }

    fn act_all(&mut self, names: &[&'static str]) {
        for name in names {
            self.act(name, 60);
        }
    }

    /// Waits for the end, and asserts the exit code of a daemon in the foreground; none means a signal.
    fn expect_end(&mut self, code: Option<i32>) {
        self.signal(Signal::SIGCONT);
        let status = self.daemons.pop().and_then(Running::wait_exit);
        let log = || self.setup.log();
        assert!(status.is_none_or(|status| status.code() == code), "{status:?}: {}", log());
    }

    /// Waits for exit code 1. A daemon at rest has delivered this state before.
    fn expect_loss(&mut self, word: &str) {
        self.expect_end(Some(1));
        if self.is_at_rest {
            self.assert_delivered(word);
        }
    }

    fn assert_delivered(&self, word: &str) {
        assert_eq!(self.setup.state(), word, "{}", self.setup.log());
        assert_eq!(self.agent.acknowledged().as_deref(), Some(word), "{}", self.setup.log());
    }

    fn set_agent(&mut self, name: &str) {
        let (_, behaviour) = agents().into_iter().find(|(known, _)| *known == name).unwrap();
        let is_to_listen = behaviour.is_some();
        if let Some(behaviour) = behaviour {
            self.agent.behave(behaviour);
        }
        if is_to_listen && self.agent.listens() {
            return;
        }
        // The agent may wait for the rest of a request.
        self.signal(Signal::SIGCONT);
        self.agent.stop(name != "agent does not listen");
        (self.stranger, self.full_backlog) = (None, None);
        let directory = &self.setup.state_path;
        match name {
            _ if is_to_listen => self.agent.listen(),
            "agent with a full backlog" => self.full_backlog = Some(FullBacklog::new(directory)),
            "agent of a stranger" if has_others() => {
                self.stranger = Some(run_as(OTHER_USER, || Agent::start(directory)));
            }
            _ => {}
        }
    }

    fn set_hook(&self, name: &str) {
        let (_, how) = HOOKS.iter().find(|(known, _)| *known == name).unwrap();
        let new = self.record("new");
        fs::write(&new, how).unwrap();
        // A running shell reads on in the old file.
        fs::rename(new, self.record("how")).unwrap();
        let mode = if name == "hook may not be run" { 0o644 } else { 0o755 };
        fs::set_permissions(self.record("hook"), Permissions::from_mode(mode)).unwrap();
    }

    fn record(&self, name: &str) -> PathBuf {
        self.setup.directory().join("hooked").join(name)
    }

    fn metrics(&self) -> PathBuf {
        self.setup.directory().join("metrics")
    }

    fn ballast(&self, number: u32) -> PathBuf {
        [&self.setup.conf_dir, &self.metrics()][number as usize % 2].join("ballast")
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        look(Late(|| format!("{what}:\n{}", self.setup.log())), is_so);
    }

    /// Waits until all consumers have the kernel's state and the daemon sleeps.
    fn settle(&mut self) {
        self.netns.enter();
        let overlapped = self.daemons.len() > 1;
        for last in self.daemons.drain(..self.daemons.len() - 1) {
            let status = last.wait_exit();
            assert!(status.is_none_or(|status| status.success()), "{status:?}");
        }
        let (word, upper) = (truth(), truth().to_uppercase());
        self.daemon().wait_state(word);
        self.daemon().wait_delivered(word);
        if overlapped {
            // Either of two daemons may have notified the agent or run the hook last.
            self.signal(Signal::SIGHUP);
        }
        self.wait("the agent to be notified", || {
            self.agent.acknowledged().as_deref() == Some(word)
        });
        self.wait("the hook", || content(&self.record("succeeded")).trim_end() == upper);
        let labels = format!(r#"router_id="{}",interface="ha0",vip="{VIP}""#, self.setup.router);
        let is = |name: &str, value: u8| {
            let figure = format!("keepwatch_{name}{{{labels}}} {value}\n");
            content(&self.metrics().join("metrics")).contains(&figure)
        };
        let active = u8::from(word == "master");
        self.wait("the metrics", || is("active", active) && is("undelivered", 0));
        // Lines with a limit of one a minute may be pending.
        let daemon = self.daemon();
        self.wait("a daemon that sleeps", || {
            let wakes = daemon.wakes();
            sleep(Duration::from_millis(100));
            daemon.wakes() == wakes && daemon.sleeps_for().is_some_and(|time| time > 1000)
        });
        self.assert_delivered(word);
        assert_eq!(content(&self.record("twice")), "", "hooks at once: {}", self.setup.log());
        self.is_at_rest = true;
    }

    /// Returns the daemon's number of descriptors and the size of its data in kB, which is all that it has allocated. What is
    /// resident grows as events fill static tables.
    fn measure(&self) -> (usize, u64) {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.daemon().pid())).unwrap();
        let data = self.daemon().proc_status("VmData");
        (descriptors.count(), data.trim_end_matches(" kB").parse().unwrap())
    }

    /// Removes the log before it fills the disk, and asserts that a round adds little to it.
    fn shorten_log(&mut self) {
        let length = fs::metadata(self.setup.log_file()).map_or(0, |log| log.len());
        assert!(length < DISK as u64 / 4, "{}", self.setup.log());
        if length > DISK as u64 / 8 {
            fs::remove_file(self.setup.log_file()).unwrap();
            self.signal(Signal::SIGHUP);
            self.settle();
        }
    }
}

/// Creates a network namespace with this name, and enters it.
fn namespace(name: &str) -> (Netns, Rtnl) {
    let netns = Netns::new();
    netns.bind(name);
    netns.enter();
    // Automatic IPv6 addresses come late, and would wake sleeping daemons.
    fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1").unwrap();
    let rtnl = Rtnl::new();
    rtnl.add_ethernet("ha0");
    rtnl.add_ethernet("other0");
    (netns, rtnl)
}

/// Creates a pid file for another user in root's directory, where that user cannot.
fn give_pid_file(path: &Path) {
    fs::write(path, "").unwrap();
    chown(path, Some(NOBODY), None).unwrap();
}

/// Returns the setup of a life. The last one does not run as root.
fn setup(number: usize) -> Setup {
    let mut setup = Setup::new(env!("CARGO_BIN_EXE_keepwatch"))
        .with(format!("--namespace=life{number}"))
        .with("--enable_conntrackd")
        .with("--garp_master_delay=0.1")
        // The smallest possible queue, for overruns.
        .with("--netlink-rcvbuf=4096")
        .with("--renotify=1")
        .with("--hook-timeout=1");
    setup.router = format!("life{number}");
    let [metrics, programs, hooked] =
        ["metrics", "programs", "hooked"].map(|name| setup.directory().join(name));
    for directory in [&metrics, &programs, &hooked] {
        fs::create_dir(directory).unwrap();
    }
    for directory in [&metrics, &setup.conf_dir] {
        mount_tmpfs_with(directory, MsFlags::empty(), &format!("size={DISK}")).unwrap();
    }
    write_program(&programs.join("conntrackd"), "#!/bin/sh\necho \"$3\"\nexit $(($$ % 2))\n");
    write_program(&hooked.join("hook"), &HOOK.replace("DIRECTORY", hooked.to_str().unwrap()));
    fs::write(setup.conf_dir.join("conntrackd.conf"), "").unwrap();
    fs::set_permissions(&setup.state_path, Permissions::from_mode(0o777)).unwrap();
    if number + 1 == LIVES && has_others() {
        give_pid_file(&setup.pid_file());
        chown(&hooked, Some(NOBODY), None).unwrap();
        setup = setup.with(format!("--user={NOBODY}")).with(format!("--group={NOBODY}"));
    }
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
    setup.environment.push(("PATH".into(), path.into()));
    setup
        .with(format!("--metrics-file={}", metrics.join("metrics").display()))
        .with(format!("--hook={}", hooked.join("hook").display()))
}

/// Returns the state word by the kernel's routes in this namespace, which include its own addresses.
fn truth() -> &'static str {
    let routes = content(Path::new("/proc/thread-self/net/fib_trie"));
    if routes.contains("|-- 169.254.0.5\n") { "master" } else { "backup" }
}

/// Returns the number of other processes in this mount namespace.
fn others() -> usize {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let ours = namespace(process::id());
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().and_then(|name| name.parse().ok()));
    pids.filter(|pid| *pid != process::id() && namespace(*pid) == ours).count()
}

fn soak(minutes: f64, mut random: Rng) {
    let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let setups: Vec<_> = (0..LIVES).map(setup).collect();
    let mut lives: Vec<_> = setups.iter().map(Life::begin).collect();
    let (mut rounds, mut done, mut allowed) = (0, BTreeMap::new(), None);
    while Instant::now() < end || rounds <= WARM_UP {
        let actions: Vec<_> = (0..random.u32(1..=40)).map(|_| draw(&mut random)).collect();
        if env::var_os("VERBOSE").is_some() {
            println!("round {rounds}: {actions:?}");
        }
        for (life, name, number) in actions {
            lives[life].act(name, number);
            *done.entry(name).or_insert(0) += 1;
        }
        for life in &mut lives {
            life.act_all(&["SIGCONT", "disks free", "hook succeeds", "agent as the newest"]);
        }
        lives.iter_mut().for_each(Life::settle);
        rounds += 1;
        let first = &lives[0];
        // Each has a helper for the hook, and one for conntrackd.
        first.wait("no more processes than daemons and helpers", || others() == 3 * LIVES);
        if rounds >= WARM_UP {
            let (descriptors, data) = *allowed.get_or_insert(first.measure());
            // A notification may be under way.
            first.wait("descriptors to be closed", || first.measure().0 <= descriptors);
            assert!(first.measure().1 <= data, "{:?}, at first {allowed:?}", first.measure());
        }
        lives.iter_mut().for_each(Life::shorten_log);
    }
    let (descriptors, data) = lives[0].measure();
    println!("{rounds} rounds: {done:#?}\nthe first: {}", lives[0].daemon().status());
    println!("{descriptors} descriptors, {data} kB of data; at first {allowed:?}");
    for life in &mut lives {
        life.act("SIGTERM", 0);
    }
}

fn main() {
    let minutes = env::args().nth(1).and_then(|minutes| minutes.parse().ok());
    let minutes = minutes.expect("the number of minutes as argument");
    let seed = env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    lab::namespace::enter().expect("namespaces, which need root or unprivileged user namespaces");
    soak(minutes, Rng::with_seed(seed));
}
