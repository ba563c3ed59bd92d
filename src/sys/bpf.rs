//! Socket filters in classic BPF: packets that they reject neither wake the daemon nor fill its queue.
//!
//! Loads give network byte order on every machine. What is in the host's order is compared with constants
//! made by `from_be_bytes`.

#![expect(unsafe_code, reason = "no library attaches a filter to a socket")]

use core::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use heapless::Vec;
use nix::errno::Errno as NixErrno;
use nix::libc::{
    self, BPF_ABS, BPF_H, BPF_IND, BPF_JEQ, BPF_JGT, BPF_JSET, BPF_W, c_int, sock_filter,
    sock_fprog,
};

use crate::errno::Errno;

pub type Program = Vec<sock_filter, 40>;

/// Returned by a filter: the length to which the packet is cut. This one accepts the whole packet.
const ACCEPT: u32 = u32::MAX;

/// A filter that accepts only claims of `ip`: ARP packets (IPv4 over Ethernet) with that sender address, or
/// neighbour advertisements from this link with that target.
///
/// The socket's protocol has selected ARP or IPv6 already. Frames for other hosts, and those in a VLAN whose
/// tag the kernel has removed, have the type [`libc::PACKET_OTHERHOST`] and are rejected.
pub fn claims_of(ip: IpAddr) -> Program {
    let mut conditions = Vec::<_, 6>::new();
    match ip {
        IpAddr::V4(_) => conditions.extend([
            (BPF_W, 14, 0x0001_0800), // hardware: Ethernet; protocol: IPv4
            (BPF_H, 18, 0x0604),      // lengths of their addresses
        ]),
        IpAddr::V6(_) => conditions.extend([
            (BPF_H, 20, 0x3aff), // next header: ICMPv6; hop limit: 255
            (BPF_H, 54, 0x8800), // type: neighbour advertisement; code: 0
        ]),
    }
    // The sender's address, or the target.
    conditions.extend(is_address(BPF_W, if ip.is_ipv4() { 28 } else { 62 }, ip));
    accept_if(&conditions)
}

/// The types (`sll_pkttype`) of frames for this host or for all: [`libc::PACKET_HOST`] and
/// [`libc::PACKET_BROADCAST`] are lower.
pub(super) const MAX_FOR_US: u8 = libc::PACKET_MULTICAST;

/// A filter for the route socket that rejects address events of all interfaces but the one with this index, if any,
/// unless they are about `ip`. Dump replies and all other messages pass.
///
/// Each event has a datagram of its own. All messages of a dump have `NLM_F_MULTI`.
pub fn addresses_of(ifindex: Option<u32>, ip: IpAddr) -> Program {
    // Offsets in `struct nlmsghdr`, of `ifa_index` behind it, and of the attributes behind that. Their header has four
    // bytes.
    const TYPE: u32 = 4;
    const FLAGS: u32 = 6;
    const INDEX: u32 = 20;
    const ATTRIBUTES: u32 = 24;
    const ATTRIBUTE_HEADER: u32 = 4;
    // Finds the attribute with the type in X behind the offset in A. That of none is 0.
    let find = (libc::SKF_AD_OFF + libc::SKF_AD_NLATTR).cast_unsigned();
    let short = |value: u16| u32::from(u16::from_be_bytes(value.to_ne_bytes()));
    let multi = u16::try_from(libc::NLM_F_MULTI).map(short).unwrap_or_default();
    // No interface has the index 0.
    let ifindex = u32::from_be_bytes(ifindex.unwrap_or(0).to_ne_bytes());
    let mut program = Program::from_iter([
        load(BPF_H, TYPE),
        jeq(short(libc::RTM_NEWADDR), 1, 0),
        jeq(short(libc::RTM_DELADDR), 0, 4),
        load(BPF_H, FLAGS),
        jump(BPF_JSET, multi, 2, 0),
        load(BPF_W, INDEX),
        jeq(ifindex, 0, 1),
        ret(ACCEPT),
    ]);
    for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
        program.extend([
            stmt(libc::BPF_LD | libc::BPF_IMM, ATTRIBUTES),
            stmt(libc::BPF_LDX | libc::BPF_IMM, kind.into()),
            load(BPF_W, find),
            stmt(libc::BPF_MISC | libc::BPF_TAX, 0),
        ]);
        let conditions = is_address(BPF_W | BPF_IND, ATTRIBUTE_HEADER, ip);
        program.extend(return_if(&conditions, ACCEPT));
    }
    program.extend([ret(0)]);
    program
}

