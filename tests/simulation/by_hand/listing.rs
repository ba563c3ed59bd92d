//! What is listed, when, and what a listing changes.

use std::net::Ipv4Addr;

use keepwatch::monitor::{
    Control, Dump, Duration, Input, LimitedEvent, LogEvent, MonitorConfig, State, Tables, Trouble,
};
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::rtnl::{Address, Body, Link, Message};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::{LINK, Lab, WATCHED, announcing, down, elsewhere, vip};
use crate::world::config;
use crate::world::kernel::{PORT, address, link, name};

#[test]
fn overrun_does_not_wait_for_a_retry() {
    let mut lab = Lab::active(config());
    lab.event(Body::DelAddress(elsewhere()));
    lab.now += Duration::from_millis(100);
    for _ in 0..6 {
        lab.feed(&Input::QueueEmpty);
        lab.refuse();
        lab.now = lab.monitor.deadline().expect("a retry");
    }
    lab.feed(&Input::QueueEmpty);
    lab.actions.clear();
    lab.feed(&Input::Overrun);
    lab.refuse();
    lab.feed(&Input::QueueEmpty);
    lab.answer(None);
    lab.feed(&Input::QueueEmpty);
    assert_eq!(lab.dumps(), [Dump::Interface, Dump::Addresses], "at the same instant");
}

#[test]
fn overrun_among_a_thousand_links_costs_three_requests() {
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
    assert_eq!(lab.dumps(), [Dump::Interface, Dump::Addresses, Dump::Links]);
}

#[test]
fn deleted_vip_that_an_old_kernel_lists() {
    let mut tables = Box::new(Tables::new());
    let mut lab = Lab::active(announcing(&mut tables));
    // Before Linux 4.20, the dump for this link lists the addresses of all.
    for flags in [LinkFlags::Up, lab.links[1].flags] {
        lab.event(Body::NewLink(Link { flags, ..lab.links[1].clone() }));
    }
    lab.now += Duration::from_millis(100);
    lab.feed(&Input::QueueEmpty);
    assert_eq!(lab.dumps(), [Dump::Addresses]);
    lab.addresses.clear();
    lab.event(Body::DelAddress(vip()));
    lab.answer(Some(vec![Body::NewAddress(vip())]));
    lab.pass(Duration::from_secs(10));
    assert_eq!(lab.written(), [State::Backup]);
}

/// The dump lists it before its event comes.
#[test]
fn address_deleted_during_the_dump_is_not_misplaced() {
    let mut lab = Lab { addresses: vec![vip(), elsewhere()], ..Lab::new(config()) }.started();
    lab.feed(&Input::Control(Control::Reload));
    lab.feed(&Input::QueueEmpty);
    lab.answer(None);
    lab.feed(&Input::QueueEmpty);
    let (_, _, sequence) = lab.asked.take().expect("a dump");
    for address in std::mem::take(&mut lab.addresses) {
        lab.message(Body::NewAddress(address), sequence, PORT, false);
    }
    lab.event(Body::DelAddress(elsewhere()));
    lab.event(Body::DelAddress(vip()));
    lab.message(Body::Done(None), sequence, PORT, false);
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.misplaced(), 0);
}

/// The dump of the watched interface alone says nothing about it.
#[test]
fn address_deleted_before_an_interrupted_dump_is_not_misplaced() {
    let mut lab = Lab { addresses: vec![vip(), elsewhere()], ..Lab::new(config()) }.started();
    lab.addresses.clear();
    lab.interrupts = true;
    lab.feed(&Input::Overrun);
    lab.pass(Duration::from_secs(10));
    assert_eq!(
        (lab.misplaced(), lab.monitor.status().troubles),
        (0, keepwatch::monitor::Troubles::default())
    );
}

#[test]
fn vip_with_twelve_peers_loses_eight() {
    let peers = (1..=12).map(|n| Address { peer: Ipv4Addr::new(10, 9, 0, n).into(), ..vip() });
    let mut lab = Lab { addresses: peers.collect(), ..Lab::new(config()) }.started();
    let gone: Vec<_> = lab.addresses.drain(..8).collect();
    lab.events(gone.into_iter().map(Body::DelAddress));
    lab.pass(Duration::from_secs(10));
    assert_eq!((lab.written(), lab.monitor.status().state), (vec![], Some(State::Active)));
    let gone: Vec<_> = lab.addresses.drain(..).collect();
    lab.events(gone.into_iter().map(Body::DelAddress));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.written(), [State::Backup]);
}

