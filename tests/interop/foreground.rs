//! What the agent of release 29 leaves beside every monitor, as it starts them in the foreground and does
//! not wait for them: `ROUTERS=20 cargo test --test interop -- foreground --nocapture` prints the table of
//! `docs/neutron.md`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::PATIENCE;
use lab::daemon::wait_end;
use lab::files::content;
use libtest_mimic::Trial;

use crate::host::{self, Host, Process, Router, monitors, processes, starters};
use crate::l3_agent::{L3Agent, NAME};

pub fn trials() -> Vec<Trial> {
    lab::trials![a_daemon_leaves_no_process_beside_it]
}

const RELEASE: &str = "29.0.0";

/// How a monitor is run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Original,
    Foreground,
    AsShipped,
}

/// Processes of a kind, and their memory.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    count: usize,
    /// In kB.
    pss: u64,
}

/// What there is for all routers together.
#[derive(Debug, Default)]
struct Beside {
    monitors: Sum,
    rootwrap: Sum,
    sudo: Sum,
    zombies: usize,
}

fn a_daemon_leaves_no_process_beside_it() {
    let routers = env::var("ROUTERS").ok();
    // Without the daemon it is no different, which the table shows.
    let rootwrap_daemons = if routers.is_some() { &[false, true][..] } else { &[true] };
    let routers = routers.map_or(2, |count| count.parse().expect("a number"));
    for &rootwrap_daemon in rootwrap_daemons {
        for way in [Way::Original, Way::Foreground, Way::AsShipped] {
            host::run(|| {
                let beside = measure(way, rootwrap_daemon, routers);
                print(way, rootwrap_daemon, &beside);
                let waits = if way == Way::AsShipped { 0 } else { routers };
                assert_eq!(beside.rootwrap.count, waits, "{way:?}: {beside:?}");
                assert!((beside.sudo.count == 0) == (waits == 0), "{way:?}: {beside:?}");
                // The agent's own child, which it does not wait for.
                assert_eq!(beside.zombies, routers - waits, "{way:?}: {beside:?}");
            });
        }
    }
}

fn measure(way: Way, rootwrap_daemon: bool, count: usize) -> Beside {
    let mut host = Host::new(RELEASE, "from-29");
    host.check_interval = 60;
    host.follow("program");
    if way != Way::Original {
        host.follow("directory");
    }
    if way == Way::Foreground {
        let wrapper = Path::new("/opt/keepwatch").join(NAME);
        let script = content(&wrapper).replace("\"$@\"", "--foreground \"$@\"");
        fs::write(&wrapper, script).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let _server = host.server();
    let routers: Vec<Router> = (0..count).map(|_| Router::new()).collect();
    let mut agent = host.l3_agent(rootwrap_daemon, &routers);
    let pids = agent.answers("spawn");
    assert!(pids.iter().all(|pid| pid != "inactive"), "{pids:?}");
    if way == Way::Original {
        wait_for_children(3 * count);
    }
    if way == Way::AsShipped {
        // They are about to end.
        for starter in starters() {
            wait_end(starter.pid);
        }
    }
    let beside = beside(&agent);
    if way != Way::Original {
        assert!(agent.answers("destroy").iter().all(|answer| answer == "inactive"));
        for pid in &pids {
            wait_end(pid.parse().unwrap());
        }
        if way == Way::AsShipped {
            assert_eq!(zombies(&agent), 0, "they are waited for when the router goes");
        }
    }
    beside
}

/// Waits until the original has all its processes, of which nothing tells.
fn wait_for_children(count: usize) {
    let deadline = Instant::now() + PATIENCE;
    while monitors().len() - starters().len() < count {
        assert!(Instant::now() < deadline, "{:?}", monitors());
        thread::sleep(Duration::from_millis(20));
    }
}

fn zombies(agent: &L3Agent) -> usize {
    let zombie = |process: &Process| process.state == 'Z' && process.parent == agent.pid();
    processes().into_iter().filter(zombie).count()
}

fn beside(agent: &L3Agent) -> Beside {
    let mut beside = Beside { zombies: zombies(agent), ..Beside::default() };
    for process in monitors() {
        let sum = match &*process.name {
            "sudo" => &mut beside.sudo,
            "neutron-rootwra" => &mut beside.rootwrap,
            _ => &mut beside.monitors,
        };
        let rollup = content(Path::new(&format!("/proc/{}/smaps_rollup", process.pid)));
        let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        sum.pss += pss.map_or(0, |pss| pss.trim().trim_end_matches(" kB").parse().unwrap());
        sum.count += 1;
    }
    beside
}

#[expect(clippy::print_stdout, reason = "a table is for people")]
fn print(way: Way, rootwrap_daemon: bool, beside: &Beside) {
    let sum = |sum: &Sum| {
        format!("{} MB in {}", f64::from(u32::try_from(sum.pss).unwrap()) / 1e3, sum.count)
    };
    println!(
        "| {way:?} | {rootwrap_daemon} | {} | {} | {} | {} |",
        sum(&beside.monitors),
        sum(&beside.rootwrap),
        sum(&beside.sudo),
        beside.zombies
    );
}
