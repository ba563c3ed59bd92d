//! Landlock (`landlock(7)`): denies access to files except by rules, TCP, and other processes' signals and abstract sockets.

use std::path::PathBuf;

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::errno::Errno as NixErrno;

use crate::errno::Errno;

/// All restrictions of this version are used. An older kernel enforces those that it knows.
pub(crate) const VERSION: ABI = ABI::V6;

/// Returns rules that deny all other access than to these files, and to files below these directories. A missing path is
/// skipped. `restrict_self` enforces them for good, on this process and its children.
///
/// # Errors
/// If the kernel refuses a step, or a path exists but cannot be opened, as without a free descriptor.
pub fn deny_all_but(allowed: &[(PathBuf, BitFlags<AccessFs>)]) -> Result<RulesetCreated, Errno> {
    let rules = allowed.iter().filter(|(path, _)| path.exists()).map(|(path, access)| {
        let rule = path_beneath_rules([path], *access).next().transpose()?;
        rule.ok_or_else(|| NixErrno::last().into())
    });
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(rules)
}

impl From<RulesetError> for Errno {
    /// The error's own text would add 10 kB to the program.
    fn from(_: RulesetError) -> Self {
        NixErrno::last().into()
    }
}
