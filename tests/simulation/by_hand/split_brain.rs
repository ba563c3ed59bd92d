//! Suspicions, split brains, and what follows from them.

use std::net::IpAddr;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, CommandResult, Control, Duration, Ending, HelperKind, HelperNews, Input, Instant,
    LimitedEvent, LogEvent, MonitorConfig, Probe, Tables,
};
use keepwatch::wire::rtnl::{Address, Body, Link, Mac};
use keepwatch::wire::{Claim, ClaimKind};
use netlink_packet_route::address::AddressFlags;

use super::{EBUSY, LINK, Lab, WATCHED, announcing, vip};
use crate::world::kernel::{MAC, VIRTUAL_MAC, address, link};
use crate::world::{config, timing};

const ENOBUFS: Errno = Errno(105);
const OTHER: Mac = [2, 0, 0, 0, 0, 9];
/// Of another link of this host.
const OWN: Mac = [2, 0, 0, 0, 0, 77];

fn detecting<'a>() -> MonitorConfig<'a> {
    MonitorConfig { detect_split_brain: true, ..config() }
}

fn claim(mac: Mac, kind: ClaimKind) -> Claim {
    Claim { mac, ip: vip().cidr.address(), kind }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Lab<'_> {
    /// Reads a frame that the kernel received `at` this time.
    fn received(&mut self, claim: Claim, at: Instant) {
        self.feed(&Input::Frame(Some((WATCHED, claim, at))));
    }

    /// Receives a claim of the other station.
    fn claimed(&mut self, mac: Mac) {
        self.received(claim(mac, ClaimKind::Unsolicited), self.now);
    }

    /// The other station begins or ends to answer probes.
    fn set_answering(&mut self, answers: bool) {
        self.answers.clear();
        self.answers.extend(answers.then(|| claim(OTHER, ClaimKind::Answer)));
    }

    /// The other station claims the VIP, and answers probes from now on.
    fn contested(&mut self) {
        self.set_answering(true);
        self.claimed(OTHER);
    }

    /// Returns the times since the start of these actions, in milliseconds.
    fn times_of(&self, is_meant: impl Fn(&Action) -> bool) -> Vec<u64> {
        let meant = self.actions.iter().filter(|(action, _)| is_meant(action));
        meant.map(|(_, at)| (*at - self.start).total_millis()).collect()
    }

    fn probed(&self) -> Vec<u64> {
        self.times_of(|action| matches!(action, Action::SendProbe(_)))
    }

    fn named(&self) -> Vec<u64> {
        self.times_of(|act| matches!(act, Action::Log(LogEvent::SplitBrain { .. })))
    }

    fn denied(&self) -> Vec<u64> {
        self.times_of(|action| {
            let Action::Log(LogEvent::Limited(event, _)) = action else { return false };
            matches!(event, LimitedEvent::ClaimUnconfirmed { .. })
        })
    }

    fn notified(&self) -> Vec<u64> {
        self.times_of(|action| matches!(action, Action::Notify(_)))
    }

    /// Returns each end: milliseconds that it lasted, of silence since, and why.
    fn ends(&self) -> Vec<(u64, u64, Ending)> {
        self.all(|action| match action {
            Action::Log(LogEvent::SplitBrainOver { lasted, silent, ending, .. }) => {
                Some((lasted.total_millis(), silent.total_millis(), *ending))
            }
            _ => None,
        })
    }

    fn probes(&self) -> Vec<Probe> {
        self.all(|act| if let Action::SendProbe(probe) = act { Some(*probe) } else { None })
    }
}

/// Two backups of equal priority take the VIP, and the other gives it back before it is asked for.
#[test]
fn claim_at_a_fail_over_is_no_split_brain() {
    let mut lab = Lab::active(detecting());
    lab.claimed(OTHER);
    lab.pass(Duration::from_secs(600));
    let rounds = [1000, 14_000, 47_000, 110_000];
    let expected: Vec<u64> = rounds.iter().flat_map(|at| [*at, at + 1000, at + 2000]).collect();
    assert_eq!(lab.probed(), expected);
    assert_eq!((lab.named(), lab.denied()), (vec![], vec![4000]));
    assert_eq!(lab.notified(), [4000], "the other's agent may have moved something");
}

