//! The hook: how it is called, as whom, and that nobody but root can have put it there if it is run as root.

use core::fmt::Display;
use std::ffi::CString;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::unistd::{AccessFlags, Gid, faccessat, geteuid};

use crate::errno::Errno;
use crate::monitor::{Duration, HookCall, HookState};
use crate::sys::file_id::identify;
use crate::sys::files::{c_path, c_string};
use crate::sys::privileges::{self, RunAs};
use crate::sys::{passwd, trust};
use crate::wire::cidr::Cidr;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;

/// The hook, and what it is told on every run.
#[derive(Debug)]
pub struct Hook {
    pub(super) program: CString,
    pub(super) router: CString,
    /// What of its environment is always the same.
    constant: [CString; 3],
    pub(super) timeout: Duration,
    user: RunAs,
    groups: Vec<Gid>,
}

impl Hook {
    /// `user` is whom to run it as.
    ///
    /// # Errors
    /// `EINVAL` if a name has a NUL.
    pub fn new(
        program: &Path,
        user: RunAs,
        timeout: Duration,
        router: &RouterId,
        interface: &InterfaceName,
        vip: &Cidr,
    ) -> Result<Self, Errno> {
        let groups = match user.group {
            Some(group) => passwd::groups(user.user.unwrap_or(geteuid()), group),
            None => Vec::new(),
        };
        Ok(Self {
            program: c_path(program)?,
            router: text("", &router.as_str())?,
            constant: [
                text("KEEPWATCH_ROUTER_ID=", &router.as_str())?,
                text("KEEPWATCH_INTERFACE=", interface)?,
                text("KEEPWATCH_VIP=", vip)?,
            ],
            timeout,
            user,
            groups,
        })
    }

    /// Has this process become whom the hook is run as, for good, and looks whether it could be run.
    pub(super) fn prepare(&self) -> nix::Result<()> {
        privileges::become_hook_user(self.user, &self.groups)?;
        self.check().map_err(|Errno(errno)| NixErrno::from_raw(errno))?;
        let flags = AtFlags::AT_EACCESS;
        faccessat(AT_FDCWD, self.program.as_c_str(), AccessFlags::X_OK, flags)
    }

    /// Whether it may be run: a file that, as root, only root can have put there.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if identify(&self.program)?.kind() != libc::S_IFREG {
            return Err(NixErrno::EACCES.into());
        }
        let is_root = geteuid().is_root();
        if is_root && !trust::is_protected(&self.program) {
            return Err(NixErrno::EPERM.into());
        }
        Ok(())
    }

    /// Its environment beside `PATH`, on one run. This process is not the daemon, which allocates nothing.
    pub(super) fn environment(&self, HookCall { state, previous }: HookCall) -> Vec<CString> {
        let variable = |name: &[u8], state: HookState| {
            c_string(&[name, state.word().to_bytes()].concat()).unwrap_or_default()
        };
        let mut environment = self.constant.to_vec();
        environment.push(variable(b"KEEPWATCH_STATE=", state));
        environment.extend(previous.map(|previous| variable(b"KEEPWATCH_PREVIOUS=", previous)));
        environment
    }
}

// Once in the program, and not for every type.
#[inline(never)]
fn text(name: &str, value: &dyn Display) -> nix::Result<CString> {
    c_string(format!("{name}{value}").as_bytes())
}
