//! Gives up rights once everything is open.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ::landlock::{AccessFs, RulesetStatus};
use nix::errno::Errno as NixErrno;
use nix::unistd::geteuid;

use super::setup::{StartError, named};
use super::{landlock, memory, privileges, seccomp};
use crate::errno::Errno;
use crate::log::{info, warning};
use crate::options::Config;

/// Locks memory and gives up rights for good. The error names the step that failed.
pub(super) fn confine(config: &Config) -> Result<(), StartError> {
    if let Err(errno) = memory::lock() {
        info!("memory is not locked: {}", errno);
    }
    if !config.no_landlock && !restrict_files(config).map_err(named("Landlock"))? {
        // Only an ordinary user's own rights limit what code inside can do to files then.
        if geteuid().is_root() {
            warning!("this kernel has no Landlock: access to files is not limited; use --user");
        } else {
            info!("this kernel has no Landlock");
        }
    }
    privileges::forbid_processes().map_err(named("limits"))?;
    if !config.no_seccomp && !seccomp::install().map_err(named("seccomp"))? {
        warning!("no seccomp filter: this architecture or kernel does not support it");
    }
    Ok(())
}

/// Limits file access to the directories of the files that are written. Returns whether the kernel supports that.
fn restrict_files(config: &Config) -> Result<bool, Errno> {
    // A directory that may be created anew needs rights to the one above it, and a missing one needs rights to the nearest
    // ancestor. An ordinary user's own permissions bound these rights. Root gets them only for a missing directory and for
    // `conf_dir`, which is created and deleted with its router, and never for `/`.
    let is_root = geteuid().is_root();
    let reach = |directory: &Path, is_recreated: bool, is_narrow: bool| {
        let mut found = directory;
        for path in directory.ancestors() {
            if landlock::exists(path)? {
                found = path;
                break;
            }
        }
        let above = if found == directory { directory.join("..") } else { found.into() };
        let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
        // What is above a directory that this user may not search, or that is none, cannot be seen, nor is it needed.
        let unseen = [NixErrno::EACCES, NixErrno::ENOTDIR, NixErrno::ELOOP].map(Errno::from);
        let is_top = is_narrow
            && match id(&above).map_err(Errno::from) {
                Err(errno) if unseen.contains(&errno) => true,
                found => found? == id(Path::new("/"))?,
            };
        let stays = found == directory && !is_recreated;
        Ok::<_, Errno>(if is_narrow && (is_top || stays) { directory.into() } else { above })
    };
    let parent = |path: &Path| path.parent().unwrap_or(path).to_owned();
    let reach_of = |file: &Option<PathBuf>| {
        file.as_deref().map(|file| reach(&parent(file), false, is_root)).transpose()
    };
    // keepalived creates it anew at each start, and sometimes its directory as well. Below `/`, any user may read much.
    let keepalived = config.keepalived_pid_file.as_deref();
    let keepalived = keepalived.map(|file| reach(&parent(file), true, true)).transpose()?;
    let append = AccessFs::MakeReg | AccessFs::WriteFile;
    let replace = append | AccessFs::RemoveFile;
    let in_place =
        AccessFs::ReadFile | AccessFs::Truncate | AccessFs::MakeDir | AccessFs::RemoveDir;
    let allowed = [
        Some((reach(&config.conf_dir, true, is_root)?, replace)),
        // The words in the state file and its spare are read back, as other processes may write them. A directory in the state
        // file's place is exchanged with the spare. A `conf_dir` that is created anew has no spare.
        Some((config.conf_dir.clone(), in_place)),
        reach_of(&config.metrics_file)?.map(|directory| (directory, replace)),
        // Another process may have replaced the metrics file, and may have it locked. The old one makes room for a new one.
        config
            .metrics_file
            .as_deref()
            .map(|file| (parent(file), AccessFs::ReadFile | AccessFs::Truncate)),
        reach_of(&config.log_file)?.map(|directory| (directory, append)),
        config.pid_file.as_deref().map(|file| (parent(file), AccessFs::RemoveFile.into())),
        keepalived.map(|directory| (directory, AccessFs::ReadFile.into())),
    ];
    let allowed: Vec<_> = allowed.into_iter().flatten().collect();
    let restricted = landlock::deny_all_but(&allowed)?.restrict_self()?;
    Ok(restricted.ruleset != RulesetStatus::NotEnforced)
}