#[test]
fn answer_names_it_and_silence_ends_it() {
    let mut lab = Lab::active(detecting());
    lab.contested();
    lab.pass(Duration::from_secs(16));
    assert_eq!(lab.named(), [1000]);
    let asked: Vec<u64> = (0..8).map(|n| 1000 + 2000 * n).collect();
    assert_eq!(lab.probed(), asked, "every two seconds");
    lab.set_answering(false);
    lab.pass(Duration::from_secs(60));
    assert_eq!(lab.ends(), [(15_000, 7000, Ending::NoLongerAnswers)]);
    assert_eq!(lab.notified(), [22_000]);
    assert_eq!(lab.denied(), []);
}

/// Their times are the kernel's. A second later the VIP must still be here.
#[test]
fn claim_after_a_second_names_it() {
    for (wait, stamp, expected) in [(1001, 1001, vec![2001]), (1001, 5, vec![]), (999, 999, vec![])]
    {
        let mut lab = Lab::active(detecting());
        lab.claimed(OTHER);
        lab.now += millis(wait);
        lab.received(claim(OTHER, ClaimKind::Unsolicited), lab.start + millis(stamp));
        lab.pass(millis(1500));
        assert_eq!(lab.named(), expected, "{wait} {stamp}");
    }
}

/// Its claim comes some time before our VIP is removed, and soon after another one.
#[test]
fn claim_of_a_new_master_names_nothing() {
    for wait in [1100, 4500, 30_000] {
        let mut lab = Lab::active(detecting());
        lab.claimed(OTHER);
        lab.pass(millis(wait));
        lab.claimed([2, 0, 0, 0, 0, 10]);
        lab.pass(millis(400));
        lab.event(Body::DelAddress(vip()));
        lab.pass(Duration::from_secs(5));
        assert_eq!((lab.named(), lab.ends()), (vec![], vec![]), "{wait}");
    }
}

/// It may drop probes. Each side of a partition would see that, so agent and hook are not told again.
#[test]
fn station_that_cannot_be_asked() {
    let mut lab = Lab::active(detecting());
    for _ in 0..2 {
        lab.claimed(OTHER);
        lab.pass(millis(2000));
    }
    lab.pass(Duration::from_secs(60));
    assert_eq!(lab.ends(), [(2000, 30_000, Ending::NeverAnswered)]);
    assert_eq!(lab.notified(), []);
}

#[test]
fn episode_continues_the_one_before() {
    for (rest, continues) in [(59_999, true), (60_000, false)] {
        let mut lab = Lab::active(detecting());
        for _ in 0..2 {
            lab.contested();
            lab.pass(millis(1500));
            lab.set_answering(false);
            // It is over after three probes without an answer, eight seconds from the claim.
            lab.pass(millis(6500));
            lab.pass(millis(rest));
        }
        let lasted = lab.ends().iter().map(|(lasted, ..)| *lasted).collect::<Vec<_>>();
        let again = if continues { 8000 + rest + 1000 } else { 1000 };
        assert_eq!(lasted, [1000, again]);
    }
}

/// Each has its own times and claims.
#[test]
fn episode_of_another_station_begins_anew() {
    let mut lab = Lab::active(detecting());
    let third: Mac = [2, 0, 0, 0, 0, 3];
    for station in [OTHER, third] {
        lab.answers = vec![claim(station, ClaimKind::Answer)];
        lab.claimed(station);
        lab.pass(millis(1500));
        lab.answers.clear();
        lab.pass(Duration::from_secs(20));
    }
    assert_eq!(lab.ends().iter().map(|(lasted, ..)| *lasted).collect::<Vec<_>>(), [1000, 1000]);
}