/// An IPv6 address that the kernel has kept.
#[test]
fn vip_is_listed_when_its_interface_comes_up() {
    for (vip, dumps) in [("fd00::5/64", &[Dump::Addresses][..]), ("10.0.0.5/24", &[])] {
        let vip = vip.parse().expect("an address");
        let there = address(WATCHED, vip, AddressFlags::Permanent);
        let config = MonitorConfig::new(name("ha"), vip, PORT);
        let mut lab = Lab { addresses: vec![there], ..Lab::new(config) }.started();
        lab.event(Body::NewLink(link(WATCHED, "ha")));
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.dumps(), [], "{vip}: it was up");
        lab.events([down(), link(WATCHED, "ha")].map(Body::NewLink).into_iter());
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.dumps(), dumps, "{vip}");
    }
}

#[test]
fn alternative_name_has_a_line() {
    let links = vec![link(WATCHED, "eth0")];
    let mut lab = Lab { links, ..Lab::new(config()) };
    lab.pass(Duration::from_secs(1));
    let owner = name("eth0");
    let line = LogEvent::Limited(LimitedEvent::AlternativeName { owner }, 1);
    assert_eq!(lab.lines(|event| *event == line), [line]);
}

/// Each link has link-local addresses of its own, so only the watched one can have the VIP in the wrong place.
#[test]
fn link_local_vip_of_another_link_is_not_misplaced() {
    let [vip, host] = ["fe80::5/64", "fe80::5/128"].map(|text| text.parse().expect("an address"));
    let config = MonitorConfig::new(name("ha"), vip, PORT);
    let there = address(LINK, vip, AddressFlags::Permanent);
    let mut lab = Lab { addresses: vec![there], ..Lab::new(config) }.started();
    assert_eq!(lab.monitor.status().troubles, keepwatch::monitor::Troubles::default(), "listed");
    lab.event(Body::NewAddress(there));
    assert_eq!(lab.monitor.status().troubles, keepwatch::monitor::Troubles::default(), "an event");
    lab.event(Body::NewAddress(address(WATCHED, host, AddressFlags::Permanent)));
    let troubles = lab.monitor.status().troubles;
    assert!(troubles.contains(&Some(Trouble::Misplaced(WATCHED, host))), "{troubles:?}");
}

#[test]
fn malformed_message_about_another_link_changes_nothing() {
    let listings = [Dump::Interface, Dump::Addresses];
    let at_the_start = [Dump::Addresses];
    for (about, dumps) in [(Some(LINK), &[][..]), (Some(WATCHED), &listings), (None, &listings)] {
        let mut lab = Lab::active(config());
        lab.feed(&Input::MalformedMessage(about));
        lab.pass(Duration::from_secs(10));
        assert_eq!((lab.dumps(), lab.written()), (dumps.to_vec(), vec![]), "{about:?}");
        let mut lab = Lab::new(config());
        lab.feed(&Input::QueueEmpty);
        lab.answer(None);
        lab.actions.clear();
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.dumps(), at_the_start);
        lab.feed(&Input::MalformedMessage(about));
        lab.answer(None);
        let is_known = !lab.written().is_empty();
        assert_eq!(is_known, dumps.is_empty(), "{about:?} while addresses are listed");
        lab.pass(Duration::from_secs(10));
        assert_eq!(lab.written(), [State::Backup], "{about:?}");
    }
}

