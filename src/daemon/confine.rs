//! What the daemon gives up once all is open.

use std::fs;
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::log::{DisplayArg, info, warning};
use crate::options::Config;
use crate::sys::landlock::{Ruleset, access};
use crate::sys::{memory, privileges, seccomp};

/// Locks memory and gives up rights for good.
/// The error is one line that names the step that failed.
pub(super) fn confine(config: &Config) -> Result<(), String> {
    if let Err(errno) = memory::lock() {
        info!("memory is not locked: {}", DisplayArg(errno));
    }
    if !config.no_landlock
        && !restrict_files(config).map_err(|errno| format!("Landlock: {errno}"))?
    {
        info!("this kernel has no Landlock");
    }
    privileges::forbid_processes().map_err(|errno| format!("limits: {errno}"))?;
    if !config.no_seccomp && !seccomp::install().map_err(|errno| format!("seccomp: {errno}"))? {
        warning!("there is no seccomp filter for this architecture");
    }
    Ok(())
}

/// Limits file access to what is written to by name. Returns whether the kernel can do that.
fn restrict_files(config: &Config) -> Result<bool, Errno> {
    let Some(ruleset) = Ruleset::new()? else { return Ok(false) };
    let allow = |path: &Path, access| match ruleset.allow(path, access) {
        // What is not accessible now would not be later either.
        Err(errno) if errno == Errno::from(NixErrno::EACCES) => Ok(()),
        allowed => allowed,
    };
    // A directory that is removed and made again is reached by rights to the one above. They end where the user's
    // own end; root has no others than these, and gets them for `conf_dir` alone, which goes and comes with a router.
    let is_root = geteuid().is_root();
    let above = |directory: &Path| if is_root { directory.into() } else { directory.join("..") };
    let replace = access::MAKE_REG | access::WRITE_FILE | access::REMOVE_FILE;
    let above_conf_dir = config.conf_dir.join("..");
    let is_top = fs::canonicalize(&above_conf_dir).is_ok_and(|path| path == Path::new("/"));
    if is_root && is_top {
        allow(&config.conf_dir, replace)?;
    } else {
        allow(&above_conf_dir, replace)?;
    }
    if let Some(metrics) = &config.metrics_file {
        allow(&above(parent(metrics)), replace)?;
    }
    if let Some(log) = &config.log_file {
        allow(&above(parent(log)), access::MAKE_REG | access::WRITE_FILE)?;
    }
    if let Some(pid_file) = &config.pid_file {
        allow(parent(pid_file), access::REMOVE_FILE)?;
    }
    ruleset.enforce()?;
    Ok(true)
}

/// The directory of a file, whose path is absolute.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