/// Another interface of this host on the segment answers, too.
#[test]
fn own_links_are_no_other_stations() {
    for with_other in [false, true] {
        let probe_interval = Some(Duration::from_secs(10));
        let mut lab = Lab::active(MonitorConfig { probe_interval, ..detecting() });
        lab.links[1].mac = Some(OWN);
        lab.event(Body::NewLink(lab.links[1].clone()));
        lab.answers.push(claim(OWN, ClaimKind::Answer));
        lab.answers.extend(with_other.then(|| claim(OTHER, ClaimKind::Answer)));
        lab.pass(Duration::from_secs(300));
        assert_eq!(lab.named().len(), usize::from(with_other));
        assert_eq!(lab.denied(), []);
    }
}

/// A minute has more than lines.
#[test]
fn eighth_split_brain_of_a_minute_is_named_late() {
    let mut lab = Lab::active(detecting());
    for _ in 0..8 {
        lab.event(Body::DelAddress(vip()));
        lab.event(Body::NewAddress(vip()));
        lab.contested();
        lab.pass(Duration::from_secs(1));
    }
    lab.pass(Duration::from_secs(100));
    assert_eq!(lab.named(), [1000, 2000, 3000, 4000, 5000, 6000, 7000, 61_000]);
}

/// Without a suspicion, the next probe comes an interval after the end.
#[test]
fn probes_go_on_after_a_split_brain() {
    let probe_interval = Some(Duration::from_secs(10));
    let mut lab = Lab::active(MonitorConfig { probe_interval, ..detecting() });
    lab.contested();
    lab.pass(millis(1500));
    lab.set_answering(false);
    lab.pass(Duration::from_secs(30));
    assert_eq!(lab.ends().len(), 1);
    assert_eq!(lab.probed(), [1000, 3000, 5000, 7000, 18_000, 28_000]);
}

/// It awaits no answer, so its silence says nothing.
#[test]
fn probe_that_was_not_sent_is_none() {
    let mut lab = Lab::active(detecting());
    lab.claimed(OTHER);
    lab.pass(Duration::from_secs(1));
    lab.feed(&Input::Probed(Err(ENOBUFS)));
    lab.pass(Duration::from_secs(6));
    assert_eq!(lab.limited(|line| matches!(line, LimitedEvent::NotProbed { errno: ENOBUFS })), 1);
    assert_eq!((lab.probed(), lab.denied()), (vec![1000, 3000, 4000, 5000], vec![6000]));
}

/// A cache may answer for a station that has no VIP any more, and traffic goes there.
#[test]
fn vip_is_announced_where_only_a_cache_may_answer() {
    let mut tables = Box::new(Tables::new());
    let detecting = MonitorConfig { detect_split_brain: true, ..announcing(&mut tables) };
    let mut lab = Lab::active(detecting);
    lab.pass(Duration::from_secs(10));
    lab.actions.clear();
    lab.start = lab.now;
    lab.contested();
    lab.pass(Duration::from_secs(600));
    let mut announced = lab.times_of(|action| matches!(action, Action::SendFrame(_)));
    announced.dedup();
    assert_eq!(announced, [31_000, 331_000]);
}

/// The list of this host's links may come after claims, some of them its own. None: the links are known now.
#[test]
fn own_claims_are_known_late() {
    let (own_too, third) = ([2, 0, 0, 0, 0, 78], [2, 0, 0, 0, 0, 3]);
    let claims: [&[(u64, Option<Mac>)]; 4] = [
        &[(0, Some(OWN)), (500, Some(OTHER)), (1400, None), (1500, Some(OTHER))],
        &[(0, Some(OWN)), (1200, Some(OTHER)), (1300, Some(own_too)), (1400, None)],
        &[(0, Some(OTHER)), (1200, Some(OWN)), (1400, None), (1500, Some(OTHER))],
        // The first station has given way.
        &[(0, Some(third)), (1200, Some(OTHER)), (1400, None)],
    ];
    for claims in claims {
        let mut lab = Lab::active(detecting());
        for (at, mac) in claims {
            lab.pass(lab.start + millis(*at) - lab.now);
            let Some(mac) = mac else {
                for (ifindex, mac) in [(LINK, OWN), (LINK + 1, own_too)] {
                    lab.event(Body::NewLink(Link { mac: Some(mac), ..link(ifindex, "own") }));
                }
                continue;
            };
            lab.claimed(*mac);
        }
        lab.pass(Duration::from_secs(3));
        let named = lab.all(|action| match action {
            Action::Log(LogEvent::SplitBrain { mac, .. }) => Some(*mac),
            _ => None,
        });
        assert_eq!(named, [OTHER], "{claims:?}");
    }
}

