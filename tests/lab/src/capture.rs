//! A capture of the frames on the wire.

use std::fmt::{self, Debug, Formatter};
use std::io::IoSliceMut;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind,
    recvmsg, setsockopt, socket, sockopt,
};

use crate::PATIENCE;
use crate::files::wait_unless_stopped;
use crate::received::Received;

/// A frame, and the time since the epoch when the kernel received it.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    pub at: Duration,
    pub bytes: Vec<u8>,
}

impl Debug for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", self.at)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Frame {
    /// Returns the source of an Ethernet frame.
    pub fn source(&self) -> [u8; 6] {
        self.bytes[6..12].try_into().expect("six bytes")
    }

    /// Whether it is an ARP packet.
    pub fn is_arp(&self) -> bool {
        self.bytes[12..14] == [0x08, 0x06]
    }

    /// Whether it is an ARP request for this address.
    pub fn asks_for(&self, ip: Ipv4Addr) -> bool {
        let has_target = self.bytes.len() > 41 && self.bytes[38..42] == ip.octets();
        self.is_arp() && self.bytes[20..22] == [0, 1] && has_target
    }

    /// Whether it is a neighbour advertisement.
    pub fn is_advertisement(&self) -> bool {
        self.bytes[12..14] == [0x86, 0xdd] && self.bytes.get(54) == Some(&136)
    }
}

/// Receives every frame that arrives at an interface, in a thread of its own.
#[derive(Debug)]
pub struct Capture {
    socket: Arc<OwnedFd>,
    received: Arc<Received<Frame>>,
    stop: UnixStream,
}

impl Capture {
    pub fn new(interface: &str) -> Self {
        let socket = open(interface);
        let (socket, received) = (Arc::new(socket), Arc::new(Received::default()));
        let (stop, stopped) = UnixStream::pair().expect("a socket pair");
        thread::spawn({
            let (socket, received) = (Arc::clone(&socket), Arc::clone(&received));
            move || serve(&socket, &received, &stopped)
        });
        Self { socket, received, stop }
    }

    /// Returns all frames so far.
    pub fn frames(&self) -> Vec<Frame> {
        self.received.lock().clone()
    }

    /// Waits until the frames so far satisfy a condition.
    pub fn wait(&self, what: &str, condition: impl Fn(&[Frame]) -> bool) -> Vec<Frame> {
        self.received.wait(PATIENCE, what, condition).clone()
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        let sent = nix::unistd::write(&self.socket, frame).expect("to send a frame");
        assert_eq!(sent, frame.len());
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
    }
}

/// Opens a nonblocking socket that receives every frame of an interface, with the kernel's times.
pub fn open(interface: &str) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)
        .expect("a packet socket to capture with");
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).expect("timestamps");
    // Without root the default size has to do.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20));
    let index = nix::net::if_::if_nametoindex(interface).expect("an interface to capture on");
    bind(socket.as_raw_fd(), &link_address(index)).expect("to bind the capture");
    socket
}

fn serve(socket: &OwnedFd, received: &Received<Frame>, stopped: &UnixStream) {
    let mut buffer = [0; 2048];
    while wait_unless_stopped(socket, stopped) {
        while let Some(frame) = receive(socket, &mut buffer) {
            received.push(frame);
        }
    }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Option<Frame> {
    let mut control = nix::cmsg_space!(libc::timespec);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::empty();
    let message =
        recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags).ok()?;
    let at = message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let length = message.bytes;
    Some(Frame { at: at?, bytes: buffer[..length].to_vec() })
}

/// Returns the address that stands for all protocols on an interface.
fn link_address(index: u32) -> LinkAddr {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the pointer is to a link-layer address.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), None) }.expect("a link-layer address")
}
