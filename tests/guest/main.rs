//! Tests keepwatch inside a machine that `cross/boot` has booted, on a kernel and a CPU of its target. Prints
//! measurements.

#![expect(clippy::expect_used, clippy::print_stdout, reason = "a test panics, and prints")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keepwatch::wire::arp::{self, Operation};
use lab::agent::Agent;
use lab::capture::Capture;
use lab::daemon::{Running, Setup};
use lab::files::Watch;
use lab::rtnl::Rtnl;
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

// Until 2038 no test sees it, but the kernel's times of frames are lost.
const _: () = assert!(size_of::<nix::libc::time_t>() == 8, "the crate libc has 32-bit times");

/// The VIP of a [`Setup`].
const VIP: &str = "169.254.0.5/24";
/// The number of timed moves of the VIP.
const MOVES: usize = 100;
/// More events than the netlink socket has room for.
const EVENTS: usize = 6000;

fn main() {
    let rtnl = Rtnl::new();
    for interface in ["ha0", "lan0"] {
        rtnl.add_ethernet(interface);
    }
    let metrics = "/run/keepwatch.prom";
    let setup = Setup::new("/keepwatch").with(format!("--metrics-file={metrics}"));
    let agent = Agent::start(&setup.state_path);
    let keepwatch = setup.start();
    agent.wait_acknowledged("backup");
    keepwatch.wait_asleep();
    report_memory("idle", &keepwatch);
    lab::hardening::assert_hardened(keepwatch.pid(), Path::new("/keepwatch"));

    by_script(&agent, &keepwatch);
    latency(&rtnl, &agent);
    announcement(&rtnl, &agent);
    thousand_flips(&rtnl, &agent, &keepwatch);
    flood(&rtnl, &agent, &keepwatch);
    foreign_sender(&rtnl, &keepwatch);
    clock_is_set(&setup, Path::new(metrics), &rtnl, &agent);

    keepwatch.wait_asleep();
    report_memory("afterwards", &keepwatch);
    report_cpu(&keepwatch);
    let ended = keepwatch.terminate().expect("an exit status");
    assert!(ended.success(), "{ended}");
    agent.assert_last_state("backup");
    let log = setup.log();
    // A missing seccomp filter is a warning, a too strict one an error.
    let complaints: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(" WARNING ") || line.contains(" ERROR "))
        // Addresses may change while all are listed, and a small router's kernel has no Landlock.
        .filter(|line| {
            ![
                "netlink events lost",
                "addresses failed: interrupted by a change",
                "ignored a netlink message from port",
                "no Landlock",
            ]
            .iter()
            .any(|known| line.contains(known))
        })
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    both_families(&rtnl);
    suspension();
}

/// Before Linux 6.9 the kernel lists each family in a part of its own. That is no gap, so the state waits for no other list.
fn both_families(rtnl: &Rtnl) {
    let setup = Setup::new("/keepwatch").with("--debug");
    let agent = Agent::start(&setup.state_path);
    for address in ["192.0.2.1/24", "fd00::1/64"] {
        rtnl.add_address("ha0", address);
    }
    let keepwatch = setup.start();
    agent.wait_acknowledged("backup");
    keepwatch.wait_log("Answered(Complete)", 2);
    assert!(!setup.log().contains("Answered(Interrupted)"), "{}", setup.log());
    println!("listed: IPv4 and IPv6 of one interface without a gap");
}

/// Adds and removes the VIP by a script, as on a router.
fn by_script(agent: &Agent, keepwatch: &Running<'_>) {
    for (change, word) in [("add", "master"), ("del", "backup")] {
        let status = Command::new("/vip").arg(change).status().expect("to run the script");
        assert!(status.success(), "vip {change}: {status}");
        keepwatch.wait_state(word);
        agent.wait_acknowledged(word);
    }
}

fn set_vip(rtnl: &Rtnl, present: bool) -> &'static str {
    rtnl.set_address("ha0", VIP, present);
    if present { "master" } else { "backup" }
}

