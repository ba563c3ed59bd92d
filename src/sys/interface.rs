//! Names of interfaces.

use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::wire::ifname::InterfaceName;

/// Refuses a name that is but an alternative one of an interface (`ip link property`), as events have
/// only its own.
///
/// # Errors
/// What is wanted instead.
pub fn check_own_name(name: &InterfaceName) -> Result<(), String> {
    match owner_of(name) {
        Some(own) if own != *name => Err(format!("wants the interface's own name, which is {own}")),
        _ => Ok(()),
    }
}

fn owner_of(name: &InterfaceName) -> Option<InterfaceName> {
    let index = if_nametoindex(name.as_bytes()).ok()?;
    InterfaceName::new(if_indextoname(index).ok()?.to_bytes()).ok()
}
