use core::net::Ipv4Addr;
use core::num::NonZeroU8;

use netlink_packet_route::link::LinkFlags;

use super::*;
use crate::errno::Errno;
use crate::monitor::{Action, Duration};
use crate::wire::ifname::InterfaceName;
use crate::wire::rtnl::Link;

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

/// Returns the announcer of an active router that has listed link 3, which is up.
fn announcer(timing: AnnounceTiming, tables: &mut Tables) -> Announcer<'_> {
    let mut announcer = Announcer::new(timing, tables, true);
    assert!(announcer.handle_role(true, None, Instant::ZERO), "everything is listed");
    list(&mut announcer, &[]);
    announcer
}

fn list(announcer: &mut Announcer<'_>, addresses: &[Address]) {
    list_at(announcer, addresses, Instant::ZERO);
}

/// Lists link 3, and all addresses.
fn list_at(announcer: &mut Announcer<'_>, addresses: &[Address], now: Instant) {
    let journal = &mut Journal::default();
    announcer.begin_links();
    announcer.handle_link_entry(&Body::NewLink(link(UP, true)));
    announcer.end_links(Answer::Complete, journal, now);
    for address in addresses {
        announcer.handle_address_entry(address, None, journal, now);
    }
    announcer.end_addresses(Answer::Complete, now);
    announcer.handle_queue_empty(journal, now);
}

/// Handles an event.
fn handle(announcer: &mut Announcer<'_>, body: &Body) {
    announcer.handle_event(body, &mut Journal::default(), Instant::ZERO);
}

fn add(announcer: &mut Announcer<'_>, cidr: &str) {
    handle(announcer, &Body::NewAddress(address(cidr)));
}

fn address(cidr: &str) -> Address {
    let cidr: crate::wire::cidr::Cidr = cidr.parse().unwrap();
    let flags = AddressFlags::Permanent;
    Address { ifindex: 3, cidr, peer: cidr.address(), flags, created: 0, refreshed: false }
}

/// Sends all frames, and reads events at each deadline. Returns the frames, each with its millisecond.
fn frames(announcer: &mut Announcer<'_>) -> std::vec::Vec<(i64, FrameKind)> {
    let (mut frames, mut now) = (std::vec::Vec::new(), Instant::ZERO);
    while let Some(deadline) = announcer.deadline() {
        now = now.max(deadline);
        announcer.handle_queue_empty(&mut Journal::default(), now);
        frames.extend(frames_at(announcer, now).into_iter().map(|kind| (now.total_millis(), kind)));
    }
    frames
}

/// Sends the frames that are due.
fn frames_at(announcer: &mut Announcer<'_>, now: Instant) -> std::vec::Vec<FrameKind> {
    let mut frames = std::vec::Vec::new();
    while let Some(Action::SendFrame(announcement)) = announcer.next_action(now) {
        frames.push(announcement.kind);
        announcer.advance(announcement.address, now);
    }
    frames
}

fn round(ip: &str) -> [FrameKind; 2] {
    let ip = ip.parse().unwrap();
    [FrameKind::ArpRequest(ip), FrameKind::ArpReply(ip)]
}

/// The event about its deletion was lost.
#[test]
fn link_that_an_answer_does_not_list_gets_no_announcements() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    add(&mut announcer, "10.0.0.1/24");
    assert!(announcer.deadline().is_some());
    announcer.begin_links();
    announcer.end_links(Answer::Complete, &mut Journal::default(), Instant::ZERO);
    assert_eq!(frames(&mut announcer), []);
}

