//! conntrackd's commands, whose configuration others than root may have written.
//!
//! It is opened with the rights of `--user` and handed over as standard input. The commands are root's, as
//! conntrackd's control socket is, but with one capability, and under Landlock: a hostile configuration can have
//! them write nowhere, and read nothing but programs, libraries and itself.

#![expect(unsafe_code, reason = "what a new process does before it executes the program")]

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::landlock::{AccessFs, RulesetCreated, RulesetError};
use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, geteuid, setegid, seteuid};

use super::{PATH, Runnable};
use crate::errno::Errno;
use crate::options::Config;
use crate::sys::landlock;
use crate::sys::privileges::{self, RunAs};
use crate::wire::helper::{CommandResult, Request};

/// A command that has not ended after this is killed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where programs and libraries are, and what these read; beside each other in `/`, `/usr` and `/usr/local`.
const READABLE: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "share"];

/// What the dynamic linkers and conntrackd's client read besides, and where NixOS has everything.
const ALSO_READABLE: [&str; 5] =
    ["/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/protocols", "/nix/store"];

/// How `PROGRAM -C CONFIGURATION FLAG` is run.
#[derive(Debug)]
pub struct Conntrackd<'a> {
    /// Its absolute path.
    pub program: &'a Path,
    /// Whom the daemon is to become, and whose the configuration is. It is opened for each command, so that it may come
    /// late.
    pub config: &'a Config,
}

impl Conntrackd<'_> {
    /// Opens the configuration, with the rights of `--user`.
    pub fn open(config: &Config) -> nix::Result<File> {
        let RunAs { user, group } = config.run_as();
        let others = user.filter(|user| geteuid().is_root() && !user.is_root());
        let become_user = |user| group.map_or(Ok(()), setegid).and_then(|()| seteuid(user));
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let open = || open(&config.conntrackd_conf(), flags, Mode::empty());
        let file = others.map_or(Ok(()), become_user).and_then(|()| open());
        if others.is_some() {
            // Also if only the group was changed.
            seteuid(Uid::from_raw(0))?;
            setegid(Gid::from_raw(0))?;
        }
        let file = File::from(file?);
        // Not a FIFO or a device, say.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if is_file { Ok(file) } else { Err(NixErrno::EINVAL) }
    }

    /// What a command may read: nothing of it may it write.
    fn rules(&self, configuration: &File) -> Result<RulesetCreated, RulesetError> {
        let read = AccessFs::from_read(landlock::VERSION);
        let prefixes = ["/", "/usr", "/usr/local"].map(Path::new);
        let directories = prefixes.iter().flat_map(|prefix| READABLE.map(|name| prefix.join(name)));
        // musl's linker, whose file is called by the architecture.
        let etc = fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
        let musl = etc.filter(|path| path.to_string_lossy().starts_with("/etc/ld-musl-"));
        let paths = directories.chain(musl).chain(ALSO_READABLE.map(PathBuf::from));
        let configuration = PathBuf::from(format!("/proc/self/fd/{}", configuration.as_raw_fd()));
        let paths = paths.chain([self.program.into(), configuration]);
        landlock::deny_all_but(&paths.map(|path| (path, read)).collect::<Vec<_>>())
    }
}

impl Runnable for Conntrackd<'_> {
    fn process_name(&self) -> &'static CStr {
        c"keepwatch-sync"
    }

    fn prepare(&self) -> Result<(), Errno> {
        prctl::set_no_new_privs()?;
        Ok(privileges::limit_to_client(self.config.run_as())?)
    }

    fn command(&mut self, request: Request) -> Result<Command, CommandResult> {
        let not_started = CommandResult::NotStarted;
        let Request::Sync(sync) = request else { return Err(not_started(NixErrno::EINVAL.into())) };
        let opened =
            Self::open(self.config).map_err(|errno| CommandResult::NotConfigured(errno.into()));
        let configuration = opened?;
        let rules = (!self.config.no_landlock).then(|| self.rules(&configuration)).transpose();
        let mut rules = rules.map_err(|_| not_started(NixErrno::last().into()))?;
        let mut command = Command::new(self.program);
        // Where /dev/stdin leads, which not every device has.
        command.args(["-C", "/proc/self/fd/0", sync.flag()]).stdin(configuration);
        command.env_clear().env("PATH", PATH);
        let enforce = move || match rules.take() {
            Some(rules) => rules.restrict_self().map(drop).map_err(|_| io::Error::last_os_error()),
            None => Ok(()),
        };
        // SAFETY: this process has one thread.
        unsafe { command.pre_exec(enforce) };
        Ok(command)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}
