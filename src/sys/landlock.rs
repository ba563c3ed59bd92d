//! Restricts file access to what is allowed by name, and denies TCP, signals and abstract Unix sockets of other
//! processes (`landlock(7)`).

use std::path::PathBuf;

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

/// The version whose restrictions are all used. An older kernel enforces those that it knows.
pub(crate) const VERSION: ABI = ABI::V6;

/// Rights to a file, or to all below a directory. What cannot be opened now is passed over.
pub type Allowed = (PathBuf, BitFlags<AccessFs>);

/// Rules that deny all that the kernel can restrict but what is allowed. `restrict_self` enforces them for good, on this
/// process and all that it will start.
///
/// # Errors
/// What the kernel refuses, though it has Landlock. `errno` says why; the error's own text would add 10 kB to the program.
pub fn deny_all_but(allowed: &[Allowed]) -> Result<RulesetCreated, RulesetError> {
    let rules = allowed.iter().flat_map(|(path, access)| path_beneath_rules([path], *access));
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?
        .add_rules(rules)
}
