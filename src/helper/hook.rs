//! The hook: its command line, environment and user.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::{PATH, Runnable};
use crate::errno::Errno;
use crate::start::privileges::RunAs;
use crate::start::{passwd, privileges, trust};
use crate::wire::cidr::Cidr;
use crate::wire::helper::{CommandResult, HookState};
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;

#[derive(Debug)]
pub struct Hook<'a> {
    /// The absolute path.
    pub program: &'a Path,
    /// The user that it runs as.
    pub identity: RunAs,
    pub router: RouterId,
    pub interface: InterfaceName,
    pub vip: Cidr,
    /// The states of the last run and of the one before, repeated runs aside.
    pub states: [Option<HookState>; 2],
}

impl Hook<'_> {
    /// Checks that the hook is a file, and to run it as root, that only root can replace it.
    fn check(&self) -> Result<(), Errno> {
        if !fs::metadata(self.program)?.is_file() {
            return Err(NixErrno::EACCES.into());
        }
        let is_safe = !geteuid().is_root() || trust::is_safe(self.program);
        if is_safe { Ok(()) } else { Err(NixErrno::EPERM.into()) }
    }
}

impl Runnable for Hook<'_> {
    type Request = HookState;

    const PROCESS: &'static CStr = c"keepwatch-hook";

    /// Becomes the hook's user for good, and checks that the hook can be run.
    fn prepare(&self) -> Result<(), Errno> {
        let RunAs { user, group } = self.identity;
        let groups =
            group.map_or_else(Vec::new, |group| passwd::groups(user.unwrap_or(geteuid()), group));
        privileges::become_hook_user(self.identity, &groups)?;
        self.check()?;
        Ok(faccessat(AT_FDCWD, self.program, AccessFlags::X_OK, AtFlags::AT_EACCESS)?)
    }

    /// Builds the command as keepalived calls an instance's notify script. The priority is unknown, and so 0.
    fn command(&mut self, state: HookState) -> Result<Command, CommandResult> {
        // A repeated run gets the same arguments.
        let [last, _] = self.states;
        if last != Some(state) {
            self.states = [Some(state), last];
        }
        self.check().map_err(CommandResult::NotStarted)?;
        let mut command = Command::new(self.program);
        command.args(["INSTANCE", self.router.as_str(), state.word(), "0"]);
        command.env_clear().env("PATH", PATH);
        command.env("KEEPWATCH_ROUTER_ID", self.router.as_str());
        command.env("KEEPWATCH_INTERFACE", self.interface.to_string());
        command.env("KEEPWATCH_VIP", self.vip.to_string());
        command.env("KEEPWATCH_STATE", state.word());
        if let [_, Some(previous)] = self.states {
            command.env("KEEPWATCH_PREVIOUS", previous.word());
        }
        command.stdin(Stdio::null());
        Ok(command)
    }
}