/// Its deletion may be the next event.
#[test]
fn listed_address_waits_for_an_empty_queue() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let (journal, now) = (&mut Journal::default(), Instant::ZERO);
    for is_deleted in [true, false] {
        announcer.handle_role(false, None, now);
        announcer.handle_role(true, None, now);
        announcer.begin_links();
        announcer.handle_link_entry(&Body::NewLink(link(UP, true)));
        announcer.end_links(Answer::Complete, journal, now);
        announcer.handle_queue_empty(journal, now);
        announcer.handle_address_entry(&address("10.0.0.1/24"), None, journal, now);
        announcer.end_addresses(Answer::Interrupted, now);
        assert_eq!(announcer.next_action(now), None);
        if is_deleted {
            handle(&mut announcer, &Body::DelAddress(address("10.0.0.1/24")));
        }
        announcer.handle_queue_empty(journal, now);
        let is_sent = matches!(announcer.next_action(now), Some(Action::SendFrame(_)));
        assert_eq!(is_sent, !is_deleted, "an answer with gaps shows what is there");
    }
}

/// So a takeover lists only addresses, and sends with the MAC that the link has got meanwhile.
#[test]
fn backup_keeps_the_links_by_events_and_no_address() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let (journal, now) = (&mut Journal::default(), Instant::ZERO);
    add(&mut announcer, "10.0.0.1/24");
    announcer.handle_role(false, None, now);
    add(&mut announcer, "10.0.0.2/24");
    assert!(announcer.tables.entries.is_empty());
    let mac = [2, 0, 0, 0, 0, 9];
    handle(&mut announcer, &Body::NewLink(Link { mac: Some(mac), ..link(UP, true) }));
    assert_eq!((announcer.deadline(), announcer.wanted_link()), (None, None));

    assert!(announcer.handle_role(true, None, now) && !announcer.links_missing);
    announcer.begin_addresses();
    announcer.handle_address_entry(&address("10.0.0.3/24"), None, journal, now);
    announcer.end_addresses(Answer::Complete, now);
    announcer.handle_queue_empty(journal, now);
    let Some(Action::SendFrame(announcement)) = announcer.next_action(now) else {
        panic!("nothing is announced")
    };
    assert_eq!(announcement.mac, mac);
}

#[test]
fn takeover_lists_the_links_after_a_loss_of_events_or_with_a_full_table() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let takes_over_with_links = |announcer: &mut Announcer<'_>| {
        announcer.handle_role(false, None, Instant::ZERO);
        assert!(announcer.handle_role(true, None, Instant::ZERO));
        !announcer.links_missing
    };
    assert!(takes_over_with_links(&mut announcer));
    announcer.handle_loss();
    assert!(!takes_over_with_links(&mut announcer), "an event may be lost");
    list(&mut announcer, &[]);
    assert!(takes_over_with_links(&mut announcer));
    announcer.handle_role(false, None, Instant::ZERO);
    for ifindex in 4..1100 {
        handle(&mut announcer, &Body::NewLink(Link { ifindex, ..link(UP, true) }));
    }
    handle(&mut announcer, &Body::DelLink(link(UP, true)));
    assert!(!takes_over_with_links(&mut announcer), "a link had no room");
    assert!(announcer.tables.links.get(3).is_none(), "its room is free");
}

#[test]
fn full_table_of_addresses_is_announced_at_once_and_by_rounds() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    for n in 0..4096 {
        add(&mut announcer, &format!("10.{}.{}.1/32", n / 256, n % 256));
    }
    let frames = frames(&mut announcer);
    let mut times = std::collections::HashMap::<Ipv4Addr, std::vec::Vec<i64>>::new();
    for (time, kind) in &frames {
        if let FrameKind::ArpRequest(ip) = kind {
            times.entry(*ip).or_default().push(*time);
        }
    }
    assert_eq!((times.len(), frames.len()), (4096, 4096 * 6));
    assert!(times.values().all(|rounds| *rounds == [0, 2000, 4000]));
}