/// An event that waited when the queue was full may be about a link whose end is lost.
#[test]
fn link_before_a_loss_of_events_may_be_gone() {
    let mut lab = Lab::active(detecting());
    lab.feed(&Input::Overrun);
    lab.event(Body::NewLink(Link { mac: Some(OTHER), ..link(LINK + 1, "gone") }));
    lab.contested();
    lab.pass(Duration::from_secs(3));
    assert_eq!(lab.named().len(), 1);
}

/// Nothing is heard on a link without MACs, nor while the socket fails.
#[test]
fn where_nobody_listens_that_is_said() {
    let lab = Lab::active(detecting());
    assert!(lab.monitor.status().listens);
    let mut lab = Lab { addresses: vec![vip()], ..Lab::new(detecting()) };
    lab.links[0].mac = None;
    assert!(!lab.started().monitor.status().listens);
    let mut lab = Lab::active(detecting());
    let bind = Action::WatchClaims { only: Some(WATCHED), rebind: false };
    lab.feed(&Input::Failed(bind, EBUSY));
    assert!(!lab.monitor.status().listens);
    lab.pass(Duration::from_secs(1));
    assert!(lab.monitor.status().listens);
}

/// Returns a lab whose watched interface has a virtual MAC, and a link below it if `with_parent`.
fn with_virtual_mac<'a>(with_parent: bool) -> Lab<'a> {
    with_virtual_mac_and(detecting(), with_parent)
}

fn with_virtual_mac_and(config: MonitorConfig<'_>, with_parent: bool) -> Lab<'_> {
    let mut lab = Lab::new(config);
    let parent = with_parent.then_some(LINK);
    lab.links[0] = Link { mac: Some(VIRTUAL_MAC), parent, ..link(WATCHED, "ha") };
    lab.links[1].mac = Some(OWN);
    lab.addresses = vec![Address { created: 1000, ..vip() }];
    lab.started()
}

#[test]
fn link_below_a_virtual_mac_asks() {
    let unspecified: IpAddr = [0, 0, 0, 0].into();
    for (with_parent, ifindex, mac, answer_to) in
        [(true, LINK, OWN, OWN), (false, WATCHED, VIRTUAL_MAC, [0xff; 6])]
    {
        let mut lab = with_virtual_mac(with_parent);
        lab.claimed(OTHER);
        lab.pass(Duration::from_secs(2));
        let expected = Probe { ifindex, mac, from: unspecified, answer_to };
        assert_eq!(lab.probes()[..2], [expected; 2]);
    }
}

/// Another link asks from then on.
#[test]
fn other_mac_of_the_interface_ends_nothing() {
    let mut lab = with_virtual_mac(true);
    lab.contested();
    lab.pass(Duration::from_secs(3));
    lab.event(Body::NewLink(Link { parent: Some(LINK), ..link(WATCHED, "ha") }));
    lab.pass(Duration::from_secs(3));
    assert_eq!(lab.ends(), []);
    assert_eq!(lab.probes().last().map(|probe| probe.ifindex), Some(WATCHED));
}

/// The switch sends our own frames back, and our own kernel answers our probes.
#[test]
fn own_frames_that_come_back_are_no_split_brain() {
    for with_parent in [true, false] {
        let mut lab = with_virtual_mac(with_parent);
        let prober = if with_parent { OWN } else { VIRTUAL_MAC };
        lab.answers.push(claim(VIRTUAL_MAC, ClaimKind::Answer));
        lab.answers.push(claim(prober, ClaimKind::Probe));
        for _ in 0..3 {
            lab.claimed(VIRTUAL_MAC);
            lab.pass(Duration::from_secs(5));
        }
        assert_eq!((lab.named(), lab.denied()), (vec![], vec![]));
        assert_eq!(lab.probed(), [1000], "known from then on");
    }
    let mut lab = with_virtual_mac(true);
    lab.answers.push(claim(VIRTUAL_MAC, ClaimKind::Answer));
    lab.claimed(VIRTUAL_MAC);
    lab.pass(Duration::from_secs(5));
    assert_eq!(lab.named(), [1000], "another station has the virtual MAC");
    // Of a loop that did not last.
    let mut lab = with_virtual_mac(true);
    lab.claimed(VIRTUAL_MAC);
    lab.answers.push(claim(OWN, ClaimKind::Probe));
    lab.pass(Duration::from_secs(61));
    assert_eq!(lab.named(), []);
    lab.start = lab.now;
    lab.answers = vec![claim(VIRTUAL_MAC, ClaimKind::Answer)];
    lab.claimed(VIRTUAL_MAC);
    lab.pass(Duration::from_secs(5));
    assert_eq!(lab.named(), [1000], "the network sends nothing back any more");
    let mut lab = with_virtual_mac(true);
    lab.claimed(VIRTUAL_MAC);
    lab.pass(millis(1100));
    for kind in [ClaimKind::Probe, ClaimKind::Answer] {
        lab.received(claim(VIRTUAL_MAC, kind), lab.now);
    }
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.named().len(), 1, "the other station probes at other times");
}

