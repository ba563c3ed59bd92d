//! Who may announce, and when.

use super::*;

#[test]
fn rounds_go_on_when_only_the_mac_of_the_watched_interface_changes() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.handle_address(&address(3, "10.0.0.1/24"), false, Instant::ZERO);
    send(&mut announcer, Instant::ZERO);
    announcer.handle_role(true, Some([0, 0, 0x5e, 0, 1, 5]), Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 5);
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
        announcer.handle_role(true, watched, Instant::ZERO);
        announcer.handle_link(&Link { mac: theirs, ..link(4, UP) });
        announcer.handle_address(&address(4, "10.0.0.1/24"), false, Instant::ZERO);
        let sent = frames(&mut announcer, Instant::ZERO).len();
        assert_eq!(sent, announced, "{watched:?} {theirs:?}");
        // Were it to become ours, what waits is announced.
        announcer.handle_role(true, theirs, Instant::from_secs(60));
        assert_eq!(frames(&mut announcer, Instant::from_secs(60)).len(), 6 - sent);
    }
}
