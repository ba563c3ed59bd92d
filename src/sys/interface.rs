//! Names of interfaces.

#![expect(unsafe_code, reason = "ioctl")]

use core::mem::zeroed;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

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

/// From `include/uapi/linux/sockios.h`, of which each libc has another type.
const SIOCGIFNAME: libc::Ioctl = 0x8910;
const SIOCGIFINDEX: libc::Ioctl = 0x8933;

/// The own name of the interface that has this one, if there is any.
fn owner_of(name: &InterfaceName) -> Option<InterfaceName> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
    let socket = socket.ok()?;
    // SAFETY: all zeroes are a valid value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let own: *mut [u8; MAX_LEN + 1] = request.ifr_name.as_mut_ptr().cast();
    // SAFETY: it has that many bytes.
    unsafe { *own = *name.padded() };
    // The first gives the index where the second looks for it.
    for question in [SIOCGIFINDEX, SIOCGIFNAME] {
        // SAFETY: the kernel reads and writes the request.
        if unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) } != 0 {
            return None;
        }
    }
    // SAFETY: as above.
    InterfaceName::from_padded(unsafe { &*own }).ok()
}
