//! The hook: how it is called, and as whom.

use std::ffi::CStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::{PATH, Runnable};
use crate::errno::Errno;
use crate::sys::privileges::{self, RunAs};
use crate::sys::{passwd, trust};
use crate::wire::cidr::Cidr;
use crate::wire::helper::{CommandResult, HookState, Request};
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;

/// The hook, and what it is told on every run.
#[derive(Debug)]
pub struct Hook {
    /// Its absolute path.
    pub program: PathBuf,
    /// Whom it is run as.
    pub user: RunAs,
    /// It is killed after this.
    pub timeout: Duration,
    /// The first argument behind `INSTANCE`.
    pub router: RouterId,
    /// The watched interface.
    pub interface: InterfaceName,
    /// The virtual address.
    pub vip: Cidr,
    /// The state that it was told last, and the one before; none at first.
    pub told: [Option<HookState>; 2],
}

impl Hook {
    /// Whether it may be run: a file that, as root, only root can have put there.
    fn check(&self) -> Result<(), Errno> {
        if !fs::metadata(&self.program)?.is_file() {
            return Err(NixErrno::EACCES.into());
        }
        let is_safe = !geteuid().is_root() || trust::is_safe(&self.program);
        if is_safe { Ok(()) } else { Err(NixErrno::EPERM.into()) }
    }
}

impl Runnable for Hook {
    fn process_name(&self) -> &'static CStr {
        c"keepwatch-hook"
    }

    /// Becomes the user that the hook is run as, for good, and checks that it can be run.
    fn prepare(&self) -> Result<(), Errno> {
        let groups = match self.user.group {
            Some(group) => passwd::groups(self.user.user.unwrap_or(geteuid()), group),
            None => Vec::new(),
        };
        privileges::become_hook_user(self.user, &groups)?;
        self.check()?;
        Ok(faccessat(AT_FDCWD, &self.program, AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
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
        let mut command = Command::new(&self.program);
        command.args(["INSTANCE", self.router.as_str(), state.word(), "0"]);
        command.env_clear().env("PATH", PATH);
        command.env("KEEPWATCH_ROUTER_ID", self.router.as_str());
        command.env("KEEPWATCH_INTERFACE", self.interface.to_string());
        command.env("KEEPWATCH_VIP", self.vip.to_string());
        command.env("KEEPWATCH_STATE", state.word());
        if let [_, Some(previous)] = self.told {
            command.env("KEEPWATCH_PREVIOUS", previous.word());
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }
}
