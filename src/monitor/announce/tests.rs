use core::net::Ipv4Addr;
use core::num::NonZeroU8;

use netlink_packet_route::link::LinkFlags;

use super::*;
use crate::monitor::{Action, Duration};
use crate::wire::ifname::InterfaceName;

fn link(flags: LinkFlags, ethernet: bool) -> Link {
    Link {
        ifindex: 3,
        name: InterfaceName::new(b"eth0"),
        flags,
        ethernet,
        mac: Some([2, 0, 0, 0, 0, 1]),
        parent: None,
        carrier_changes: Some(0),
        ipv6_forwarding: Some(true),
    }
}

const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);

/// Returns the announcer of an active router that knows link 3, which is up.
fn announcer(timing: AnnounceTiming, tables: &mut Tables) -> Announcer<'_> {
    let mut announcer = Announcer::new(timing, tables);
    list_link(&mut announcer);
    announcer.handle_role(true, None, Instant::ZERO);
    announcer
}

/// Lists link 3 in a dump of all links.
fn list_link(announcer: &mut Announcer<'_>) {
    announcer.links_begin();
    announcer.handle_link(&link(UP, true), true, 0);
    assert!(announcer.links_end(true, &mut Journal::default(), Instant::ZERO));
}

/// Handles an event.
fn handle(announcer: &mut Announcer<'_>, body: &Body) -> Option<Dump> {
    announcer.handle_link_or_address(body, false, &mut Journal::default(), Instant::ZERO)
}

/// Lists an address in a dump of all addresses.
fn list_address(announcer: &mut Announcer<'_>, address: &Address) {
    announcer.addresses_begin();
    announcer.handle_address(address, true, Instant::ZERO).unwrap();
    assert!(announcer.addresses_end(true));
}

fn address(cidr: &str) -> Address {
    let cidr: crate::wire::cidr::Cidr = cidr.parse().unwrap();
    let flags = AddressFlags::Permanent;
    Address { ifindex: 3, cidr, peer: cidr.address(), flags, created: 0, refreshed: false }
}

/// Sends all frames. Returns them, each with its millisecond.
fn frames(announcer: &mut Announcer<'_>) -> std::vec::Vec<(i64, FrameKind)> {
    let (mut frames, mut now) = (std::vec::Vec::new(), Instant::ZERO);
    while let Some(deadline) = announcer.deadline() {
        now = now.max(deadline);
        if let Some(Action::SendFrame(announcement)) = announcer.next_action(now) {
            frames.push((now.total_millis(), announcement.kind));
            announcer.advance(announcement.address, now);
        } else {
            assert!(announcer.deadline().is_none_or(|deadline| deadline > now), "nothing is due");
        }
    }
    frames
}

fn round(ip: &str) -> [FrameKind; 2] {
    let ip = ip.parse().unwrap();
    [FrameKind::ArpRequest(ip), FrameKind::ArpReply(ip)]
}

#[test]
fn links_beyond_the_room_are_counted_by_one_dump() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    // The first is known already.
    let mut links = (3..).map(|ifindex| Link { ifindex, ..link(UP, true) });
    for link in links.by_ref().take(1024) {
        assert_ne!(announcer.handle_link(&link, false, 0), Some(Dump::Links));
    }
    let beyond = links.next().unwrap();
    assert_eq!(announcer.handle_link(&beyond, false, 0), Some(Dump::Links));
    assert_eq!(announcer.handle_link(&beyond, false, 1), None, "counted already");
}

/// The dump may list an older setting, and only a known link has room for the newer one.
#[test]
fn forwarding_of_an_unknown_link_needs_another_dump() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    for (ifindex, is_known) in [(3, true), (4, false)] {
        announcer.links_begin();
        handle(&mut announcer, &Body::Ipv6Forwarding { ifindex, on: true });
        assert_eq!(announcer.links_end(true, &mut Journal::default(), Instant::ZERO), is_known);
    }
}

/// The event about its deletion was lost.
#[test]
fn link_that_a_dump_does_not_list_gets_no_announcements() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    handle(&mut announcer, &Body::NewAddress(address("10.0.0.1/24")));
    assert!(announcer.deadline().is_some());
    announcer.links_begin();
    assert!(announcer.links_end(true, &mut Journal::default(), Instant::ZERO));
    assert_eq!(frames(&mut announcer), []);
}

