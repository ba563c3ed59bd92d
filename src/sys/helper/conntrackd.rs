//! conntrackd's commands, whose configuration others than root may have written.
//!
//! It is opened with the rights of `--user` and handed over as standard input. The commands are root's, as
//! conntrackd's control socket is, but with one capability, and under Landlock: a hostile configuration can have
//! them write nowhere, and read nothing but programs, libraries and itself.

#![expect(unsafe_code, reason = "what a new process does before it executes the program")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, geteuid, setegid, seteuid};

use super::{PATH, Runnable};
use crate::errno::Errno;
use crate::sys::landlock::{Ruleset, access};
use crate::sys::privileges::{self, RunAs};
use crate::wire::helper::{CommandResult, Request};

/// A command that has not ended after this is killed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a program needs to be executed, and what conntrackd's client reads besides its configuration.
const READABLE: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/protocols",
];

/// How `PROGRAM -C CONFIGURATION FLAG` is run.
#[derive(Debug)]
pub struct Conntrackd {
    /// Its absolute path.
    pub program: PathBuf,
    /// Opened for each command, so that it may come late.
    pub configuration: PathBuf,
    /// Whom the daemon is to become.
    pub user: RunAs,
    /// Use Landlock where the kernel has it.
    pub landlock: bool,
}

impl Conntrackd {
    /// Opens the configuration, with the rights of `--user`.
    fn open(&self) -> nix::Result<File> {
        let RunAs { user, group } = self.user;
        let others = user.filter(|user| geteuid().is_root() && !user.is_root());
        if let Some(user) = others {
            group.map_or(Ok(()), setegid)?;
            seteuid(user)?;
        }
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = open(&self.configuration, OFlag::O_RDONLY | flags, Mode::empty());
        if others.is_some() {
            seteuid(Uid::from_raw(0))?;
            setegid(Gid::from_raw(0))?;
        }
        let file = File::from(file?);
        // Not a FIFO or a device, say.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file { Ok(file) } else { Err(NixErrno::EINVAL) }
    }

    /// What a command may read: nothing of it may it write. None: there is no Landlock.
    fn rules(&self, configuration: &File) -> Result<Option<Ruleset>, Errno> {
        let Some(rules) = Ruleset::new()?.filter(|_| self.landlock) else { return Ok(None) };
        let read = access::READ_FILE | access::READ_DIR | access::EXECUTE;
        for path in READABLE.map(Path::new).into_iter().filter(|path| path.exists()) {
            let access = if path.is_dir() { read } else { access::READ_FILE };
            rules.allow(path, access)?;
        }
        rules.allow(&self.program, access::READ_FILE | access::EXECUTE)?;
        rules.allow_open(configuration, access::READ_FILE)?;
        Ok(Some(rules))
    }
}

impl Runnable for Conntrackd {
    fn process_name(&self) -> &'static CStr {
        c"keepwatch-sync"
    }

    fn prepare(&self) -> Result<(), Errno> {
        prctl::set_no_new_privs()?;
        Ok(privileges::limit_to_client(self.user)?)
    }

    fn command(&mut self, request: Request) -> Result<Command, CommandResult> {
        let not_started = CommandResult::NotStarted;
        let Request::Sync(sync) = request else { return Err(not_started(NixErrno::EINVAL.into())) };
        let opened = self.open().map_err(|errno| CommandResult::NotConfigured(errno.into()));
        let configuration = opened?;
        let rules = self.rules(&configuration).map_err(not_started)?;
        let mut command = Command::new(&self.program);
        // Where /dev/stdin leads, which not every device has.
        command.args(["-C", "/proc/self/fd/0", sync.flag()]).stdin(configuration);
        command.env_clear().env("PATH", PATH);
        if let Some(rules) = rules {
            let enforce = move || rules.enforce().map_err(|e| io::Error::from_raw_os_error(e.0));
            // SAFETY: nothing but a system call.
            unsafe { command.pre_exec(enforce) };
        }
        Ok(command)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}
