//! Kernel filters in classic BPF: what they reject neither wakes the daemon nor takes room in a queue.
//!
//! Loads are in network byte order whatever the machine, so constants are made with `from_be_bytes`.

#![expect(unsafe_code, reason = "no library attaches a filter to a socket")]

use core::net::IpAddr;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use heapless::Vec;
use nix::errno::Errno as NixErrno;
use nix::libc::{self, c_int, sock_filter, sock_fprog};

use crate::errno::Errno;

/// A filter program.
pub type Program = Vec<sock_filter, 24>;

/// Accept the whole packet: what the program returns is the length that it is cut to.
const ACCEPT: u32 = u32::MAX;

/// Lets only those frames pass that claim `ip`: ARP packets for IPv4 over Ethernet whose sender it is, or
/// neighbour advertisements from this link whose target it is. The socket is bound to the protocol
/// already.
///
/// A frame for another host is none of them, nor one in another VLAN, whose tag the kernel has taken off:
/// it calls both [`libc::PACKET_OTHERHOST`].
pub fn claims_of(ip: IpAddr) -> Program {
    let (half, word) = (libc::BPF_H, libc::BPF_W);
    let mut conditions = Vec::<_, 6>::new();
    match ip {
        IpAddr::V4(ip) => conditions.extend([
            (word, 14, 0x0001_0800), // Ethernet, IPv4
            (half, 18, 0x0604),      // the lengths of their addresses
            // The sender's address, behind 14 bytes of Ethernet and 14 of ARP.
            (word, 28, u32::from(ip)),
        ]),
        IpAddr::V6(ip) => {
            conditions.extend([
                (half, 20, 0x3aff), // next header: ICMPv6; hop limit: 255
                (half, 54, 0x8800), // type: neighbour advertisement; code: 0
            ]);
            let octets = ip.octets();
            let target = octets.as_chunks::<4>().0.iter().map(|part| u32::from_be_bytes(*part));
            conditions.extend((62..).step_by(4).zip(target).map(|(at, part)| (word, at, part)));
        }
    }
    accept_if(&conditions)
}

/// Whether a frame of this type (`sll_pkttype`) is meant for this host, or for everybody.
pub(super) fn is_for_us(packet_type: u8) -> bool {
    packet_type <= MOST_FOR_US
}

/// Lower are [`libc::PACKET_HOST`] and [`libc::PACKET_BROADCAST`].
const MOST_FOR_US: u8 = libc::PACKET_MULTICAST;

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
    let load = |width, offset| stmt(libc::BPF_LD | width | libc::BPF_ABS, offset);
    Program::from_iter([
        load(libc::BPF_H, TYPE),
        jeq(short(libc::RTM_NEWADDR), 1),
        jne(short(libc::RTM_DELADDR), 4),
        load(libc::BPF_H, FLAGS),
        sock_filter { jt: 2, ..stmt(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, multi) },
        load(libc::BPF_W, INDEX),
        jne(ifindex, 1),
        stmt(libc::BPF_RET | libc::BPF_K, ACCEPT),
        stmt(libc::BPF_RET | libc::BPF_K, 0),
    ])
}

/// Accepts what is for us and has all these values, each of a width at an offset.
fn accept_if(conditions: &[(u32, u32, u32)]) -> Program {
    // What the kernel knows of a packet is addressed behind all of its bytes (`SKF_AD_OFF`, `linux/filter.h`).
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
    let mut program = Program::new();
    let mut push = |instruction| {
        let pushed = program.push(instruction);
        debug_assert!(pushed.is_ok(), "a program of known length");
    };
    push(stmt(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, packet_type));
    push(jgt(MOST_FOR_US.into(), 2 * conditions.len() + 1));
    for (after, (width, offset, value)) in conditions.iter().enumerate() {
        push(stmt(libc::BPF_LD | width | libc::BPF_ABS, *offset));
        // On to the next condition, or over what is left to the last instruction.
        push(jne(*value, 2 * (conditions.len() - after) - 1));
    }
    push(stmt(libc::BPF_RET | libc::BPF_K, ACCEPT));
    push(stmt(libc::BPF_RET | libc::BPF_K, 0));
    program
}

/// An instruction without a jump.
#[expect(clippy::cast_possible_truncation, reason = "BPF codes have 16 bits")]
pub(super) fn stmt(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// `jeq`: skip `over` instructions if equal.
pub(super) fn jeq(value: u32, over: usize) -> sock_filter {
    let over = u8::try_from(over).unwrap_or(u8::MAX);
    sock_filter { jt: over, ..stmt(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

/// `jgt`: skip `over` instructions if greater.
fn jgt(value: u32, over: usize) -> sock_filter {
    let over = u8::try_from(over).unwrap_or(u8::MAX);
    sock_filter { jt: over, ..stmt(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, value) }
}

/// `jne`: skip `over` instructions if not equal.
pub(super) fn jne(value: u32, over: usize) -> sock_filter {
    let over = u8::try_from(over).unwrap_or(u8::MAX);
    sock_filter { jf: over, ..stmt(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value) }
}

/// Puts a filter on a socket, in the place of any other.
///
/// # Errors
/// The errno of `setsockopt`.
pub fn attach(socket: impl AsFd, program: &mut Program) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| NixErrno::EINVAL)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the pointer and length are those of one program, which the kernel copies.
    unsafe { set(socket, libc::SO_ATTACH_FILTER, &program) }
}

/// Removes the filter of a socket, if it has one.
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
    let size = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| NixErrno::EINVAL)?;
    // SAFETY: the kernel reads `size` bytes of the value, and the caller has seen to it that they are
    // what it wants.
    let result = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, option, (&raw const *value).cast(), size)
    };
    NixErrno::result(result)?;
    Ok(())
}
