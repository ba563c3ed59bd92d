//! The VIP, which comes and goes.

use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Instant;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{self, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::{read, write};

/// As keepalived has it.
const ADDRESS: [u8; 4] = [169, 254, 0, 5];
const PREFIX_LEN: u8 = 24;

/// The two requests, made beforehand, so that nothing lies between the acknowledgement and the clock.
#[derive(Debug)]
pub struct Vip {
    socket: OwnedFd,
    add: Vec<u8>,
    remove: Vec<u8>,
}

impl Vip {
    /// In a namespace, on its interface `ha0`.
    pub fn new(namespace: &str) -> Result<Self, Box<dyn Error>> {
        let outside = File::open("/proc/self/ns/net")?;
        setns(File::open(format!("/run/netns/{namespace}"))?, CloneFlags::CLONE_NEWNET)?;
        let mut address = AddressMessage::default();
        address.header.family = AddressFamily::Inet;
        address.header.prefix_len = PREFIX_LEN;
        address.header.index = if_nametoindex("ha0")?;
        address.attributes = vec![
            AddressAttribute::Local(ADDRESS.into()),
            AddressAttribute::Address(ADDRESS.into()),
        ];
        let vip = Self {
            socket: socket(
                socket::AddressFamily::Netlink,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkRoute,
            )?,
            add: bytes(RouteNetlinkMessage::NewAddress(address.clone()), NLM_F_CREATE | NLM_F_EXCL),
            remove: bytes(RouteNetlinkMessage::DelAddress(address), 0),
        };
        setns(outside, CloneFlags::CLONE_NEWNET)?;
        Ok(vip)
    }

    /// Adds or removes it. Returns when the kernel has acknowledged that.
    pub fn set(&self, present: bool) -> Result<Instant, Box<dyn Error>> {
        let mut reply = [0; 512];
        write(&self.socket, if present { &self.add } else { &self.remove })?;
        let length = read(&self.socket, &mut reply)?;
        let acknowledged = Instant::now();
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply[..length])?.payload {
            NetlinkPayload::Error(error) if error.code.is_none() => Ok(acknowledged),
            other => Err(format!("the kernel refuses the VIP: {other:?}").into()),
        }
    }
}

fn bytes(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