/// Even one of which nothing follows: more may have come with it.
#[test]
fn nothing_is_listed_between_a_message_and_an_empty_queue() {
    for input in [
        Input::Overrun,
        Input::MalformedMessage(None),
        Input::MalformedMessage(Some(LINK)),
        Input::ForeignSender(PORT),
        Input::Probed(Ok(())),
        Input::Netlink(Message { body: Body::Other, sequence: 0, port: 0, interrupted: false }),
    ] {
        let mut lab = Lab::active(config());
        lab.feed(&Input::QueueEmpty);
        lab.feed(&input);
        lab.feed(&Input::Control(Control::Reload));
        assert_eq!(lab.dumps(), [], "{input:?}");
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.dumps(), [Dump::Interface], "{input:?}");
    }
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
    lab.actions.clear();
    while lab.dumps().last() != Some(&Dump::Links) {
        lab.now += Duration::from_millis(50);
        lab.feed(&Input::QueueEmpty);
        assert_eq!(ignored(&lab), 8, "SIGHUP must not count the links again");
        if lab.asked.is_some_and(|(dump, ..)| dump != Dump::Links) {
            lab.answer(None);
        }
    }
    lab.pass(Duration::from_secs(1));
    assert_eq!(ignored(&lab), 8);
    lab.event(Body::DelAddress(vip()));
    let more = (0..4104).map(|n| {
        let cidr = Cidr::new(Ipv4Addr::from_bits(0x0a00_0001 + n).into(), 32);
        address(LINK, cidr.expect("one"), AddressFlags::Permanent)
    });
    let more: Vec<_> = more.collect();
    lab.events(more.iter().copied().map(Body::NewAddress));
    let refreshed = more.iter().map(|new| Address { refreshed: true, ..*new });
    lab.events(refreshed.map(Body::NewAddress));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.monitor.status().counters.unannounced, 8);
    let lines = lab.lines(|event| {
        matches!(event, LogEvent::Limited(LimitedEvent::TooManyAddresses { .. }, _))
    });
    assert_eq!(lines, [LogEvent::Limited(LimitedEvent::TooManyAddresses { total: 8 }, 1)]);
}

/// Links change all the time, so no dump of them is ever complete.
#[test]
fn storm_of_links_delays_no_state() {
    let mut tables = Box::new(Tables::new());
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(announcing(&mut tables)) };
    let storm = |lab: &mut Lab| {
        for change in 0..1000 {
            let link = link(10 + change % 900, "lan");
            let flags = if change % 2 == 0 { LinkFlags::Up } else { link.flags };
            lab.event(Body::NewLink(Link { flags, carrier_changes: Some(change), ..link }));
        }
        lab.feed(&Input::QueueEmpty);
    };
    for round in 0..3 {
        if round > 0 {
            lab.feed(&Input::Control(Control::Reload));
        }
        // The dumps of the interface and of its addresses
        for _ in 0..2 {
            storm(&mut lab);
            lab.answer(None);
        }
        assert_eq!(lab.written().len(), round + 1, "the state waits for no other dump");
        lab.interrupts = true;
        for _ in 0..50 {
            storm(&mut lab);
            if lab.asked.is_some() {
                lab.answer(None);
            }
            lab.now += Duration::from_millis(100);
        }
        lab.interrupts = false;
        lab.pass(Duration::from_secs(10));
    }
}

/// Addresses change all the time, so no dump of all is ever complete.
#[test]
fn storm_of_addresses_delays_no_state_for_two_seconds() {
    for announces in [false, true] {
        let mut tables = Box::new(Tables::new());
        let config = if announces { announcing(&mut tables) } else { config() };
        let mut lab = Lab { addresses: vec![vip()], interrupts: true, ..Lab::new(config) };
        lab.pass(Duration::from_secs(2));
        assert_eq!(lab.written(), [State::Active], "announces: {announces}");
        lab.feed(&Input::Control(Control::Reload));
        lab.feed(&Input::Overrun);
        lab.addresses.clear();
        lab.pass(Duration::from_secs(2));
        let later = [State::Active, State::Backup];
        assert_eq!(lab.written(), later, "announces: {announces}");
    }
}

/// The dump is repeated, and the removed address does not count as the VIP.
#[test]
fn vip_with_two_peers_loses_one_during_a_dump() {
    let other = Address { peer: Ipv4Addr::new(10, 9, 0, 1).into(), ..vip() };
    let mut lab = Lab { addresses: vec![vip(), other], ..Lab::new(config()) }.started();
    lab.feed(&Input::Overrun);
    lab.feed(&Input::QueueEmpty);
    lab.answer(None);
    lab.feed(&Input::QueueEmpty);
    lab.event(Body::DelAddress(other));
    lab.answer(Some(vec![Body::NewAddress(vip())]));
    assert_eq!((lab.written(), lab.monitor.status().state), (vec![], Some(State::Active)));
}
