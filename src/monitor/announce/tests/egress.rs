//! Links that do not take frames.

use super::*;

/// An active router with an address on links 3 and 4.
fn with_two_links(tables: &mut Tables) -> Announcer<'_> {
    let mut announcer = announcer(tables);
    announcer.on_link(&link(4, UP));
    for ifindex in [3, 4] {
        announcer.on_address(&address(ifindex, "10.0.0.1/24"), Instant::ZERO);
    }
    announcer
}

/// Every frame with the second in which it goes out, if link 3 takes none, and how often that was tried.
fn frames_of_the_other(
    announcer: &mut Announcer<'_>,
    refusal: Sent,
) -> (Vec<(i64, FrameKind), 8>, u32) {
    let (mut frames, mut tries, mut failures) = (Vec::new(), 0, 0);
    let mut now = Instant::ZERO;
    while let Some(deadline) = announcer.deadline() {
        now = now.max(deadline);
        let Some(Announcement { address, kind, .. }) = next(announcer, now) else { continue };
        let sent = if address.ifindex == 3 { refusal } else { TAKEN };
        let failed = announcer.on_sent(address, sent, now);
        if address.ifindex == 3 {
            tries += 1;
            failures += u32::from(failed == InterfaceName::new(b"eth0").ok());
        } else {
            frames.push((now.total_millis(), kind)).unwrap();
        }
    }
    assert_eq!(failures, 6, "each of the frames has failed");
    (frames, tries)
}

#[test]
fn link_that_takes_no_frames_holds_up_no_other_and_comes_to_an_end() {
    for refusal in
        [Sent::Blocked, Sent::QueueFull, Sent::HeldBack { queued: 768 }, Sent::Failed(Errno(1))]
    {
        let mut tables = Tables::new();
        let mut announcer = with_two_links(&mut tables);
        let (frames, tries) = frames_of_the_other(&mut announcer, refusal);
        let [request, reply] = ipv4("10.0.0.1");
        let expected = [
            (0, request),
            (0, reply),
            (2000, request),
            (2000, reply),
            (4000, request),
            (4000, reply),
        ];
        let soon = |(sent, wanted): (&(i64, FrameKind), &(i64, FrameKind))| {
            sent.1 == wanted.1 && (wanted.0..wanted.0 + 10).contains(&sent.0)
        };
        assert!(frames.len() == 6 && frames.iter().zip(&expected).all(soon), "{frames:?}");
        assert!(tries <= 6 + 10, "{tries} tries");
        assert!(announcer.tables.entries.is_empty());
    }
}

#[test]
fn frame_that_could_not_be_sent_is_tried_again() {
    let mut tables = Tables::new();
    let mut announcer = announcer(&mut tables);
    announcer.on_address(&address(3, "10.0.0.1/24"), Instant::ZERO);
    announcer.on_address(&address(3, "10.0.0.2/24"), Instant::ZERO);
    let first = announcer.next(Instant::ZERO).expect("a frame");
    assert_eq!(announcer.on_sent(first.address, Sent::QueueFull, Instant::ZERO), None);
    assert_eq!(announcer.next(Instant::ZERO), None, "nor any other on this link");
    assert_eq!(announcer.deadline(), Some(Instant::from_millis(1)));
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 12);
}

#[test]
fn next_address_waits_for_the_interval_whoever_asks_earlier() {
    let mut tables = Tables::new();
    let mut announcer = with_two_links(&mut tables);
    let [first, reply] = [(); 2].map(|()| send(&mut announcer, Instant::ZERO).address);
    assert_eq!(first, reply);
    assert_eq!(announcer.next(Instant::ZERO), None);
    assert_ne!(send(&mut announcer, Instant::from_millis(1)).address, first);
}

#[test]
fn outcome_is_that_of_its_own_address() {
    let mut tables = Tables::new();
    let mut announcer = with_two_links(&mut tables);
    let first = announcer.next(Instant::ZERO).expect("a frame");
    announcer.on_address_gone(&address(first.address.ifindex, "10.0.0.1/24"));
    announcer.on_sent(first.address, TAKEN, Instant::ZERO);
    assert_eq!(frames(&mut announcer, Instant::ZERO).len(), 6, "all of the other");
}
