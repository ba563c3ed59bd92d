//! `--list`: every instance on this machine, from `/proc` and the files that it writes. No instance is asked.
//!
//! Any user may run an instance with any path, and root reads the file there. So only processes of this program are
//! examined, each file is opened once and judged by that descriptor, and the memory for each process is bounded. Strangers
//! (`Process::counts`) have the last rows, which change neither other rows nor the exit code.

mod figures;
mod process;
mod table;

use core::fmt::Debug;
use core::mem::take;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use nix::errno::Errno as NixErrno;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::log::printable;
use crate::metrics;
use crate::start::process::{print, print_error, sees_all};
use crate::start::{netns, passwd};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;
use figures::Figures;
use process::{Inode, Process, inode, is_open, open_in, path_of, read_state, writer};
use table::{as_json, as_text};

/// Where the packages, `OpenWrt`, Neutron and Kolla's Neutron create a directory for each instance.
const PLACES: [&str; 4] = [
    "/run/keepwatch",
    "/var/run/keepwatch",
    "/var/lib/neutron/ha_confs",
    "/var/lib/neutron/kolla/ha_confs",
];

/// The time limit, as `check_nrpe` stops a check after 10 s.
const LIMIT: Duration = Duration::from_secs(8);

/// The most directories searched for stale state files, as each stays open.
const MAX_PLACES: usize = 256;
/// The most stale state files listed, as any user may create more.
const MAX_STALE: usize = 2048;

/// The headings of the table, in lower case the keys of JSON.
const HEADINGS: &str =
    "NAME,INTERFACE,VIP,STATE,SINCE,PID,USER,VERSION,NAMESPACE,AGENT,HOOK,SPLIT BRAIN,REMARK";

/// An instance, or a stale state file: a cell for each heading, and the verdict.
type Row = ([Option<String>; 13], Verdict);

/// The verdict of a Nagios plugin, the most important last: what is unknown for good must not hide what is wrong.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    #[default]
    Ok,
    /// A delivery is pending, or a remark is a warning.
    Warning,
    /// Instances may be missing, or a file cannot be read.
    Unknown,
    /// An instance is dead, contradicts another, or has a critical trouble.
    Critical,
}

impl Verdict {
    fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        }
    }
}

/// Prints all instances. Returns the exit code.
#[must_use]
// Not in the frame of `main`, whose pages the daemon keeps.
#[inline(never)]
pub fn list(json: bool) -> u8 {
    let deadline = Instant::now() + LIMIT;
    let worst = |rows: &[Row]| rows.iter().map(|(_, verdict)| *verdict).max().unwrap_or_default();
    let (mut rows, missing) = gather(deadline);
    if missing.is_none() && worst(&rows) > Verdict::Ok {
        // An instance may just start or end.
        sleep(Duration::from_secs(1));
        let again = gather(deadline);
        // Complete results are better than later ones that lack instances.
        if again.1.is_none() {
            rows = again.0;
        }
    }
    print(&if json { as_json(&rows) } else { as_text(&rows) }, Verdict::Unknown.exit_code());
    if let Some(missing) = missing.or_else(limits) {
        print_error(missing);
        return worst(&rows).max(Verdict::Unknown).exit_code();
    }
    for (cells, _) in rows.iter().filter(|(_, verdict)| *verdict == Verdict::Unknown) {
        print_error(&printable(cells.last().and_then(Option::as_deref).unwrap_or_default()));
    }
    worst(&rows).exit_code()
}

/// Returns why this process does not see all of every instance, if so. Root in a container may lack the right to look into
/// processes that have more capabilities, or to see them (`hidepid`).
fn limits() -> Option<&'static str> {
    if !geteuid().is_root() {
        return Some("not root: instances of other users are missing or incomplete");
    }
    fs::read_link("/proc/1/root")
        .is_err()
        .then_some("no right to look into processes (CAP_SYS_PTRACE): instances are incomplete")
}

#[derive(Default)]
struct Found {
    /// The rows so far.
    rows: Vec<Row>,
    /// The result of the search for instances that count. The error says why rows may be missing.
    result: Option<Result<(), &'static str>>,
    /// The search for strangers' instances has ended, too.
    is_complete: bool,
}

// A channel would add 15 kB to the program.
static FOUND: Mutex<Found> =
    Mutex::new(Found { rows: Vec::new(), result: None, is_complete: false });
static COMPLETE: Condvar = Condvar::new();

fn found() -> MutexGuard<'static, Found> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the rows in a separate thread, as a file system may hang. Also returns why some may be missing.
fn gather(deadline: Instant) -> (Vec<Row>, Option<&'static str>) {
    take(&mut *found());
    let collect = || {
        Collector::default().collect();
        found().is_complete = true;
        COMPLETE.notify_one();
    };
    if Builder::new().spawn(collect).is_err() {
        return (Vec::new(), Some("a thread cannot be started: all instances are missing"));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let waited = COMPLETE.wait_timeout_while(found(), left, |found| !found.is_complete);
    let found = take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0);
    (found.rows, found.result.unwrap_or(Err("timed out: instances are missing")).err())
}

