use super::*;

const VIP: &str = "169.254.0.5/24";

fn link(ifindex: u32, name: &str) -> Link {
    let name = InterfaceName::new(name.as_bytes()).ok();
    Link {
        ifindex,
        name,
        flags: LinkFlags::Up | LinkFlags::Running,
        ethernet: true,
        mac: Some([2, 0, 0, 0, 0, 1]),
        carrier_changes: Some(0),
        ipv6_forwarding: None,
    }
}

fn address(ifindex: u32, cidr: &str) -> Address {
    let cidr: Cidr = cidr.parse().unwrap();
    let flags = AddressFlags::Permanent;
    Address { ifindex, cidr, peer: cidr.address(), flags, refreshed: false }
}

/// A watch on `ha` (index 5) for the VIP, after a first dump that showed these addresses.
fn listed(shown: &[Address]) -> Vip {
    let mut vip = Vip::new(InterfaceName::new(b"ha").unwrap(), VIP.parse().unwrap());
    assert_eq!(vip.state(), None);
    vip.links_begin();
    vip.on_link(&link(1, "lo"));
    vip.on_link(&link(5, "ha"));
    vip.interface_end();
    assert_eq!(vip.state(), None, "not before the addresses are known");
    vip.addresses_begin();
    for address in shown {
        vip.on_address(address);
    }
    vip.addresses_end(5);
    vip
}

#[test]
fn state_is_known_after_the_first_dump() {
    assert_eq!(listed(&[]).state(), Some(State::Backup));
    assert_eq!(listed(&[address(5, VIP)]).state(), Some(State::Active));
}

#[test]
fn other_prefix_other_interface_other_address_are_not_the_vip() {
    let mut vip = listed(&[]);
    for (ifindex, cidr) in [(5, "169.254.0.5/32"), (6, VIP), (5, "169.254.0.6/24")] {
        vip.on_address(&address(ifindex, cidr));
        assert_eq!(vip.state(), Some(State::Backup), "{ifindex} {cidr}");
    }
}

#[test]
fn what_a_dump_does_not_show_is_swept_out() {
    let mut vip = listed(&[address(5, VIP)]);
    vip.addresses_begin();
    assert_eq!(vip.state(), Some(State::Active));
    vip.addresses_end(5);
    assert_eq!(vip.state(), Some(State::Backup));
}

#[test]
fn events_during_a_dump_count() {
    let mut vip = listed(&[]);
    vip.addresses_begin();
    vip.on_address(&address(5, VIP));
    vip.addresses_end(5);
    assert_eq!(vip.state(), Some(State::Active));
    vip.addresses_begin();
    vip.on_address(&address(5, VIP));
    vip.on_address_gone(&address(5, VIP));
    vip.addresses_end(5);
    assert_eq!(vip.state(), Some(State::Backup));
}

#[test]
fn dump_of_an_interface_that_was_replaced_meanwhile_proves_nothing() {
    let mut vip = listed(&[address(5, VIP)]);
    vip.addresses_begin();
    vip.on_link_gone(5);
    vip.on_link(&link(7, "ha"));
    vip.addresses_end(5);
    assert_eq!(vip.state(), None);
    vip.on_address(&address(7, VIP));
    assert_eq!(vip.state(), Some(State::Active));
}

#[test]
fn interface_lost_means_backup() {
    let ways: [fn(&mut Vip); 3] = [
        |vip| vip.on_link_gone(5),
        |vip| vip.on_link(&link(5, "away")),
        |vip| {
            vip.links_begin();
            vip.interface_end();
        },
    ];
    for lose in ways {
        let mut vip = listed(&[address(5, VIP)]);
        lose(&mut vip);
        assert_eq!((vip.state(), vip.is_interface_absent()), (Some(State::Backup), true));
    }
}

