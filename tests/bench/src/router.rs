//! A router's namespace and directories, and the VIP that comes and goes in it.

use std::error::Error;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{SockFlag, SockProtocol, SockType, socket};
use nix::unistd::{read, write};

/// Everything is below this, in memory, and gone with the mount namespace.
pub const ROOT: &str = "/mnt";
/// The VIP as keepalived has it.
pub const VIP: &str = "169.254.0.5/24";
/// Where the VIP comes and goes.
pub const WATCHED: &str = "ha0";
/// Where other addresses do.
pub const OTHER: &str = "lan0";

#[derive(Debug)]
pub struct Router {
    pub id: String,
    pub namespace: String,
    pub netns: Netns,
    pub conf_dir: PathBuf,
    vip: Vip,
}

impl Router {
    pub fn new(number: usize) -> Result<Self, Box<dyn Error>> {
        let id = format!("3c2f5c0e-9f0e-4d43-a3b5-{number:012}");
        let (namespace, netns) = (format!("qrouter-{id}"), Netns::new());
        netns.bind(&namespace);
        let vip = netns.run(|| {
            let rtnl = Rtnl::new();
            for name in [WATCHED, OTHER] {
                rtnl.add_ethernet(name);
            }
            Vip::new()
        })?;
        let conf_dir = Path::new(ROOT).join("conf").join(&id);
        Ok(Self { id, namespace, netns, conf_dir, vip })
    }

    /// Takes the VIP away, and every trace of who was here before.
    pub fn clear(&self) -> Result<(), Box<dyn Error>> {
        // It need not be there.
        let _ = self.set_vip(false);
        fs::create_dir_all(&self.conf_dir)?;
        for entry in fs::read_dir(&self.conf_dir)? {
            fs::remove_file(entry?.path())?;
        }
        for file in [self.pid_file(), self.log_file()] {
            fs::remove_file(file).or_else(|error| {
                if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
            })?;
        }
        Ok(())
    }

    /// Adds or removes the VIP. Returns when the kernel has acknowledged that.
    pub fn set_vip(&self, present: bool) -> Result<Instant, Box<dyn Error>> {
        self.vip.set(present)
    }

    pub fn state(&self) -> String {
        lab::files::content(&self.conf_dir.join("state"))
    }

    pub fn pid_file(&self) -> PathBuf {
        Path::new(ROOT).join(format!("{}.pid", self.id))
    }

    pub fn log_file(&self) -> PathBuf {
        Path::new(ROOT).join(format!("{}.log", self.id))
    }
}

/// The two requests, made beforehand, so that nothing lies between the acknowledgement and the clock.
#[derive(Debug)]
struct Vip {
    socket: OwnedFd,
    add: Vec<u8>,
    remove: Vec<u8>,
}

impl Vip {
    /// In the present namespace.
    fn new() -> Result<Self, Box<dyn Error>> {
        let (local, prefix_len) = VIP.split_once('/').ok_or("the VIP has a prefix")?;
        let mut address = AddressMessage::default();
        address.header.family = AddressFamily::Inet;
        address.header.prefix_len = prefix_len.parse()?;
        address.header.index = if_nametoindex(WATCHED)?;
        let local = local.parse()?;
        address.attributes = vec![AddressAttribute::Local(local), AddressAttribute::Address(local)];
        let add = RouteNetlinkMessage::NewAddress(address.clone());
        let remove = RouteNetlinkMessage::DelAddress(address);
        let (flags, protocol) = (SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
        Ok(Self {
            socket: socket(
                nix::sys::socket::AddressFamily::Netlink,
                SockType::Raw,
                flags,
                protocol,
            )?,
            add: bytes(add, NLM_F_CREATE | NLM_F_EXCL),
            remove: bytes(remove, 0),
        })
    }

    fn set(&self, present: bool) -> Result<Instant, Box<dyn Error>> {
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