/// The verdict and text of each trouble of an instance. The text is empty if a cell shows the trouble.
type Remarks = Vec<(Verdict, String)>;

#[derive(Default)]
struct Collector {
    /// The first pid that claims a thing, and the names of network namespaces.
    known: BTreeMap<String, String>,
    /// The directories that contain those of instances.
    places: Vec<(Inode, File)>,
}

impl Collector {
    fn collect(mut self) {
        let processes = match self.find_processes() {
            Ok(processes) => processes,
            Err(missing) => {
                found().result = Some(Err(missing));
                return;
            }
        };
        let with_options =
            |processes: Vec<Process>| processes.into_iter().filter_map(Process::with_options);
        let (own, others): (Vec<_>, Vec<_>) = processes.into_iter().partition(Process::is_own);
        let mut ours: Vec<_> = with_options(own).collect();
        if !others.is_empty() {
            // In case that the options of another user's process can never be read.
            Self { known: self.known.clone(), ..Self::default() }.examine_all(&ours);
        }
        let chosen = ours.iter().filter_map(Process::place).map(Into::into);
        let places: Vec<_> = PLACES.iter().map(PathBuf::from).chain(chosen).collect();
        let (others, confined): (Vec<_>, Vec<_>) =
            others.into_iter().partition(Process::has_our_users);
        let (more, strangers): (Vec<_>, Vec<_>) =
            with_options(others).partition(|process| process.counts(&places));
        ours.extend(more);
        found().rows.clear();
        self.examine_all(&ours);
        // Only root sees every process that may write one.
        let result = if limits().is_none() { self.find_stale() } else { Ok(()) };
        found().result = Some(result);
        for process in strangers.into_iter().chain(with_options(confined)) {
            let row = self.examine(&process, false).map(|(cells, _)| (cells, Verdict::Ok));
            found().rows.extend(row);
        }
    }

    /// Adds the rows of instances that count.
    fn examine_all(&mut self, processes: &[Process]) {
        // Neutron's own first: they have no row for a remark, so an instance must find the thing claimed.
        let is_original = |process: &&Process| process.option("--router-id").is_none();
        let (originals, others): (Vec<_>, Vec<_>) = processes.iter().partition(is_original);
        for process in originals.into_iter().chain(others) {
            // Not while holding the lock, as this may hang.
            let row = self.examine(process, true);
            found().rows.extend(row);
        }
    }

