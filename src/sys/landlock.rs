//! Landlock (`landlock(7)`): denies access to files except by rules, TCP, and other processes' signals and abstract sockets.

use std::path::PathBuf;

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

/// All restrictions of this version are used. An older kernel enforces those that it knows.
pub(crate) const VERSION: ABI = ABI::V6;

/// Returns rules that deny all other access than to these files, and to files below these directories. A path that cannot
/// be opened now is skipped. `restrict_self` enforces them for good, on this process and its children.
///
/// # Errors
/// A step that the kernel refuses. `errno` says why; the error's own text would add 10 kB to the program.
pub fn deny_all_but(
    allowed: &[(PathBuf, BitFlags<AccessFs>)],
) -> Result<RulesetCreated, RulesetError> {
    let rules = allowed.iter().flat_map(|(path, access)| path_beneath_rules([path], *access));
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(rules)
}
