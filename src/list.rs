//! `--list`: every instance on this machine, by what `/proc` shows of it and by the files that it writes. The
//! instances themselves do nothing for it.

use core::net::IpAddr;
use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::stat::stat;
use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::log::printable;
use crate::sys::{clock, netns, process};
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;
use crate::{metrics, options};

/// Where the packages and Neutron have a directory for each instance.
const PLACES: [&str; 2] =
    ["/proc/self/root/run/keepwatch", "/proc/self/root/var/lib/neutron/ha_confs"];

/// How `/proc/PID/status` of those begins that run programs. They have the command line of their daemon, and outlive it
/// if a hook has left something in the background.
const HELPERS: [&str; 2] = ["Name:\tkeepwatch-sync\n", "Name:\tkeepwatch-hook\n"];

/// Symlinks that are followed in a path, as the kernel does (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// Device and inode, which a file has whatever its path.
type FileId = (u64, u64);

/// What is known of an instance, or of one that has gone.
#[derive(Default)]
struct Instance {
    name: String,
    interface: Option<InterfaceName>,
    vip: Option<Cidr>,
    state: Option<String>,
    /// Unix time in seconds.
    since: Option<i64>,
    pid: Option<u32>,
    namespace: Option<String>,
    agent: Option<&'static str>,
    hook: Option<&'static str>,
    split_brain: Option<&'static str>,
    /// What is wrong.
    remark: Option<String>,
    /// Network namespace, interface and address, which no other instance is to have.
    watched: Option<(FileId, InterfaceName, IpAddr)>,
    directory: PathBuf,
    /// Of the directory, as no other instance is to write there.
    directory_id: Option<FileId>,
}

impl Instance {
    /// The headings of the table, in lower case the keys of JSON, and what is known.
    fn fields(&self) -> [(&'static str, Option<String>); 11] {
        [
            ("NAME", Some(self.name.clone())),
            ("INTERFACE", self.interface.map(|interface| interface.to_string())),
            ("VIP", self.vip.map(|vip| vip.to_string())),
            ("STATE", self.state.clone()),
            ("SINCE", self.since.map(|since| since.to_string())),
            ("PID", self.pid.map(|pid| pid.to_string())),
            ("NAMESPACE", self.namespace.clone()),
            ("AGENT", self.agent.map(Into::into)),
            ("HOOK", self.hook.map(Into::into)),
            ("SPLIT BRAIN", self.split_brain.map(Into::into)),
            ("REMARK", self.remark.clone()),
        ]
    }
}

/// Prints all. Returns whether all is well.
#[must_use]
pub fn list(json: bool) -> bool {
    let are_well = |all: &[Instance]| all.iter().all(|instance| instance.remark.is_none());
    let mut instances = collect();
    if !are_well(&instances) {
        // One may just start or end.
        sleep(Duration::from_secs(1));
        instances = collect();
    }
    process::print(&if json { as_json(&instances) } else { as_text(&instances) });
    if !geteuid().is_root() {
        process::print_error("not root: what other users run is not shown, or in part");
    }
    are_well(&instances)
}

fn collect() -> Vec<Instance> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<_> = entries.filter_map(|entry| Process::read(&entry)).collect();
    let mut instances: Vec<Instance> = Vec::new();
    for process in &processes {
        // A daemon that starts has a parent that waits for it.
        let forked = |other: &Process| process.parent == other.pid && process.words == other.words;
        let is_part = process.is_helper || processes.iter().any(forked);
        let Some(mut new) = process.examine().filter(|_| !is_part) else { continue };
        for Instance { pid, watched, directory_id, .. } in &instances {
            let what = match (*watched == new.watched, *directory_id == new.directory_id) {
                (true, _) if watched.is_some() => "VIP",
                (_, true) if directory_id.is_some() => "state file",
                _ => continue,
            };
            new.remark = pid.map(|pid| format!("has the same {what} as pid {pid}"));
        }
        instances.push(new);
    }
    // Who keeps a file, root alone can always see.
    if geteuid().is_root() {
        let left = find_left(&instances, &processes);
        instances.extend(left);
    }
    instances
}