    /// Returns the processes of this program and of the original.
    fn find_processes(&mut self) -> Result<Vec<Process>, &'static str> {
        for (file, path) in netns::named() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            self.known.insert(format!("netns {:?}", (file.st_dev, file.st_ino)), name.into());
        }
        let root = fs::read_link("/proc/self").and_then(|_| File::open("/"));
        let root = root.map_err(|_| "/proc is not mounted: all instances are missing")?;
        for place in PLACES {
            self.add_place(open_in(&root, place.as_ref(), OFlag::O_DIRECTORY));
        }
        let unreadable = "/proc cannot be read: instances are missing";
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").map_err(|_| unreadable)?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            processes.extend(pid.map(Process::find).transpose().map_err(|_| unreadable)?.flatten());
        }
        Ok(processes)
    }

    /// Claims a thing for an instance, and adds a remark if another instance has claimed it.
    fn claim(&mut self, what: &str, key: impl Debug, pid: u32, remarks: &mut Remarks) {
        let pid = pid.to_string();
        let first = self.known.entry(format!("{what} {key:?}")).or_insert_with(|| pid.clone());
        if *first != pid {
            remarks.push((Verdict::Critical, format!("same {what} as pid {first}")));
        }
    }

    /// Adds a directory in which to search for stale state files, unless any user can put one there.
    fn add_place(&mut self, place: Result<File, Errno>) {
        let place = place.ok().and_then(|place| Some((place.metadata().ok()?, place)));
        let Some((found, place)) = place else { return };
        let id = (found.dev(), found.ino());
        if !is_open(&found)
            && self.places.len() < MAX_PLACES
            && self.places.iter().all(|(known, _)| *known != id)
        {
            self.places.push((id, place));
        }
    }

    /// Returns the row of an instance. `None`: the process is no instance. Only one that counts claims things.
    fn examine(&mut self, process: &Process, counts: bool) -> Option<Row> {
        let pid = process.pid;
        let option = |name| process.option(name);
        let conf_dir = option("--conf-dir").filter(|_| option("--check").is_none())?;
        let mut remarks = Remarks::new();
        if process.is_stopped {
            remarks.push((Verdict::Critical, "stopped: its state may be old".into()));
        }
        let state = self.find_state(process, conf_dir, &mut remarks, counts)?;
        // 1.0.0 took more characters.
        let router = option("--router-id")?;
        let interface = InterfaceName::new(option("--monitor-interface")?.as_bytes())?;
        let vip: Cidr = option("--monitor-cidr")?.parse().ok()?;
        let netns = inode(fs::metadata(format!("/proc/{pid}/ns/net")));
        if let Some(netns) = netns.filter(|_| counts) {
            let watched = (netns, interface.to_string(), vip.address());
            self.claim("VIP", watched, pid, &mut remarks);
        }
        let name = |id: Inode| {
            self.known.get(&format!("netns {id:?}")).cloned().unwrap_or(id.1.to_string())
        };
        let mut figures = Figures::new(metrics::labels(router, &interface, &vip));
        if let Some(path) = option("--metrics-file") {
            let problem = match figures.read(process, path) {
                Ok(()) if figures.are_foreign() => Some("another instance's".into()),
                Err(errno) if !is_hidden(errno) => Some(errno.to_string()),
                _ => None,
            };
            let remark = |problem| (Verdict::Warning, format!("no metrics: {path}: {problem}"));
            remarks.extend(problem.map(remark));
        }
        remarks.extend(figures.contradict(state.as_deref().ok()));
        let [since, version, agent, hook, split_brain] =
            figures.show(process, counts, &mut remarks);
        let words: Vec<_> =
            remarks.iter().map(|(_, text)| &**text).filter(|text| !text.is_empty()).collect();
        let cells = [
            Some(router.to_string()),
            Some(interface.to_string()),
            Some(vip.to_string()),
            state.ok(),
            since,
            Some(pid.to_string()),
            Some(passwd::name(process.user)),
            version,
            netns.map(name),
            agent,
            hook,
            split_brain,
            Some(words.join("; ")).filter(|text| !text.is_empty()),
        ];
        Some((cells, remarks.iter().map(|(verdict, _)| *verdict).max().unwrap_or_default()))
    }

    /// Returns the state in the directory that a process names. `None`: the directory belongs to another user.
    fn find_state(
        &mut self,
        process: &Process,
        conf_dir: &str,
        remarks: &mut Remarks,
        counts: bool,
    ) -> Option<Result<String, Errno>> {
        let directory = process.open(conf_dir, OFlag::O_DIRECTORY);
        let state = directory.as_ref().map_err(|errno| *errno).and_then(read_state);
        if let Ok(directory) = &directory {
            let owner = directory.metadata().ok()?.uid();
            let writer = writer(directory).unwrap_or(owner);
            if ![0, owner, writer].contains(&process.user) {
                return None;
            }
            if counts {
                self.claim("state file", inode(directory.metadata())?, process.pid, remarks);
            }
        }
        // Not `..`, which the kernel does not open while any user renames files.
        if let Some(place) = process.place().filter(|_| counts) {
            self.add_place(process.open(place, OFlag::O_DIRECTORY));
        }
        let state = state.inspect_err(|errno| {
            let verdict = if is_hidden(*errno) { Verdict::Unknown } else { Verdict::Critical };
            remarks.push((verdict, format!("{conf_dir}/state: {errno}")));
        });
        Some(state.map(|(word, _)| word))
    }

    /// Finds the state files that no process writes, in [`PLACES`] and beside those of instances.
    fn find_stale(&mut self) -> Result<(), &'static str> {
        let (mut count, sees_all) = (0, sees_all());
        for (_, place) in &self.places {
            for entry in fs::read_dir(path_of(place)).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
                let Ok(directory) = open_in(place, name.as_ref(), flags) else { continue };
                let Ok((state, file)) = read_state(&directory) else { continue };
                let Some(id) = inode(directory.metadata()) else { continue };
                if self.known.insert(format!("state file {id:?}"), String::new()).is_some() {
                    continue;
                }
                count += 1;
                if count > MAX_STALE {
                    return Err("too many stale state files: some are missing");
                }
                let path = fs::read_link(path_of(&directory)).unwrap_or_default();
                // Daemons lock it. Where every process is seen, only others can have the lock.
                let is_locked = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
                let (verdict, what) = if is_locked && !sees_all {
                    (Verdict::Unknown, "an unseen process writes")
                } else {
                    (Verdict::Critical, "stale: no running process writes")
                };
                let remark = format!("{what} {}/state", path.display());
                let mut cells = [const { None }; 13];
                cells[0] = Some(name.to_string_lossy().into());
                cells[3] = Some(state);
                cells[12] = Some(remark);
                found().rows.push((cells, verdict));
            }
        }
        match self.places.len() {
            MAX_PLACES => Err("too many directories: stale state files may be missing"),
            _ => Ok(()),
        }
    }
}

/// Returns whether the caller may not see a file.
fn is_hidden(errno: Errno) -> bool {
    [NixErrno::EACCES, NixErrno::EAGAIN].map(Errno::from).contains(&errno)
}