#[test]
fn hook_is_told_fault_where_keepalived_is_in_its_fault_state() {
    use HookState::{Backup, Fault, Master};
    let mut vip = Vip::new(InterfaceName::new(b"ha").unwrap(), VIP.parse().unwrap());
    assert_eq!(vip.hook_state(), None);
    vip.on_link(&link(5, "ha"));
    assert_eq!(vip.hook_state(), None, "not before the state is known");
    let no_carrier = Link { flags: LinkFlags::Up, ..link(5, "ha") };
    let down = Link { flags: LinkFlags::empty(), ..link(5, "ha") };
    for (shown, up) in [(&[][..], Backup), (&[address(5, VIP)], Master)] {
        let mut vip = listed(shown);
        let state = vip.state();
        assert_eq!(vip.hook_state(), Some(up));
        vip.on_link(&no_carrier);
        assert_eq!(vip.hook_state(), Some(if up == Master { Master } else { Fault }));
        vip.on_link(&down);
        assert_eq!((vip.hook_state(), vip.state()), (Some(Fault), state));
        vip.on_link(&link(5, "ha"));
        assert_eq!(vip.hook_state(), Some(up));
        vip.mark_unreachable();
        assert_eq!(vip.hook_state(), Some(Fault));
    }
    vip.on_link_gone(5);
    assert_eq!(vip.hook_state(), Some(Fault));
}

#[test]
fn vip_that_failed_duplicate_address_detection_is_not_held() {
    let tentative = Address { flags: AddressFlags::Tentative, ..address(5, VIP) };
    let flags = AddressFlags::Tentative | AddressFlags::Dadfailed;
    let failed = Address { flags, ..address(5, VIP) };
    let mut vip = listed(&[tentative]);
    assert_eq!((vip.state(), vip.is_unusable(&tentative)), (Some(State::Active), false));
    vip.addresses_begin();
    vip.on_address(&tentative);
    vip.on_address(&failed);
    assert_eq!((vip.state(), vip.is_unusable(&failed)), (Some(State::Backup), true));
    vip.addresses_end(5);
    assert_eq!(vip.state(), Some(State::Backup));
    let elsewhere = Address { ifindex: 6, ..failed };
    assert!(!vip.is_unusable(&elsewhere));
    assert_eq!(listed(&[failed]).state(), Some(State::Backup));
}

#[test]
fn mac_is_kept_until_another_is_mentioned_or_the_interface_is_another() {
    let mac = link(5, "ha").mac;
    let mut vip = listed(&[]);
    vip.on_link(&Link { mac: None, ..link(5, "ha") });
    assert_eq!(vip.mac(), mac, "a wireless event");
    vip.on_link(&Link { mac: None, ..link(6, "ha") });
    assert_eq!(vip.mac(), None, "that of another is not known");
    vip.on_link(&link(6, "ha"));
    assert_eq!(vip.mac(), mac);
    vip.on_link(&Link { ethernet: false, mac: None, ..link(6, "ha") });
    assert_eq!(vip.mac(), None);
}

#[test]
fn one_local_address_with_two_peers_is_gone_with_the_second() {
    let with_peer = Address { peer: "10.9.0.1".parse().unwrap(), ..address(5, VIP) };
    let mut vip = listed(&[address(5, VIP), with_peer]);
    vip.on_address_gone(&with_peer);
    assert_eq!(vip.state(), Some(State::Active));
    vip.on_address_gone(&address(5, VIP));
    assert_eq!(vip.state(), Some(State::Backup));
}

#[test]
fn ipv6_address_may_change_its_peer_in_place() {
    let mut vip = Vip::new(InterfaceName::new(b"ha").unwrap(), "fd00::5/64".parse().unwrap());
    vip.on_link(&link(5, "ha"));
    vip.addresses_begin();
    let plain = address(5, "fd00::5/64");
    let with_peer = Address { peer: "fd00::9".parse().unwrap(), ..plain };
    vip.on_address(&plain);
    vip.on_address(&with_peer);
    vip.on_address_gone(&with_peer);
    vip.addresses_end(5);
    assert_eq!(vip.state(), Some(State::Backup));
}