/// The node's own link-local addresses may be hundreds.
#[test]
fn first_rounds_come_first_and_link_local_addresses_last() {
    let mut tables = Box::new(Tables::new());
    let timing = AnnounceTiming { delay: Duration::ZERO, ..AnnounceTiming::default() };
    let mut announcer = announcer(timing, &mut tables);
    for cidr in ["fe80::1/64", "fd00::1/64", "fe80::2/64", "fd00::2/64"] {
        add(&mut announcer, cidr);
    }
    let frames = frames(&mut announcer);
    let ips = frames.iter().map(|(_, kind)| match kind {
        FrameKind::Advertisement { ip, .. } => ip.to_string(),
        kind => panic!("{kind:?}"),
    });
    let ips: std::vec::Vec<_> = ips.collect();
    assert_eq!(ips[..4], ["fd00::1", "fd00::2", "fe80::1", "fe80::2"]);
    assert_eq!(ips.len(), 12);
}

/// Late timers and long polls cost no time, but a stop of the process is no reason for a burst.
#[test]
fn interval_is_kept_on_average() {
    for (lateness, last) in [(0, 99), (2, 99), (500, 49_500)] {
        let mut tables = Box::new(Tables::new());
        let (interval, repeat) = (Duration::from_millis(1), NonZeroU8::MIN);
        let mut announcer = announcer(
            AnnounceTiming { repeat, interval, ..AnnounceTiming::default() },
            &mut tables,
        );
        (0..100).for_each(|n| add(&mut announcer, &format!("fd00::{n}/64")));
        let (mut now, mut end) = (Instant::ZERO, 0);
        while let Some(deadline) = announcer.deadline() {
            if deadline > now {
                now = deadline + Duration::from_millis(lateness);
            }
            announcer.handle_queue_empty(&mut Journal::default(), now);
            while let Some(Action::SendFrame(announcement)) = announcer.next_action(now) {
                announcer.advance(announcement.address, now);
                end = now.total_millis();
            }
        }
        let late = i64::try_from(lateness).unwrap();
        assert!((last..=last + late + 1).contains(&end), "{lateness}: {end}");
    }
}

#[test]
fn burst_ends_with_a_look_at_the_events() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    (0..100).for_each(|n| add(&mut announcer, &format!("fd00::{n}/64")));
    for _ in 0..2 {
        assert_eq!(frames_at(&mut announcer, Instant::ZERO).len(), 32);
        announcer.handle_queue_empty(&mut Journal::default(), Instant::ZERO);
    }
}

/// Other links go on meanwhile. After a second the next round serves as retry.
#[test]
fn frame_waits_while_its_link_has_no_room() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let journal = &mut Journal::default();
    let other = Link { ifindex: 4, ..link(UP, true) };
    handle(&mut announcer, &Body::NewLink(other));
    add(&mut announcer, "fd00::1/64");
    handle(&mut announcer, &Body::NewAddress(Address { ifindex: 4, ..address("fd00::2/64") }));
    let (mut now, mut tries) = (Instant::ZERO, std::vec::Vec::new());
    while now < Instant::from_secs(2) {
        announcer.handle_queue_empty(journal, now);
        while let Some(Action::SendFrame(Announcement { address, .. })) = announcer.next_action(now)
        {
            let is_full = address.ifindex == 3;
            let result = if is_full { Err(Errno::TRY_AGAIN) } else { Ok(()) };
            announcer.handle_sent(address, result, journal, now);
            if is_full {
                tries.push(now.total_millis());
            } else {
                assert_eq!(now, Instant::ZERO);
            }
        }
        now = now.max(announcer.deadline().unwrap());
    }
    assert_eq!(tries[..9], [0, 1, 3, 7, 15, 31, 63, 127, 227]);
    assert_eq!((journal.counters.announcements, journal.counters.announcement_failures), (1, 1));
    let last = tries[tries.len() - 1];
    assert!((1000..1200).contains(&last), "{tries:?}");
}