/// Prints the time from the request to the kernel until the agent has read the notification.
fn latency(rtnl: &Rtnl, agent: &Agent) {
    let mut latencies: Vec<Duration> = (1..=MOVES)
        .map(|n| {
            let arrived = agent.arrivals().len();
            let began = Instant::now();
            let word = set_vip(rtnl, n % 2 == 1);
            agent.wait_acknowledged(word);
            let arrival = agent.arrivals().into_iter().nth(arrived).expect("an arrival");
            arrival.at - began
        })
        .collect();
    latencies.sort_unstable();
    let median = latencies.get(MOVES / 2).expect("latencies");
    let worst = latencies.last().expect("latencies");
    let (median, worst) = (median.as_secs_f64() * 1e3, worst.as_secs_f64() * 1e3);
    println!("event to receipt: median {median:.1} ms, worst {worst:.1} ms, of {MOVES}");
}

/// Asserts that an address of the active router is announced.
fn announcement(rtnl: &Rtnl, agent: &Agent) {
    let mac = [2, 0, 0, 0, 0, 1];
    rtnl.set_mac("lan0", mac);
    let capture = Capture::new("lan0-peer");
    rtnl.add_address("lan0", "10.0.0.1/24");
    agent.wait_acknowledged(set_vip(rtnl, true));
    let expected = arp::announcement(Operation::Request, mac, [10, 0, 0, 1].into());
    capture.wait("an announcement", |frames| frames.iter().any(|f| f.bytes[..] == expected[..]));
    agent.wait_acknowledged(set_vip(rtnl, false));
    println!("announced: {} bytes captured at the other end", expected.len());
}

fn thousand_flips(rtnl: &Rtnl, agent: &Agent, keepwatch: &Running<'_>) {
    // An odd number, so that the last state is not the first.
    for n in 1..=1001 {
        set_vip(rtnl, n % 2 == 1);
    }
    // The agent may have acknowledged an earlier `master`.
    keepwatch.wait_asleep();
    agent.assert_last_state("master");
    agent.wait_acknowledged(set_vip(rtnl, false));
    println!("flips: 1001, the agent knows the last");
}

/// Sends events to a stopped daemon, with the VIP's among the lost ones.
fn flood(rtnl: &Rtnl, agent: &Agent, keepwatch: &Running<'_>) {
    // It must have read the agent's last reply before it is stopped.
    keepwatch.wait_asleep();
    keepwatch.signal(Signal::SIGSTOP);
    for n in 0..EVENTS / 2 {
        // Few addresses, as thousands would need too much memory.
        let address = format!("10.1.0.{}/32", n % 250 + 1);
        rtnl.add_address("ha0-peer", &address);
        rtnl.delete_address("ha0-peer", &address);
    }
    let word = set_vip(rtnl, true);
    keepwatch.signal(Signal::SIGCONT);
    agent.wait_acknowledged(word);
    let overruns = keepwatch.counter("overruns");
    assert!(overruns > 0, "{}", keepwatch.status());
    agent.wait_acknowledged(set_vip(rtnl, false));
    println!("flood: {EVENTS} events, {overruns} overrun, the agent knows the last");
}

/// Asserts that only the kernel is believed.
fn foreign_sender(rtnl: &Rtnl, keepwatch: &Running<'_>) {
    rtnl.forge_address("ha0", [169, 254, 0, 5], 24, keepwatch.pid());
    keepwatch.wait_log("ignored a netlink message from port", 1);
    assert_eq!(keepwatch.counter("foreign"), 1);
    println!("foreign sender: ignored");
}

