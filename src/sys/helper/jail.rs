//! What conntrackd's commands are shut in when their configuration is somebody else's than root's, who
//! could name any file and any socket in it.
//!
//! Such a command is run as that user, in a file system of its own that has the system's programs and
//! libraries, a copy of the configuration, and by their names the sockets in its directory; nothing in it
//! can be written to. The one capability that it has is for the control socket, which belongs to root.

use core::ffi::CStr;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::libc;
use nix::libc::rlim_t;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, chdir, chroot, fchdir, geteuid, read, symlinkat, write};

use crate::errno::Errno;
use crate::monitor::CommandResult;
use crate::sys::file_id::{FileId, identify, identify_link, identify_open};
use crate::sys::files::{c_path, c_string, read_link, split};
use crate::sys::own_file::SAFELY;
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

/// Of core files, in bytes of memory, in descriptors.
const LIMITS: [(Resource, rlim_t); 3] =
    [(Resource::RLIMIT_CORE, 0), (Resource::RLIMIT_AS, 1 << 28), (Resource::RLIMIT_NOFILE, 64)];

/// The user who owns nothing.
const NOBODY: u32 = 65_534;

/// Where conntrackd's configuration is, and whose it is.
#[derive(Debug)]
pub struct Jail {
    directory: CString,
    /// What the configuration is called there.
    name: CString,
    pub(super) configuration: CString,
    pub(super) program: CString,
    /// Who owns the directory.
    owner: u32,
    /// Whose rights the configuration is read and used with. None: nobody but root can put one there.
    user: Option<(Uid, Gid)>,
}

impl Jail {
    /// For `PROGRAM -C CONFIGURATION FLAG`. `user` is whom the daemon is to become.
    ///
    /// # Errors
    /// Why the configuration's directory cannot be looked at.
    pub fn new(program: &Path, configuration: &Path, user: RunAs) -> Result<Self, Errno> {
        let configuration = c_path(configuration)?;
        let (directory, name) = split(configuration.to_bytes());
        let above = directory.strip_suffix(b"/").filter(|above| !above.is_empty());
        let directory = c_string(above.unwrap_or(directory))?;
        let owner = identify(&directory)?;
        // Who is not root runs it with what rights he has himself.
        let trusted = !geteuid().is_root() || trust::is_protected(&directory);
        let user = user.user.zip(user.group).filter(|(user, _)| !user.is_root());
        let user = (!trusted).then(|| user.unwrap_or_else(|| somebody(owner)));
        let (name, program) = (c_string(name)?, c_path(program)?);
        Ok(Self { directory, name, configuration, program, owner: owner.user, user })
    }

    /// Shuts this process in for good, if the configuration is not root's own.
    pub(super) fn enter(&self) -> Result<(), CommandResult> {
        let not_configured = |errno| CommandResult::NotConfigured(errno);
        let not_confined = |errno: NixErrno| CommandResult::NotConfined(errno.into());
        let Some((user, group)) = self.user.or_else(|| self.owner_of_file()) else {
            // What is not there yet conntrackd itself would fail about.
            identify(&self.configuration).map_err(not_configured)?;
            return limit_root().map_err(not_confined);
        };
        // This process is not the daemon, which allocates nothing.
        let mut text = vec![0; MAX_CONFIGURATION];
        let (directory, text) = self.read(user, group, &mut text).map_err(not_configured)?;
        self.build(&directory, text)
            .and_then(|()| {
                LIMITS.iter().try_for_each(|(what, limit)| setrlimit(*what, *limit, *limit))
            })
            .and_then(|()| become_client(user, group))
            .and_then(|()| seccomp::limit_client())
            .map_err(not_confined)
    }

    /// In a directory of root's: who owns the configuration, if others than root may say what is in it, or
    /// what it is.
    fn owner_of_file(&self) -> Option<(Uid, Gid)> {
        let file = identify(&self.configuration).ok().filter(|_| geteuid().is_root())?;
        (file.user != 0 || !trust::is_protected(&self.configuration)).then(|| somebody(file))
    }

