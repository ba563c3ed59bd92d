//! What conntrackd's commands are shut in when their configuration is somebody else's than root's, who
//! could name any file and any socket in it.
//!
//! Such a command is run as that user, in a file system of its own that has the system's programs and
//! libraries, a copy of the configuration, and by their names the sockets in its directory; nothing in it
//! can be written to. The one capability that it has is for the control socket, which belongs to root.

#![expect(unsafe_code, reason = "system calls that no library has")]

use core::ptr::null;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open, openat};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{FileStat, Mode, fstat, lstat, stat};
use nix::unistd::{Gid, Uid, chdir, chroot, fchdir, geteuid, read, write};

use crate::errno::Errno;
use crate::monitor::CommandResult;
use crate::sys::privileges::{RunAs, become_client, limit_root, with_file_rights_of};
use crate::sys::{seccomp, trust};
use crate::wire::helper::sockets;

/// No configuration is longer, in bytes.
const MAX_CONFIGURATION: usize = 1 << 16;

/// Where the new file system is put together: a directory that is there on every system, and in which
/// nothing is that belongs to it.
const STAGE: &CStr = c"/proc";
/// What a program needs to be executed, and conntrackd to read its configuration. What there is of it is
/// shown, symlinks as such.
const SHOWN: [&CStr; 13] = [
    c"/usr",
    c"/bin",
    c"/sbin",
    c"/lib",
    c"/lib32",
    c"/lib64",
    c"/libx32",
    c"/nix",
    c"/etc/ld.so.cache",
    c"/etc/localtime",
    c"/etc/nsswitch.conf",
    c"/etc/protocols",
    c"/dev/null",
];

/// The user who owns nothing.
const NOBODY: u32 = 65_534;

/// Where conntrackd's configuration is, and whose it is.
#[derive(Debug)]
pub(super) struct Jail {
    directory: CString,
    pub(super) configuration: CString,
    pub(super) program: CString,
    /// Who owns the directory.
    owner: u32,
    /// Whose rights the configuration is read and used with. None: nobody but root can put one there.
    user: Option<(Uid, Gid)>,
}

impl Jail {
    /// `user` is whom the daemon is to become.
    pub(super) fn new(conf_dir: &Path, program: &Path, user: RunAs) -> Result<Self, Errno> {
        let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes());
        let invalid = |_| NixErrno::EINVAL;
        let directory = stat(conf_dir)?;
        let owner = (Uid::from_raw(directory.st_uid), Gid::from_raw(directory.st_gid));
        // Who is not root runs it with what rights he has himself.
        let trusted = !geteuid().is_root() || trust::is_safe(conf_dir);
        let user = user.user.zip(user.group).filter(|(user, _)| !user.is_root());
        Ok(Self {
            directory: c_string(conf_dir).map_err(invalid)?,
            configuration: c_string(&conf_dir.join("conntrackd.conf")).map_err(invalid)?,
            program: c_string(program).map_err(invalid)?,
            owner: directory.st_uid,
            user: (!trusted).then(|| user.unwrap_or_else(|| somebody(owner))),
        })
    }

    /// Shuts this process in for good, if the configuration is not root's own.
    pub(super) fn enter(&self) -> Result<(), CommandResult> {
        let not_confined = |errno: NixErrno| CommandResult::NotConfined(errno.into());
        let Some((user, group)) = self.user.or_else(|| self.owner_of_file()) else {
            // What is not there yet conntrackd itself would fail about.
            let missing = |errno: NixErrno| CommandResult::NotConfigured(errno.into());
            stat(self.configuration.as_c_str()).map_err(missing)?;
            return limit_root().map_err(not_confined);
        };
        // This process is not the daemon, which allocates nothing.
        let mut text = vec![0; MAX_CONFIGURATION];
        let (directory, text) = self
            .read(user, group, &mut text)
            .map_err(|errno| CommandResult::NotConfigured(errno.into()))?;
        self.build(&directory, text)
            .and_then(|()| limit_resources())
            .and_then(|()| become_client(user, group))
            .and_then(|()| seccomp::limit_client())
            .map_err(not_confined)
    }

    /// In a directory of root's: who owns the configuration, or may write to it, if that is not root alone.
    fn owner_of_file(&self) -> Option<(Uid, Gid)> {
        let file = stat(self.configuration.as_c_str()).ok().filter(|_| geteuid().is_root())?;
        let owner = (Uid::from_raw(file.st_uid), Gid::from_raw(file.st_gid));
        (trust::is_open(&file) || !owner.0.is_root()).then(|| somebody(owner))
    }

    /// Opens the directory, and reads the configuration in it, with a user's rights.
    fn read<'a>(
        &self,
        user: Uid,
        group: Gid,
        buffer: &'a mut [u8],
    ) -> nix::Result<(OwnedFd, &'a [u8])> {
        let identity = RunAs { user: Some(user), group: Some(group) };
        let mut opened = Err(NixErrno::EPERM);
        with_file_rights_of(identity, &mut || {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            opened = open(self.directory.as_c_str(), flags, Mode::empty()).and_then(|directory| {
                // Neither a FIFO nor a terminal is waited for.
                let flags =
                    OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
                let flags = flags | OFlag::O_CLOEXEC;
                Ok((openat(&directory, c"conntrackd.conf", flags, Mode::empty())?, directory))
            });
        })?;
        let (file, directory) = opened?;
        // Another that has come into its place may have sockets that are not the user's to know.
        if kind(&fstat(&file)?) != libc::S_IFREG || fstat(&directory)?.st_uid != self.owner {
            return Err(NixErrno::EPERM);
        }
        let mut length = 0;
        while let Some(rest) = buffer.get_mut(length..) {
            match read(&file, rest)? {
                0 if rest.is_empty() => return Err(NixErrno::EFBIG),
                0 => break,
                more => length += more,
            }
        }
        Ok((directory, buffer.get(..length).unwrap_or_default()))
    }

    /// Puts the file system together and goes there.
    fn build(&self, directory: &OwnedFd, configuration: &[u8]) -> nix::Result<()> {
        fchdir(directory)?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        mount(Some(c"tmpfs"), STAGE, Some(c"tmpfs"), flags, Some(c"mode=755,size=256k"))?;
        make_directory(c"/proc/.sockets")?;
        // By its descriptor, whatever has its name by now.
        show_at(c".", c"/proc/.sockets", libc::MS_NODEV | libc::MS_NOEXEC)?;
        chdir(STAGE)?;
        self.copy(configuration)?;
        for path in SHOWN {
            show(path)?;
        }
        show(&self.program)?;
        read_only(c".", flags)?;
        chroot(c".")?;
        chdir(c"/")
    }

    /// Puts the configuration into its place, and beside it, by their names, the sockets that it speaks of.
    fn copy(&self, configuration: &[u8]) -> nix::Result<()> {
        make_directories_above(&self.configuration)?;
        let file = create(relative(&self.configuration)?, 0o444)?;
        let written = write(&file, configuration)?;
        if written < configuration.len() {
            return Err(NixErrno::ENOSPC);
        }
        for name in sockets(configuration, self.directory.to_bytes()) {
            let place = CString::new([relative(&self.directory)?.to_bytes(), b"/", name].concat());
            let target = CString::new([b"/.sockets/", name].concat());
            if let (Ok(place), Ok(target)) = (place, target) {
                // One that comes again, or has the configuration's name, is there already.
                let _ = link(&target, &place);
            }
        }
        Ok(())
    }
}

