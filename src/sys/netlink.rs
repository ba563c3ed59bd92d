//! The route sockets: one for events of addresses and links, one for questions.
//!
//! The kernel answers a question within `send` and `recv`, so no answer waits in the poll, and no overrun of the events
//! takes one away.

use std::io::IoSliceMut;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netlink_packet_route::AddressFamily::{Inet, Inet6};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno as NixErrno;
use nix::libc;
use nix::sys::socket::{MsgFlags, NetlinkAddr, recvmsg, setsockopt, sockopt};

use super::bpf;
use crate::errno::Errno;
use crate::monitor::{Answer, Input, Question};
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::{self, Body, Malformed, Message, Messages};

/// Longer than any message, in bytes: a link's longest attribute, its alternative names, has less than 64 kB.
const BUFFER_LEN: usize = 131_072;

type Buffer = [u8; BUFFER_LEN];

/// What any kernel puts into one part of an answer, in bytes: a page has room for it (`NLMSG_GOODSIZE` in
/// `include/linux/netlink.h`). It does not tell whether a longer part ended for want of room, and an address that had none
/// may have no place in the next part, as that of another was taken.
const ONE_PART: usize = 3_000;

// In .bss, not on the stack, where zeroing would touch all of it.
static EVENT: Mutex<Buffer> = Mutex::new([0; BUFFER_LEN]);
static ANSWER: Mutex<Buffer> = Mutex::new([0; BUFFER_LEN]);

/// Returns the buffer for [`EventSocket::receive`].
pub fn event_buffer() -> MutexGuard<'static, Buffer> {
    EVENT.lock().unwrap_or_else(PoisonError::into_inner)
}

// libc 0.2.191 has the values of other architectures for 64-bit MIPS.
const _: () = assert!(libc::SOL_SOCKET == 0xffff || !cfg!(target_arch = "mips64"));

/// The multicast groups for watching the VIP.
const WATCH: [u32; 3] = [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];

/// The least memory that a datagram takes in the receive buffer, in bytes: an event takes about 800.
pub const LEAST_LEN: usize = 512;

/// The kernel's port.
const KERNEL: u32 = 0;

/// Receives a datagram. Returns its length, which may exceed the buffer's, and the sender's port.
// `Socket::recv_from` passes the length of the address in 64 bits (netlink-sys 0.9.0). So on a big-endian machine the
// kernel writes none, and each sender would be the kernel.
fn receive(socket: &Socket, buffer: &mut [u8]) -> nix::Result<(usize, u32)> {
    let mut parts = [IoSliceMut::new(buffer)];
    let received =
        recvmsg::<NetlinkAddr>(socket.as_raw_fd(), &mut parts, None, MsgFlags::MSG_TRUNC)?;
    let sender = received.address.ok_or(NixErrno::EBADMSG)?;
    Ok((received.bytes, sender.pid()))
}

/// Receives the kernel's events.
#[derive(Debug)]
pub struct EventSocket(Socket);

impl EventSocket {
    /// Opens a socket and subscribes to events. `net.core.rmem_max` limits the `receive_buffer` without `CAP_NET_ADMIN`.
    /// Of addresses only events of `only` pass, if that is given; a kernel without socket filters passes all. To
    /// announce, IPv6 forwarding has to be known.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn open(
        receive_buffer: usize,
        only: Option<IpAddr>,
        announces: bool,
    ) -> Result<Self, Errno> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        setsockopt(&socket, sockopt::RcvBufForce, &receive_buffer)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &receive_buffer))?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        if let Some(ip) = only {
            // Without the filter, other addresses only cost wake-ups.
            let _ = bpf::attach(&socket, &mut bpf::events_of(ip));
        }
        let forwarding = announces.then_some(libc::RTNLGRP_IPV6_NETCONF);
        for group in WATCH.into_iter().chain(forwarding) {
            socket.add_membership(group)?;
        }
        Ok(Self(socket))
    }

    /// Reads one datagram into `buffer`. Returns the inputs in it, or one for an error; `None` if there is neither.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> Option<impl Iterator<Item = Input> + use<'a>> {
        let (datagram, other) = match receive(&self.0, buffer) {
            Ok((length, KERNEL)) => match buffer.get(..length) {
                Some(datagram) => (datagram, None),
                None => (&[][..], Some(Input::MalformedMessage(None))),
            },
            Ok((_, port)) => (&[][..], Some(Input::ForeignSender(port))),
            Err(NixErrno::EAGAIN) => return None,
            // ENOBUFS. Any other error may have lost events, too.
            Err(_) => (&[][..], Some(Input::Overrun)),
        };
        let input = |message| match message {
            Ok(Message { body, .. }) => Input::Event(body),
            Err(Malformed(ifindex)) => Input::MalformedMessage(ifindex),
        };
        Some(Messages::new(datagram).map(input).chain(other))
    }

    /// Returns the descriptor, for the poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Asks the kernel one question at a time.
