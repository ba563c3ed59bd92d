//! A network node as in a deployment: an agent of an ordinary user, and sudo that lets it run only rootwrap. It has a
//! mount namespace of its own, with layers over the machine's files.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use lab::agent::Agent;
use lab::daemon::wait_end;
use lab::files::{Directory, content};
use lab::log::in_thread;
use lab::namespace::{Netns, mount_over, mount_tmpfs};
use lab::rtnl::Rtnl;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::l3_agent::{INTERFACE, L3Agent, NAME, cmdline};
use crate::world::{VIP, up_quietly};

/// The user and the group of the agent.
pub const USER: u32 = 4242;

/// The path of the installed keepwatch.
pub const PROGRAM: &str = "/usr/local/sbin/keepwatch";

const STATE_PATH: &str = "/var/lib/neutron";
const ROOTWRAP: &str = "/etc/neutron/rootwrap.conf";
/// The repository at a path that every user can read.
const REPOSITORY: &str = "/mnt";

/// Runs a test with a release of Neutron and its own monitor in `/usr/bin`. The test's mount namespace shares mounts
/// with its children, as with systemd.
pub fn run(release: &'static str, wrapper: &'static str, test: impl FnOnce(&Host) + Send) {
    let run = || {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SHARED, none)
            .expect("to share mounts");
        test(&Host::new(release, wrapper));
    };
    in_thread(run);
}

pub struct Host {
    release: &'static str,
    wrapper: &'static str,
    directory: Directory,
    /// Contains everything that the agent writes.
    state_path: PathBuf,
    /// The interval in seconds at which the agent checks its monitors.
    pub check_interval: u32,
}

impl Host {
    fn new(release: &'static str, wrapper: &'static str) -> Self {
        // The agent of 29 does not wait for the start of a monitor. It starts a second one if its check comes too soon.
        let check_interval = if release.starts_with("29") { 5 } else { 1 };
        let (directory, state_path) = (Directory::new(), PathBuf::from(STATE_PATH));
        let host = Self { release, wrapper, directory, state_path, check_interval };
        host.cover(["/etc", "/opt", "/usr/bin", "/usr/local", "/var/lib"]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        mount_over(Path::new(REPOSITORY), root).unwrap();
        fs::create_dir_all(STATE_PATH).unwrap();
        mount_tmpfs(Path::new(STATE_PATH)).unwrap();
        chown(STATE_PATH, Some(USER), Some(USER)).unwrap();
        append("/etc/passwd", &format!("neutron:x:{USER}:{USER}::{STATE_PATH}:/bin/sh\n"));
        append("/etc/group", &format!("neutron:x:{USER}:\n"));
        append("/etc/shadow", "neutron:*:19000:0:99999:7:::\n");
        // Like Debian's package, but with a PATH without /usr/local, as on other systems.
        let sudoers = format!(
            "Defaults secure_path=/sbin:/bin:/usr/sbin:/usr/bin\n\
             neutron ALL = (root) NOPASSWD: /usr/bin/neutron-rootwrap {ROOTWRAP} *\n\
             neutron ALL = (root) NOPASSWD: /usr/bin/neutron-rootwrap-daemon {ROOTWRAP}\n"
        );
        write("/etc/sudoers.d/neutron", &sudoers, 0o440);
        host.install_neutron(root);
        let program = env::var("KEEPWATCH").unwrap_or(env!("CARGO_BIN_EXE_keepwatch").into());
        symlink(root.join(program), host.directory().join("keepwatch")).unwrap();
        symlink(root.join("cross"), host.directory().join("cross")).unwrap();
        host
    }

    /// Mounts writable layers over directories.
    fn cover<const N: usize>(&self, directories: [&str; N]) {
        let layers = self.directory.sub("layers");
        mount_tmpfs(&layers).unwrap();
        for (n, directory) in directories.iter().enumerate() {
            let [upper, work] = ["upper", "work"].map(|kind| {
                let layer = layers.join(format!("{n}-{kind}"));
                fs::create_dir(&layer).unwrap();
                layer.display().to_string()
            });
            let options = format!("lowerdir={directory},upperdir={upper},workdir={work}");
            let (overlay, none) = (Some("overlay"), MsFlags::empty());
            mount(overlay, *directory, overlay, none, Some(&*options)).expect("overlayfs");
        }
    }

    fn install_neutron(&self, root: &Path) {
        let python = format!("{REPOSITORY}/target/neutron-{}/bin/python", self.release);
        for (name, module, function) in [
            ("neutron-rootwrap", "oslo_rootwrap.cmd", "main"),
            ("neutron-rootwrap-daemon", "oslo_rootwrap.cmd", "daemon"),
            ("privsep-helper", "oslo_privsep.daemon", "helper_main"),
            (NAME, "neutron.cmd.keepalived_state_change", "main"),
        ] {
            let script = format!(
                "#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
            );
            write(&format!("/usr/bin/{name}"), &script, 0o755);
        }
        let release = root.join("target").join(format!("neutron-{}", self.release));
        assert!(release.exists(), "no {}: tests/run makes it", release.display());
        if self.release.starts_with("29") {
            write(&format!("/usr/bin/{NAME}"), &content(&release.join("bin").join(NAME)), 0o755);
        }
        let copied =
            Command::new("cp").arg("-r").arg(release.join("etc/neutron")).arg("/etc").output();
        assert!(copied.as_ref().is_ok_and(|copied| copied.status.success()), "{copied:?}");
    }

    /// Follows instructions of `docs/neutron.md` as root, and asserts that they succeed.
    pub fn follow(&self, instructions: &str) {
        let output = self.try_to_follow(instructions, "");
        assert!(output.status.success(), "{instructions}: {output:?}");
    }

    /// Follows instructions and returns their output. `netns` precedes commands that run in a router's namespace.
    pub fn try_to_follow(&self, instructions: &str, netns: &str) -> Output {
        let script = instruction(instructions);
        let mut command = Command::new("/bin/sh");
        command.args(["-euc", script]).current_dir(self.directory());
        command.env("wrapper", format!("cross/neutron/{}", self.wrapper)).env("PATH", PATH);
        command.env("netns", netns);
        command.output().unwrap()
    }

    /// Returns a command of the agent's user, with an environment of its own.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("PATH", PATH).env("HOME", &self.state_path).env("LANG", "C.UTF-8");
        command.current_dir("/").uid(USER).gid(USER);
        command
    }

