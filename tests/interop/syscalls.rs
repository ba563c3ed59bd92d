//! Promise 16: the system calls of the running daemon as strace sees them. All that are made are allowed, and
//! all that are allowed are needed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use keepwatch::sys::constants::Constant;
use keepwatch::sys::seccomp::{ALLOWED, Call, Descriptor, Is};
use lab::agent::{Agent, FullBacklog};
use lab::capture::{Capture, Frame};
use lab::files::content;
use lab::namespace::{Netns, unbind};
use lab::old_kernel::{without_option, without_proc};
use lab::rtnl::Rtnl;
use lab::users::{NOBODY, SOMEBODY, run_as};
use libtest_mimic::Trial;
use nix::libc::{self, SO_ATTACH_FILTER, SOL_SOCKET};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::world::{World, add_interface, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![every_way_is_needed]
}

fn every_way_is_needed() {
    let traces = [
        // Where there is no /proc, standard error cannot be opened anew.
        of_various_people(without_proc),
        of_various_people(|_| ()),
        of_everything(),
        without_socket_filters(),
        with_full_backlog(),
    ];
    let seen: BTreeSet<(usize, usize)> = traces.iter().flat_map(Trace::ways).collect();
    let mut not_seen = Vec::new();
    for (n, call) in ALLOWED.iter().enumerate() {
        for (m, way) in call.ways.iter().enumerate() {
            if !seen.contains(&(n, m)) && !is_rare(call) {
                not_seen.push((call.number, way));
            }
        }
    }
    assert!(not_seen.is_empty(), "allowed, but not needed: {not_seen:#?}");
}

/// What strace may have no occasion to see: where the kernel shows the time without a call, there is none.
fn is_rare(call: &Call) -> bool {
    call.number == libc::SYS_clock_gettime
}

/// A daemon whose directories belong to various people, and which logs to its standard error. Without
/// announcements it filters what the kernel tells.
fn of_various_people(kernel: fn(&mut Command)) -> Trace {
    let setup = setup().with("--user=nobody").with("--group=nogroup");
    let mut world = World::with(setup.with("--no-announce").with("--detect-split-brain"));
    chown(&world.setup.conf_dir, Some(NOBODY), None).unwrap();
    chown(&world.setup.state_path, Some(SOMEBODY), None).unwrap();
    world.agent.stop(true);
    world.agent = run_as(SOMEBODY, || Agent::start(&world.setup.state_path));
    let socket = world.setup.state_path.join("keepalived-state-change");
    fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    let strace = Strace::start(&world, |arg| !arg.starts_with("--log-file"), kernel);
    world.agent.wait_acknowledged("backup");
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    strace.end(&world)
}

/// In a namespace that has a name, with announcements, metrics and both kinds of log, of which one is moved away,
/// and so are the directories of the state file and of the metrics.
fn of_everything() -> Trace {
    let inside = Netns::new();
    inside.bind("qrouter-1");
    inside.enter();
    let rtnl = Rtnl::new();
    for interface in ["ha0", "lan0"] {
        add_interface(&rtnl, interface);
    }
    let capture = Capture::new("lan0-peer");
    let mut setup = setup().with("--use-syslog").with("--namespace=qrouter-1");
    let log = setup.directory().join("log");
    setup = setup.with(format!("--log-file={}", log.display()));
    let metrics = setup.directory().join("metrics");
    fs::create_dir(&metrics).unwrap();
    setup = setup.with(format!("--metrics-file={}", metrics.join("m.prom").display()));
    let world = World { agent: Agent::start(&setup.state_path), rtnl, setup };
    let strace = Strace::start(&world, |_| true, |_| ());
    world.agent.wait_acknowledged("backup");
    for (n, directory) in [&world.setup.conf_dir, &metrics].into_iter().enumerate() {
        fs::rename(directory, world.setup.directory().join(format!("aside-{n}"))).unwrap();
        fs::create_dir(directory).unwrap();
    }
    world.set_vip(true);
    world.agent.wait_acknowledged("master");
    world.rtnl.add_address("lan0", "10.0.0.1/24");
    capture.wait("an announcement", |frames| frames.iter().any(Frame::is_arp));
    // Something is unmounted, as a name of the namespace would be.
    Netns::new().bind("qrouter-2");
    unbind("qrouter-2");
    fs::rename(&log, world.setup.directory().join("log.1")).unwrap();
    let keepwatch = world.setup.running();
    keepwatch.signal(Signal::SIGHUP);
    world.agent.wait("one more request", |arrivals| arrivals.len() > 2);
    let trace = strace.end(&world);
    unbind("qrouter-1");
    trace
}