/// They say nothing about another station.
#[test]
fn own_frames_that_come_back_hide_no_split_brain() {
    let mut lab = with_virtual_mac(true);
    lab.contested();
    // The last is read first.
    lab.answers.push(claim(OWN, ClaimKind::Probe));
    lab.pass(Duration::from_secs(5));
    assert_eq!(lab.named(), [1000]);
}

/// Whoever has the same virtual MAC may be this router, but it was not silent. A claim that was left unread while a probe
/// was sent says nothing about that.
#[test]
fn repeated_claim_of_the_virtual_mac_is_no_silence() {
    for (received, denied) in [(2500, 7000), (1500, 4000)] {
        let mut lab = with_virtual_mac(true);
        lab.claimed(VIRTUAL_MAC);
        lab.pass(millis(2500));
        lab.received(claim(VIRTUAL_MAC, ClaimKind::Unsolicited), lab.start + millis(received));
        lab.pass(Duration::from_secs(20));
        assert_eq!((lab.named(), lab.denied()), (vec![], vec![denied]));
    }
}

/// A switch has learnt the virtual MAC from its answer. Nothing else is announced while the other has the VIP.
#[test]
fn answer_of_another_with_the_virtual_mac_has_the_vip_announced() {
    let mut tables = Box::new(Tables::new());
    let detecting = MonitorConfig { detect_split_brain: true, ..announcing(&mut tables) };
    let mut lab = with_virtual_mac_and(detecting, true);
    lab.addresses.push(address(LINK, "10.1.0.1/24".parse().unwrap(), vip().flags));
    lab.feed(&Input::Overrun);
    lab.pass(Duration::from_secs(10));
    lab.actions.clear();
    lab.answers.push(claim(VIRTUAL_MAC, ClaimKind::Answer));
    lab.claimed(VIRTUAL_MAC);
    lab.pass(Duration::from_secs(10));
    let addresses = lab.announced();
    assert_eq!(addresses, vec![vip().cidr.address(); addresses.len()]);
    assert!(!addresses.is_empty());
}

