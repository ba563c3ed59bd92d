//! Names of interfaces.

#![expect(unsafe_code, reason = "if_nametoindex and if_indextoname")]

use nix::libc;

use crate::wire::ifname::{InterfaceName, MAX_LEN};

/// Refuses a name that is but an alternative one of an interface (`ip link property`), as events have
/// only its own.
///
/// # Errors
/// What is expected instead.
pub fn check_own_name(name: &InterfaceName) -> Result<(), String> {
    match owner_of(name) {
        Some(own) if own != *name => Err(format!("expected the interface's own name, {own}")),
        _ => Ok(()),
    }
}

/// The own name of the interface that has this one, if there is any.
fn owner_of(name: &InterfaceName) -> Option<InterfaceName> {
    let mut own = [0_u8; MAX_LEN + 1];
    // SAFETY: libc reads a name that ends with NUL, and writes one of at most this length.
    let found = unsafe {
        let index = libc::if_nametoindex(name.padded().as_ptr().cast());
        libc::if_indextoname(index, own.as_mut_ptr().cast())
    };
    if found.is_null() { None } else { InterfaceName::from_padded(&own).ok() }
}