#[derive(Debug)]
pub struct QuestionSocket {
    socket: Socket,
    /// The sequence number of the last question. Answers repeat it.
    sequence: u32,
    /// The last answer has not been read to its end.
    is_open: bool,
    /// The socket may still hold parts of the last answer, as after a failed read.
    has_rest: bool,
    /// How it ends, unless the kernel reports an error at the end.
    answer: Answer,
    /// The kernel lists the addresses of one interface alone, and sets no flag if these change between two parts
    /// (`inet_dump_ifaddr` in `net/ipv4/devinet.c`).
    is_alone: bool,
    /// The interface whose IPv6 addresses are listed after its IPv4 addresses, 0 for all. Of both families at once, the kernel
    /// forgets a change where the second begins (`rtnl_dump_all` in `net/core/rtnetlink.c`).
    ipv6_is_next: Option<u32>,
    /// The kernel lists one interface alone if it is asked to: Linux 4.20.
    can_filter: bool,
    /// The length of the parts received of this family, in bytes.
    length: usize,
}

impl QuestionSocket {
    /// Opens a socket, which joins no group.
    ///
    /// # Errors
    /// The errno of the step that failed.
    pub fn open() -> Result<Self, Errno> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        let can_filter = socket.set_netlink_get_strict_chk(true).is_ok();
        Ok(Self {
            socket,
            sequence: 0,
            is_open: false,
            has_rest: false,
            answer: Answer::Complete,
            is_alone: false,
            ipv6_is_next: None,
            can_filter,
            length: 0,
        })
    }

    /// Returns whether the last answer has not been read to its end.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Asks a question. `interface` is the watched interface. Returns the end of the answer, if it has failed.
    pub fn ask(&mut self, question: Question, interface: &InterfaceName) -> Option<Input> {
        self.send(question, interface).err().map(failed)
    }

    fn send(&mut self, question: Question, interface: &InterfaceName) -> Result<(), Errno> {
        self.discard_rest();
        self.sequence = self.sequence.wrapping_add(1);
        (self.answer, self.is_alone, self.ipv6_is_next) = (Answer::Complete, false, None);
        let sequence = self.sequence;
        match question {
            Question::Interface => {
                self.send_request(&rtnl::request_link_named(sequence, interface))
            }
            Question::Link(ifindex) => self.send_request(&rtnl::request_link(sequence, ifindex)),
            Question::Addresses { only } => {
                self.is_alone = self.can_filter && only.is_some();
                let ifindex = only.unwrap_or(0);
                self.ipv6_is_next = Some(ifindex);
                self.send_request(&rtnl::request_addresses(sequence, Inet, ifindex))
            }
            Question::Links => self.send_request(&rtnl::request_links(sequence)),
        }
    }

    fn send_request(&mut self, request: &[u8]) -> Result<(), Errno> {
        self.socket.send_to(request, &SocketAddr::new(0, 0), 0)?;
        (self.is_open, self.has_rest, self.length) = (true, true, 0);
        Ok(())
    }

    /// Reads what is left of an answer that ended early: the kernel lists once at a time (`EBUSY`).
    fn discard_rest(&mut self) {
        while self.has_rest {
            self.has_rest = receive(&self.socket, &mut [0]).is_ok();
        }
    }

    /// Reads the next part of the answer, and passes its entries in. Returns its end, if that is in this part.
    pub fn read_part(&mut self, mut pass_in: impl FnMut(&Input)) -> Option<Input> {
        let mut buffer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = match self.receive(&mut *buffer) {
            Ok(messages) => messages,
            Err(errno) => return Some(failed(errno)),
        };
        let mut end = None;
        for message in messages {
            match self.read(message) {
                Some(entry @ Input::Entry(_)) => pass_in(&entry),
                other => end = other.or(end),
            }
        }
        end
    }

    /// Receives the next part into `buffer`. An error ends the answer.
    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Result<Messages<'a>, Errno> {
        let received = receive(&self.socket, buffer);
        self.is_open = received.is_ok();
        let (length, sender) = received?;
        // Another process's message is no part of the answer.
        let datagram = buffer.get(..length).filter(|_| sender == KERNEL);
        if datagram.is_none() && sender == KERNEL {
            self.answer = Answer::Failed(NixErrno::EMSGSIZE.into());
        }
        self.length += datagram.map_or(0, <[u8]>::len);
        Ok(Messages::new(datagram.unwrap_or_default()))
    }

    /// Returns the input that a message of the answer means: an entry, or the end.
    fn read(&mut self, message: Result<Message, Malformed>) -> Option<Input> {
        let Ok(message) = message else {
            self.answer = Answer::Failed(NixErrno::EBADMSG.into());
            return None;
        };
        if message.sequence != self.sequence {
            return None;
        }
        let is_end = match message.body {
            Body::Other => return None,
            // ENODEV: no interface has the name or the index, so it has no addresses.
            Body::Done(Some(errno)) if Errno(errno) != Errno::NO_DEVICE => {
                self.answer = Answer::Failed(Errno(errno));
                true
            }
            Body::Done(_) => true,
            _ => false,
        };
        // A kernel without IPv6 lists all families again (`rtnl_get_link` in `net/core/rtnetlink.c`).
        if let Body::NewAddress(address) = &message.body
            && address.cidr.address().is_ipv4() == self.ipv6_is_next.is_none()
        {
            return None;
        }
        let may_have_gap = self.is_alone && self.length > ONE_PART;
        if (message.interrupted || may_have_gap) && self.answer == Answer::Complete {
            self.answer = Answer::Interrupted;
        }
        if !is_end {
            return Some(Input::Entry(message.body));
        }
        let has_failed = matches!(self.answer, Answer::Failed(_));
        if let Some(ifindex) = self.ipv6_is_next.take().filter(|_| !has_failed) {
            let request = rtnl::request_addresses(self.sequence, Inet6, ifindex);
            match self.send_request(&request) {
                Ok(()) => return None,
                Err(errno) => self.answer = Answer::Failed(errno),
            }
        }
        (self.is_open, self.has_rest) = (false, false);
        Some(Input::Answered(self.answer))
    }
}

fn failed(errno: Errno) -> Input {
    Input::Answered(Answer::Failed(errno))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::address::AddressFlags;

    use super::*;
    use crate::wire::cidr::Cidr;
    use crate::wire::rtnl::Address;

    #[test]
    fn kernel_without_ipv6_lists_each_address_once() {
        let mut questions = QuestionSocket::open().unwrap();
        let cidr: Cidr = "192.0.2.1/24".parse().unwrap();
        let (peer, flags) = (cidr.address(), AddressFlags::Permanent);
        let address = Address { ifindex: 2, cidr, peer, flags, created: 0, refreshed: false };
        let body = Body::NewAddress(address);
        for ipv6_is_next in [Some(0), None] {
            questions.ipv6_is_next = ipv6_is_next;
            let message = Message { body: body.clone(), sequence: 0, interrupted: false };
            assert_eq!(questions.read(Ok(message)).is_some(), ipv6_is_next.is_some());
        }
    }
}
