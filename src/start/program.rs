//! The programs to run: finds conntrackd and checks the hook.

use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::trust;
use crate::options::Config;

const REFUSED: &str = "not run: users other than root can replace it";

/// The result of the search for conntrackd.
#[derive(Debug)]
pub struct ConntrackdPath {
    /// The path of the program found, or the usual path.
    pub path: PathBuf,
    /// A warning about an earlier program in `PATH` that users other than root can replace.
    pub refused: Option<String>,
}

impl Config {
    /// Searches for conntrackd in `PATH` and then where Debian and Neutron's rootwrap have it, as a daemon's `PATH` may lack
    /// these directories. `None`: conntrackd is not enabled.
    pub fn find_conntrackd(&self) -> Option<ConntrackdPath> {
        if !self.enable_conntrackd {
            return None;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let mut refused = None;
        for directory in std::env::split_paths(&path).chain(system) {
            let file = directory.join("conntrackd");
            if file.is_absolute() && can_be_run(&file) {
                let Some(why) = trust::find_unsafe(&file) else {
                    return Some(ConntrackdPath { path: file, refused });
                };
                refused.get_or_insert_with(|| format!("{}: {REFUSED}: {why}", file.display()));
            }
        }
        Some(ConntrackdPath { path: "/usr/sbin/conntrackd".into(), refused })
    }

    /// Refuses a hook that would run as root and that other users can replace.
    pub(crate) fn check_hook(&self, hook: &Path) -> Result<(), String> {
        let user = self.run_hook_as().user.unwrap_or_else(geteuid);
        let why = if user.is_root() { trust::find_unsafe(hook) } else { None };
        why.map_or(Ok(()), |why| Err(format!("{REFUSED}: {why}")))
    }
}

/// Returns whether this is a file that the process may execute.
pub(crate) fn can_be_run(file: &Path) -> bool {
    file.is_file() && faccessat(AT_FDCWD, file, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok()
}
