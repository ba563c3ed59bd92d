//! The processes of this program, and the files that they name, which are not trusted.

use core::fmt::Display;
use std::ffi::{CStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, SYSFS_MAGIC, fstatfs};
use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::helper::{Conntrackd, Hook, Runnable};
use crate::options;

/// The most bytes read of a file.
const MAX_READ: u64 = 1 << 16;

/// Device and inode, which identify a file under any path.
pub(super) type Inode = (u64, u64);

/// The original, under whose name Neutron also starts this program. The kernel cuts a process's name at 15 bytes.
const ORIGINAL: &str = "neutron-keepalived-state-change";
const ORIGINAL_PROCESS: &str = "neutron-keepali";

/// The programs that run the original, a script, beside any version of Python.
const INTERPRETERS: [&str; 5] = ["bash", "busybox", "dash", "ksh", "sh"];

/// The most attempts to open a path with `..`, which a rename of any file or a mount on the machine makes fail.
const MAX_ATTEMPTS: u32 = 64;

/// The most words in another user's command line, as reading many long ones takes long.
const MAX_WORDS: usize = 256;

/// The helper processes. They have the command line of their daemon, and outlive it while a hook has background jobs.
const HELPERS: [&CStr; 2] = [Conntrackd::PROCESS, Hook::PROCESS];

/// A process of this program, or of the original.
pub(super) struct Process {
    pub pid: u32,
    pub user: u32,
    /// Whether the program's file has been replaced since.
    pub is_replaced: bool,
    /// Whether it is stopped, as by SIGSTOP or a debugger.
    pub is_stopped: bool,
    is_original: bool,
    parent: u32,
    /// All options, once they have been read; only `--conf-dir` of the original.
    options: Vec<(&'static str, String)>,
}

impl Process {
    /// Finds a process. `None`: it has ended, is another program, a setuid program or a helper.
    ///
    /// # Errors
    /// If this process has no free descriptor, or the machine no memory.
    pub fn find(pid: u32) -> Result<Option<Self>, Errno> {
        let exhausted = [NixErrno::EMFILE, NixErrno::ENFILE, NixErrno::ENOMEM].map(Errno::from);
        match read_proc(pid, "status") {
            Ok(status) => Ok(Self::parse(pid, &status)),
            Err(errno) if exhausted.contains(&errno) => Err(errno),
            Err(_) => Ok(None),
        }
    }

    fn parse(pid: u32, status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let name = field("Name:\t")?;
        let replaced = find_program(pid, name);
        let is_original = replaced.is_none() && name == ORIGINAL_PROCESS && is_script(pid);
        if (replaced.is_none() && !is_original)
            || HELPERS.iter().any(|helper| helper.to_bytes() == name.as_bytes())
        {
            return None;
        }
        let mut users = field("Uid:\t")?.split('\t').take(3);
        let user = users.next()?;
        // A setuid program is root's, but any user writes its command line.
        if users.any(|other| other != user) {
            return None;
        }
        Some(Self {
            pid,
            user: user.parse().ok()?,
            is_replaced: replaced == Some(true),
            is_stopped: field("State:\t")?.starts_with(['T', 't']),
            is_original,
            parent: field("PPid:\t")?.parse().ok()?,
            options: Vec::new(),
        })
    }

    /// Reads the options. `None`: the process has ended, or is a starting daemon, whose parent is listed instead.
    ///
    /// A process whose memory is a file of a file system that never answers keeps the reader waiting.
    pub fn with_options(mut self) -> Option<Self> {
        let line = read_proc(self.pid, "cmdline").ok()?;
        let is_starting = Self::find(self.parent).ok()?.is_some_and(|parent| {
            let is_same = |parent: String| parent == line;
            parent.user == self.user && read_proc(parent.pid, "cmdline").is_ok_and(is_same)
        });
        if is_starting || !self.is_own() && line.split('\0').count() > MAX_WORDS {
            return None;
        }
        self.options = if self.is_original {
            // Up to release 28 its command line is one word with blanks.
            let (_, rest) = line.split_once("--conf_dir")?;
            let rest = rest.trim_start_matches(['=', '\0', ' ']);
            vec![("--conf-dir", rest.split(['\0', ' ', ')']).next()?.into())]
        } else {
            let words = line.strip_suffix('\0')?.split('\0').skip(1);
            options::given(&words.map(OsString::from).collect::<Vec<_>>())
        };
        Some(self)
    }

    /// Returns the directory that contains `--conf-dir`.
    pub fn place(&self) -> Option<&Path> {
        self.option("--conf-dir").and_then(|conf_dir| Path::new(conf_dir).parent())
    }

    /// Returns whether the process is root's or the caller's.
    pub fn is_own(&self) -> bool {
        is_own(self.user)
    }

    /// Returns whether another user's process is no stranger's: its user owns a directory in one of the places, or the state
    /// file in one to which not every user can write. Any user may run other instances, or what looks like one.
    pub fn counts(&self, places: &[PathBuf]) -> bool {
        let open = |path: &Path| {
            let directory = self.open(path, OFlag::O_DIRECTORY).ok()?;
            Some((directory.metadata().ok()?, directory))
        };
        let is_given = |place: &Path| {
            let Some((above, _)) = open(place).filter(|(above, _)| !is_open(above)) else {
                return false;
            };
            let conf_dir = self.option("--conf-dir").and_then(|path| open(path.as_ref()));
            let Some((found, directory)) = conf_dir else { return above.uid() == self.user };
            found.uid() == self.user || (!is_open(&found) && writer(&directory) == Some(self.user))
        };
        let place = self.place().filter(|place| places.iter().any(|known| known == place));
        place.is_some_and(is_given)
    }