/// Whether this address is at an offset: see [`load`].
fn is_address(width: u32, offset: u32, ip: IpAddr) -> Vec<(u32, u32, u32), 4> {
    let octets = match &ip {
        IpAddr::V4(ip) => &ip.octets()[..],
        IpAddr::V6(ip) => &ip.octets(),
    };
    let words = octets.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
    (offset..).step_by(4).zip(words).map(|(at, word)| (width, at, word)).collect()
}

/// Accepts frames for us in which each of these holds: width, offset, value.
fn accept_if(conditions: &[(u32, u32, u32)]) -> Program {
    // The kernel's own data of a packet is loaded from negative offsets (`SKF_AD_OFF`, `linux/filter.h`).
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
    let is_for_others = jump(BPF_JGT, MAX_FOR_US.into(), 0, 1);
    let mut program = Program::from_iter([load(libc::BPF_B, packet_type), is_for_others, ret(0)]);
    program.extend(return_if(conditions, ACCEPT));
    program.extend([ret(0)]);
    program
}

/// Ends the program with this result if each of these holds: width, offset, value.
pub(super) fn return_if(
    conditions: &[(u32, u32, u32)],
    result: u32,
) -> impl Iterator<Item = sock_filter> {
    // Over the tests that are left, and the result.
    let over = |tests: usize| u8::try_from(2 * tests + 1).unwrap_or(u8::MAX);
    let left = (0..conditions.len()).rev();
    let tests = left.zip(conditions).flat_map(move |(left, (width, offset, value))| {
        [load(*width, *offset), jeq(*value, 0, over(left))]
    });
    tests.chain([ret(result)])
}

/// Loads a byte, half-word or word; with `BPF_IND`, from so far behind X.
pub(super) fn load(width: u32, offset: u32) -> sock_filter {
    let mode = if width & BPF_IND == 0 { BPF_ABS } else { 0 };
    stmt(libc::BPF_LD | width | mode, offset)
}

/// Ends the program with this result.
pub(super) fn ret(result: u32) -> sock_filter {
    stmt(libc::BPF_RET | libc::BPF_K, result)
}

/// Compares what was loaded with `value`: skips `jt` instructions if they are equal, `jf` if not.
pub(super) fn jeq(value: u32, jt: u8, jf: u8) -> sock_filter {
    jump(BPF_JEQ, value, jt, jf)
}

fn jump(test: u32, value: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { jt, jf, ..stmt(libc::BPF_JMP | test | libc::BPF_K, value) }
}

/// Any instruction without a jump.
#[expect(clippy::cast_possible_truncation, reason = "BPF codes have 16 bits")]
fn stmt(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Attaches a filter to a socket, replacing any other.
pub fn attach(socket: impl AsFd, program: &mut Program) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| NixErrno::EINVAL)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the pointer and length are those of one program, which the kernel copies.
    unsafe { set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }
}

/// Removes the filter of a socket, if it has one.
pub fn detach(socket: impl AsFd) {
    // SAFETY: the kernel wants an int, whose value does not matter. It fails if there is no filter.
    let _ = unsafe { set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32) };
}

/// Makes the filter of a socket permanent.
pub fn lock(socket: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the kernel wants an int.
    unsafe { set(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1_i32) }
}

/// Sets an option that nix lacks.
///
/// # Safety
/// `value` has the type that the option wants.
pub(super) unsafe fn set<T>(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
    value: &T,
) -> Result<(), Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let size = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| NixErrno::EINVAL)?;
    // SAFETY: the kernel reads `size` bytes of the value, whose type the caller vouches for.
    let result =
        unsafe { libc::setsockopt(socket, level, option, (&raw const *value).cast(), size) };
    NixErrno::result(result)?;
    Ok(())
}
