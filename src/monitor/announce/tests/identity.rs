//! Which address an event is about.

use super::*;

#[test]
fn one_address_with_two_prefixes_or_peers_is_two() {
    let plain = address(3, "10.0.0.1/24");
    let with_peer = Address { peer: "10.9.0.1".parse().unwrap(), ..plain };
    for other in [address(3, "10.0.0.1/32"), with_peer] {
        for (removed, kept) in [(plain, other), (other, plain)] {
            let mut tables = Tables::new();
            let mut announcer = announcer(&mut tables);
            announcer.on_address(&removed, Instant::ZERO);
            announcer.on_address(&kept, Instant::ZERO);
            announcer.on_address_gone(&removed);
            let frames = frames(&mut announcer, Instant::ZERO);
            assert_eq!(frames.len(), 6, "{kept:?} is still there");
        }
    }
}

#[test]
fn event_during_the_first_dump_is_for_its_own_address_alone() {
    let mut tables = Tables::new();
    let mut announcer = Announcer::new(AnnounceTiming::default(), &mut tables);
    announcer.links_begin();
    // Before its link is known, on one that is down, on none at all, and on what becomes the watched one.
    for ifindex in 3..=6 {
        announcer.on_address(&address(ifindex, "10.0.0.1/24"), Instant::ZERO);
    }
    let refreshed = Address { refreshed: true, ..address(3, "10.0.0.2/24") };
    announcer.on_address(&refreshed, Instant::ZERO);
    announcer.on_link(&Link { mac: None, ..link(3, UP) });
    announcer.on_link(&link(3, UP));
    announcer.on_link(&link(4, LinkFlags::Up));
    announcer.on_link_gone(6);
    announcer.links_end();
    assert!(!announcer.needs_dump(), "what was there before is not announced");
    announcer.on_role(true, None, Instant::ZERO);
    let frames = frames(&mut announcer, Instant::ZERO);
    let [request, reply] = ipv4("10.0.0.1");
    assert!(frames.len() == 6 && frames.iter().all(|(_, kind)| [request, reply].contains(kind)));
}