#[test]
fn address_removed_during_its_dump_needs_another() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    announcer.tables.links.relist(3, Relist::Wanted);
    let removed = Body::DelAddress(address("10.0.0.1/24"));
    announcer.addresses_begin();
    handle(&mut announcer, &removed);
    assert!(!announcer.addresses_end(true), "it may be listed, and announced");
    announcer.addresses_begin();
    assert!(announcer.addresses_end(true));
    for event in [removed, Body::DelLink(link(UP, true))] {
        announcer.addresses_begin();
        handle(&mut announcer, &event);
        assert!(announcer.addresses_end(true), "no address is to be announced");
    }
}

#[test]
fn full_table_of_addresses_is_announced_in_time() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    for n in 0..4096 {
        let address = address(&format!("10.{}.{}.1/32", n / 256, n % 256));
        announcer.handle_address(&address, false, Instant::ZERO).unwrap();
    }
    let frames = frames(&mut announcer);
    let mut times = std::collections::HashMap::<Ipv4Addr, std::vec::Vec<i64>>::new();
    for (time, kind) in &frames {
        if let FrameKind::ArpRequest(ip) = kind {
            times.entry(*ip).or_default().push(*time);
        }
    }
    assert_eq!((times.len(), frames.len()), (4096, 4096 * 6));
    for rounds in times.values() {
        assert_eq!(rounds.len(), 3);
        assert!(rounds.windows(2).all(|pair| pair[1] - pair[0] >= 2000), "{rounds:?}");
    }
    let per_second = |second| frames.iter().filter(|(time, _)| time / 1000 == second).count();
    assert!((0..12).all(|second| per_second(second) <= 2 * 1001), "1,000 addresses a second");
}

#[test]
fn addresses_take_turns_for_the_configured_rounds() {
    for repeat in [1, 127, 128, 255] {
        let mut tables = Tables::new();
        let repeat = NonZeroU8::new(repeat).unwrap();
        let timing = AnnounceTiming { repeat, delay: Duration::ZERO, ..AnnounceTiming::default() };
        let mut announcer = announcer(timing, &mut tables);
        for cidr in ["10.0.0.1/24", "10.0.0.2/24"] {
            announcer.handle_address(&address(cidr), false, Instant::ZERO).unwrap();
        }
        let kinds: std::vec::Vec<_> = frames(&mut announcer).iter().map(|frame| frame.1).collect();
        let turn = [round("10.0.0.1"), round("10.0.0.2")].concat();
        assert_eq!(kinds, turn.repeat(repeat.get().into()));
        assert!(announcer.tables.entries.is_empty());
    }
}

#[test]
fn one_address_with_two_prefixes_or_peers_is_two() {
    let plain = address("10.0.0.1/24");
    let with_peer = Address { peer: "10.9.0.1".parse().unwrap(), ..plain };
    for other in [address("10.0.0.1/32"), with_peer] {
        for (removed, kept) in [(plain, other), (other, plain)] {
            let mut tables = Tables::new();
            let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
            announcer.handle_address(&removed, false, Instant::ZERO).unwrap();
            announcer.handle_address(&kept, false, Instant::ZERO).unwrap();
            handle(&mut announcer, &Body::DelAddress(removed));
            assert_eq!(frames(&mut announcer).len(), 6, "{kept:?} is still there");
        }
    }
}