/// Each link has a queue of its own, whose waits begin anew once it has taken a frame.
#[test]
fn room_in_a_queue_is_that_of_its_link() {
    let (mut tables, mut journal) = (Tables::new(), Journal::default());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let addresses = [3, 4].map(|ifindex| Address { ifindex, ..address("10.0.0.1/24") });
    let keys = addresses.each_ref().map(AddressKey::from);
    for key in keys {
        announcer.handle_sent(key, Err(Errno::TRY_AGAIN), &mut journal, Instant::ZERO);
    }
    for (key, left) in keys.into_iter().zip([1, 0]) {
        assert_eq!(announcer.blocked.len(), left + 1);
        announcer.handle_sent(key, Ok(()), &mut journal, Instant::from_millis(3));
        assert_eq!(announcer.blocked.len(), left);
    }
}

#[test]
fn link_without_room_for_a_second_costs_a_round() {
    for (at, failures) in [(999, 0), (1000, 1)] {
        let (mut tables, mut journal) = (Tables::new(), Journal::default());
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        add(&mut announcer, "fd00::1/64");
        let key = AddressKey::from(&address("fd00::1/64"));
        for now in [0, at].map(Instant::from_millis) {
            announcer.handle_sent(key, Err(Errno::TRY_AGAIN), &mut journal, now);
        }
        assert_eq!(journal.counters.announcement_failures, failures, "{at}");
    }
}

/// A second after it should have been tried again, a queue may have emptied and filled meanwhile.
#[test]
fn queue_without_room_is_known_for_a_second() {
    for (at, known) in [(1000, 1), (1001, 0)] {
        let (mut tables, mut journal) = (Tables::new(), Journal::default());
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        add(&mut announcer, "fd00::1/64");
        let other = Address { ifindex: 4, ..address("fd00::1/64") };
        let full = Err(Errno::TRY_AGAIN);
        announcer.handle_sent(AddressKey::from(&other), full, &mut journal, Instant::ZERO);
        let now = Instant::from_millis(at);
        announcer.handle_queue_empty(&mut journal, now);
        assert_eq!(frames_at(&mut announcer, now).len(), 1);
        assert_eq!(announcer.blocked.len(), known, "{at}");
    }
}

#[test]
fn frame_that_is_a_tenth_of_a_second_late_delays_no_other() {
    for (late, base) in [(100, 0), (101, 101)] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        add(&mut announcer, "fd00::1/64");
        let key = AddressKey::from(&address("fd00::1/64"));
        announcer.advance(key, Instant::from_millis(late));
        let expected = Instant::from_millis(base) + announcer.timing.interval;
        assert_eq!(announcer.not_before, expected, "{late}");
    }
}

#[test]
fn another_round_is_due_once_nothing_is_listed() {
    let mut tables = Tables::new();
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    assert!(frames(&mut announcer).is_empty());
    let now = Instant::from_secs(5);
    announcer.announce_again(None, now);
    assert_eq!(announcer.deadline(), Some(now));
    announcer.addresses_missing = true;
    assert_eq!(announcer.deadline(), None);
}

/// What was known of links may be outdated at the next takeover.
#[test]
fn backup_wants_no_link() {
    let flapped = Link { carrier_changes: Some(2), ..link(UP, true) };
    for has_links in [true, false] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        handle(&mut announcer, &Body::NewLink(flapped.clone()));
        assert_eq!(announcer.tables.links.relisted(None), Some(3));
        announcer.has_links = has_links;
        announcer.handle_role(false, None, Instant::ZERO);
        assert_eq!(announcer.tables.links.relisted(None), None);
        assert_eq!(announcer.tables.links.get(3).is_some(), has_links);
    }
}

/// A link that is full for longer than a round takes has its patience in each.
#[test]
fn each_round_waits_for_room_anew() {
    let (mut tables, mut journal) = (Tables::new(), Journal::default());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    for last in 1..=5 {
        add(&mut announcer, &format!("10.0.0.{last}/24"));
    }
    let (mut now, room) = (Instant::ZERO, Instant::from_millis(5400));
    let mut sent = std::vec::Vec::new();
    while let Some(due) = announcer.deadline() {
        now = now.max(due);
        announcer.handle_queue_empty(&mut journal, now);
        while let Some(Action::SendFrame(frame)) = announcer.next_action(now) {
            // The link takes a request and a reply.
            let is_full = sent.len() >= 2 && now < room;
            let result = if is_full { Err(Errno::TRY_AGAIN) } else { Ok(()) };
            announcer.handle_sent(frame.address, result, &mut journal, now);
            sent.extend(result.is_ok().then_some(frame.address.ip));
        }
    }
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), 5, "{sent:?}");
}

