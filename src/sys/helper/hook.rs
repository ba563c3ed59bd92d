//! The hook: how it is called, and as whom.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::{PATH, Runnable};
use crate::errno::Errno;
use crate::options::Config;
use crate::sys::{passwd, privileges, trust};
use crate::wire::helper::{CommandResult, HookState, Request};

/// The hook, and what it is told on every run.
#[derive(Debug)]
pub struct Hook<'a> {
    /// Its absolute path.
    pub program: &'a Path,
    /// Whom it is run as, for how long, and what it is told.
    pub config: &'a Config,
    /// The state that it was told last, and the one before; none at first.
    pub told: [Option<HookState>; 2],
}

impl Hook<'_> {
    /// Whether it may be run: a file that, as root, only root can have put there.
    fn check(&self) -> Result<(), Errno> {
        if !fs::metadata(self.program)?.is_file() {
            return Err(NixErrno::EACCES.into());
        }
        let is_safe = !geteuid().is_root() || trust::is_safe(self.program);
        if is_safe { Ok(()) } else { Err(NixErrno::EPERM.into()) }
    }
}

impl Runnable for Hook<'_> {
    fn process_name(&self) -> &'static CStr {
        c"keepwatch-hook"
    }

    /// Becomes the user that the hook is run as, for good, and checks that it can be run.
    fn prepare(&self) -> Result<(), Errno> {
        let identity = self.config.run_hook_as();
        let groups = identity.group.map_or_else(Vec::new, |group| {
            passwd::groups(identity.user.unwrap_or(geteuid()), group)
        });
        privileges::become_hook_user(identity, &groups)?;
        self.check()?;
        Ok(faccessat(AT_FDCWD, self.program, AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
    }

    /// As keepalived calls the notify script of an instance, whose priority is not known here.
    fn command(&mut self, request: Request) -> Result<Command, CommandResult> {
        let Request::Hook(state) = request else {
            return Err(CommandResult::NotStarted(NixErrno::EINVAL.into()));
        };
        // A run that is repeated is the same call again.
        let [last, _] = self.told;
        if last != Some(state) {
            self.told = [Some(state), last];
        }
        self.check().map_err(CommandResult::NotStarted)?;
        let mut command = Command::new(self.program);
        let Config { router_id, interface, vip, .. } = self.config;
        command.args(["INSTANCE", router_id.as_str(), state.word(), "0"]);
        command.env_clear().env("PATH", PATH);
        command.env("KEEPWATCH_ROUTER_ID", router_id.as_str());
        command.env("KEEPWATCH_INTERFACE", interface.to_string());
        command.env("KEEPWATCH_VIP", vip.to_string());
        command.env("KEEPWATCH_STATE", state.word());
        if let [_, Some(previous)] = self.told {
            command.env("KEEPWATCH_PREVIOUS", previous.word());
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn timeout(&self) -> Duration {
        self.config.hook_timeout.into()
    }
}
