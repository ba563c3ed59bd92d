//! Socket filters in classic BPF: packets that they reject neither wake the daemon nor fill its queue.
//! Loads convert from network byte order. Values in the host's order are compared with constants of `from_be_bytes`.

use core::net::IpAddr;
use std::os::fd::AsFd;

use heapless::Vec;
use nix::errno::Errno as NixErrno;
use nix::libc::{self, BPF_ABS, BPF_H, BPF_IND, BPF_JEQ, BPF_JGT, BPF_W, sock_filter, sock_fprog};
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};

use crate::errno::Errno;
use crate::wire::ndisc;

pub type Filter = Vec<sock_filter, 40>;

/// A filter returns the length to which the packet is cut. This one accepts the whole packet.
const ACCEPT: u32 = u32::MAX;

/// Returns a filter that accepts only claims of `ip`: ARP packets with that sender address, or neighbour advertisements
/// from this link with that target. The socket's protocol has selected ARP or IPv6 already. ARP probes and keepwatch's
/// solicitations for `ip` pass, as the network may send our own back.
///
/// Frames for other hosts or VLANs have the type [`libc::PACKET_OTHERHOST`] and are rejected.
pub fn claims_of(ip: IpAddr) -> Filter {
    // Hardware: Ethernet; protocol: IPv4; lengths of their addresses.
    const ARP: [(u32, u32, u32); 2] = [(BPF_W, 14, 0x0001_0800), (BPF_H, 18, 0x0604)];
    // Next header: ICMPv6; hop limit: 255; type: neighbour advertisement; code: 0.
    const ADVERTISEMENT: [(u32, u32, u32); 2] = [(BPF_H, 20, 0x3aff), (BPF_H, 54, 0x8800)];
    // Version, traffic class and flow label; type: neighbour solicitation; code: 0.
    const PROBE: [(u32, u32, u32); 2] =
        [(BPF_W, 14, 6 << 28 | ndisc::PROBE_LABEL), (BPF_H, 54, 0x8700)];
    // The kernel's own data of a packet is loaded from negative offsets (`SKF_AD_OFF`, `linux/filter.h`).
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
    let is_for_others = jump(BPF_JGT, MAX_FOR_US.into(), 0, 1);
    let mut program = Filter::from_iter([load(libc::BPF_B, packet_type), is_for_others, ret(0)]);
    let mut accept = |kind: [_; 2], more: &[_], address| {
        let mut conditions = Vec::<_, 8>::from_iter(kind);
        conditions.extend(more.iter().copied());
        conditions.extend(is_address(BPF_W, address, ip));
        program.extend(return_if(&conditions, ACCEPT));
    };
    if ip.is_ipv4() {
        // The sender's address.
        accept(ARP, &[], 28);
        // A request without it; the target's address.
        accept(ARP, &[(BPF_H, 20, 1), (BPF_W, 28, 0)], 38);
    } else {
        accept(ADVERTISEMENT, &[], 62);
        accept(PROBE, &[], 62);
    }
    program.extend([ret(0)]);
    program
}

/// The highest of the three types (`sll_pkttype`) of frames for this host.
const MAX_FOR_US: u8 = libc::PACKET_MULTICAST;

/// Returns a filter for the event socket that rejects events of addresses other than `ip`. An event has a datagram of its
/// own.
pub fn events_of(ip: IpAddr) -> Filter {
    // Offsets in `struct nlmsghdr`, then of the attributes.
    const TYPE: u32 = 4;
    const ATTRIBUTES: u32 = 24;
    const ATTRIBUTE_HEADER: u32 = 4;
    // Finds the attribute with the type in X after the offset in A; 0 if there is none.
    let find = (libc::SKF_AD_OFF + libc::SKF_AD_NLATTR).cast_unsigned();
    let short = |value: u16| u32::from(u16::from_be_bytes(value.to_ne_bytes()));
    let mut program = Filter::from_iter([
        load(BPF_H, TYPE),
        jeq(short(libc::RTM_NEWADDR), 2, 0),
        jeq(short(libc::RTM_DELADDR), 1, 0),
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

/// Returns the conditions for this address at an offset: width, offset, value (see [`load`]).
fn is_address(width: u32, offset: u32, ip: IpAddr) -> Vec<(u32, u32, u32), 4> {
    let octets = match &ip {
        IpAddr::V4(ip) => &ip.octets()[..],
        IpAddr::V6(ip) => &ip.octets(),
    };
    let words = octets.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
    (offset..).step_by(4).zip(words).map(|(at, word)| (width, at, word)).collect()
}

/// Ends the program with this result if all conditions hold: width, offset, value.
pub(crate) fn return_if(
    conditions: &[(u32, u32, u32)],
    result: u32,
) -> impl Iterator<Item = sock_filter> {
    // Skips the remaining tests and the result.
    let over = |tests: usize| u8::try_from(2 * tests + 1).unwrap_or(u8::MAX);
    let left = (0..conditions.len()).rev();
    let tests = left.zip(conditions).flat_map(move |(left, (width, offset, value))| {
        [load(*width, *offset), jeq(*value, 0, over(left))]
    });
    tests.chain([ret(result)])
}

/// Loads a byte, half-word or word; with `BPF_IND`, relative to X.
pub(crate) fn load(width: u32, offset: u32) -> sock_filter {
    let mode = if width & BPF_IND == 0 { BPF_ABS } else { 0 };
    stmt(libc::BPF_LD | width | mode, offset)
}

/// Ends the program with this result.
pub(crate) fn ret(result: u32) -> sock_filter {
    stmt(libc::BPF_RET | libc::BPF_K, result)
}

/// Compares the loaded value: skips `jt` instructions if it is equal to `value`, `jf` if not.
pub(crate) fn jeq(value: u32, jt: u8, jf: u8) -> sock_filter {
    jump(BPF_JEQ, value, jt, jf)
}

fn jump(test: u32, value: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { jt, jf, ..stmt(libc::BPF_JMP | test | libc::BPF_K, value) }
}

#[expect(clippy::cast_possible_truncation, reason = "BPF codes have 16 bits")]
fn stmt(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

// Options that nix lacks (`socket(7)`, `packet(7)`).
sockopt_impl!(AttachFilter, SetOnly, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, sock_fprog);
sockopt_impl!(LockFilter, SetOnly, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, bool);
sockopt_impl!(QdiscBypass, SetOnly, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, bool);

/// Attaches a filter to a socket.
pub fn attach(socket: &impl AsFd, program: &mut Filter) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| NixErrno::EINVAL)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, AttachFilter, &program)?)
}
