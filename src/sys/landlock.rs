//! Restricts file access to what is allowed by name, and denies TCP, signals and abstract Unix sockets of other
//! processes (`landlock(7)`).

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreated, RulesetError, Scope,
};

/// The version whose restrictions are all used. An older kernel enforces those that it knows.
pub(crate) const VERSION: ABI = ABI::V6;

/// Rules that deny all that the kernel can restrict. `restrict_self` enforces them for good, on this process and all
/// that it will start.
///
/// # Errors
/// What the kernel refuses, though it has Landlock. `errno` says why; the error's own text would add 20 kB to the program.
pub fn deny_all() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()
}
