//! What is asked, when, and what an answer changes.

use std::net::{IpAddr, Ipv4Addr};

use keepwatch::monitor::{
    Action, Answer, Control, Duration, Input, LimitedEvent, LogEvent, MonitorConfig, Question,
    State, Tables, Trouble, Troubles,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Address, Body, Link};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::{ALL, LINK, Lab, WATCHED, WATCHED_QUESTIONS, announcing, down, elsewhere, vip};
use crate::world::config;
use crate::world::kernel::{QUEUE, address, link, name};

#[test]
fn state_waits_for_no_more_than_the_watched_interface() {
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(config()) };
    lab.feed(&Input::QueueEmpty);
    assert_eq!((lab.questions(), lab.written()), (WATCHED_QUESTIONS.to_vec(), vec![]));
    lab.feed(&Input::QueueEmpty);
    assert_eq!(lab.written(), [State::Active], "the events before the answer are read");
    assert_eq!(lab.questions().last(), Some(&ALL));
}

/// The answer is of the time before the loss.
#[test]
fn loss_takes_away_an_answer() {
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(config()) };
    lab.feed(&Input::QueueEmpty);
    lab.feed(&Input::Overrun);
    lab.addresses.clear();
    lab.feed(&Input::QueueEmpty);
    assert_eq!(lab.written(), []);
    lab.feed(&Input::QueueEmpty);
    assert_eq!(lab.written(), [State::Backup]);
}

#[test]
fn storm_of_events_does_not_hold_up_an_answer() {
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(config()) };
    lab.feed(&Input::QueueEmpty);
    for _ in 0..QUEUE {
        assert_eq!(lab.written(), []);
        lab.event(Body::NewLink(link(LINK, "lan")));
    }
    assert_eq!(lab.written(), [State::Active], "all events of before the answer have been read");
}

/// An answer about one interface in several parts has no flag, so only an answer about all shows an absence.
#[test]
fn gap_proves_no_absence() {
    for is_there in [false, true] {
        let addresses = if is_there { vec![vip()] } else { vec![] };
        let mut lab = Lab::new(config());
        lab.monitor.handle(&Input::QueueEmpty, lab.now);
        for entries in [vec![Body::NewLink(link(WATCHED, "ha"))], vec![]] {
            let asked = lab.monitor.next_action(lab.now);
            let Some(Action::Ask(question)) = asked else { panic!("{asked:?}") };
            let is_second = question != Question::Interface;
            let end = if is_second { Answer::Interrupted } else { Answer::Complete };
            for input in entries.into_iter().map(Input::Entry).chain([Input::Answered(end)]) {
                lab.monitor.handle(&input, lab.now);
            }
        }
        lab.addresses = addresses;
        lab.feed(&Input::QueueEmpty);
        assert_eq!((lab.questions(), lab.written()), (vec![ALL], vec![]));
        lab.feed(&Input::QueueEmpty);
        let expected = if is_there { State::Active } else { State::Backup };
        assert_eq!(lab.written(), [expected]);
    }
}

#[test]
fn overrun_among_a_thousand_links_costs_four_questions() {
    let mut tables = Box::new(Tables::new());
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(announcing(&mut tables)) };
    for ifindex in 10..1010 {
        lab.links.push(link(ifindex, "lan"));
        let cidr = Cidr::new(Ipv4Addr::from_bits(0x0a00_0000 + ifindex).into(), 24);
        lab.addresses.push(address(ifindex, cidr.expect("one"), AddressFlags::Permanent));
    }
    let mut lab = lab.started();
    lab.feed(&Input::Overrun);
    lab.pass(Duration::from_secs(10));
    let [interface, own] = WATCHED_QUESTIONS;
    assert_eq!(lab.questions(), [interface, own, Question::Links, ALL]);
}

/// The other link loses its carrier, and gets it back.
fn regain_carrier(lab: &mut Lab<'_>) {
    for body in [Link { flags: LinkFlags::Up, ..link(LINK, "lan") }, link(LINK, "lan")] {
        lab.event(Body::NewLink(body));
        lab.feed(&Input::QueueEmpty);
    }
}

/// The answer about all has an address that the divided one about the link has left out.
#[test]
fn address_that_an_answer_has_left_out_is_announced() {
    let mut tables = Tables::new();
    let mut lab = Lab::active(announcing(&mut tables));
    lab.divides = true;
    regain_carrier(&mut lab);
    lab.addresses.push(address(LINK, "10.0.0.1/24".parse().unwrap(), vip().flags));
    lab.pass(Duration::from_secs(10));
    assert!(lab.announced().contains(&IpAddr::from([10, 0, 0, 1])), "{:?}", lab.questions());
}

