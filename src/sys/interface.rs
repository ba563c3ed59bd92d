//! The name of an interface.

#![expect(unsafe_code, reason = "nix's if_indextoname allocates")]

use std::mem;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::{ioctl_readwrite_bad, libc};

use crate::wire::ifname::InterfaceName;

ioctl_readwrite_bad!(get_name, libc::SIOCGIFNAME, libc::ifreq);

/// Returns the present name of an interface (`netdevice(7)`). Allocates nothing.
pub fn name_of(ifindex: u32) -> Option<InterfaceName> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    // SAFETY: all zeroes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = ifindex.cast_signed();
    // SAFETY: the kernel reads the index and writes the name.
    unsafe { get_name(socket.as_raw_fd(), &raw mut request) }.ok()?;
    // `c_char` is signed or not, by architecture.
    let name = request.ifr_name.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
    InterfaceName::new(name.split(|byte| *byte == 0).next()?)
}