    /// Listens on the socket of the agent's server.
    pub fn server(&self) -> Agent {
        let agent = Agent::start(&self.state_path);
        let socket = self.state_path.join("keepalived-state-change");
        chown(socket, Some(USER), Some(USER)).unwrap();
        agent
    }

    /// Starts the part of the agent that manages monitors, with rootwrap's daemon or without it.
    pub fn l3_agent(&self, rootwrap_daemon: bool, routers: &[Router]) -> L3Agent {
        let daemon = if rootwrap_daemon {
            format!("root_helper_daemon = sudo neutron-rootwrap-daemon {ROOTWRAP}\n")
        } else {
            String::new()
        };
        let configuration = format!(
            "[DEFAULT]\nstate_path = {STATE_PATH}\n\
             [oslo_concurrency]\nlock_path = {STATE_PATH}/lock\n\
             [AGENT]\ncheck_child_processes_interval = {}\n\
             root_helper = sudo neutron-rootwrap {ROOTWRAP}\n{daemon}",
            self.check_interval
        );
        write("/etc/neutron/l3_agent.ini", &configuration, 0o644);
        let python = format!("{REPOSITORY}/target/neutron-{}/bin/python", self.release);
        let mut command = self.command(python);
        command.arg(format!("{REPOSITORY}/tests/interop/process_manager.py"));
        command.arg("/etc/neutron/l3_agent.ini").args(routers.iter().map(|router| &router.id));
        L3Agent::start(command, self.directory().join("errors"))
    }

    /// Returns the directory in which the instructions are followed.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns every file of the agent and its children.
    pub fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut directories) = (Vec::new(), vec![self.state_path.clone()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path.clone());
                }
                files.push(path);
            }
        }
        files
    }

    pub fn conf_dir(&self, router: &Router) -> PathBuf {
        self.state_path.join("ha_confs").join(&router.id)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let pid_files = fs::read_dir(self.state_path.join("external/pids"));
        let files = pid_files.into_iter().flatten().flatten();
        let daemons = files.filter_map(|file| content(&file.path()).trim().parse().ok());
        for pid in processes_here().into_iter().chain(daemons) {
            let _ = kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL);
        }
    }
}