/// Each time once, as only an answer about all shows what that of a large link has left out. Its first round does not wait
/// for the second answer.
#[test]
fn large_link_that_comes_up_costs_two_questions() {
    let mut tables = Box::new(Tables::new());
    let mut lab = Lab { divides: true, ..Lab::active(announcing(&mut tables)) };
    let own = address(LINK, "10.1.0.1/24".parse().expect("one"), AddressFlags::Permanent);
    lab.addresses.push(own);
    for time in ["first", "second"] {
        lab.actions.clear();
        for flags in [LinkFlags::Up, lab.links[1].flags] {
            lab.event(Body::NewLink(Link { flags, ..lab.links[1].clone() }));
        }
        lab.pass(Duration::from_secs(60));
        assert_eq!(lab.questions(), [Question::Addresses { only: Some(LINK) }, ALL], "{time}");
        assert_eq!(lab.announced(), [own.cidr.address(); 6], "{time}");
    }
}

/// Otherwise the daemon would sleep until any other deadline.
#[test]
fn link_that_comes_up_again_is_announced_at_once() {
    let mut tables = Tables::new();
    let mut lab = Lab::active(announcing(&mut tables));
    lab.addresses.push(address(LINK, "10.0.0.1/24".parse().unwrap(), vip().flags));
    regain_carrier(&mut lab);
    assert!(lab.monitor.deadline().is_some_and(|due| due <= lab.now));
    lab.feed(&Input::QueueEmpty);
    assert_eq!(lab.announced()[0], IpAddr::from([10, 0, 0, 1]));
    // A carrier that was lost for a moment: its addresses are to be listed.
    lab.pass(Duration::from_secs(100));
    let flapped = Body::NewLink(Link { carrier_changes: Some(2), ..link(LINK, "lan") });
    lab.monitor.handle(&Input::Event(flapped), lab.now);
    assert!(lab.monitor.deadline().is_some_and(|due| due <= lab.now));
}

/// An answer lists it before its event comes.
#[test]
fn address_that_is_deleted_is_not_misplaced() {
    let mut lab = Lab { addresses: vec![vip(), elsewhere()], ..Lab::new(config()) }.started();
    lab.feed(&Input::Control(Control::Reload));
    lab.feed(&Input::QueueEmpty);
    lab.addresses.clear();
    lab.events([elsewhere(), vip()].map(Body::DelAddress).into_iter());
    lab.pass(Duration::from_secs(1));
    assert_eq!((lab.misplaced(), lab.monitor.status().troubles), (0, Troubles::default()));
}

/// As for a load balancer: on `lo`, and on a link without ARP or one that is down.
#[test]
fn address_that_is_rightly_elsewhere_is_not_misplaced() {
    let up = link(LINK, "lo").flags;
    for (flags, troubles) in [
        (up, 1),
        (up | LinkFlags::Loopback, 0),
        (up | LinkFlags::Noarp, 0),
        (LinkFlags::empty(), 0),
    ] {
        let mut lab = Lab { addresses: vec![elsewhere()], ..Lab::new(config()) };
        lab.links[1].flags = flags;
        lab.pass(Duration::from_secs(1));
        assert_eq!(lab.monitor.status().troubles.iter().flatten().count(), troubles, "{flags:?}");
    }
}

/// Its link is known.
#[test]
fn misplaced_address_that_is_refreshed_asks_nothing() {
    let mut lab = Lab { addresses: vec![elsewhere()], ..Lab::new(config()) }.started();
    lab.event(Body::NewAddress(elsewhere()));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.questions(), []);
}

/// The answer about all addresses says nothing of their links, which are known.
#[test]
fn misplaced_address_stays_shown_while_all_are_listed() {
    let mut lab = Lab { addresses: vec![elsewhere()], ..Lab::new(config()) };
    lab.pass(Duration::from_secs(1));
    assert_eq!((lab.misplaced(), lab.monitor.deadline()), (1, None));
    lab.actions.clear();
    lab.feed(&Input::Control(Control::Reload));
    lab.pass(Duration::from_secs(1));
    let [interface, own] = WATCHED_QUESTIONS;
    assert_eq!((lab.questions(), lab.monitor.deadline()), (vec![interface, own, ALL], None));
    assert!(
        lab.monitor.status().troubles.contains(&Some(Trouble::Misplaced(name("lan"), vip().cidr)))
    );
}

