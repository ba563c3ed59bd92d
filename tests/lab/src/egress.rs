//! Interfaces through which frames do not go as they should, and some that share another's wire.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use nix::libc;

use crate::rtnl::Rtnl;

impl Rtnl {
    /// Gives a link a queue that lets two ARP packets go and then a byte in a second, and has room for a million
    /// (`tc-tbf(8)`).
    pub fn set_stuck_queue(&self, name: &str) {
        let mut message = TcMessage::with_index(self.ifindex(name).cast_signed());
        message.header.parent = TcHandle::ROOT;
        let options = DefaultNla::new(libc::TCA_OPTIONS, token_bucket());
        message.attributes = vec![TcAttribute::Kind("tbf".into()), TcAttribute::Other(options)];
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE)
            .unwrap_or_else(|error| panic!("tbf on {name}: {error}"));
    }

    /// Makes an interface with a MAC of its own on the wire of another, as keepalived does for a virtual
    /// MAC. It is down.
    pub fn add_macvlan(&self, name: &str, on: &str, mac: [u8; 6]) {
        let mut link = LinkMessage::default();
        let info = vec![
            LinkInfo::Kind(InfoKind::MacVlan),
            LinkInfo::Data(InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Private)])),
        ];
        link.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Link(self.ifindex(on)),
            LinkAttribute::Address(mac.into()),
            LinkAttribute::LinkInfo(info),
        ];
        self.request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE)
            .unwrap_or_else(|error| panic!("macvlan {name}: {error}"));
    }
}

/// `TCA_TBF_PARMS` and `TCA_TBF_BURST` (`include/uapi/linux/pkt_sched.h`): a byte per second after so many.
fn token_bucket() -> Vec<u8> {
    const RATE: u32 = 1;
    const LIMIT: u32 = 1_000_000;
    const BURST: u32 = 90;
    // struct tc_tbf_qopt: two struct tc_ratespec, whose last word is the rate and whose first has the kind of
    // link in its second byte, Ethernet; the limit, the burst as a time, the smallest packet.
    let ratespec = |rate: u32| [&[0, 1, 0, 0, 0, 0, 0, 0][..], &rate.to_ne_bytes()].concat();
    let words = [LIMIT, 0, 0].map(u32::to_ne_bytes).concat();
    let parameters = [ratespec(RATE), ratespec(0), words].concat();
    let attribute = |kind: u16, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).expect("a short attribute");
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
    };
    [attribute(1, &parameters), attribute(6, &BURST.to_ne_bytes())].concat()
}
