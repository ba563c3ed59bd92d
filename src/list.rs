//! `--list`: every instance on this machine, by what `/proc` shows of it and by the files that it writes. The
//! instances themselves do nothing for it.

use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io::Read;
use std::os::fd::AsRawFd;
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

/// What is told of each: the keys of JSON and, in capitals, the headings of the table.
const KEYS: &str = "name interface vip state since pid namespace agent hook split_brain remark";
/// Where the packages and Neutron have a directory for each instance.
const PLACES: [&str; 2] =
    ["/proc/self/root/run/keepwatch", "/proc/self/root/var/lib/neutron/ha_confs"];
/// What no two instances may have in common.
const EXCLUSIVE: [&str; 2] = ["VIP", "state file"];

/// What is known of an instance, or of one that has gone, by [`KEYS`], [`EXCLUSIVE`] and `directory`, where its state
/// file is. Whoever has a `remark` is not well.
type Facts = Vec<(&'static str, String)>;

fn get<'a>(facts: &'a Facts, name: &str) -> Option<&'a str> {
    facts.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
}

/// Prints all. Returns whether all is well.
#[must_use]
pub fn list(json: bool) -> bool {
    let are_well = |all: &Vec<Facts>| all.iter().all(|facts| get(facts, "remark").is_none());
    let (mut instances, mut looks) = (collect(), 0..4);
    // One may just start or end, and systemd starts one anew after a second.
    while !are_well(&instances) && looks.next().is_some() {
        sleep(Duration::from_millis(500));
        instances = collect();
    }
    process::print(&if json { as_json(&instances) } else { as_text(&instances) });
    if !geteuid().is_root() {
        process::print_error("not root: what other users run is not shown, or in part");
    }
    are_well(&instances)
}

fn collect() -> Vec<Facts> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<_> = entries.filter_map(|entry| read_process(&entry)).collect();
    let mut instances: Vec<Facts> = Vec::new();
    for process in &processes {
        // Its helpers have its command line.
        let forked = |other: &Process| process.parent == other.pid && process.words == other.words;
        let is_helper = processes.iter().any(forked);
        let Some(mut facts) = examine(process).filter(|_| !is_helper) else { continue };
        for what in EXCLUSIVE {
            let has_it =
                |other: &&Facts| get(other, what).is_some_and(|it| get(&facts, what) == Some(it));
            let pid = instances.iter().find(has_it).and_then(|other| get(other, "pid"));
            facts.extend(pid.map(|pid| ("remark", format!("has the same {what} as pid {pid}"))));
        }
        instances.push(facts);
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
    /// The command line.
    words: Vec<OsString>,
    /// The options in it, if this is our program.
    options: Facts,
}

fn read_process(entry: &DirEntry) -> Option<Process> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    // That of a process that has ended is empty.
    let (line, _) = read(&entry.path().join("cmdline")).ok()?;
    let words: Vec<OsString> = line.strip_suffix('\0')?.split('\0').map(OsString::from).collect();
    let (status, _) = read(&entry.path().join("status")).ok()?;
    let (_, parent) = status.split_once("PPid:\t")?;
    let parent = parent.lines().next()?.parse().ok()?;
    // The name has an addition if the file was replaced.
    let file = fs::read_link(entry.path().join("exe")).ok();
    let name = file.as_deref().or(words.first().map(Path::new))?.file_name()?.as_bytes();
    let is_ours = name.starts_with(b"keepwatch") || name == b"neutron-keepalived-state-change";
    let options = words.get(1..).filter(|_| is_ours).map(options::given).unwrap_or_default();
    Some(Process { pid, parent, words, options })
}

/// Finds out about an instance. `None`: the process is none.
fn examine(process: &Process) -> Option<Facts> {
    let Process { pid, options, .. } = process;
    let option = |name| get(options, name);
    let router: RouterId = option("--router-id")?.parse().ok()?;
    let interface = InterfaceName::new(option("--monitor-interface")?.as_bytes())?;
    let vip: Cidr = option("--monitor-cidr")?.parse().ok()?;
    let conf_dir = option("--conf-dir").filter(|_| option("--check").is_none())?;

    // It has left the directory that it was started in.
    let (environment, _) = read(Path::new(&format!("/proc/{pid}/environ"))).unwrap_or_default();
    let started_in = environment.split('\0').find_map(|word| word.strip_prefix("PWD="));
    let reach = |path: &str| {
        let path = Path::new(started_in.unwrap_or("/")).join(path);
        PathBuf::from(format!("/proc/{pid}/root{}", path.display()))
    };

    let figures = option("--metrics-file").and_then(|file| read(&reach(file)).ok());
    let (figures, _) = figures.unwrap_or_default();
    let labels = metrics::labels(&router, &interface, &vip);
    let figure = |name| {
        let sample = format!("keepwatch_{name}{{{labels}}} ");
        figures.lines().find_map(|line| line.strip_prefix(&sample))
    };
    let either = |name, no, yes| match figure(name)? {
        "0" => Some(String::from(no)),
        "1" => Some(String::from(yes)),
        _ => None,
    };
    let told = |name, owed| match option(name) {
        Some(_) => either(owed, "told", "not told"),
        None => Some("none".into()),
    };

    let directory = reach(conf_dir);
    let state = read_state(&directory);
    // What may not be seen is not wrong.
    let unread = state.as_ref().err().filter(|errno| **errno != NixErrno::EACCES.into());
    let remark = unread.map(|errno| format!("{conf_dir}/state: {errno}"));
    let (state, written) = state.ok().unzip();
    let changed = figure("last_change_timestamp_seconds").and_then(|time| time.parse::<i64>().ok());
    let netns = stat(&*format!("/proc/{pid}/ns/net")).ok();
    let inode = netns.map(|file| file.st_ino.to_string());
    let name = || Some(netns::find_name(&netns?)?.file_name()?.to_string_lossy().into());
    let namespace = option("--namespace").map(String::from).or_else(name);
    let mut facts = Facts::new();
    let mut tell = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    tell("name", Some(router.to_string()));
    tell("interface", Some(interface.to_string()));
    tell("vip", Some(vip.to_string()));
    tell("state", state);
    tell("since", changed.filter(|time| *time > 0).or(written).map(|time| time.to_string()));
    tell("pid", Some(pid.to_string()));
    tell("namespace", namespace.or(inode.clone()));
    tell("agent", told("--state-path", "undelivered"));
    tell("hook", told("--hook", "hook_pending"));
    tell("split_brain", either("split_brain", "no", "yes"));
    tell("remark", remark);
    tell("VIP", inode.map(|inode| format!("{inode} {interface} {}", vip.address())));
    tell("state file", identity(&directory));
    tell("directory", directory.to_str().map(String::from));
    Some(facts)
}