#[test]
fn vip_with_twenty_peers_loses_sixteen() {
    let peers = (1..=20).map(|n| Address { peer: Ipv4Addr::new(10, 9, 0, n).into(), ..vip() });
    let mut lab = Lab { addresses: peers.collect(), ..Lab::new(config()) }.started();
    let gone: Vec<_> = lab.addresses.drain(..16).collect();
    lab.events(gone.into_iter().map(Body::DelAddress));
    lab.pass(Duration::from_secs(10));
    assert_eq!((lab.written(), lab.monitor.status().state), (vec![], Some(State::Active)));
    let gone: Vec<_> = lab.addresses.drain(..).collect();
    lab.events(gone.into_iter().map(Body::DelAddress));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.written(), [State::Backup]);
}

/// The first is named, as it was before.
#[test]
fn vip_on_seventeen_other_links_keeps_its_first_place() {
    let there = |ifindex| Address { ifindex, ..vip() };
    let addresses = [LINK].into_iter().chain(100..116).map(there).collect();
    let mut lab = Lab { addresses, ..Lab::new(config()) };
    lab.pass(Duration::from_secs(60));
    let troubles = lab.monitor.status().troubles;
    let misplaced = Trouble::Misplaced(name("lan"), vip().cidr);
    assert!(troubles.contains(&Some(misplaced)), "{troubles:?}");
}

/// Nothing was left out that might have its room.
#[test]
fn vip_with_sixteen_peers_loses_one() {
    let peers = (1..=16).map(|n| Address { peer: Ipv4Addr::new(10, 9, 0, n).into(), ..vip() });
    let mut lab = Lab { addresses: peers.collect(), ..Lab::new(config()) }.started();
    let gone = lab.addresses.remove(0);
    lab.event(Body::DelAddress(gone));
    lab.pass(Duration::from_secs(1));
    assert_eq!((lab.questions(), lab.written()), (vec![], vec![]));
}

/// The address is also the local one of many point-to-point peers.
#[test]
fn vip_comes_and_goes_beside_forty_peers() {
    let beside = "169.254.0.5/32".parse().expect("an address");
    let beside = address(WATCHED, beside, AddressFlags::Permanent);
    let peers = (0..40).map(|n| Address { peer: Ipv4Addr::new(10, 9, 0, n).into(), ..beside });
    let mut lab = Lab { addresses: peers.collect(), ..Lab::new(config()) };
    lab.pass(Duration::from_secs(1));
    lab.event(Body::NewAddress(vip()));
    lab.event(Body::DelAddress(vip()));
    assert_eq!(lab.written(), [State::Backup, State::Active, State::Backup]);
    lab.addresses.push(vip());
    lab.event(Body::NewAddress(vip()));
    lab.feed(&Input::Control(Control::Reload));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.written().last(), Some(&State::Active));
}

/// Gateways of hundreds of links have the same link-local address.
#[test]
fn vip_of_five_hundred_links_is_seen_on_the_watched_one() {
    let vip: Cidr = "fe80::1/64".parse().expect("an address");
    let there = |ifindex| address(ifindex, vip, AddressFlags::Permanent);
    let addresses = (100..600).chain([WATCHED]).map(there).collect();
    let mut lab = Lab { addresses, ..Lab::new(MonitorConfig::new(name("ha"), vip)) };
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.written(), [State::Active]);
    lab.event(Body::DelAddress(there(WATCHED)));
    lab.event(Body::NewAddress(there(WATCHED)));
    assert_eq!(lab.written(), [State::Active, State::Backup, State::Active]);
    // With a wrong prefix length there, it comes before those of other links.
    let host = address(WATCHED, "fe80::1/128".parse().unwrap(), AddressFlags::Permanent);
    let addresses = (100..600).map(there).chain([host]).collect();
    let mut lab = Lab { addresses, ..Lab::new(MonitorConfig::new(name("ha"), vip)) };
    lab.pass(Duration::from_secs(1));
    let troubles = lab.monitor.status().troubles;
    assert!(troubles.contains(&Some(Trouble::Misplaced(name("ha"), host.cidr))), "{troubles:?}");
}

