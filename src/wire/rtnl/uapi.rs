//! The kernel's numbers that no dependency without libc exports.

// include/uapi/linux/rtnetlink.h
pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
pub(super) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
pub(super) const RTM_GETADDR: u16 = 22;
pub(super) const RTM_NEWNETCONF: u16 = 80;
/// In a link request: omit the statistics.
pub(super) const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

// include/uapi/linux/if_addr.h
pub(super) const IFA_ADDRESS: u16 = 1;
pub(super) const IFA_LOCAL: u16 = 2;
pub(super) const IFA_CACHEINFO: u16 = 6;
pub(super) const IFA_FLAGS: u16 = 8;

// include/uapi/linux/if_link.h
pub(super) const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
/// The index of the link below it.
pub(super) const IFLA_LINK: u16 = 5;
/// That link is in another namespace.
pub(super) const IFLA_LINK_NETNSID: u16 = 37;
/// The settings of each address family.
pub(super) const IFLA_AF_SPEC: u16 = 26;
/// In a link request: the parts of the reply (`RTEXT_FILTER_*`).
pub(super) const IFLA_EXT_MASK: u16 = 29;
/// The number of carrier changes.
pub(super) const IFLA_CARRIER_CHANGES: u16 = 35;
/// In `IFLA_AF_SPEC`, for `AF_INET6`: the settings, beginning with `DEVCONF_FORWARDING` (include/uapi/linux/ipv6.h).
pub(super) const IFLA_INET6_CONF: u16 = 2;

// include/uapi/linux/netconf.h
pub(super) const NETCONFA_IFINDEX: u16 = 1;
pub(super) const NETCONFA_FORWARDING: u16 = 2;
