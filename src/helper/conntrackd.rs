//! conntrackd's commands, whose configuration other users than root may have written.
//!
//! The configuration is opened with the rights of `--user` and passed as standard input. The commands run as root, as
//! conntrackd's control socket is root's, but with one capability, and under Landlock. Whatever the configuration says,
//! they write no file, and read only programs, libraries and the configuration.

#![expect(unsafe_code, reason = "pre_exec")]

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::landlock::{AccessFs, RulesetCreated};
use nix::errno::Errno as NixErrno;
use nix::fcntl::open;
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, geteuid, setegid, seteuid};

use super::{FailedStep, PATH, Runnable, in_step};
use crate::errno::Errno;
use crate::options::Config;
use crate::start::privileges::{self, RunAs};
use crate::start::{landlock, program};
use crate::sys::files::{self, FileId, SAFELY};
use crate::wire::helper::{CommandResult, SyncRequest};

/// A command that has not ended after this is killed.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// More bytes than a configuration has.
const MAX_CONFIGURATION: u64 = 65_536;

/// Directories of programs, libraries and their data, in `/`, `/usr` and `/usr/local`.
const READABLE: [&str; 7] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "share"];

/// Other files that dynamic linkers and conntrackd's client read, and the directory of all programs of NixOS.
const ALSO_READABLE: [&str; 5] =
    ["/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/protocols", "/nix/store"];

/// Runs `PROGRAM -C CONFIGURATION FLAG`.
#[derive(Debug)]
pub struct Conntrackd<'a> {
    config: &'a Config,
    /// Its absolute path.
    program: &'a Path,
    /// The control socket at the last command.
    socket: Option<FileId>,
}

/// Opens the configuration with the rights of `identity`.
pub fn open_configuration(path: &Path, identity: RunAs) -> nix::Result<File> {
    let others = identity.user.filter(|user| geteuid().is_root() && !user.is_root());
    let become_user = |user| identity.group.map_or(Ok(()), setegid).and_then(|()| seteuid(user));
    let file = others.map_or(Ok(()), become_user).and_then(|()| open(path, SAFELY, Mode::empty()));
    if others.is_some() {
        // Root is restored even if only the group was changed.
        seteuid(Uid::from_raw(0))?;
        setegid(Gid::from_raw(0))?;
    }
    let file = File::from(file?);
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if is_file { Ok(file) } else { Err(NixErrno::EINVAL) }
}

/// Returns the control socket of a running conntrackd, by the path in its configuration: the word after `Path`, which
/// occurs nowhere else (conntrackd's `read_config_yy.y`). Leaves the file at its beginning, for a command.
fn control_socket(mut configuration: &File) -> Option<FileId> {
    let mut text = Vec::new();
    let read = configuration.take(MAX_CONFIGURATION).read_to_end(&mut text);
    // Never fails for a regular file.
    configuration.rewind().ok()?;
    // Without its path, conntrackd counts as the same. The command reads the configuration itself, and reports the error.
    read.ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut words = text.lines().flat_map(|line| {
        // Up to a comment.
        line.split_whitespace().take_while(|word| !word.starts_with('#'))
    });
    words.find(|word| word.ends_with("Path"))?;
    files::identity(Path::new(words.next()?))
}

impl<'a> Conntrackd<'a> {
    pub fn new(config: &'a Config, program: &'a Path) -> Self {
        Self { config, program, socket: None }
    }

    /// Returns the rules that let a command read certain files and write none.
    fn rules(&self, configuration: &File) -> Result<RulesetCreated, Errno> {
        let read = AccessFs::from_read(landlock::VERSION);
        let prefixes = ["/", "/usr", "/usr/local"].map(Path::new);
        let directories = prefixes.iter().flat_map(|prefix| READABLE.map(|name| prefix.join(name)));
        // The configuration of musl's linker is named after the architecture.
        let etc = fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
        let musl = etc.filter(|path| path.to_string_lossy().starts_with("/etc/ld-musl-"));
        let paths = directories.chain(musl).chain(ALSO_READABLE.map(PathBuf::from));
        let configuration = PathBuf::from(format!("/proc/self/fd/{}", configuration.as_raw_fd()));
        let paths = paths.chain([self.program.into(), configuration]);
        landlock::deny_all_but(&paths.map(|path| (path, read)).collect::<Vec<_>>())
    }

    fn command(&mut self, request: SyncRequest) -> Result<Command, CommandResult> {
        // Opened for each command, so that it may be created late.
        let opened = open_configuration(&self.config.conntrackd_conf(), self.config.run_as());
        let configuration = opened.map_err(|errno| CommandResult::NotConfigured(errno.into()))?;
        let socket = control_socket(&configuration);
        let SyncRequest::Run(sync) = request else {
            let is_another = socket.is_some() && socket != self.socket;
            return Err(CommandResult::Exited(u8::from(is_another)));
        };
        self.socket = socket;
        // It may have been installed, or become replaceable, since the start.
        program::check_conntrackd(self.program).map_err(CommandResult::NotStarted)?;
        let is_limited = !self.config.no_landlock;
        let rules = is_limited.then(|| self.rules(&configuration)).transpose();
        let mut rules = rules.map_err(CommandResult::NotStarted)?;
        let mut command = Command::new(self.program);
        // The target of /dev/stdin, which some appliances lack.
        command.args(["-C", "/proc/self/fd/0", sync.flag()]).stdin(configuration);
        command.env_clear().env("PATH", PATH);
        let enforce = move || match rules.take() {
            Some(rules) => rules.restrict_self().map(drop).map_err(|_| io::Error::last_os_error()),
            None => Ok(()),
        };
        // SAFETY: this process has one thread, so the new one may allocate.
        unsafe { command.pre_exec(enforce) };
        Ok(command)
    }
}

impl Runnable for Conntrackd<'_> {
    type Request = SyncRequest;

    const PROCESS: &'static CStr = c"keepwatch-sync";
    const PERIOD: Duration = Duration::ZERO;

    fn prepare(&self) -> Result<(), FailedStep<'static>> {
        prctl::set_no_new_privs().map_err(in_step("no_new_privs"))?;
        privileges::limit_to_client(self.config.run_as()).map_err(in_step("dropping privileges"))
    }

    fn limit(_: &SyncRequest) -> Duration {
        COMMAND_TIMEOUT
    }

    fn next(
        &mut self,
        request: &SyncRequest,
        last: Option<CommandResult>,
    ) -> Option<Result<Command, CommandResult>> {
        last.is_none().then(|| self.command(*request))
    }
}