#[test]
fn addresses_take_turns_for_the_configured_rounds() {
    for repeat in [1, 127, 128, 255] {
        let mut tables = Tables::new();
        let repeat = NonZeroU8::new(repeat).unwrap();
        let timing = AnnounceTiming { repeat, delay: Duration::ZERO, ..AnnounceTiming::default() };
        let mut announcer = announcer(timing, &mut tables);
        for cidr in ["10.0.0.1/24", "10.0.0.2/24"] {
            add(&mut announcer, cidr);
        }
        let kinds: std::vec::Vec<_> = frames(&mut announcer).iter().map(|frame| frame.1).collect();
        let turn = [round("10.0.0.1"), round("10.0.0.2")].concat();
        assert_eq!(kinds, turn.repeat(repeat.get().into()));
        assert!(announcer.tables.entries.iter().all(|entry| entry.progress == Progress::Done));
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
            for event in
                [Body::NewAddress(removed), Body::NewAddress(kept), Body::DelAddress(removed)]
            {
                handle(&mut announcer, &event);
            }
            assert_eq!(frames(&mut announcer).len(), 6, "{kept:?} is still there");
        }
    }
}

/// Each round is of what is there then.
#[test]
fn on_the_watched_link_announcements_come_only_after_a_split_brain() {
    let mut tables = Tables::new();
    let mut announcer = Announcer::new(AnnounceTiming::default(), &mut tables, false);
    assert!(!announcer.handle_role(true, None, Instant::ZERO), "nothing is announced");
    announcer.handle_watched(Some(3));
    add(&mut announcer, "10.0.0.1/24");
    list(&mut announcer, &[address("10.0.0.1/24")]);
    assert!(frames(&mut announcer).is_empty());
    announcer.announce_again(None, Instant::ZERO);
    for (round, expected) in [2, 4, 0, 0].into_iter().enumerate() {
        let now = Instant::from_secs(2 * i64::try_from(round).unwrap());
        assert_eq!(announcer.start_round(now), round < 3);
        let there = [address("10.0.0.1/24"), address("10.0.0.2/24")];
        list_at(&mut announcer, &there[..expected / 2], now);
        assert_eq!(frames_at(&mut announcer, now).len(), expected, "round {round}");
        assert!(!announcer.start_round(now), "the next round comes later");
    }
    assert_eq!(announcer.deadline(), None);
}

/// Only those of the watched interface may be the other station's now, unless nothing else is announced.
#[test]
fn end_of_a_round_leaves_what_has_changed_elsewhere() {
    for (announces, watched, left) in [(true, 4, true), (true, 3, false), (false, 4, false)] {
        let mut tables = Tables::new();
        let mut announcer = Announcer::new(AnnounceTiming::default(), &mut tables, announces);
        announcer.handle_role(true, None, Instant::ZERO);
        announcer.handle_watched(Some(watched));
        list(&mut announcer, &[]);
        announcer.announce_again(None, Instant::ZERO);
        assert!(announcer.start_round(Instant::ZERO));
        list(&mut announcer, &[address("10.0.0.1/24")]);
        announcer.stop();
        assert_eq!(!frames(&mut announcer).is_empty(), left, "{announces}, {watched}");
    }
}