/// Finds the state files that nobody keeps: where the packages and Neutron have them, and beside those of instances.
fn find_left(instances: &[Facts], processes: &[Process]) -> Vec<Facts> {
    let beside = instances.iter().filter_map(|facts| Path::new(get(facts, "directory")?).parent());
    let (mut seen, mut left) = (Vec::new(), Vec::new());
    for place in PLACES.map(Path::new).into_iter().chain(beside) {
        let place_itself = identity(place);
        if seen.contains(&place_itself) {
            continue;
        }
        seen.push(place_itself);
        for directory in fs::read_dir(place).into_iter().flatten().flatten() {
            let Ok((state, since)) = read_state(&directory.path()) else { continue };
            let known = identity(&directory.path());
            let is_known = |facts: &Facts| get(facts, "state file") == known.as_deref();
            // As who keeps it sees it.
            let path = directory.path().to_string_lossy().into_owned();
            let (_, path) = path.split_once("/root").unwrap_or_default();
            // Neutron's own monitor, which is told the directory in the same way, keeps such a file too.
            let names_it = |word: &OsString| word.as_bytes().ends_with(path.as_bytes());
            let mut words = processes.iter().flat_map(|process| &process.words);
            if !instances.iter().any(is_known) && !words.any(names_it) {
                let name = directory.file_name().to_string_lossy().into();
                let remark = format!("nobody keeps {path}/state");
                let since = since.to_string();
                left.push(vec![
                    ("name", name),
                    ("state", state),
                    ("since", since),
                    ("remark", remark),
                ]);
            }
        }
    }
    left
}

/// Device and inode, which a file has whatever its path.
fn identity(path: &Path) -> Option<String> {
    fs::metadata(path).ok().map(|file| format!("{} {}", file.dev(), file.ino()))
}

/// The state in a directory, and the Unix time of that.
fn read_state(directory: &Path) -> Result<(String, i64), Errno> {
    let (state, written) = read(&directory.join("state"))?;
    let is_state = matches!(&*state, "master" | "primary" | "backup");
    if is_state { Ok((state, written)) } else { Err(NixErrno::EINVAL.into()) }
}

/// The content of a file, and the Unix time of that. What is no regular file is not opened, as that may do something:
/// anybody can have an instance, with any path.
fn read(path: &Path) -> Result<(String, i64), Errno> {
    let found = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
    let about = found.metadata()?;
    if !about.is_file() {
        return Err(NixErrno::EINVAL.into());
    }
    let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    let mut text = String::new();
    file.take(1 << 16).read_to_string(&mut text)?;
    Ok((text, about.mtime()))
}

fn as_text(instances: &[Facts]) -> String {
    if instances.is_empty() {
        return "No instance is running.\n".into();
    }
    // A column each, with its heading.
    let mut columns = Vec::new();
    let mut length = 0;
    for key in KEYS.split(' ') {
        let mut cells = vec![key.to_ascii_uppercase().replace('_', " ")];
        for facts in instances {
            cells.push(match get(facts, key) {
                Some(time) if key == "since" => clock::show_second(time),
                value => printable(value.unwrap_or("-")),
            });
        }
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        length += width + 2;
        columns.push((cells, width));
    }
    let is_wide = process::columns().is_none_or(|columns| length <= columns + 2);
    let mut text = String::new();
    for row in usize::from(!is_wide)..=instances.len() {
        for (cells, width) in &columns {
            let (Some(heading), Some(cell)) = (cells.first(), cells.get(row)) else { continue };
            text.extend([if is_wide {
                format!("{cell:<width$}  ")
            } else {
                format!("{heading:<13}{cell}\n")
            }]);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

fn as_json(instances: &[Facts]) -> String {
    let mut text = String::from("[");
    for facts in instances {
        text.push_str(if text.len() > 1 { ",\n{" } else { "{" });
        for key in KEYS.split(' ') {
            let comma = if text.ends_with('{') { "" } else { ", " };
            let value = match get(facts, key) {
                Some(number) if matches!(key, "since" | "pid") => number.into(),
                Some(text) => format!("\"{}\"", escape(text)),
                None => "null".into(),
            };
            text.extend([comma, "\"", key, "\": ", &value]);
        }
        text.push('}');
    }
    text + "]\n"
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