    /// Opens the directory, and reads the configuration in it, with a user's rights.
    fn read<'a>(
        &self,
        user: Uid,
        group: Gid,
        buffer: &'a mut [u8],
    ) -> Result<(OwnedFd, &'a [u8]), Errno> {
        let identity = RunAs { user: Some(user), group: Some(group) };
        let mut opened = Err(NixErrno::EPERM);
        with_file_rights_of(identity, &mut || {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            opened = open(self.directory.as_c_str(), flags, Mode::empty()).and_then(|directory| {
                let flags = OFlag::O_RDONLY | SAFELY;
                Ok((openat(&directory, self.name.as_c_str(), flags, Mode::empty())?, directory))
            });
        })?;
        let (file, directory) = opened?;
        // Another that has come into its place may have sockets that are not the user's to know.
        if identify_open(&file)?.kind() != libc::S_IFREG
            || identify_open(&directory)?.user != self.owner
        {
            return Err(NixErrno::EPERM.into());
        }
        let mut length = 0;
        while let Some(rest) = buffer.get_mut(length..) {
            match read(&file, rest)? {
                0 if rest.is_empty() => return Err(NixErrno::EFBIG.into()),
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
        change_mount(c"/", MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount_at(Some(c"tmpfs"), STAGE, Some(c"tmpfs"), flags, Some(c"mode=755,size=256k"))?;
        make_directory(c"/proc/.sockets")?;
        // By its descriptor, whatever has its name by now.
        show_at(c".", c"/proc/.sockets", MsFlags::MS_NODEV | MsFlags::MS_NOEXEC)?;
        chdir(STAGE)?;
        self.copy(configuration)?;
        for path in SHOWN {
            show(path)?;
        }
        show(&self.program)?;
        make_read_only(c".", flags)?;
        chroot(c".")?;
        chdir(c"/")
    }

    /// Puts the configuration into its place, and beside it, by their names, the sockets that it speaks of.
    fn copy(&self, configuration: &[u8]) -> nix::Result<()> {
        make_directories_above(&self.configuration)?;
        let file = create(relative(&self.configuration)?)?;
        if write(&file, configuration)? < configuration.len() {
            return Err(NixErrno::ENOSPC);
        }
        for name in sockets(configuration, self.directory.to_bytes()) {
            let place = c_string(&[self.directory.to_bytes(), b"/", name].concat());
            let target = c_string(&[b"/.sockets/", name].concat());
            if let (Ok(place), Ok(target)) = (place, target) {
                // One that comes again, or has the configuration's name, is there already.
                let _ = symlinkat(target.as_c_str(), AT_FDCWD, relative(&place)?);
            }
        }
        Ok(())
    }
}

/// A user in whose name to act: whose the file is, but never root.
fn somebody(file: FileId) -> (Uid, Gid) {
    let (user, group) = if file.user == 0 { (NOBODY, NOBODY) } else { (file.user, file.group) };
    (Uid::from_raw(user), Gid::from_raw(group))
}

/// Shows a directory or a file at its own place in the stage, which is the working directory, if there is
/// one; a symlink is made anew.
fn show(path: &CStr) -> nix::Result<()> {
    let Ok(file) = identify_link(path) else { return Ok(()) };
    let place = relative(path)?;
    if identify_link(place).is_ok() {
        return Ok(());
    }
    make_directories_above(path)?;
    match file.kind() {
        libc::S_IFLNK => {
            let target = read_link(path)?;
            return symlinkat(target.as_c_str(), AT_FDCWD, place);
        }
        libc::S_IFDIR => make_directory(place)?,
        _ => drop(create(place)?),
    }
    // The one device there is has to be one.
    show_at(path, place, MsFlags::empty())
}

/// Shows what is at a path at another, to be read only.
fn show_at(path: &CStr, place: &CStr, flags: MsFlags) -> nix::Result<()> {
    mount_at(Some(path), place, None, MsFlags::MS_BIND, None)?;
    make_read_only(place, flags | MsFlags::MS_NOSUID)
}

fn make_read_only(place: &CStr, flags: MsFlags) -> nix::Result<()> {
    change_mount(place, flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY)
}

fn change_mount(place: &CStr, flags: MsFlags) -> nix::Result<()> {
    mount_at(None, place, None, flags, None)
}

// Once, for one kind of path.
#[inline(never)]
fn mount_at(
    source: Option<&CStr>,
    place: &CStr,
    kind: Option<&CStr>,
    flags: MsFlags,
    data: Option<&CStr>,
) -> nix::Result<()> {
    mount(source, place, kind, flags, data)
}

fn make_directory(path: &CStr) -> nix::Result<()> {
    mkdirat(AT_FDCWD, path, Mode::from_bits_truncate(0o755))
}

fn create(path: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    open(path, flags, Mode::from_bits_truncate(0o444))
}

/// Makes the directories above an absolute path, in the working directory, as far as they are not there.
fn make_directories_above(path: &CStr) -> nix::Result<()> {
    let path = relative(path)?.to_bytes();
    for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        match make_directory(&c_string(path.get(..end).unwrap_or_default())?) {
            Ok(()) | Err(NixErrno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// An absolute path without the slash that it begins with. One that could lead out of the working directory is
/// none.
fn relative(path: &CStr) -> nix::Result<&CStr> {
    let rest = path.to_bytes_with_nul().get(1..).unwrap_or_default();
    let rest = CStr::from_bytes_with_nul(rest).map_err(|_| NixErrno::EINVAL)?;
    let mut names = rest.to_bytes().split(|byte| *byte == b'/');
    let leads_out = rest.to_bytes().starts_with(b"/") || names.any(|name| name == b"..");
    if leads_out { Err(NixErrno::EINVAL) } else { Ok(rest) }
}
