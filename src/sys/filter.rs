//! Kernel filters in classic BPF: what they reject neither wakes the daemon nor takes room in a queue.
//!
//! Loads are in network byte order whatever the machine, so constants are made with `from_be_bytes`.

#![expect(unsafe_code, reason = "no library attaches a filter to a socket")]

use core::net::IpAddr;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use heapless::Vec;
use nix::errno::Errno as Known;
use nix::libc::{self, c_int, sock_filter, sock_fprog};

use crate::errno::Errno;

/// A filter program.
pub type Program = Vec<sock_filter, 24>;

/// What a packet that passes is cut to, in bytes: more than all of it.
const WHOLE: u32 = u32::MAX;

/// Lets only those frames pass that claim `ip`: ARP packets whose sender it is, or neighbour
/// advertisements whose target it is. The socket is bound to the protocol already.
pub fn claims_of(ip: IpAddr) -> Program {
    let mut program = Program::new();
    match ip {
        // The sender's address, behind 14 bytes of Ethernet and 14 of ARP.
        IpAddr::V4(ip) => accept_if(&mut program, &[(libc::BPF_W, 28, u32::from(ip))]),
        IpAddr::V6(ip) => {
            let word = |n: usize| {
                let bytes = ip.octets().as_chunks::<4>().0.get(n).copied();
                u32::from_be_bytes(bytes.unwrap_or_default())
            };
            accept_if(
                &mut program,
                &[
                    (libc::BPF_B, 20, 58),  // next header: ICMPv6
                    (libc::BPF_B, 54, 136), // type: neighbour advertisement
                    (libc::BPF_W, 62, word(0)),
                    (libc::BPF_W, 66, word(1)),
                    (libc::BPF_W, 70, word(2)),
                    (libc::BPF_W, 74, word(3)),
                ],
            );
        }
    }
    program
}

/// Lets netlink messages about addresses pass only if they are about the interface with this index, or
/// part of a dump; with none, only the latter. Everything else passes.
///
/// The kernel sends one event a datagram; a dump has several, all with `NLM_F_MULTI`.
pub fn addresses_of(ifindex: Option<u32>) -> Program {
    // Offsets in `struct nlmsghdr`, and of `ifa_index` behind that. These are in the host's order.
    const TYPE: u32 = 4;
    const FLAGS: u32 = 6;
    const INDEX: u32 = 20;
    let short = |value: u16| u32::from(u16::from_be_bytes(value.to_ne_bytes()));
    let multi = u16::try_from(libc::NLM_F_MULTI).map(short).unwrap_or_default();
    // No interface has the index 0.
    let ifindex = u32::from_be_bytes(ifindex.unwrap_or(0).to_ne_bytes());
    let load = |width, offset| statement(libc::BPF_LD | width | libc::BPF_ABS, offset);
    Program::from_iter([
        load(libc::BPF_H, TYPE),
        jump_if(short(libc::RTM_NEWADDR), 1),
        jump_unless(short(libc::RTM_DELADDR), 4),
        load(libc::BPF_H, FLAGS),
        sock_filter { jt: 2, ..statement(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, multi) },
        load(libc::BPF_W, INDEX),
        jump_unless(ifindex, 1),
        statement(libc::BPF_RET | libc::BPF_K, WHOLE),
        statement(libc::BPF_RET | libc::BPF_K, 0),
    ])
}

/// Accepts what has all these values, each of a width at an offset.
fn accept_if(program: &mut Program, conditions: &[(u32, u32, u32)]) {
    let mut push = |instruction| {
        let pushed = program.push(instruction);
        debug_assert!(pushed.is_ok(), "a program of known length");
    };
    for (after, (width, offset, value)) in conditions.iter().enumerate() {
        push(statement(libc::BPF_LD | width | libc::BPF_ABS, *offset));
        // On to the next condition, or over what is left to the last instruction.
        push(jump_unless(*value, 2 * (conditions.len() - after) - 1));
    }
    push(statement(libc::BPF_RET | libc::BPF_K, WHOLE));
    push(statement(libc::BPF_RET | libc::BPF_K, 0));
}

/// An instruction without a jump.
#[expect(clippy::cast_possible_truncation, reason = "BPF codes have 16 bits")]
pub(super) fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Goes over so many instructions if what was loaded has this value.
pub(super) fn jump_if(value: u32, over: usize) -> sock_filter {
    let over = u8::try_from(over).unwrap_or(u8::MAX);
    sock_filter { jt: over, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

/// Goes over so many instructions if what was loaded has not this value.
pub(super) fn jump_unless(value: u32, over: usize) -> sock_filter {
    let over = u8::try_from(over).unwrap_or(u8::MAX);
    sock_filter { jf: over, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

/// Puts a filter on a socket, in the place of any other.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn attach(socket: impl AsFd, program: &mut Program) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| Known::EINVAL)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the program tells the truth about its length, and the kernel copies it.
    unsafe { set(socket, libc::SO_ATTACH_FILTER, &program) }
}

/// Takes away the filter of a socket, if it has one.
pub fn detach(socket: impl AsFd) {
    // SAFETY: the kernel wants an int, whose value does not matter. It fails if there is no filter.
    let _ = unsafe { set(socket, libc::SO_DETACH_FILTER, &0_i32) };
}

/// Keeps the filter of a socket as it is, for as long as there is the socket.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn lock(socket: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the kernel wants an int.
    unsafe { set(socket, libc::SO_LOCK_FILTER, &1_i32) }
}

/// # Safety
/// The value is what the option wants.
unsafe fn set<T>(socket: impl AsFd, option: c_int, value: &T) -> Result<(), Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let size = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Known::EINVAL)?;
    // SAFETY: the kernel reads `size` bytes of the value, and the caller has seen to it that they are
    // what it wants.
    let result = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, option, (&raw const *value).cast(), size)
    };
    Known::result(result)?;
    Ok(())
}
