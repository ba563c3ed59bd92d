//! Names of interfaces.

#![expect(unsafe_code, reason = "ioctl")]

use core::mem::zeroed;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::wire::ifname::{InterfaceName, MAX_LEN};

/// Refuses an alternative name of an interface (`ip link property`), as events have its own name only.
///
/// # Errors
/// What is expected instead.
pub fn check_own_name(name: &InterfaceName) -> Result<(), String> {
    match owner_of(name) {
        Some(own) if own != *name => Err(format!("expected the interface's own name, {own}")),
        _ => Ok(()),
    }
}

// include/uapi/linux/sockios.h; the type differs between C libraries
const SIOCGIFNAME: libc::Ioctl = 0x8910;
const SIOCGIFINDEX: libc::Ioctl = 0x8933;

/// The own name of the interface with this name or alternative name, if there is one. libc's `if_nametoindex` and
/// `if_indextoname` would cost 1 kB.
fn owner_of(name: &InterfaceName) -> Option<InterfaceName> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
    let socket = socket.ok()?;
    // SAFETY: all zeroes are a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let own: *mut [u8; MAX_LEN + 1] = request.ifr_name.as_mut_ptr().cast();
    // SAFETY: `ifr_name` has as many bytes.
    unsafe { *own = *name.padded() };
    // The first request writes the index where the second reads it.
    for question in [SIOCGIFINDEX, SIOCGIFNAME] {
        // SAFETY: the kernel reads and writes the request.
        if unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) } != 0 {
            return None;
        }
    }
    // SAFETY: as above.
    InterfaceName::from_padded(unsafe { &*own }).ok()
}