/// After a probe without an answer, the next is an ordinary request, if there is an address for it that is no VIP.
#[test]
fn own_address_asks() {
    let (own, other_vip) = ([169, 254, 0, 1].into(), [169, 254, 0, 6].into());
    let create = |ip: IpAddr, created| {
        let cidr = format!("{ip}/24").parse().unwrap();
        Address { created, ..address(WATCHED, cidr, AddressFlags::Permanent) }
    };
    let none: IpAddr = [0, 0, 0, 0].into();
    for (others, expected) in [
        (vec![create(own, 900)], own),
        (vec![create(own, 1), create(other_vip, 2)], own),
        (vec![create(other_vip, 2), create(own, 1)], own),
        (vec![create(own, 901)], none),
        (vec![create(other_vip, 1000)], none),
        (vec![create(other_vip, 1001)], none),
        (vec![create([10, 0, 0, 1].into(), 1)], none),
    ] {
        let mut lab = Lab::new(detecting());
        lab.addresses = others;
        lab.addresses.push(Address { created: 1000, ..vip() });
        let mut lab = lab.started();
        lab.claimed(OTHER);
        lab.pass(Duration::from_secs(4));
        let from: Vec<_> = lab.probes().iter().map(|probe| probe.from).collect();
        assert_eq!(from, [none, expected, none], "{:?}", lab.addresses);
    }
}

/// Returns a lab with 169.254.0.1, added at 100 hundredths of a second, and the VIP, added at `created`.
fn with_older_address(created: u32) -> Lab<'static> {
    let older = "169.254.0.1/24".parse().expect("an address");
    let older = Address { created: 100, ..address(WATCHED, older, AddressFlags::Permanent) };
    let addresses = vec![older, Address { created, ..vip() }];
    Lab { addresses, ..Lab::new(detecting()) }.started()
}

/// An older address may be another VIP, which the other station has, too: an ordinary request would move its traffic.
#[test]
fn probe_that_is_answered_has_no_sender() {
    let mut lab = with_older_address(1000);
    lab.contested();
    lab.pass(Duration::from_secs(20));
    assert!(lab.probes().len() > 5);
    assert!(lab.probes().iter().all(|probe| probe.from.is_unspecified()), "{:?}", lab.probes());
}

/// The kernel keeps some frames of a flood, and drops the rest: the answer may be among them.
#[test]
fn silence_in_a_flood_ends_no_split_brain() {
    let mut lab = Lab::active(detecting());
    lab.contested();
    lab.pass(Duration::from_secs(3));
    assert!(lab.monitor.status().claimant.is_some());
    lab.answers.clear();
    for _ in 0..300 {
        for _ in 0..8 {
            lab.feed(&Input::Frame(None));
        }
        lab.pass(Duration::from_millis(100));
        assert!(lab.monitor.status().claimant.is_some());
    }
    lab.pass(Duration::from_secs(10));
    assert!(lab.monitor.status().claimant.is_none());
}

/// The kernel counts hundredths of a second in 32 bits, and after 248 days the highest is set.
#[test]
fn own_address_of_a_boot_long_ago_asks() {
    let mut lab = with_older_address(3_000_000_000);
    lab.claimed(OTHER);
    lab.pass(Duration::from_secs(4));
    assert_eq!(lab.probes()[1].from, IpAddr::from([169, 254, 0, 1]));
}

/// The kernel's filter may drop the events of an own address. Another host may have it after its deletion, and duplicate
/// address detection may end after the first probe.
#[test]
fn own_addresses_are_listed_for_each_probe() {
    let cidr = "fd00::5/64".parse().unwrap();
    let mut lab = Lab::new(MonitorConfig {
        vip: cidr,
        probe_interval: Some(Duration::from_secs(10)),
        ..detecting()
    });
    let own = address(WATCHED, "fe80::1/64".parse().unwrap(), AddressFlags::Tentative);
    let vip = address(WATCHED, cidr, AddressFlags::Permanent);
    lab.addresses = vec![own, Address { created: 1000, ..vip }];
    let mut lab = lab.started();
    let mut asked = Vec::new();
    for flags in [Some(AddressFlags::Tentative), Some(AddressFlags::Permanent), None] {
        lab.addresses.truncate(0);
        lab.addresses.extend(flags.map(|flags| Address { flags, ..own }));
        lab.addresses.push(Address { created: 1000, ..vip });
        lab.pass(Duration::from_secs(20));
        asked.push(lab.probes().len());
    }
    assert_eq!(asked, [0, 2, 2]);
}

