//! What the daemon gives up once all is open.

use std::fs;
use std::path::{Path, PathBuf};

use ::landlock::{AccessFs, RulesetError, RulesetStatus};
use nix::errno::Errno as NixErrno;
use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::log::{DisplayArg, info, warning};
use crate::options::Config;
use crate::sys::{landlock, memory, privileges, seccomp};

/// Locks memory and gives up rights for good.
/// The error is one line that names the step that failed.
pub(super) fn confine(config: &Config) -> Result<(), String> {
    if let Err(errno) = memory::lock() {
        info!("memory is not locked: {}", DisplayArg(errno));
    }
    if !config.no_landlock
        && !restrict_files(config)
            .map_err(|_| format!("Landlock: {}", Errno::from(NixErrno::last())))?
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
fn restrict_files(config: &Config) -> Result<bool, RulesetError> {
    // A directory that is removed and made again is reached by rights to the one above. They end where the user's
    // own end; root has no others than these, and gets them for `conf_dir` alone, which goes and comes with a router,
    // and for a directory that is not there yet; never for all files.
    let is_root = geteuid().is_root();
    let is_top = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path == Path::new("/"));
    let above = |file: &Path| {
        let directory = parent(file);
        let is_there = directory.exists();
        let above = if is_there { directory.join("..") } else { parent(&directory) };
        if is_root && (is_there || is_top(&above)) { directory } else { above }
    };
    let above_conf_dir = config.conf_dir.join("..");
    let is_top = is_top(&above_conf_dir);
    let conf_dir = if is_root && is_top { &config.conf_dir } else { &above_conf_dir };
    let append = AccessFs::MakeReg | AccessFs::WriteFile;
    let replace = append | AccessFs::RemoveFile;
    let allowed = [
        Some((conf_dir.clone(), replace)),
        config.metrics_file.as_deref().map(|file| (above(file), replace)),
        config.log_file.as_deref().map(|file| (above(file), append)),
        config.pid_file.as_deref().map(|file| (parent(file), AccessFs::RemoveFile.into())),
    ];
    let allowed: Vec<_> = allowed.into_iter().flatten().collect();
    let restricted = landlock::deny_all_but(&allowed)?.restrict_self()?;
    Ok(restricted.ruleset != RulesetStatus::NotEnforced)
}

/// The directory of a file, whose path is absolute.
fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).into()
}