/// A user in whose name to act: never root.
fn somebody((user, group): (Uid, Gid)) -> (Uid, Gid) {
    if user.is_root() { (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY)) } else { (user, group) }
}

fn kind(stat: &FileStat) -> libc::mode_t {
    stat.st_mode & libc::S_IFMT
}

/// Shows a directory or a file at its own place in the stage, which is the working directory, if there is
/// one; a symlink is made anew.
fn show(path: &CStr) -> nix::Result<()> {
    let Ok(stat) = lstat(path) else { return Ok(()) };
    let place = relative(path)?;
    if lstat(place).is_ok() {
        return Ok(());
    }
    make_directories_above(path)?;
    match kind(&stat) {
        libc::S_IFLNK => {
            let mut target = [0_u8; 512];
            // SAFETY: the kernel writes less than all of the buffer, so that a NUL is left at the end.
            unsafe { libc::readlink(path.as_ptr(), target.as_mut_ptr().cast(), target.len() - 1) };
            return link(CStr::from_bytes_until_nul(&target).unwrap_or_default(), place);
        }
        libc::S_IFDIR => make_directory(place)?,
        _ => drop(create(place, 0o444)?),
    }
    // The one device there is has to be one.
    show_at(path, place, 0)
}

/// Shows what is at a path at another, to be read only.
fn show_at(path: &CStr, place: &CStr, flags: libc::c_ulong) -> nix::Result<()> {
    mount(Some(path), place, None, libc::MS_BIND, None)?;
    read_only(place, flags | libc::MS_NOSUID)
}

fn read_only(place: &CStr, flags: libc::c_ulong) -> nix::Result<()> {
    mount(None, place, None, flags | libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY, None)
}

// nix has this once for every kind of path.
fn mount(
    source: Option<&CStr>,
    place: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> nix::Result<()> {
    let [source, kind, data] = [source, kind, data].map(|text| text.map_or(null(), CStr::as_ptr));
    // SAFETY: the kernel reads strings, or what is null.
    let mounted = unsafe { libc::mount(source, place.as_ptr(), kind, flags, data.cast()) };
    NixErrno::result(mounted).map(|_| ())
}

fn make_directory(path: &CStr) -> nix::Result<()> {
    // SAFETY: the kernel reads a string.
    NixErrno::result(unsafe { libc::mkdir(path.as_ptr(), 0o755) }).map(|_| ())
}

fn link(target: &CStr, place: &CStr) -> nix::Result<()> {
    // SAFETY: the kernel reads two strings.
    NixErrno::result(unsafe { libc::symlink(target.as_ptr(), place.as_ptr()) }).map(|_| ())
}

fn create(path: &CStr, mode: libc::mode_t) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    open(path, flags, Mode::from_bits_truncate(mode))
}

/// Makes the directories above an absolute path, in the working directory, as far as they are not there.
fn make_directories_above(path: &CStr) -> nix::Result<()> {
    let mut path = relative(path)?.to_bytes_with_nul().to_vec();
    for place in 0..path.len() {
        if let Some(byte) = path.get_mut(place).filter(|byte| **byte == b'/') {
            *byte = 0;
            match make_directory(CStr::from_bytes_until_nul(&path).unwrap_or_default()) {
                Ok(()) | Err(NixErrno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
            if let Some(byte) = path.get_mut(place) {
                *byte = b'/';
            }
        }
    }
    Ok(())
}

/// An absolute path without the slash that it begins with.
fn relative(path: &CStr) -> nix::Result<&CStr> {
    let rest = path.to_bytes_with_nul().get(1..).unwrap_or_default();
    CStr::from_bytes_with_nul(rest).map_err(|_| NixErrno::EINVAL)
}

fn limit_resources() -> nix::Result<()> {
    for (resource, limit) in
        [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_AS, 1 << 28), (libc::RLIMIT_NOFILE, 64)]
    {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the kernel reads the limit.
        NixErrno::result(unsafe { libc::setrlimit(resource, &raw const limit) })?;
    }
    Ok(())
}