/// Returns a block of `docs/neutron.md`.
pub fn instruction(name: &str) -> &'static str {
    let text = include_str!("../../docs/neutron.md");
    let marker = format!("<!-- run: {name} -->\n```");
    let (_, rest) = text.split_once(&marker).unwrap_or_else(|| panic!("no {marker}"));
    let (block, _) = rest.split_once("```\n").expect("the end of the block");
    block.split_once('\n').expect("a language").1
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A router's namespace, with the watched port.
pub struct Router {
    pub id: String,
    namespace: Netns,
    rtnl: Rtnl,
}

impl Router {
    pub fn new() -> Self {
        // Concurrent tests share /run/netns.
        static ROUTERS: AtomicUsize = AtomicUsize::new(0);
        let number = ROUTERS.fetch_add(1, Ordering::Relaxed);
        let id = format!("7e6b5a41-8f0a-4f0e-9c0c-{number:012}");
        let namespace = Netns::new();
        namespace.bind(&format!("qrouter-{id}"));
        let rtnl = namespace.run(|| {
            let rtnl = Rtnl::new();
            rtnl.add_veth(INTERFACE, "peer");
            up_quietly(&rtnl, INTERFACE);
            up_quietly(&rtnl, "peer");
            rtnl
        });
        Self { id, namespace, rtnl }
    }

    /// Returns the words that run a command in its namespace.
    pub fn exec(&self) -> String {
        format!("ip netns exec qrouter-{}", self.id)
    }

    /// Adds or removes the VIP.
    pub fn set_vip(&self, present: bool) {
        self.namespace.run(|| self.rtnl.set_address(INTERFACE, VIP, present));
    }
}

/// A process, by `/proc/PID/stat`.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    pub name: String,
    pub state: char,
    pub parent: u32,
    /// The processor time that it and the children that it has waited for have used, in ticks.
    time: u64,
}

/// Returns every process of the system.
pub fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process).collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = content(Path::new(&format!("/proc/{pid}/stat")));
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Fields 14 to 17 (`proc_pid_stat(5)`).
    let time = fields.skip(9).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Process { pid, name: name.into(), state, parent, time })
}

/// Returns the processor time that a process and all its descendants have used, in ticks.
pub fn processor_time(pid: u32) -> u64 {
    fn of(all: &[Process], pid: u32) -> u64 {
        let own = all.iter().find(|process| process.pid == pid).map_or(0, |process| process.time);
        let children = all.iter().filter(|process| process.parent == pid);
        own + children.map(|child| of(all, child.pid)).sum::<u64>()
    }
    of(&processes(), pid)
}

/// Returns the processes in this thread's mount namespace, and their children in others, as of `ip netns exec`.
fn processes_here() -> Vec<u32> {
    let namespace = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/mnt")).map(|file| file.ino());
    let here = namespace("thread-self").unwrap();
    let is_here = |pid: u32| namespace(&pid.to_string()).is_ok_and(|there| there == here);
    let mut found = Vec::new();
    let mut all = processes();
    // Parents come before their children, unless pids have wrapped around.
    all.sort_by_key(|process| process.pid);
    for Process { pid, parent, .. } in all {
        if is_here(pid) || found.contains(&parent) {
            found.push(pid);
        }
    }
    found
}

/// Waits until this thread's mount namespace has no process.
pub fn wait_deserted() {
    loop {
        let pids = processes_here();
        if pids.is_empty() {
            return;
        }
        pids.into_iter().for_each(wait_end);
    }
}

/// Returns the monitors in this thread's mount namespace, and the processes that start them.
pub fn monitors() -> Vec<Process> {
    let here = processes_here();
    let of_monitor = |process: &Process| {
        let cmdline = cmdline(process.pid);
        let others = ["process_manager.py", "privsep-helper", "neutron-rootwrap-daemon"];
        process.state != 'Z'
            && here.contains(&process.pid)
            && !others.iter().any(|other| cmdline.contains(other))
    };
    processes().into_iter().filter(of_monitor).collect()
}

/// Returns the processes of sudo and rootwrap that start monitors.
pub fn starters() -> Vec<Process> {
    let starts = |process: &Process| ["sudo", "neutron-rootwra"].contains(&&*process.name);
    monitors().into_iter().filter(starts).collect()
}

fn append(path: &str, line: &str) {
    File::options().append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
}

fn write(path: &str, text: &str, mode: u32) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}