#[test]
fn on_the_watched_link_only_a_claimed_address_is_announced() {
    let mut tables = Tables::new();
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let vip = address("10.0.0.1/24");
    announcer.handle_address(&vip, false, Instant::ZERO).unwrap();
    announcer.handle_loss();
    announcer.handle_watched(Some(3));
    list_address(&mut announcer, &vip);
    list_link(&mut announcer);
    assert!(frames(&mut announcer).is_empty());
    // A second time starts the rounds again.
    for _ in 0..2 {
        announcer.announce_again(AddressKey::from(&vip), Instant::ZERO);
    }
    list_link(&mut announcer);
    assert_eq!(frames(&mut announcer).len(), 6);
    announcer.announce_again(AddressKey::from(&vip), Instant::ZERO);
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip };
    handle(&mut announcer, &Body::NewAddress(failed));
    assert!(frames(&mut announcer).is_empty(), "duplicate address detection has failed");
    let flags = LinkFlags::empty();
    for event in [Link { flags, ..link(UP, true) }, link(UP, true)] {
        assert_eq!(handle(&mut announcer, &Body::NewLink(event)), None);
    }
    announcer.handle_watched(None);
    list_address(&mut announcer, &vip);
    assert!(frames(&mut announcer).is_empty(), "keepalived has announced what is there");
}

#[test]
fn rounds_begin_again_only_for_new_addresses() {
    let new = address("10.0.0.1/24");
    let refreshed = Address { refreshed: true, ..new };
    let undecided = Address { flags: AddressFlags::Tentative, ..refreshed };
    // A new or listed address has one round of two frames at once, the last address all rounds.
    for (events, frames_at_once, frames_in_all) in [
        (&[(new, false), (refreshed, false)][..], 2, 6),
        (&[(new, false), (new, true)], 4, 8),
        (&[(refreshed, false)], 0, 0),
        (&[(refreshed, true)], 2, 6),
        (&[(new, false), (undecided, false)], 2, 2),
        (&[(undecided, false), (refreshed, false)], 2, 6),
        (&[(address("127.0.0.1/8"), false)], 0, 0),
        (&[(address("224.0.0.1/32"), false)], 0, 0),
    ] {
        let (mut tables, mut sent) = (Tables::new(), 0);
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        for (millisecond, (address, listed)) in (0..).zip(events) {
            let now = Instant::from_millis(millisecond);
            if *listed {
                announcer.tables.links.relist(3, Relist::Wanted);
                announcer.addresses_begin();
            }
            announcer.handle_address(address, *listed, now).unwrap();
            announcer.handle_role(true, Some([0, 0, 0x5e, 0, 1, 7]), now);
            while let Some(Action::SendFrame(announcement)) = announcer.next_action(now) {
                announcer.advance(announcement.address, now);
                sent += 1;
            }
        }
        assert_eq!(sent, frames_at_once, "{events:?}");
        assert_eq!(sent + frames(&mut announcer).len(), frames_in_all, "{events:?}");
    }
}

#[test]
fn links_without_use_for_announcements_get_none() {
    let mut tables = Tables::new();
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    for (flags, ethernet, has_use) in [
        (UP, true, true),
        (UP - LinkFlags::Running, true, false),
        (UP - LinkFlags::Up, true, false),
        (UP | LinkFlags::Loopback, true, false),
        (UP | LinkFlags::Pointopoint, true, false),
        (UP | LinkFlags::Noarp, true, false),
        (UP, false, false),
    ] {
        handle(&mut announcer, &Body::NewLink(link(LinkFlags::empty(), true)));
        let wanted = handle(&mut announcer, &Body::NewLink(link(flags, ethernet)));
        assert_eq!(wanted.is_some(), has_use, "{flags:?}");
        announcer.handle_address(&address("10.0.0.1/24"), false, Instant::ZERO).unwrap();
        assert_eq!(!announcer.tables.entries.is_empty(), has_use, "{flags:?}");
    }
    handle(&mut announcer, &Body::NewLink(link(UP, true)));
    handle(&mut announcer, &Body::DelLink(link(UP, true)));
    announcer.handle_address(&address("10.0.0.1/24"), false, Instant::ZERO).unwrap();
    assert!(announcer.tables.entries.is_empty());
}

/// The kernel may merge the events of the carrier's loss and return.
#[test]
fn addresses_are_announced_after_a_carrier_flap_in_one_event() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let same = Body::NewLink(link(UP, true));
    let flapped = Body::NewLink(Link { carrier_changes: Some(2), ..link(UP, true) });
    for (event, expected) in [(&same, None), (&flapped, Some(Dump::Addresses)), (&flapped, None)] {
        assert_eq!(handle(&mut announcer, event), expected);
    }
}
