//! Names of interfaces.

use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::wire::ifname::InterfaceName;

/// Refuses an alternative name of an interface (`ip link property`), as events have its own name only. The error is
/// what is expected instead.
pub fn check_own_name(name: &InterfaceName) -> Result<(), String> {
    let Ok(own) = if_nametoindex(name.as_bytes()).and_then(if_indextoname) else { return Ok(()) };
    if own.to_bytes() == name.as_bytes() {
        return Ok(());
    }
    Err(format!("expected the interface's own name, {}", own.to_string_lossy()))
}