/// Its MAC may be another station's from then on.
#[test]
fn mac_of_a_deleted_link_is_no_longer_ours() {
    let gone = Link { mac: Some(OTHER), ..link(LINK, "lan") };
    let unread = Input::MalformedMessage(Some(LINK));
    for input in [Input::Event(Body::DelLink(gone.clone())), Input::Overrun, unread] {
        let mut lab = Lab::active(detecting());
        lab.event(Body::NewLink(gone.clone()));
        lab.links[1] = gone.clone();
        lab.contested();
        lab.pass(Duration::from_secs(5));
        assert_eq!(lab.named(), []);
        lab.links.truncate(1);
        lab.feed(&input);
        lab.pass(Duration::from_secs(1));
        lab.start = lab.now;
        lab.claimed(OTHER);
        lab.pass(Duration::from_secs(5));
        assert_eq!(lab.named().len(), 1, "{input:?}");
    }
}

/// A claim that came before a probe is read behind it.
#[test]
fn probes_are_a_second_apart() {
    let probe_interval = Some(Duration::from_secs(10));
    let mut lab = Lab::active(MonitorConfig { probe_interval, ..detecting() });
    while lab.probes().is_empty() {
        lab.pass(millis(100));
    }
    lab.received(claim(OTHER, ClaimKind::Unsolicited), lab.now - millis(900));
    for (time, probes) in [(800, 1), (300, 2)] {
        lab.pass(millis(time));
        assert_eq!(lab.probes().len(), probes);
    }
}

/// Links that come and go, and whose list is never complete.
#[test]
fn storm_of_links_does_not_hold_up_a_probe() {
    let mut lab = Lab::active(detecting());
    lab.interrupts = true;
    lab.start = lab.now;
    lab.contested();
    for _ in 0..30 {
        lab.event(Body::NewLink(link(LINK, "lan")));
        lab.pass(millis(100));
    }
    assert_eq!(lab.named().len(), 1);
    let before = lab.questions().len();
    lab.interrupts = false;
    lab.pass(Duration::from_secs(3));
    let complete = lab.questions().len();
    lab.events((0..100).map(|_| Body::NewLink(link(LINK, "lan"))));
    let during = lab.questions().len() - complete;
    assert!(during < 3, "{before} {complete} {during}");
}

/// The answer is discarded with the old binding, or the process was stopped when it came.
#[test]
fn probe_in_flight_at_a_reload_or_a_stop_is_none() {
    for is_reload in [true, false] {
        let mut lab = Lab::active(detecting());
        lab.contested();
        lab.pass(Duration::from_secs(6));
        for _ in 0..8 {
            let asked = lab.probes().len();
            while lab.probes().len() == asked {
                lab.now = lab.now.max(lab.monitor.deadline().expect("a probe"));
                lab.feed(&Input::QueueEmpty);
            }
            if is_reload {
                lab.feed(&Input::Control(Control::Reload));
            } else {
                lab.now += Duration::from_secs(50);
            }
            lab.feed(&Input::QueueEmpty);
            lab.feed(&Input::QueueEmpty);
            lab.frames.clear();
            assert_eq!(lab.ends(), []);
        }
        let rebind = Action::WatchClaims { only: Some(WATCHED), rebind: true };
        assert_eq!(lab.has(&rebind), is_reload);
    }
}

