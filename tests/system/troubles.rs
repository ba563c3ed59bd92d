//! Each trouble of docs/monitoring.md is provoked: status, metrics file and `--list` name it in the same words.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use keepwatch::wire::arp::{self, Operation};
use lab::agent::Agent;
use lab::capture::Capture;
use lab::daemon::Running;
use lab::files::{Watch, content};
use lab::namespace::Pids;
use lab::rtnl::Address;
use netlink_packet_route::address::AddressFlags;
use nix::sys::signal::Signal;

use crate::claims::claim_twice;
use crate::list::table;
use crate::metrics::{File, text, world_with};
use crate::scripted::{install, tracked};
use crate::service_manager::Manager;
use crate::world::{NO_AGENT, NO_INTERFACE, VIP, add_other_station, setup};

/// Returns the rows of the table: words, severity, figure, alert and remedy.
fn rows() -> Vec<[&'static str; 5]> {
    let page = include_str!("../../docs/monitoring.md");
    let (_, table) = page.split_once("| trouble | severity |").expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &'static str| {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let plain = |cell: &'static str| cell.trim_matches('`');
        [plain(cells[0]), cells[1], plain(cells[2]), plain(cells[3]), cells[4]]
    };
    rows.map(cells).collect()
}

/// Replaces the station or address in the words of a trouble by the placeholder of the table.
fn template(words: &str) -> &str {
    match words {
        _ if words.starts_with("split brain: ") => "split brain: MAC claims the VIP",
        _ if words.contains(" is on ") => "CIDR is on INTERFACE",
        other => other,
    }
}

/// The table has exactly the program's troubles, with their severities.
#[apply(trial)]
fn monitoring_page_lists_each() {
    let (page, alerts) =
        (include_str!("../../docs/keepwatch.8"), include_str!("../../cross/prometheus/alerts.yml"));
    let text = text("r1", "fd00::1/64");
    let mut known = BTreeSet::from([("the interface is down", "warning")]);
    for line in text.lines().filter(|line| line.starts_with("keepwatch_trouble{")) {
        let (_, labels) = line.split_once("severity=\"").unwrap();
        let (severity, words) = labels.split_once("\",trouble=\"").unwrap();
        known.insert((template(words.trim_end_matches("\"} 1")), severity));
    }
    let rows = rows();
    let described: BTreeSet<_> = rows.iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(described, known);
    for [words, _, figure, alert, remedy] in rows {
        assert!(page.contains(&format!(".It Li {figure}\n")), "{figure}");
        assert!(alerts.contains(&format!("- alert: {alert}\n")), "{alert}");
        assert!(!remedy.is_empty(), "{words}");
    }
}

struct Observer<'a> {
    pids: &'a Pids,
    manager: &'a Manager,
    metrics: &'a File,
    status: String,
    seen: BTreeSet<&'static str>,
}

impl<'a> Observer<'a> {
    fn new(pids: &'a Pids, manager: &'a Manager, metrics: &'a File) -> Self {
        Self { pids, manager, metrics, status: String::new(), seen: BTreeSet::new() }
    }

    /// Waits until each output names a trouble.
    fn expect(&mut self, words: &str, keepwatch: &Running<'_>) {
        let rows = rows();
        let [row, severity, ..] = rows.iter().find(|row| row[0] == template(words)).unwrap();
        while !self.status.split("; ").any(|trouble| trouble == words) {
            self.status = self.manager.receive();
        }
        let sample = format!("severity=\"{severity}\",trouble=\"{words}\"}} 1\n");
        let has_sample = || content(&self.metrics.0).contains(&sample).then_some(());
        Watch::new(self.metrics.0.parent().unwrap()).until(&sample, has_sample);
        let (code, rows) = table(self.pids);
        let remark = rows[0].last().unwrap();
        assert!(remark.split("; ").any(|trouble| trouble == words), "{words}: {remark}");
        let least = if *severity == "critical" { 2 } else { 1 };
        assert!(code >= Some(least) && code < Some(3), "{words}: {code:?}");
        let status = keepwatch.status();
        assert!(status.contains(&format!("; {words}")), "{words}: {status}");
        self.seen.insert(row);
    }
}

#[apply(trial)]
fn every_output_names_each() {
    let pids = Pids::new();
    let mut seen = over_ipv4(&pids);
    seen.extend(duplicate_address(&pids));
    assert_eq!(seen, rows().iter().map(|row| row[0]).collect());
}