/// Its list had gaps, and is asked for again.
#[test]
fn end_of_a_round_ends_its_list() {
    let mut tables = Tables::new();
    let mut announcer = Announcer::new(AnnounceTiming::default(), &mut tables, false);
    announcer.handle_role(true, None, Instant::ZERO);
    list(&mut announcer, &[]);
    announcer.announce_again(None, Instant::ZERO);
    assert!(announcer.start_round(Instant::ZERO));
    announcer.end_addresses(Answer::Interrupted, Instant::ZERO);
    announcer.stop();
    list(&mut announcer, &[address("10.0.0.1/24")]);
    assert_eq!(frames(&mut announcer), []);
}

/// Each segment has its own instances, with the same numbers.
#[test]
fn virtual_mac_is_announced_by_its_own_instance() {
    let vrid = [1, 5];
    for (watched, (ours, theirs), is_sent) in [
        (4, (Some(7), Some(7)), true),
        (4, (Some(7), Some(8)), false),
        // The links below are in other namespaces.
        (4, (None, None), false),
        (3, (None, None), true),
    ] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        announcer.handle_watched(Some(watched));
        announcer.handle_role(true, Some(Instance { vrid, parent: ours }), Instant::ZERO);
        let mac = Some([0, 0, 0x5e, 0, 1, 5]);
        let link = Link { mac, parent: theirs, ..link(UP, true) };
        handle(&mut announcer, &Body::NewLink(link));
        // keepalived announces the watched interface's otherwise.
        announcer.announce_again(None, Instant::ZERO);
        add(&mut announcer, "10.0.0.1/24");
        assert_eq!(
            !frames_at(&mut announcer, Instant::ZERO).is_empty(),
            is_sent,
            "{watched} {ours:?} {theirs:?}"
        );
    }
}

/// Each list is for its own purpose: what the loss has taken away is announced, and then the VIP.
#[test]
fn loss_of_events_beside_a_round_for_one_address() {
    let there = [address("10.0.0.1/24"), address("10.0.0.2/24")];
    for round_is_first in [true, false] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        let begin_round = |announcer: &mut Announcer<'_>| {
            announcer.announce_again(Some(AddressKey::from(&there[0])), Instant::ZERO);
            announcer.start_round(Instant::ZERO)
        };
        if round_is_first {
            assert!(begin_round(&mut announcer));
        }
        assert!(announcer.handle_loss(), "everything is listed");
        if !round_is_first {
            assert!(!begin_round(&mut announcer), "before the list has ended");
        }
        list(&mut announcer, &there);
        let sent: std::vec::Vec<_> = frames_at(&mut announcer, Instant::ZERO);
        for address in ["10.0.0.1", "10.0.0.2"] {
            assert!(round(address).iter().all(|frame| sent.contains(frame)), "{address}: {sent:?}");
        }
        assert!(announcer.start_round(Instant::ZERO));
    }
}

/// The loss has taken its links away.
#[test]
fn loss_of_events_during_a_round_has_it_listed_again() {
    let mut tables = Tables::new();
    let mut announcer = Announcer::new(AnnounceTiming::default(), &mut tables, false);
    assert!(!announcer.handle_role(true, None, Instant::ZERO), "nothing is announced");
    assert!(!announcer.handle_loss(), "nothing is announced");
    announcer.announce_again(None, Instant::ZERO);
    for round in 0..3 {
        let now = Instant::from_secs(2 * round);
        assert!(announcer.start_round(now), "round {round}");
        assert!(announcer.handle_loss(), "round {round}");
        list(&mut announcer, &[address("10.0.0.1/24")]);
        assert_eq!(
            frames_at(&mut announcer, Instant::ZERO),
            self::round("10.0.0.1"),
            "round {round}"
        );
    }
    assert!(!announcer.start_round(Instant::from_secs(6)));
}

#[test]
fn rounds_begin_again_only_for_new_addresses() {
    let new = address("10.0.0.1/24");
    let refreshed = Address { refreshed: true, ..new };
    let undecided = Address { flags: AddressFlags::Tentative, ..refreshed };
    for (events, expected) in [
        (&[new, refreshed][..], 6),
        (&[new, new], 6),
        (&[refreshed], 0),
        (&[new, undecided], 0),
        (&[undecided, refreshed], 6),
        (&[address("127.0.0.1/8")], 0),
        (&[address("224.0.0.1/32")], 0),
    ] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        for event in events {
            handle(&mut announcer, &Body::NewAddress(*event));
        }
        assert_eq!(frames(&mut announcer).len(), expected, "{events:?}");
    }
}

