use super::*;
use crate::monitor::Duration;
use crate::wire::ifname::InterfaceName;
use core::net::Ipv4Addr;
use netlink_packet_route::link::LinkFlags;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);

fn link(ifindex: u32, flags: LinkFlags) -> Link {
    let name = InterfaceName::new(b"eth0").ok();
    Link {
        ifindex,
        name,
        flags,
        ethernet: true,
        mac: Some(MAC),
        carrier_changes: Some(0),
        ipv6_forwarding: Some(true),
    }
}

fn address(ifindex: u32, cidr: &str) -> Address {
    let cidr: crate::wire::cidr::Cidr = cidr.parse().unwrap();
    let flags = AddressFlags::Permanent;
    Address { ifindex, cidr, peer: cidr.address(), flags, refreshed: false }
}

/// The announcer of an active router that knows link 3, which is up.
fn announcer(tables: &mut Tables) -> Announcer<'_> {
    announcer_with(AnnounceTiming::default(), tables)
}

fn announcer_with(timing: AnnounceTiming, tables: &mut Tables) -> Announcer<'_> {
    let mut announcer = Announcer::new(timing, tables);
    announcer.links_begin();
    announcer.handle_link(&link(3, UP));
    announcer.links_end();
    announcer.handle_role(true, None, Instant::ZERO);
    announcer
}

/// Has the announcer send its next frame.
fn send(announcer: &mut Announcer<'_>, now: Instant) -> Announcement {
    let announcement = announcer.next(now).expect("a frame");
    announcer.advance(announcement.address, now);
    announcement
}

/// The next frame at a deadline, which lies ahead if there is none.
fn next(announcer: &mut Announcer<'_>, now: Instant) -> Option<Announcement> {
    let announcement = announcer.next(now);
    let is_ahead = announcer.deadline().is_none_or(|deadline| deadline > now);
    assert!(announcement.is_some() || is_ahead, "there is no frame, and the deadline did not move");
    announcement
}

/// Every frame until there is no deadline any more, with the millisecond in which it goes out.
fn frames(announcer: &mut Announcer<'_>, mut now: Instant) -> std::vec::Vec<(i64, FrameKind)> {
    let mut frames = std::vec::Vec::new();
    while let Some(deadline) = announcer.deadline() {
        now = now.max(deadline);
        if let Some(announcement) = next(announcer, now) {
            frames.push((now.total_millis(), announcement.kind));
            announcer.advance(announcement.address, now);
        }
    }
    frames
}

fn ipv4(ip: &str) -> [FrameKind; 2] {
    let ip = ip.parse().unwrap();
    [FrameKind::ArpRequest(ip), FrameKind::ArpReply(ip)]
}

#[test]
fn ipv4_address_has_three_rounds_of_request_and_reply() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
    let [request, reply] = ipv4("10.0.0.1");
    let expected =
        [(0, request), (0, reply), (2000, request), (2000, reply), (4000, request), (4000, reply)];
    assert_eq!(frames(&mut announcer, Instant::ZERO), expected);
}

#[test]
fn no_announcements_where_they_make_no_sense() {
    for flags in [LinkFlags::Loopback, LinkFlags::Pointopoint, LinkFlags::Noarp] {
        let mut tables = Tables::new();
        let mut announcer = announcer(&mut tables);
        announcer.handle_link(&link(3, UP | flags));
        announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
        assert_eq!(frames(&mut announcer, Instant::ZERO), [], "{flags:?}");
    }
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.handle_link(&Link { ethernet: false, mac: None, ..link(4, UP) });
    announcer.handle_address(&address(4, "10.0.0.1/24"), false, Instant::ZERO);
    announcer.handle_address(&address(5, "10.0.0.1/24"), false, Instant::ZERO);
    for cidr in ["127.0.0.1/8", "::1/128", "224.0.0.1/4", "ff02::1/16", "0.0.0.0/0", "::/0"] {
        announcer.handle_address(&address(3, cidr), false, Instant::ZERO);
    }
    assert_eq!(frames(&mut announcer, Instant::ZERO), []);
}

#[test]
fn refreshed_address_is_no_new_one() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    let refreshed = Address { refreshed: true, ..address(3, "10.0.0.1/24") };
    announcer.handle_address(&refreshed, false, Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO), []);
    // Nor are the rounds of one repeated.
    announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
    send(&mut announcer, Instant::ZERO);
    announcer.handle_address(&refreshed, false, Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 5);
}

#[test]
fn link_that_comes_up_or_changes_its_mac_has_its_addresses_listed_and_announced() {
    let other = Link { mac: Some([2, 0, 0, 0, 0, 9]), ..link(3, UP) };
    let blinked = Link { carrier_changes: Some(2), ..link(3, UP) };
    for changes in [vec![link(3, LinkFlags::Up), link(3, UP)], vec![other], vec![blinked]] {
        let mut tables = Tables::new();
        let mut announcer = announcer(&mut tables);
        assert!(!announcer.needs_dump());
        for change in &changes {
            announcer.handle_link(change);
        }
        assert_eq!(announcer.listing_begin(), Some(3));
        let old = Address { refreshed: true, ..address(3, "10.0.0.1/24") };
        announcer.handle_address(&old, true, Instant::ZERO);
        announcer.listing_end(3, true);
        assert!(!announcer.needs_dump());
        assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 6);
    }
}

