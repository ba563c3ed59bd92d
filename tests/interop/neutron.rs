//! The servers of Neutron's L3 agent, of both kinds there have been, take what keepwatch sends.

use lab::daemon::Setup;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;
use nix::sys::signal::Signal;

use crate::agent_server::AgentServer;
use crate::world::{VIP, add_interface, setup};

/// The newest release whose server uses eventlet.
const EVENTLET: &str = "26.0.5";
/// The newest release, whose server uses threads, has a backlog of 5 and replies in a way of its own.
pub const THREADED: &str = "29.0.0";

pub fn trials() -> Vec<Trial> {
    lab::trials![
        threaded_server_is_told_all,
        eventlet_server_is_told_all,
        threaded_server_comes_late_and_is_killed,
        eventlet_server_comes_late_and_is_killed,
        threaded_server_hangs,
        eventlet_server_hangs,
    ]
}

fn threaded_server_is_told_all() {
    told_all(THREADED);
}

fn eventlet_server_is_told_all() {
    told_all(EVENTLET);
}

fn threaded_server_comes_late_and_is_killed() {
    comes_late_and_is_killed(THREADED);
}

fn eventlet_server_comes_late_and_is_killed() {
    comes_late_and_is_killed(EVENTLET);
}

fn threaded_server_hangs() {
    hangs(THREADED);
}

fn eventlet_server_hangs() {
    hangs(EVENTLET);
}

/// An interface without the VIP, and a keepwatch not yet started.
fn router() -> (Rtnl, Setup) {
    let rtnl = Rtnl::new();
    add_interface(&rtnl, "ha0");
    // Nothing is told that has been told already.
    (rtnl, setup().with("--active-word=primary").with("--renotify=0"))
}

fn set_vip(rtnl: &Rtnl, present: bool) -> &'static str {
    rtnl.set_address("ha0", VIP, present);
    if present { "primary" } else { "backup" }
}

fn told_all(release: &str) {
    let (rtnl, setup) = router();
    let server = AgentServer::start(release, &setup.state_path);
    let keepwatch = setup.start();
    server.wait_state("backup");
    let mut expected = vec!["backup"];
    for n in 0..20 {
        let state = set_vip(&rtnl, n % 2 == 0);
        expected.push(state);
        server.wait(state, |arrivals| arrivals.len() >= expected.len());
    }
    keepwatch.wait_asleep();
    assert_eq!(server.states(), expected);
    assert!(server.arrivals().iter().all(|arrival| arrival.router == setup.router));
    assert_eq!(keepwatch.counter("notification_failures"), 0, "{}", setup.log());
    // Faster than the agent takes them: some are passed over, the last is not.
    for n in 0..=40 {
        set_vip(&rtnl, n % 2 == 0);
    }
    keepwatch.wait_asleep();
    server.wait_state("primary");
}

fn comes_late_and_is_killed(release: &str) {
    let (rtnl, setup) = router();
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified: no socket (ENOENT)", 1);
    let server = AgentServer::start(release, &setup.state_path);
    server.wait_state("backup");
    for n in 0..3 {
        let state = set_vip(&rtnl, n % 2 == 0);
        server.wait_state(state);
    }
    server.kill();
    for n in 1..6 {
        let state = set_vip(&rtnl, n % 2 == 0);
        keepwatch.wait_state(state);
    }
    keepwatch.wait_log("agent not notified: connection refused (ECONNREFUSED)", 1);
    let server = AgentServer::start(release, &setup.state_path);
    server.wait_state("backup");
    keepwatch.wait_asleep();
    assert_eq!(server.states(), ["backup"], "only what it does not know yet");
}

/// What was sent while it hung is taken in the end, and might be heeded after something newer. So that
/// is said twice.
fn hangs(release: &str) {
    let (rtnl, setup) = router();
    let server = AgentServer::start(release, &setup.state_path);
    let keepwatch = setup.start();
    server.wait_state("backup");
    server.signal(Signal::SIGSTOP);
    set_vip(&rtnl, true);
    keepwatch.wait_log("agent not notified: reply timed out", 1);
    set_vip(&rtnl, false);
    keepwatch.wait_state("backup");
    server.signal(Signal::SIGCONT);
    server.wait("the newest state, twice", |arrivals| {
        let told = |state: &str| arrivals.iter().filter(|arrival| arrival.state == state).count();
        told("primary") >= 1 && told("backup") == 3
    });
    keepwatch.wait_asleep();
    assert_eq!(server.states().last().map(String::as_str), Some("backup"), "{:?}", server.states());
}
