//! Who may announce, and when.

use super::*;

#[test]
fn backup_is_silent_until_it_is_the_active_router() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.on_role(false, None, Instant::ZERO);
    for cidr in ["10.0.0.1/24", "10.0.0.2/24", "fd00::1/64"] {
        announcer.on_address(&address(3, cidr), Instant::ZERO);
    }
    announcer.on_address_gone(&address(3, "10.0.0.2/24"));
    assert_eq!(announcer.deadline(), None, "nothing wakes a backup");
    assert_eq!(announcer.next(Instant::from_secs(1)), None);
    announcer.on_role(true, None, Instant::from_secs(1));
    let [request, reply] = ipv4("10.0.0.1");
    let frames = frames(&mut announcer, Instant::from_secs(1));
    let of = |wanted: FrameKind| frames.iter().filter(|(_, kind)| *kind == wanted).count();
    assert_eq!((frames.len(), of(request), of(reply)), (9, 3, 3));
    assert_eq!(frames[0].0, 1000, "at once");
}

#[test]
fn rounds_that_were_cut_off_are_begun_anew_and_complete_ones_are_not() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.on_address(&address(3, "10.0.0.1/24"), Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 6);
    let now = Instant::from_secs(10);
    announcer.on_address(&address(3, "10.0.0.2/24"), now);
    // Between a request and its reply.
    send(&mut announcer, now);
    announcer.on_role(false, None, now);
    assert_eq!((announcer.next(now), announcer.deadline()), (None, None));
    announcer.on_role(true, None, now);
    let [request, reply] = ipv4("10.0.0.2");
    let frames = frames(&mut announcer, now);
    let kinds: std::vec::Vec<FrameKind> = frames.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [request, reply, request, reply, request, reply]);
}

#[test]
fn rounds_go_on_when_only_the_mac_of_the_watched_interface_changes() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.on_address(&address(3, "10.0.0.1/24"), Instant::ZERO);
    send(&mut announcer, Instant::ZERO);
    announcer.on_role(true, Some([0, 0, 0x5e, 0, 1, 5]), Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 5);
}

#[test]
fn detection_goes_on_on_a_backup() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.on_role(false, None, Instant::ZERO);
    for (ip, end) in [
        ("fd00::1/64", AddressFlags::Permanent),
        ("fd00::2/64", AddressFlags::Dadfailed),
        ("fd00::3/64", AddressFlags::Tentative),
    ] {
        let address = address(3, ip);
        announcer.on_address(&Address { flags: AddressFlags::Tentative, ..address }, Instant::ZERO);
        announcer.on_address(&Address { flags: end, ..address }, Instant::ZERO);
    }
    announcer.on_role(true, None, Instant::ZERO);
    let kind = FrameKind::Advertisement { ip: "fd00::1".parse().unwrap(), router: true };
    let frames = frames(&mut announcer, Instant::ZERO);
    assert!(frames.len() == 3 && frames.iter().all(|(_, sent)| *sent == kind), "{frames:?}");
}

#[test]
fn virtual_mac_of_another_vrrp_instance_is_not_announced_with() {
    let virtual_mac = |family, instance| Some([0x00, 0x00, 0x5e, 0x00, family, instance]);
    for (watched, theirs, announced) in [
        (None, virtual_mac(1, 51), 6),
        (Some(MAC), virtual_mac(2, 51), 6),
        (virtual_mac(1, 51), virtual_mac(1, 51), 6),
        (virtual_mac(1, 51), virtual_mac(2, 51), 6),
        (virtual_mac(1, 51), Some(MAC), 6),
        (virtual_mac(1, 51), virtual_mac(1, 52), 0),
        (virtual_mac(2, 51), virtual_mac(1, 52), 0),
    ] {
        let mut tables = Tables::new();
        let mut announcer = announcer(&mut tables);
        announcer.on_role(true, watched, Instant::ZERO);
        announcer.on_link(&Link { mac: theirs, ..link(4, UP) });
        announcer.on_address(&address(4, "10.0.0.1/24"), Instant::ZERO);
        let sent = frames(&mut announcer, Instant::ZERO).len();
        assert_eq!(sent, announced, "{watched:?} {theirs:?}");
        // Were it to become ours, what waits is announced.
        announcer.on_role(true, theirs, Instant::from_secs(60));
        assert_eq!(frames(&mut announcer, Instant::from_secs(60)).len(), 6 - sent);
    }
}