#[test]
fn link_is_as_it_was_in_what_a_wireless_event_does_not_mention() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    let wireless = Link { mac: None, carrier_changes: None, ipv6_forwarding: None, ..link(3, UP) };
    announcer.handle_link(&wireless);
    announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
    announcer.handle_link(&wireless);
    assert!(!announcer.needs_dump(), "the carrier has not changed");
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 6);
    // Of an unknown link it does not tell enough.
    announcer.handle_link(&Link { ifindex: 4, ..wireless });
    announcer.handle_address(&address(4, "10.0.0.1/24"), false, Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO), []);
}

#[test]
fn as_many_as_there_is_room_for_are_all_announced_in_time() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(&mut tables);
    for n in 0..=4096 {
        announcer.handle_address(
            &address(3, &format!("10.{}.{}.1/32", n / 256, n % 256)),
            false,
            Instant::ZERO,
        );
    }
    assert_eq!(announcer.dropped, 1, "4,096 and no more");
    let frames = frames(&mut announcer, Instant::ZERO);
    assert_eq!(frames.len(), 4096 * 6);
    let mut times = std::collections::HashMap::<Ipv4Addr, std::vec::Vec<i64>>::new();
    for (time, kind) in &frames {
        if let FrameKind::ArpRequest(ip) = kind {
            times.entry(*ip).or_default().push(*time);
        }
    }
    assert_eq!(times.len(), 4096);
    for rounds in times.values() {
        assert!(
            rounds.len() == 3 && rounds[1] - rounds[0] >= 2000 && rounds[2] - rounds[1] >= 2000
        );
    }
    let per_second = |second| frames.iter().filter(|(time, _)| time / 1000 == second).count();
    assert!((0..12).all(|second| per_second(second) <= 2 * 1001), "1,000 addresses a second");
}

#[test]
fn links_beyond_the_table_are_counted() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(&mut tables);
    for ifindex in 4..=1027 {
        announcer.handle_link(&link(ifindex, UP));
    }
    assert_eq!((announcer.ignored_links, announcer.dropped), (1, 0));
    announcer.links_begin();
    assert_eq!(announcer.ignored_links, 0, "not to be counted twice");
}

#[test]
fn loss_during_a_dump_of_all_links_is_made_good_by_the_next() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.links_begin();
    announcer.handle_link(&link(3, UP));
    announcer.handle_loss();
    announcer.links_end();
    assert!(!announcer.needs_dump(), "it was answered before");
    announcer.links_begin();
    announcer.handle_link(&link(3, UP));
    announcer.handle_link(&link(4, UP));
    announcer.links_end();
    for ifindex in [3, 4] {
        assert_eq!(announcer.listing_begin(), Some(ifindex));
        announcer.listing_end(ifindex, true);
    }
}

#[test]
fn addresses_take_turns_even_without_a_delay() {
    let mut tables = Tables::new();
    let timing = AnnounceTiming { delay: Duration::ZERO, ..AnnounceTiming::default() };
    let mut announcer = announcer_with(timing, &mut tables);
    for cidr in ["10.0.0.1/24", "10.0.0.2/24"] {
        announcer.handle_address(&address(3, cidr), false, Instant::ZERO);
    }
    let frames = frames(&mut announcer, Instant::ZERO);
    let kinds: std::vec::Vec<FrameKind> = frames.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [ipv4("10.0.0.1"), ipv4("10.0.0.2")].concat().repeat(3));
}

#[test]
fn as_many_rounds_as_asked_for() {
    for repeat in [1, 127, 128, 255] {
        let mut tables = Tables::new();
        let mut announcer = announcer_with(
            AnnounceTiming { repeat: repeat.try_into().unwrap(), ..AnnounceTiming::default() },
            &mut tables,
        );
        announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
        let [request, reply] = ipv4("10.0.0.1");
        let frames = frames(&mut announcer, Instant::ZERO);
        let kinds: std::vec::Vec<FrameKind> = frames.iter().map(|(_, kind)| *kind).collect();
        assert_eq!(kinds, [request, reply].repeat(repeat.into()));
        assert!(announcer.tables.entries.is_empty());
    }
}

#[test]
fn one_address_with_two_prefixes_or_peers_is_two() {
    let plain = address(3, "10.0.0.1/24");
    let with_peer = Address { peer: "10.9.0.1".parse().unwrap(), ..plain };
    for other in [address(3, "10.0.0.1/32"), with_peer] {
        for (removed, kept) in [(plain, other), (other, plain)] {
            let mut tables = Tables::new();
            let mut announcer = announcer(&mut tables);
            announcer.handle_address(&removed, false, Instant::ZERO);
            announcer.handle_address(&kept, false, Instant::ZERO);
            announcer.handle_address_gone(&removed);
            let frames = frames(&mut announcer, Instant::ZERO);
            assert_eq!(frames.len(), 6, "{kept:?} is still there");
        }
    }
}

#[test]
fn rounds_go_on_when_only_the_mac_of_the_watched_interface_changes() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
    send(&mut announcer, Instant::ZERO);
    announcer.handle_role(true, Some([0, 0, 0x5e, 0, 1, 5]), Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 5);
}
