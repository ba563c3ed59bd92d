//! Many routers and one agent with a backlog of 5, which is away for a minute.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use lab::files::{Directory, Watch, content};
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;

use crate::agent_server::{AgentServer, Arrival, PATIENCE};
use crate::neutron::THREADED;
use crate::world::add_interface;

pub fn trials() -> Vec<Trial> {
    lab::trials![agent_is_away_for_a_minute]
}

const ROUTERS: usize = 100;
/// An agent that comes back is to be told within this, as the waits grow no longer.
const BOUND: Duration = Duration::from_secs(5);

/// keepwatch for one of the routers; all share an interface, an agent, and a directory for their logs.
struct Router {
    id: String,
    vip: String,
    log: PathBuf,
    child: Child,
}

impl Router {
    fn start(number: usize, directory: &Directory) -> Self {
        let (id, vip) = (format!("router-{number:03}"), format!("169.254.0.{number}/24"));
        let log = directory.sub("logs").join(&id);
        let child = Command::new(env!("CARGO_BIN_EXE_keepwatch"))
            .args(["--foreground", "--active-word=primary", "--no-announce"])
            .args(["--monitor_interface=ha0", "--monitor_cidr", &vip, "--router_id", &id])
            .arg("--conf_dir")
            .arg(directory.sub(&id))
            .arg("--log-file")
            .arg(&log)
            .arg("--state_path")
            .arg(directory.sub("agent"))
            .spawn()
            .expect("keepwatch");
        Self { id, vip, log, child }
    }

    /// How many lines of the log have this in them.
    fn logged(&self, text: &str) -> usize {
        content(&self.log).matches(text).count()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent_is_away_for_a_minute() {
    let rtnl = Rtnl::new();
    add_interface(&rtnl, "ha0");
    let directory = Directory::new();
    let agent = directory.sub("agent");
    let logs = Watch::new(&directory.sub("logs"));
    let server = AgentServer::start(THREADED, &agent);
    let routers: Vec<_> = (1..=ROUTERS).map(|n| Router::start(n, &directory)).collect();
    wait_all(&server, &routers, "backup");
    server.kill();

    for router in &routers {
        rtnl.add_address("ha0", &router.vip);
    }
    // A failure that goes on is logged at once, and again after a minute.
    let refused = "agent not notified: connection refused (ECONNREFUSED); retrying";
    let mut rest: Vec<&Router> = routers.iter().collect();
    logs.within(PATIENCE * 2, "a minute without an agent", || {
        rest.retain(|router| router.logged(refused) < 2);
        rest.is_empty().then_some(())
    });

    let full_at_start = full(&routers);
    let server = AgentServer::start(THREADED, &agent);
    wait_all(&server, &routers, "primary");
    report(&server, full(&routers) - full_at_start);
}

/// Waits until the last that the agent was told of each router is this state.
fn wait_all(server: &AgentServer, routers: &[Router], state: &str) {
    server.wait(&format!("{state} of every router"), |arrivals| {
        let last = |router: &Router| arrivals.iter().rfind(|arrival| arrival.router == router.id);
        routers.iter().all(|router| last(router).is_some_and(|last| last.state == state))
    });
}

/// How often the backlog was found full, as far as it is logged: once a minute for each router.
fn full(routers: &[Router]) -> usize {
    routers.iter().map(|router| router.logged("agent not notified: backlog full (EAGAIN)")).sum()
}

#[expect(clippy::print_stdout, reason = "times are for people")]
fn report(server: &AgentServer, full: usize) {
    let arrivals = server.arrivals();
    let after = |arrival: &Arrival| arrival.at.saturating_duration_since(server.listening);
    let mut after: Vec<_> = arrivals.iter().map(after).collect();
    after.sort_unstable();
    let [half, all] = [after.len() / 2, after.len() - 1].map(|n| after[n].as_secs_f64());
    println!(
        "agent back after a minute, backlog 5: told of half of {ROUTERS} routers after {half:.2} s, \
         of all after {all:.2} s (bound {BOUND:?}); {} notifications, backlog full for {full}",
        arrivals.len(),
    );
}
