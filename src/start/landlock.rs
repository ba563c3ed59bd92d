//! Landlock (`landlock(7)`): denies access to files except by rules, TCP, and other processes' signals and abstract sockets.

use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::errno::Errno as NixErrno;
use nix::sys::stat::stat;

use crate::errno::Errno;

/// All restrictions of this version are used. An older kernel enforces those that it knows.
pub(crate) const VERSION: ABI = ABI::V6;

/// Returns rules that deny all other access than to these files, and to files below these directories. A missing path is
/// skipped. `restrict_self` enforces them for good, on this process and its children.
///
/// # Errors
/// If the kernel refuses a step, or a path exists but cannot be opened, as without a free descriptor.
pub fn deny_all_but(allowed: &[(PathBuf, BitFlags<AccessFs>)]) -> Result<RulesetCreated, Errno> {
    let rules = allowed.iter().filter_map(|(path, access)| match exists(path) {
        Ok(false) => None,
        Ok(true) => Some(rule(path, *access)),
        Err(errno) => Some(Err(errno)),
    });
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(rules)
}

fn rule(path: &Path, access: BitFlags<AccessFs>) -> Result<PathBeneath<PathFd>, Errno> {
    let rule = path_beneath_rules([path], access).next().transpose()?;
    rule.ok_or_else(|| NixErrno::last().into())
}

/// Returns whether a path exists, as far as this user may know.
///
/// # Errors
/// If that is unknown: without a rule, the daemon could never write there.
pub(super) fn exists(path: &Path) -> Result<bool, Errno> {
    use NixErrno::{EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTCONN, ENOTDIR, ESTALE};
    // Not `try_exists`, whose `faccessat2(2)` old containers' filters refuse, as if the user lacked the right to know.
    match stat(path) {
        // ENOTCONN and ESTALE: of a mount whose server is gone.
        Err(EACCES | ELOOP | ENAMETOOLONG | ENOENT | ENOTCONN | ENOTDIR | ESTALE) => Ok(false),
        found => Ok(found.map(|_| true)?),
    }
}

impl From<RulesetError> for Errno {
    /// The error's own text would add 10 kB to the program.
    fn from(_: RulesetError) -> Self {
        NixErrno::last().into()
    }
}