fn over_ipv4(pids: &Pids) -> BTreeSet<&'static str> {
    let setup = install(setup());
    let metrics = File::of(&setup);
    let mut tracked = tracked(setup.with(metrics.option()));
    let manager = Manager::new(&mut tracked.world.setup);
    let hooked = tracked.world.setup.directory().join("hooked/BACKUP");
    tracked.world.setup.expect(&[
        NO_AGENT,
        NO_INTERFACE,
        "hook failed for BACKUP: ",
        "conntrackd -t: exit code 1",
        "; expected 169.254.0.5/24 on ha0",
        "split brain: ",
        " ha0: the interface ",
        "state file not written: ",
        "no spare state file: ",
        "another process writes the state file",
        "log file not reopened: ",
    ]);
    tracked.world.agent.stop(true);
    tracked.when("-t", "exit 1");
    fs::write(&hooked, "exit 1").unwrap();
    let world = &tracked.world;
    let keepwatch = pids.run(|| world.setup.spawn());
    let mut observer = Observer::new(pids, &manager, &metrics);
    for words in ["agent not notified", "hook fails", "conntrackd fails"] {
        observer.expect(words, &keepwatch);
    }
    fs::write(&hooked, "").unwrap();
    let _agent = Agent::start(&world.setup.state_path);
    world.rtnl.add_address("ha0", "169.254.0.5/32");
    observer.expect("169.254.0.5/32 is on ha0", &keepwatch);
    world.rtnl.delete_address("ha0", "169.254.0.5/32");
    world.set_vip(true);
    keepwatch.wait_state("master");
    keepwatch.status();
    let ip = VIP.split_once('/').unwrap().0.parse().unwrap();
    let claim = arp::announcement(Operation::Reply, [2, 0, 0, 0, 0, 2], ip);
    claim_twice(&Capture::new("ha0-peer"), &claim);
    observer.expect("split brain: 02:00:00:00:00:02 claims the VIP", &keepwatch);
    world.rtnl.down("ha0-peer");
    observer.expect("the interface has no carrier", &keepwatch);
    keepwatch.wait_log("ha0: the interface has no carrier", 1);
    world.rtnl.down("ha0");
    observer.expect("the interface is down", &keepwatch);
    let state_file = world.setup.state_file();
    // An exchange with the first directory makes it the spare.
    for (present, words) in [(false, "no spare state file"), (true, "state file not written")] {
        fs::remove_file(&state_file).unwrap();
        fs::create_dir(&state_file).unwrap();
        world.set_vip(present);
        observer.expect(words, &keepwatch);
    }
    fs::remove_dir(&state_file).unwrap();
    keepwatch.wait_state("master");
    let foreign = world.setup.directory().join("foreign");
    fs::write(&foreign, "backup").unwrap();
    fs::rename(&foreign, &state_file).unwrap();
    observer.expect("another process writes the state file", &keepwatch);
    // The daemon refuses a symlink. The test follows it to the old log, which still gets the lines.
    let (log, old) = (world.setup.log_file(), world.setup.directory().join("old.log"));
    fs::rename(&log, &old).unwrap();
    symlink(&old, &log).unwrap();
    keepwatch.signal(Signal::SIGUSR2);
    observer.expect("log file not reopened", &keepwatch);
    world.rtnl.rename("ha0", "away");
    observer.expect("interface not found", &keepwatch);
    observer.seen
}

fn duplicate_address(pids: &Pids) -> BTreeSet<&'static str> {
    let (mut world, metrics) = world_with(
        setup().with("--monitor_cidr=fd00::5/64").with("--keepalived-pid-file=/nowhere/vrrp.pid"),
    );
    world.setup.expect(&["failed duplicate address detection", "keepalived does not run"]);
    let manager = Manager::new(&mut world.setup);
    let _other = add_other_station(&world.rtnl, "fd00::5/64");
    let keepwatch = pids.run(|| world.setup.start());
    let detected = Address { flags: AddressFlags::empty(), ..Address::new("fd00::5/64") };
    world.rtnl.add("ha0", detected);
    let mut observer = Observer::new(pids, &manager, &metrics);
    observer.expect("duplicate address detection failed", &keepwatch);
    observer.expect("keepalived does not run", &keepwatch);
    observer.seen
}