fn without_socket_filters() -> Trace {
    let world = World::with(setup().with("--no-announce"));
    let old = |command: &mut Command| without_option(command, SOL_SOCKET, SO_ATTACH_FILTER);
    let strace = Strace::start(&world, |_| true, old);
    world.agent.wait_acknowledged("backup");
    strace.end(&world)
}

fn with_full_backlog() -> Trace {
    let mut world = World::with(setup());
    let strace = Strace::start(&world, |_| true, |_| ());
    world.agent.wait_acknowledged("backup");
    world.agent.stop(true);
    let full = FullBacklog::new(&world.setup.state_path);
    world.set_vip(true);
    let keepwatch = world.setup.running();
    keepwatch.wait_log("backlog full", 1);
    drop(full);
    strace.end(&world)
}

/// The daemon under strace, which tells a service manager of itself.
struct Strace(Child, #[expect(dead_code, reason = "to be there is enough")] UnixDatagram);

impl Strace {
    /// With those of its arguments that are wanted.
    fn start(world: &World, wanted: fn(&str) -> bool, prepare: fn(&mut Command)) -> Self {
        let daemon = world.setup.command();
        let wanted = |arg: &&OsStr| wanted(&arg.to_string_lossy());
        let mut command = Command::new("strace");
        command.args(["--syscall-number", "-X", "raw", "-s", "4096", "-o"]).arg(trace_file(world));
        command.arg(daemon.get_program()).args(daemon.get_args().filter(wanted));
        command.arg("--foreground").process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        let notify = world.setup.directory().join("notify");
        let manager = UnixDatagram::bind(&notify).unwrap();
        command.env("NOTIFY_SOCKET", notify).env("WATCHDOG_USEC", "100000");
        prepare(&mut command);
        Self(command.spawn().expect("strace"), manager)
    }

    fn end(mut self, world: &World) -> Trace {
        let keepwatch = world.setup.running();
        keepwatch.signal(Signal::SIGTERM);
        let status = self.0.wait().unwrap();
        let trace = content(&trace_file(world));
        assert!(status.success(), "{status}:\n{trace}");
        Trace::new(world, &trace)
    }
}

fn trace_file(world: &World) -> std::path::PathBuf {
    world.setup.directory().join("trace")
}

impl Drop for Strace {
    fn drop(&mut self) {
        // And with it the daemon.
        let _ = killpg(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// A call as strace shows it: its number, its arguments, what it returned.
#[derive(Debug)]
struct Made {
    number: libc::c_long,
    arguments: Vec<String>,
    returned: Option<i64>,
}

impl Made {
    /// None for a line that is about something else.
    fn read(line: &str) -> Option<Self> {
        let (number, call) = line.strip_prefix('[')?.split_once(']')?;
        let (call, returned) = call.rsplit_once(" = ")?;
        let (_, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
        let returned = returned.split(' ').next().and_then(int);
        Some(Self { number: number.trim().parse().ok()?, arguments: split(arguments), returned })
    }

    fn argument(&self, place: u32) -> &str {
        self.arguments.get(place as usize).map_or("", String::as_str)
    }
}

/// At the commas that are not within a string or a structure.
fn split(arguments: &str) -> Vec<String> {
    let (mut parts, mut depth, mut in_string, mut escaped) = (vec![String::new()], 0, false, false);
    for c in arguments.chars() {
        match c {
            '"' if !escaped => in_string = !in_string,
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => depth -= 1,
            ',' if !in_string && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        parts.last_mut().unwrap().push(c);
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

/// A number, or several or'ed, as strace shows it; for flags it may leave out the first, and the only one.
fn int(text: &str) -> Option<i64> {
    text.split('|').filter(|digits| !digits.is_empty()).try_fold(0, |value, digits| {
        let part = match digits.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None if digits.starts_with('0') => i64::from_str_radix(digits, 8),
            None => digits.parse(),
        };
        Some(value | part.ok()?)
    })
}

/// What a daemon did under the filter, and what it was about.
struct Trace {
    calls: Vec<Made>,
    /// The descriptors of the route and the packet socket and of the pid file.
    descriptors: [Option<i64>; 3],
    /// As strace shows them.
    constants: Vec<(Constant, String)>,
}

impl Trace {
    fn new(world: &World, trace: &str) -> Self {
        let (before, filtered) = trace.split_once("prctl(0x16, 0x2, ").expect("a filter");
        let before: Vec<Made> = before.lines().filter_map(Made::read).collect();
        let socket = |family: i32| {
            let is = |made: &&Made| {
                made.number == libc::SYS_socket && int(made.argument(0)) == Some(family.into())
            };
            before.iter().find(is).and_then(|made| made.returned)
        };
        let pid_file = before.iter().find(|made| made.number == libc::SYS_ftruncate);
        let descriptors = [
            socket(libc::AF_NETLINK),
            socket(libc::AF_PACKET),
            pid_file.and_then(|made| int(made.argument(0))),
        ];
        let setup = &world.setup;
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        let agent = setup.state_path.join("keepalived-state-change");
        let constants = vec![
            (Constant::Agent, format!("sun_path=\"{}\"", agent.display())),
            (Constant::AgentDirectory, quoted(&setup.state_path)),
            (Constant::ConfDir, quoted(&setup.conf_dir)),
            (Constant::State, quoted(&setup.state_file())),
            (Constant::MetricsDirectory, quoted(&setup.directory().join("metrics"))),
            (Constant::Metrics, quoted(&setup.directory().join("metrics/m.prom"))),
            (Constant::NewFile, "\".state.keepwatch-".into()),
            (Constant::Log, quoted(&setup.directory().join("log"))),
            (Constant::Syslog, "sun_path=\"/dev/log\"".into()),
            (Constant::PidFile, quoted(&setup.pid_file())),
            (Constant::Namespace, quoted(Path::new("/run/netns/qrouter-1"))),
            (Constant::NoPath, "\"\"".into()),
        ];
        let calls = filtered.lines().skip(1).filter_map(Made::read).collect();
        Self { calls, descriptors, constants }
    }

    /// The ways of all calls, each by its places in the list. One that is not there fails.
    fn ways(&self) -> Vec<(usize, usize)> {
        let way = |made: &Made| {
            let n = ALLOWED.iter().position(|call| call.number == made.number)?;
            let m = ALLOWED[n].ways.iter().position(|way| {
                way.iter().all(|(place, is)| self.matches(made.argument(*place), *is))
            })?;
            Some((n, m))
        };
        let ways = self.calls.iter();
        ways.map(|made| way(made).unwrap_or_else(|| panic!("not allowed: {made:?}"))).collect()
    }

    fn matches(&self, argument: &str, is: Is) -> bool {
        match is {
            Is::Int(value) => int(argument) == Some(value.into()),
            Is::Flags(flags) => int(argument) == Some(flags.bits().into()),
            Is::Null => argument == "NULL",
            Is::Constant(constant) => {
                let text = self.constants.iter().find(|(known, _)| *known == constant);
                text.is_some_and(|(_, text)| argument.contains(text))
            }
            Is::Descriptor(descriptor) => {
                let fd = match descriptor {
                    Descriptor::Route => self.descriptors[0],
                    Descriptor::Packets => self.descriptors[1],
                    Descriptor::PidFile => self.descriptors[2],
                };
                fd.is_some() && int(argument) == fd
            }
        }
    }
}