    /// Returns whether the process has the caller's user namespace. In one of their own, users mount what they like.
    pub fn has_our_users(&self) -> bool {
        let namespace = |pid: &dyn Display| inode(fs::metadata(format!("/proc/{pid}/ns/user")));
        namespace(&self.pid) == namespace(&"self")
    }

    /// Opens a path, as the process sees it, with `O_PATH`. `EACCES` for a relative path, whose base is unknown, and where a
    /// stranger's file system may never answer, which would keep even a killed `--list` from ending.
    pub fn open(&self, path: impl AsRef<Path>, flags: OFlag) -> Result<File, Errno> {
        let path = path.as_ref();
        if !path.is_absolute() {
            return Err(NixErrno::EACCES.into());
        }
        let flags_of_root = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&*format!("/proc/{}/root", self.pid), flags_of_root, Mode::empty())?;
        // Asked only now: from then on the process can change its root, but not this one.
        if !self.is_own() && !self.has_our_users() {
            return Err(NixErrno::EACCES.into());
        }
        open_in(&root.into(), path, flags)
    }

    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }
}

/// Returns whether a user is root or the caller.
fn is_own(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// Returns whether the program's file was replaced after the start. `None`: the process runs another program.
fn find_program(pid: u32, name: &str) -> Option<bool> {
    match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => {
            let file = path.file_name()?.to_str()?;
            let current = file.strip_suffix(" (deleted)").unwrap_or(file);
            (current.starts_with("keepwatch") || current == ORIGINAL).then_some(current != file)
        }
        // Only the name of another user's process is readable.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            matches!(name, "keepwatch" | ORIGINAL_PROCESS).then_some(false)
        }
        Err(_) => None,
    }
}

/// Returns whether a process runs an interpreter of scripts.
fn is_script(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(" (deleted)");
    name.starts_with("python") || INTERPRETERS.contains(&name)
}

fn read_proc(pid: u32, name: &str) -> Result<String, Errno> {
    read_all(&File::open(format!("/proc/{pid}/{name}"))?)
}

fn read_all(file: &File) -> Result<String, Errno> {
    let mut content = Vec::new();
    file.take(MAX_READ).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into())
}

/// Opens a path with `O_PATH` below a root. Neither symlinks nor `..` leave it.
pub(super) fn open_in(root: &File, path: &Path, flags: OFlag) -> Result<File, Errno> {
    let path = Path::new(".").join(path.strip_prefix("/").unwrap_or(path));
    let flags = flags | OFlag::O_PATH | OFlag::O_CLOEXEC;
    let inside = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).resolve(inside);
    let mut attempts = (0..MAX_ATTEMPTS).map(|_| openat2(root, &path, how));
    let opened = attempts.find(|opened| !matches!(opened, Err(NixErrno::EAGAIN)));
    match opened.unwrap_or(Err(NixErrno::EAGAIN)) {
        // Before Linux 5.6, and in containers that deny unknown calls, absolute symlinks lead to this process's own root.
        Err(NixErrno::ENOSYS | NixErrno::EPERM) => {
            Ok(openat(root, &path, flags, Mode::empty())?.into())
        }
        opened => Ok(opened?.into()),
    }
}

/// Returns whether any user can put a directory there.
pub(super) fn is_open(directory: &Metadata) -> bool {
    directory.mode() & libc::S_IWOTH != 0
}

/// Returns the path by which an open file can be opened again.
pub(super) fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

pub(super) fn inode(file: io::Result<Metadata>) -> Option<Inode> {
    file.ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the owner of the state file in a directory, whatever it contains.
pub(super) fn writer(directory: &File) -> Option<u32> {
    open_state(directory).ok().map(|(_, owner)| owner)
}

/// Opens the state file in a directory with `O_PATH`. Also returns its owner.
fn open_state(directory: &File) -> Result<(File, u32), Errno> {
    let file = open_in(directory, "state".as_ref(), OFlag::O_NOFOLLOW)?;
    let owner = file.metadata()?.uid();
    Ok((file, owner))
}

/// Returns the state in a directory, and its file.
pub(super) fn read_state(directory: &File) -> Result<(String, File), Errno> {
    let (file, owner) = open_state(directory)?;
    let file = open_again(&file, owner)?;
    let state = read_all(&file)?;
    let is_state = matches!(&*state, "master" | "primary" | "backup");
    if is_state { Ok((state, file)) } else { Err(NixErrno::EINVAL.into()) }
}

/// Reads a regular file that a process of this user may have written.
pub(super) fn read(file: &File, user: u32) -> Result<String, Errno> {
    read_all(&open_again(file, user)?)
}

/// Opens such a file for reading, without blocking. Refuses files of the kernel, as reading some of them consumes data.
fn open_again(file: &File, user: u32) -> Result<File, Errno> {
    let (found, system) = (file.metadata()?, fstatfs(file)?.filesystem_type());
    let is_theirs = user == 0 || user == found.uid();
    if !is_theirs {
        return Err(NixErrno::EPERM.into());
    } else if !found.is_file() || [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&system) {
        return Err(NixErrno::EINVAL.into());
    }
    Ok(File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path_of(file))?)
}