/// Asserts that the time of the last change follows the wall clock, as after a boot in 1970.
fn clock_is_set(setup: &Setup, metrics: &Path, rtnl: &Rtnl, agent: &Agent) {
    let before = seconds(ClockId::CLOCK_BOOTTIME);
    agent.wait_acknowledged(set_vip(rtnl, true));
    agent.wait_acknowledged(set_vip(rtnl, false));
    let after = seconds(ClockId::CLOCK_BOOTTIME);
    for date in ["2030-01-01 00:00:00", "1970-01-02 00:00:00", "2029-01-01 00:00:00"] {
        let status = Command::new("/clock").args(["set", date]).status().expect("to set the clock");
        assert!(status.success(), "{date}: {status}");
        let boot = seconds(ClockId::CLOCK_REALTIME) - seconds(ClockId::CLOCK_BOOTTIME);
        let is_right = |time: i64| (before - 1..=after + 1).contains(&(time - boot));
        let written = |file: &Path| fs::read_to_string(file).unwrap_or_default();
        Watch::new(Path::new("/run")).until(date, || {
            let text = written(metrics);
            let sample = text
                .lines()
                .find(|line| line.starts_with("keepwatch_last_change_timestamp_seconds{"))?;
            is_right(sample.rsplit_once(' ')?.1.parse().ok()?).then_some(())
        });
        let modified = fs::metadata(setup.state_file()).expect("the state file").mtime();
        assert!(is_right(modified), "{date}: {modified}");
        let listed = Command::new("/keepwatch").args(["--list", "--json"]).output();
        let listed = String::from_utf8(listed.expect("a list").stdout).expect("JSON");
        let since = listed.split("\"since\":").nth(1).and_then(|rest| rest.split(',').next());
        let since = since.and_then(|since| since.trim().parse().ok());
        assert!(since.is_some_and(is_right), "{date}: {listed}");
    }
    println!("clock: set to 2030, 1970 and 2029, the last change has its time");
}

/// Asserts that the time asleep counts: what falls due meanwhile is done right after it.
fn suspension() {
    const DUE: u32 = 20;
    let setup = Setup::new("/keepwatch").with(format!("--renotify={DUE}"));
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified", 1);
    let agent = Agent::start(&setup.state_path);
    agent.wait("a notification", |arrivals| arrivals.len() == 1);
    let began = seconds(ClockId::CLOCK_MONOTONIC);
    let slept = Command::new("/clock").args(["suspend", "30"]).status().expect("to sleep");
    if slept.code() == Some(3) {
        return println!("suspension: not on this machine");
    }
    assert!(slept.success(), "{slept}");
    agent.wait("another one", |arrivals| arrivals.len() == 2);
    let awake = seconds(ClockId::CLOCK_MONOTONIC) - began;
    assert!(awake < i64::from(DUE) / 2, "the next notification after {awake} s awake");
    println!("suspension: 30 s, what was due after {DUE} s was done when awake for {awake} s");
}

/// Returns the time by a clock in whole seconds.
fn seconds(clock: ClockId) -> i64 {
    clock_gettime(clock).expect("a clock").num_seconds()
}

/// Prints the memory, also by pages, as `VmRSS` is wrong on kernels made for many CPUs.
fn report_memory(when: &str, keepwatch: &Running<'_>) {
    let path = format!("/proc/{}/smaps_rollup", keepwatch.pid());
    let rollup = fs::read_to_string(path).expect("smaps_rollup");
    let field = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("a field of smaps_rollup").trim()
    };
    let (resident, dirty) = (field("Rss"), field("Private_Dirty"));
    let (vm_rss, vm_hwm) = (keepwatch.proc_status("VmRSS"), keepwatch.proc_status("VmHWM"));
    println!("memory {when}: Rss {resident}, dirty {dirty}, VmRSS {vm_rss}, VmHWM {vm_hwm}");
}

fn report_cpu(keepwatch: &Running<'_>) {
    let path = format!("/proc/{}/stat", keepwatch.pid());
    let stat = fs::read_to_string(path).expect("stat");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let mut times = fields.split(' ').skip(11).map(|ticks| ticks.parse::<u64>().expect("ticks"));
    // In hundredths of a second (USER_HZ).
    let mut next = || times.next().expect("a time") * 10;
    println!("CPU: {} ms in user mode, {} ms in the kernel", next(), next());
}