/// The kernel may report one change by two events, of which the second comes after the only round.
#[test]
fn second_event_of_a_change_is_no_new_address() {
    let mut tables = Tables::new();
    let timing = AnnounceTiming { repeat: NonZeroU8::MIN, ..AnnounceTiming::default() };
    let mut announcer = announcer(timing, &mut tables);
    for (seconds, expected) in [(0, 2), (1, 0), (3, 2)] {
        let now = Instant::from_secs(seconds);
        let event = Body::NewAddress(address("10.0.0.1/24"));
        announcer.handle_event(&event, &mut Journal::default(), now);
        assert_eq!(frames_at(&mut announcer, now).len(), expected, "after {seconds} s");
    }
}

/// Another answer follows one with gaps, and lists again what has been announced.
#[test]
fn address_that_is_listed_twice_is_announced_once() {
    let mut tables = Tables::new();
    let timing = AnnounceTiming { delay: Duration::ZERO, ..AnnounceTiming::default() };
    let mut announcer = announcer(timing, &mut tables);
    announcer.handle_loss();
    let (journal, now, mut sent) = (&mut Journal::default(), Instant::ZERO, 0);
    announcer.begin_links();
    announcer.handle_link_entry(&Body::NewLink(link(UP, true)));
    announcer.end_links(Answer::Complete, journal, now);
    for answer in [Answer::Interrupted, Answer::Complete] {
        announcer.begin_addresses();
        announcer.handle_address_entry(&address("10.0.0.1/24"), None, journal, now);
        announcer.end_addresses(answer, now);
        announcer.handle_queue_empty(journal, now);
        sent += frames(&mut announcer).len();
    }
    assert_eq!(sent, 6);
    assert!(announcer.tables.entries.iter().all(|entry| entry.progress == Progress::Done));
}

/// The addresses of a link that has come up are listed alone, and if they come in parts, again with all others.
#[test]
fn address_of_a_link_that_is_listed_twice_is_announced_once() {
    let mut tables = Tables::new();
    let timing = AnnounceTiming { delay: Duration::ZERO, ..AnnounceTiming::default() };
    let mut announcer = announcer(timing, &mut tables);
    handle(&mut announcer, &Body::NewLink(link(LinkFlags::empty(), true)));
    handle(&mut announcer, &Body::NewLink(link(UP, true)));
    let (journal, now, mut sent) = (&mut Journal::default(), Instant::ZERO, 0);
    for answer in [Answer::Interrupted, Answer::Complete] {
        // Other answers end meanwhile.
        announcer.end_addresses(Answer::Complete, now);
        announcer.begin_addresses();
        announcer.handle_address_entry(&address("10.0.0.1/24"), Some(3), journal, now);
        announcer.end_link(3, answer);
        announcer.handle_queue_empty(journal, now);
        sent += frames(&mut announcer).len();
    }
    assert_eq!(sent, 6);
    announcer.end_addresses(Answer::Complete, now);
    assert!(announcer.tables.entries.is_empty(), "it is forgotten after the last list");
}

/// The list of a round after a split brain gives each address one; a link that has come up gives its own all.
#[test]
fn link_that_comes_up_amid_a_round_gets_all_of_its_own() {
    let mut tables = Tables::new();
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    announcer.announce_again(None, Instant::ZERO);
    assert!(announcer.start_round(Instant::ZERO));
    for flags in [LinkFlags::empty(), UP] {
        handle(&mut announcer, &Body::NewLink(link(flags, true)));
    }
    let address = address("10.0.0.1/24");
    list(&mut announcer, &[address]);
    announcer.begin_addresses();
    announcer.handle_address_entry(&address, Some(3), &mut Journal::default(), Instant::ZERO);
    announcer.end_link(3, Answer::Complete);
    announcer.stop();
    assert_eq!(frames(&mut announcer).len(), 6);
}