/// An answer to the unspecified address would override every host's cache.
#[test]
fn ipv6_asks_from_an_own_address_or_hardly_at_all() {
    let none: IpAddr = "::".parse().unwrap();
    let own: IpAddr = "fe80::1".parse().unwrap();
    for (with_own, from, asked) in [(true, own, 12), (false, none, 3)] {
        let cidr = "fd00::5/64".parse().unwrap();
        let mut lab = Lab::new(MonitorConfig { vip: cidr, ..detecting() });
        let vip = address(WATCHED, cidr, AddressFlags::Permanent);
        lab.addresses = vec![Address { created: 1000, ..vip }];
        let own = address(WATCHED, "fe80::1/64".parse().unwrap(), AddressFlags::Permanent);
        lab.addresses.extend(with_own.then_some(own));
        let mut lab = lab.started();
        let frame = Claim { mac: OTHER, ip: cidr.address(), kind: ClaimKind::Unsolicited };
        lab.received(frame, lab.now);
        lab.pass(Duration::from_secs(300));
        let expected = Probe { ifindex: WATCHED, mac: MAC, from, answer_to: MAC };
        assert_eq!(lab.probes(), vec![expected; asked]);
    }
}

/// After two probes without an answer, unless a sign comes in between, or that is switched off.
#[test]
fn vip_is_announced_again_after_silence() {
    for (returns, announce_again) in [(false, true), (true, true), (false, false)] {
        let mut tables = Box::new(Tables::new());
        let detecting = MonitorConfig { detect_split_brain: true, ..announcing(&mut tables) };
        let config = MonitorConfig { announce_again, ..detecting };
        let mut lab = Lab::active(config);
        lab.contested();
        lab.pass(millis(1500));
        lab.set_answering(false);
        lab.pass(Duration::from_secs(3));
        lab.set_answering(returns);
        lab.pass(Duration::from_secs(20));
        let frames = lab.times_of(|action| matches!(action, Action::SendFrame(_)));
        let expected = (!returns && announce_again).then_some(&6000);
        assert_eq!(frames.first(), expected, "{frames:?}");
    }
}

/// The other's hook may have moved something since the repetition before.
#[test]
fn repetition_that_comes_too_soon_waits() {
    let mut lab = Lab::active(detecting());
    lab.claimed(OTHER);
    lab.pass(Duration::from_secs(8));
    lab.contested();
    lab.pass(Duration::from_secs(20));
    lab.set_answering(false);
    lab.pass(Duration::from_secs(600));
    assert_eq!(lab.ends().len(), 1);
    assert_eq!(lab.notified(), [4000, 304_000]);
}

/// The hook runs again, too, but at most once in five minutes.
#[test]
fn hook_runs_again_after_an_unconfirmed_claim() {
    let mut lab = Lab::active(MonitorConfig { hook: Some(timing(false)), ..detecting() });
    let ended = Input::Helper(HelperKind::Hook, HelperNews::Ended(CommandResult::Exited(0)));
    lab.feed(&ended);
    for minute in 0..7 {
        lab.claimed(OTHER);
        lab.pass(Duration::from_secs(59));
        lab.feed(&ended);
        lab.pass(Duration::from_secs(1));
        assert_eq!(lab.runs().len(), usize::from(minute % 5 == 0), "minute {minute}");
        // The next claim is another suspicion.
        lab.event(Body::DelAddress(vip()));
        lab.event(Body::NewAddress(vip()));
        lab.pass(Duration::ZERO);
        lab.feed(&ended);
        lab.actions.retain(|(action, _)| !matches!(action, Action::RunHook { .. }));
    }
}

/// As a macvlan whose parent is in another namespace, or a tunnel, which has no MAC.
#[test]
fn probe_that_can_ask_nobody_has_one_line() {
    for (mac, probes, lines) in [(Some(MAC), 31, 0), (Some(VIRTUAL_MAC), 0, 1), (None, 0, 1)] {
        let probe_interval = Some(Duration::from_secs(10));
        let mut lab = Lab::new(MonitorConfig { probe_interval, ..detecting() });
        lab.links[0].mac = mac;
        lab.addresses.push(vip());
        lab.pass(Duration::from_secs(305));
        let has_line = |event: &LimitedEvent| matches!(event, LimitedEvent::NoSender);
        assert_eq!((lab.probes().len(), lab.limited(has_line)), (probes, lines), "{mac:?}");
    }
}
