//! Both kinds of servers of Neutron's L3 agents accept keepwatch's notifications.

use lab::rtnl::Rtnl;
use lab::trial::table;
use libtest_mimic::Trial;

use crate::agent_server::AgentServer;
use crate::world::{VIP, add_interface, setup};

/// The newest release whose server uses eventlet.
const EVENTLET: &str = "26.0.5";
/// The newest release, whose server uses threads, has a backlog of 5 and an unusual reply.
pub const THREADED: &str = "29.0.0";

#[apply(trial)]
fn servers() -> Vec<Trial> {
    let servers = [("threaded_server_gets_all", THREADED), ("eventlet_server_gets_all", EVENTLET)];
    table(module_path!(), servers, assert_gets_all).collect()
}

fn assert_gets_all(release: &str) {
    let rtnl = Rtnl::new();
    add_interface(&rtnl, "ha0");
    // No state is delivered twice.
    let setup = setup().with("--active-word=primary").with("--renotify=0");
    // A busy server may refuse attempts.
    setup.expect(&["agent not notified: "]);
    let set_vip = |present: bool| {
        rtnl.set_address("ha0", VIP, present);
        if present { "primary" } else { "backup" }
    };
    let server = AgentServer::start(release, &setup.state_path);
    let keepwatch = setup.start();
    server.wait_state("backup");
    let mut expected = vec!["backup"];
    for n in 0..20 {
        let state = set_vip(n % 2 == 0);
        expected.push(state);
        server.wait(state, |arrivals| arrivals.len() >= expected.len());
    }
    keepwatch.wait_asleep();
    let expected: Vec<_> = expected.iter().map(|state| (&*setup.router, *state)).collect();
    let arrivals = server.arrivals();
    assert!(
        arrivals.iter().map(|(router, state)| (&**router, &**state)).eq(expected),
        "{arrivals:?}"
    );
    assert_eq!(keepwatch.counter("notification_failures"), 0, "{}", setup.log());
    // The VIP flips faster than the agent takes notifications: some are skipped, but not the last.
    for n in 0..=40 {
        set_vip(n % 2 == 0);
    }
    keepwatch.wait_asleep();
    server.wait_state("primary");
}