/// An IPv6 address that the kernel has kept.
#[test]
fn vip_is_asked_for_when_its_interface_comes_up() {
    for (vip, questions) in [("fd00::5/64", &WATCHED_QUESTIONS[..]), ("10.0.0.5/24", &[])] {
        let vip = vip.parse().expect("an address");
        let there = address(WATCHED, vip, AddressFlags::Permanent);
        let config = MonitorConfig::new(name("ha"), vip);
        let mut lab = Lab { addresses: vec![there], ..Lab::new(config) }.started();
        lab.event(Body::NewLink(link(WATCHED, "ha")));
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.questions(), [], "{vip}: it was up");
        lab.events([down(), link(WATCHED, "ha")].map(Body::NewLink).into_iter());
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.questions(), questions, "{vip}");
    }
}

/// The list of its own addresses may have left out the VIP, so the next question is about all addresses.
#[test]
fn large_interface_that_comes_up_is_not_believed_alone() {
    let vip = address(WATCHED, "fd00::5/64".parse().unwrap(), AddressFlags::Permanent);
    let config = MonitorConfig::new(name("ha"), vip.cidr);
    let mut lab = Lab { divides: true, addresses: vec![vip], ..Lab::new(config) }.started();
    lab.addresses.clear();
    lab.events([down(), link(WATCHED, "ha")].map(Body::NewLink).into_iter());
    lab.pass(Duration::from_secs(1));
    let [interface, own] = WATCHED_QUESTIONS;
    assert_eq!((lab.questions(), lab.written()), (vec![interface, own, ALL], vec![State::Backup]));
}

/// What was listed without a gap is known from then on, as events say what changes.
#[test]
fn interface_that_was_listed_stays_known() {
    let vip = address(WATCHED, "fd00::5/64".parse().unwrap(), AddressFlags::Permanent);
    let config = MonitorConfig::new(name("ha"), vip.cidr);
    let mut lab = Lab { addresses: vec![vip], ..Lab::new(config) }.started();
    (lab.divides, lab.interrupts) = (true, true);
    lab.events([down(), link(WATCHED, "ha")].map(Body::NewLink).into_iter());
    lab.feed(&Input::QueueEmpty);
    lab.feed(&Input::QueueEmpty);
    lab.event(Body::DelAddress(vip));
    assert_eq!(lab.written(), [State::Backup]);
}

/// Its predecessor's addresses say nothing.
#[test]
fn other_interface_of_the_name_is_unknown() {
    let mut lab = Lab::active(config());
    lab.links = vec![link(LINK, "ha")];
    (lab.divides, lab.interrupts) = (true, true);
    lab.event(Body::NewLink(link(LINK, "ha")));
    lab.feed(&Input::QueueEmpty);
    lab.feed(&Input::QueueEmpty);
    assert!(lab.questions().contains(&Question::Addresses { only: Some(LINK) }));
    assert_eq!(lab.written(), []);
}

#[test]
fn alternative_name_has_a_line() {
    let alternative = Some(link(WATCHED, "eth0"));
    let mut lab = Lab { links: vec![], alternative, ..Lab::new(config()) };
    lab.pass(Duration::from_secs(1));
    let owner = name("eth0");
    let line = LogEvent::Limited(LimitedEvent::AlternativeName { owner }, 1);
    assert_eq!(lab.lines(|event| *event == line), [line]);
}

/// Each link has link-local addresses of its own, so only the watched one can have the VIP in the wrong place.
#[test]
fn link_local_vip_of_another_link_is_not_misplaced() {
    let [vip, host] = ["fe80::5/64", "fe80::5/128"].map(|text| text.parse().expect("an address"));
    let config = MonitorConfig::new(name("ha"), vip);
    let there = address(LINK, vip, AddressFlags::Permanent);
    let mut lab = Lab { addresses: vec![there], ..Lab::new(config) };
    lab.pass(Duration::from_secs(1));
    assert!(lab.has(&Action::Log(LogEvent::Elsewhere { interface: name("lan"), cidr: vip })));
    assert_eq!(lab.monitor.status().troubles, Troubles::default(), "listed");
    lab.event(Body::NewAddress(there));
    assert_eq!(lab.monitor.status().troubles, Troubles::default(), "an event");
    lab.event(Body::NewAddress(address(WATCHED, host, AddressFlags::Permanent)));
    lab.feed(&Input::QueueEmpty);
    let troubles = lab.monitor.status().troubles;
    assert!(troubles.contains(&Some(Trouble::Misplaced(name("ha"), host))), "{troubles:?}");
}

