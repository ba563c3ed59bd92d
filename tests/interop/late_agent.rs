//! Promise 6: a 200 of the newest agent is no proof. One that has just started answers so before it knows its
//! routers, and forgets.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use lab::files::{content, read_line};
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use libtest_mimic::Trial;

use crate::agent_server::python;
use crate::neutron::THREADED;
use crate::world::{VIP, add_interface, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![metadata_proxy_of_a_router_learnt_late]
}

/// The VIP came while the agent was away, and the agent learns of the router only after the first report.
fn metadata_proxy_of_a_router_learnt_late() {
    let setup = setup().with("--active-word=primary").with("--renotify=5,12");
    Netns::current().bind(&format!("qrouter-{}", setup.router));
    let rtnl = Rtnl::new();
    rtnl.up("lo");
    add_interface(&rtnl, "ha0");
    rtnl.add_address("ha0", VIP);
    let keepwatch = setup.start();
    keepwatch.wait_log("agent not notified", 1);

    let mut agent = LateAgent::start(&setup.state_path, &setup.router);
    for time in 1..=2 {
        assert_eq!(agent.event(), "received primary");
        keepwatch.wait_log("Notified agent router", time);
        assert_eq!(agent.event(), "forgotten");
    }
    agent.go_on();
    assert_eq!(agent.event(), "learnt");
    assert_eq!(agent.event(), "received primary");
    assert_eq!(agent.event(), "done primary");
    let proxy = agent.metadata_proxy().expect("a metadata proxy");
    assert!(proxy.contains(&format!("ns-metadata-proxy/{}.conf", setup.router)), "{proxy}");
    keepwatch.wait_asleep();
    assert_eq!(keepwatch.counter("notifications"), 3);
}

struct LateAgent {
    child: Child,
    pids: PathBuf,
    errors: PathBuf,
}

impl LateAgent {
    fn start(state_path: &Path, router: &str) -> Self {
        let errors = state_path.join("errors");
        let mut command = python(THREADED, "late_agent.py");
        command.arg(state_path).arg(router).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(File::create(&errors).unwrap());
        let child = command.spawn().expect("an agent");
        Self { child, pids: state_path.join("pids"), errors }
    }

    /// The next thing that happens in it.
    fn event(&mut self) -> String {
        let line = read_line(self.child.stdout.as_mut().expect("its output"));
        assert!(!line.is_empty(), "{}", content(&self.errors));
        line.trim_end().into()
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"\n").unwrap();
    }

    /// The command line of the process that it has started, if that runs.
    fn metadata_proxy(&self) -> Option<String> {
        fs::read_dir(&self.pids).ok()?.flatten().find_map(|entry| {
            let pid = content(&entry.path());
            let cmdline = content(Path::new(&format!("/proc/{}/cmdline", pid.trim())));
            (!cmdline.is_empty()).then(|| cmdline.replace('\0', " "))
        })
    }
}

impl Drop for LateAgent {
    fn drop(&mut self) {
        self.go_on();
        let _ = self.child.wait();
    }
}