/// The event about its carrier may come later, when it tells nothing new.
#[test]
fn link_that_is_listed_anew_has_its_addresses_listed() {
    for (active, announces_changes, links_missing, wanted) in [
        (true, true, false, Some(3)),
        (false, true, false, None),
        (true, false, false, None),
        (true, true, true, None),
    ] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        (announcer.active, announcer.announces_changes) = (active, announces_changes);
        announcer.links_missing = links_missing;
        announcer.begin_links();
        let flapped = Link { carrier_changes: Some(2), ..link(UP, true) };
        announcer.handle_link_entry(&Body::NewLink(flapped));
        assert_eq!(announcer.tables.links.relisted(None), wanted, "{active} {announces_changes}");
    }
}

#[test]
fn address_of_an_unknown_link_waits_for_the_list_of_links() {
    for links_missing in [true, false] {
        let mut tables = Tables::new();
        let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
        let address = Address { ifindex: 4, ..address("10.0.0.1/24") };
        announcer.links_missing = true;
        handle(&mut announcer, &Body::NewAddress(address));
        announcer.links_missing = links_missing;
        assert_eq!(frames_at(&mut announcer, Instant::ZERO), []);
        assert_eq!(!announcer.tables.entries.is_empty(), links_missing);
    }
}

#[test]
fn new_watched_interface_has_none() {
    let mut tables = Tables::new();
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    add(&mut announcer, "10.0.0.1/24");
    for (watched, is_announced) in [(4, true), (3, false)] {
        announcer.handle_watched(Some(watched));
        assert_eq!(!announcer.tables.entries.is_empty(), is_announced, "{watched}");
    }
}

/// Nor one from before a loss of events.
#[test]
fn answer_with_gaps_is_not_the_last() {
    let mut tables = Tables::new();
    let mut announcer = Announcer::new(AnnounceTiming::default(), &mut tables, true);
    announcer.handle_role(true, None, Instant::ZERO);
    announcer.begin_links();
    announcer.end_links(Answer::Complete, &mut Journal::default(), Instant::ZERO);
    for (has_loss, answer, is_listing) in [
        (false, Answer::Interrupted, true),
        (true, Answer::Complete, true),
        (false, Answer::Complete, false),
    ] {
        announcer.has_loss = has_loss;
        announcer.end_addresses(answer, Instant::ZERO);
        assert_eq!(announcer.is_listing(), is_listing, "{has_loss} {answer:?}");
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
        handle(&mut announcer, &Body::NewLink(link(flags, ethernet)));
        assert_eq!(announcer.wanted_link().is_some(), has_use, "{flags:?}");
        add(&mut announcer, "10.0.0.1/24");
        assert_eq!(!announcer.tables.entries.is_empty(), has_use, "{flags:?}");
    }
    handle(&mut announcer, &Body::NewLink(link(UP, true)));
    handle(&mut announcer, &Body::DelLink(link(UP, true)));
    add(&mut announcer, "10.0.0.1/24");
    assert!(announcer.tables.entries.is_empty());
}

/// The kernel may merge the events of the carrier's loss and return.
#[test]
fn addresses_are_listed_after_a_carrier_flap_in_one_event() {
    let mut tables = Box::new(Tables::new());
    let mut announcer = announcer(AnnounceTiming::default(), &mut tables);
    let flapped = Link { carrier_changes: Some(2), ..link(UP, true) };
    for (event, wanted) in [(link(UP, true), None), (flapped, Some(3))] {
        handle(&mut announcer, &Body::NewLink(event));
        assert_eq!(announcer.wanted_link(), wanted);
    }
    announcer.end_link(3, Answer::Complete);
    assert_eq!(announcer.wanted_link(), None);
}
