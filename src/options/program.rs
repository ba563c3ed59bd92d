//! The programs that are run: finding conntrackd, checking the hook.

use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::Config;
use crate::sys::trust;

/// Why a program is not run.
pub const REFUSED: &str = "not run: others than root can replace it";

/// conntrackd, as far as it was found.
#[derive(Debug)]
pub struct Program {
    /// Where it is, or ought to be.
    pub path: PathBuf,
    /// A program that comes first in `PATH`, but which others than root can replace.
    pub refused: Option<PathBuf>,
}

impl Config {
    /// Looks for conntrackd, if it is to be run: in `PATH`, and then where Debian and Neutron's rootwrap have it, as a
    /// daemon's `PATH` may lack these directories.
    pub fn find_conntrackd(&self) -> Option<Program> {
        if !self.enable_conntrackd {
            return None;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let mut refused = None;
        for directory in std::env::split_paths(&path).chain(system) {
            let file = directory.join("conntrackd");
            if file.is_absolute() && can_be_run(&file) {
                if trust::is_safe(&file) {
                    return Some(Program { path: file, refused });
                }
                refused.get_or_insert(file);
            }
        }
        Some(Program { path: "/usr/sbin/conntrackd".into(), refused })
    }

    /// Checks that root does not run a hook that others can replace. The error is [`REFUSED`].
    pub(crate) fn check_hook(&self, hook: &Path) -> Result<(), &'static str> {
        let user = self.run_hook_as().user.unwrap_or_else(geteuid);
        if user.is_root() && !trust::is_safe(hook) { Err(REFUSED) } else { Ok(()) }
    }
}

/// Whether there is a file that this user may execute.
pub(super) fn can_be_run(file: &Path) -> bool {
    file.is_file() && faccessat(AT_FDCWD, file, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok()
}