struct Process {
    pid: u32,
    parent: u32,
    is_helper: bool,
    /// The command line.
    words: Vec<OsString>,
    /// The options in it, if this is our program.
    options: Vec<(&'static str, String)>,
}

impl Process {
    fn read(entry: &DirEntry) -> Option<Self> {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // That of a process that has ended is empty.
        let (line, _) = read(&entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = line.strip_suffix('\0')?.split('\0').map(OsString::from).collect();
        let (status, _) = read(&entry.path().join("status")).ok()?;
        let (_, parent) = status.split_once("PPid:\t")?;
        let parent = parent.lines().next()?.parse().ok()?;
        // The name has an addition if the file was replaced.
        let file = fs::read_link(entry.path().join("exe")).ok();
        let name = file.as_deref().or(words.first().map(Path::new))?.file_name()?.as_bytes();
        let is_ours = name.starts_with(b"keepwatch") || name == b"neutron-keepalived-state-change";
        let options = words.get(1..).filter(|_| is_ours).map(options::given).unwrap_or_default();
        let is_helper = HELPERS.iter().any(|name| status.starts_with(name));
        Some(Self { pid, parent, is_helper, words, options })
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Finds out about an instance. `None`: the process is none.
    fn examine(&self) -> Option<Instance> {
        let pid = self.pid;
        let router: RouterId = self.option("--router-id")?.parse().ok()?;
        let interface = InterfaceName::new(self.option("--monitor-interface")?.as_bytes())?;
        let vip: Cidr = self.option("--monitor-cidr")?.parse().ok()?;
        let conf_dir = self.option("--conf-dir").filter(|_| self.option("--check").is_none())?;
        let figures = self.option("--metrics-file").and_then(|file| read(&reach(pid, file)).ok());
        let (figures, _) = figures.unwrap_or_default();
        let labels = metrics::labels(&router, &interface, &vip);
        let figure = |name| {
            let sample = format!("keepwatch_{name}{{{labels}}} ");
            figures.lines().find_map(|line| line.strip_prefix(&sample)?.parse::<i64>().ok())
        };
        let either = |name, no, yes| Some(if figure(name)? == 0 { no } else { yes });
        let told = |name, owed| match self.option(name) {
            Some(_) => either(owed, "told", "not told"),
            None => Some("none"),
        };

        let directory = reach(pid, conf_dir);
        let (state, written, remark) = match read_state(&directory) {
            Ok((state, written)) => (Some(state), Some(written), None),
            // What cannot be seen is not wrong; nor can what counts from where it was started.
            Err(errno) if errno == NixErrno::EACCES.into() => (None, None, None),
            Err(_) if !conf_dir.starts_with('/') => (None, None, None),
            Err(errno) => (None, None, Some(format!("{conf_dir}/state: {errno}"))),
        };
        let changed = figure("last_change_timestamp_seconds").filter(|time| *time > 0);
        let netns = stat(&*format!("/proc/{pid}/ns/net")).ok();
        let netns_id = identity(Path::new(&format!("/proc/{pid}/ns/net")));
        let path = netns.and_then(|netns| netns::find_name(&netns));
        let name = path.and_then(|path| Some(path.file_name()?.to_string_lossy().into()));
        Some(Instance {
            name: router.to_string(),
            interface: Some(interface),
            vip: Some(vip),
            state,
            since: changed.or(written),
            pid: Some(pid),
            namespace: name.or_else(|| Some(netns_id?.1.to_string())),
            agent: told("--state-path", "undelivered"),
            hook: told("--hook", "hook_pending"),
            split_brain: either("split_brain", "no", "yes"),
            remark,
            watched: netns_id.map(|netns| (netns, interface, vip.address())),
            directory_id: identity(&directory),
            directory,
        })
    }
}

/// Finds the state files that nobody keeps: where the packages and Neutron have them, and beside those of instances.
fn find_left(instances: &[Instance], processes: &[Process]) -> Vec<Instance> {
    let beside = instances.iter().filter_map(|instance| instance.directory.parent());
    let (mut seen, mut left) = (Vec::new(), Vec::new());
    for place in PLACES.map(Path::new).into_iter().chain(beside) {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let directory = entry.path();
            let Ok((state, written)) = read_state(&directory) else { continue };
            let directory_id = identity(&directory);
            // As who keeps it sees it.
            let path = directory.to_string_lossy();
            let (_, path) = path.split_once("/root").unwrap_or_default();
            // Neutron's own monitor, which is told the directory in the same way, keeps such a file too.
            let names_it =
                |word: &OsString| word.to_string_lossy().rsplit('=').next() == Some(path);
            let keeps_it = |process: &Process| {
                process.words.iter().any(names_it)
                    && identity(&reach(process.pid, path)) == directory_id
            };
            let is_kept = instances.iter().any(|instance| instance.directory_id == directory_id);
            if is_kept || seen.contains(&directory_id) || processes.iter().any(keeps_it) {
                continue;
            }
            seen.push(directory_id);
            left.push(Instance {
                name: entry.file_name().to_string_lossy().into(),
                state: Some(state),
                since: Some(written),
                remark: Some(format!("nobody keeps {path}/state")),
                ..Instance::default()
            });
        }
    }
    left
}

/// A path as a process sees it, whose root may be another: symlinks do not lead out of that.
fn reach(pid: u32, path: &str) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let names = |path: &Path| path.iter().rev().map(OsString::from).collect::<Vec<_>>();
    let (mut reached, mut rest, mut links) = (root.clone(), names(Path::new(path)), 0);
    while let Some(name) = rest.pop() {
        if name == "/" {
            reached.clone_from(&root);
        } else if name != ".." {
            match fs::read_link(reached.join(&name)) {
                Ok(target) if links < MAX_LINKS => {
                    links += 1;
                    rest.extend(names(&target));
                }
                _ => reached.push(name),
            }
        } else if reached != root {
            reached.pop();
        }
    }
    reached
}

fn identity(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The state in a directory, and the Unix time of that.
fn read_state(directory: &Path) -> Result<(String, i64), Errno> {
    let (state, written) = read(&directory.join("state"))?;
    let is_state = matches!(&*state, "master" | "primary" | "backup");
    if is_state { Ok((state, written)) } else { Err(NixErrno::EINVAL.into()) }
}

/// The content of a regular file, and the Unix time of that. Anybody can have an instance, with any path, so of what is
/// no such file nothing is read, and nothing is waited for.
fn read(path: &Path) -> Result<(String, i64), Errno> {
    if !fs::metadata(path)?.is_file() {
        return Err(NixErrno::EINVAL.into());
    }
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let written = file.metadata()?.mtime();
    let mut content = Vec::new();
    file.take(1 << 16).read_to_end(&mut content)?;
    Ok((String::from_utf8_lossy(&content).into(), written))
}

/// A table, or on a terminal that is too narrow a block for each.
fn as_text(instances: &[Instance]) -> String {
    if instances.is_empty() {
        return "No instance is running.\n".into();
    }
    let cell = |(name, value): (&str, Option<String>)| match value {
        Some(time) if name == "SINCE" => clock::show_second(&time),
        value => printable(&value.unwrap_or("-".into())),
    };
    let rows: Vec<_> = instances.iter().map(|instance| instance.fields().map(cell)).collect();
    let headings = Instance::default().fields().map(|(name, _)| name.to_string());
    let width = |column: usize| {
        let cells = rows.iter().chain([&headings]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count() + 2).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..headings.len()).map(width).collect();
    let is_narrow =
        process::columns().is_some_and(|columns| widths.iter().sum::<usize>() > columns + 2);
    let mut text = String::new();
    for row in [&headings].into_iter().filter(|_| !is_narrow).chain(&rows) {
        for ((cell, width), heading) in row.iter().zip(&widths).zip(&headings) {
            text.extend([if is_narrow {
                format!("{heading:<13}{cell}\n")
            } else {
                format!("{cell:<width$}")
            }]);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

fn as_json(instances: &[Instance]) -> String {
    let object = |instance: &Instance| {
        let members = instance.fields().map(|(heading, value)| {
            let value = match value {
                Some(number) if matches!(heading, "SINCE" | "PID") => number,
                Some(text) => format!("\"{}\"", escape(&text)),
                None => "null".into(),
            };
            format!("\"{}\": {value}", heading.to_ascii_lowercase().replace(' ', "_"))
        });
        format!("{{{}}}", members.join(", "))
    };
    let objects: Vec<_> = instances.iter().map(object).collect();
    format!("[{}]\n", objects.join(",\n"))
}

/// Text within a string of JSON (RFC 8259 section 7).
fn escape(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        _ if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        _ => c.into(),
    };
    text.chars().map(escape).collect()
}