#[test]
fn malformed_message_about_another_link_changes_nothing() {
    let [interface, own] = WATCHED_QUESTIONS;
    let everything = [interface, own, ALL];
    for (about, questions) in
        [(Some(LINK), &[][..]), (Some(WATCHED), &everything), (None, &everything)]
    {
        let mut lab = Lab::active(config());
        lab.feed(&Input::MalformedMessage(about));
        lab.pass(Duration::from_secs(10));
        assert_eq!((lab.questions(), lab.written()), (questions.to_vec(), vec![]), "{about:?}");
    }
    // It may be about the watched interface, but tells nothing of others.
    let mut lab = Lab { links: vec![], ..Lab::new(config()) }.started();
    lab.feed(&Input::MalformedMessage(Some(LINK)));
    lab.pass(Duration::from_secs(10));
    assert_eq!(lab.questions(), [interface]);
}

#[test]
fn links_and_addresses_without_room_are_counted_once() {
    let mut tables = Box::new(Tables::new());
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(announcing(&mut tables)) };
    lab.links.extend((10..1040).map(|ifindex| link(ifindex, "lan")));
    lab.pass(Duration::from_secs(1));
    let lines =
        lab.lines(|event| matches!(event, LogEvent::Limited(LimitedEvent::TooManyLinks { .. }, _)));
    assert_eq!(lines, [LogEvent::Limited(LimitedEvent::TooManyLinks { ignored: 8 }, 1)]);
    let ignored = |lab: &Lab| lab.monitor.status().counters.ignored_links;
    lab.event(Body::NewLink(link(1039, "lan")));
    lab.feed(&Input::Control(Control::Reload));
    lab.pass(Duration::from_secs(1));
    assert_eq!(ignored(&lab), 8);
    let more = (0..4104).map(|n| {
        let cidr = Cidr::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 32);
        address(LINK, cidr.expect("one"), AddressFlags::Permanent)
    });
    let more: Vec<_> = more.collect();
    let refreshed = more.iter().map(|new| Address { refreshed: true, ..*new });
    for new in more.iter().copied().chain(refreshed) {
        lab.monitor.handle(&Input::Event(Body::NewAddress(new)), lab.now);
    }
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.monitor.status().counters.unannounced, 8);
    let lines = lab.lines(|event| {
        matches!(event, LogEvent::Limited(LimitedEvent::TooManyAddresses { .. }, _))
    });
    assert_eq!(lines, [LogEvent::Limited(LimitedEvent::TooManyAddresses { total: 8 }, 1)]);
}

/// Links change all the time, so no answer about all of them is ever complete.
#[test]
fn storm_of_links_delays_no_state() {
    let mut tables = Box::new(Tables::new());
    let mut lab =
        Lab { addresses: vec![vip()], interrupts: true, ..Lab::new(announcing(&mut tables)) };
    for round in 1..4 {
        for _ in 0..2 {
            for change in 0..1000 {
                let link = link(10 + change % 900, "lan");
                let flags = if change % 2 == 0 { LinkFlags::Up } else { link.flags };
                lab.event(Body::NewLink(Link { flags, carrier_changes: Some(change), ..link }));
            }
            lab.feed(&Input::QueueEmpty);
        }
        assert_eq!(lab.written().len(), round, "the state waits for nothing else");
        lab.pass(Duration::from_secs(10));
        lab.feed(&Input::Control(Control::Reload));
    }
}

/// Addresses change all the time, and the queue is too short for that.
#[test]
fn interrupted_answers_have_a_line_a_minute() {
    let mut lab = Lab { interrupts: true, ..Lab::active(config()) };
    for _ in 0..100 {
        lab.feed(&Input::Overrun);
        lab.pass(Duration::from_millis(100));
    }
    assert_eq!(lab.limited(|event| matches!(event, LimitedEvent::QuestionFailed { .. })), 1);
}

/// The link of a misplaced address is asked for again after an overrun, but that is no news.
#[test]
fn overrun_repeats_no_line() {
    let mut lab = Lab { addresses: vec![elsewhere()], ..Lab::new(config()) }.started();
    lab.pass(Duration::from_secs(120));
    lab.actions.clear();
    lab.feed(&Input::Overrun);
    lab.pass(Duration::from_secs(120));
    assert_eq!(lab.misplaced(), 0);
}
