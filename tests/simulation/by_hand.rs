//! Cases that are too rare in random lives, and earlier faults, each with as few inputs as possible.

use std::net::Ipv4Addr;

use keepwatch::monitor::{
    Action, ActiveWord, AnnounceTiming, Cause, CommandResult, Control, Dump, Duration, ExitReason,
    Failure, HelperKind, HelperNews, HookState, Input, Instant, LimitedEvent, LogEvent, Monitor,
    MonitorConfig, Outcome, Replaced, State, SyncCommand, Tables, Trouble,
};
use keepwatch::wire::Claim;
use keepwatch::wire::cidr::Cidr;
use keepwatch::wire::helper::{MAX_OUTPUT, MAX_REPORT};
use keepwatch::wire::rtnl::{Address, Body, Link, Message};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use super::world::config;
use super::world::kernel::{Kernel, PORT, UP, address, link, name};

const WATCHED: u32 = 5;
const LINK: u32 = 7;
const EBUSY: i32 = 16;

/// A monitor, and a simple kernel that answers on request.
struct Lab<'a> {
    monitor: Monitor<'a>,
    now: Instant,
    links: Vec<Link>,
    addresses: Vec<Address>,
    /// The running dump: its kind, its only interface if it has one, and its sequence number.
    asked: Option<(Dump, Option<u32>, u32)>,
    /// Dumps of more than one interface are interrupted.
    interrupts: bool,
    agent_hangs: bool,
    /// All actions so far.
    actions: Vec<Action>,
}

impl<'a> Lab<'a> {
    fn new(config: MonitorConfig<'a>) -> Self {
        Self {
            monitor: Monitor::new(config),
            now: Instant::ZERO,
            links: vec![link(WATCHED, "ha"), link(LINK, "lan")],
            addresses: Vec::new(),
            asked: None,
            interrupts: false,
            agent_hangs: false,
            actions: Vec::new(),
        }
    }

    /// Returns a lab whose VIP is present and reported.
    fn active(config: MonitorConfig<'a>) -> Self {
        Self::started(Self { addresses: vec![vip()], ..Self::new(config) })
    }

    fn started(mut self) -> Self {
        self.pass(Duration::from_secs(1));
        self.actions.clear();
        self
    }

    fn feed(&mut self, input: &Input) {
        self.monitor.handle(input, self.now);
        while let Some(action) = self.monitor.next_action(self.now) {
            match &action {
                Action::WriteState(_) => {
                    self.monitor.handle(&Input::StateFile(Ok(Replaced::Own)), self.now);
                }
                Action::RequestDump { dump, only, sequence } => {
                    assert_eq!(self.asked.replace((*dump, *only, *sequence)), None);
                }
                Action::WriteMetrics => {
                    self.monitor.handle(&Input::MetricsFile(Ok(())), self.now);
                }
                Action::SendFrame(frame) => {
                    self.monitor.handle(&Input::Sent(frame.address, Ok(())), self.now);
                }
                Action::Notify(_) if !self.agent_hangs => {
                    for outcome in [Outcome::Delivered { by_another: false }, Outcome::Closed] {
                        self.monitor.handle(&Input::Agent(outcome), self.now);
                    }
                }
                Action::HangUp => {
                    let outcome = Outcome::Failed(Failure::TimedOut);
                    self.monitor.handle(&Input::Agent(outcome), self.now);
                }
                _ => {}
            }
            self.actions.push(action);
            if let Some(Action::Exit(_)) = self.actions.last() {
                return;
            }
        }
    }

    fn event(&mut self, body: Body) {
        self.message(body, 0, 0, false);
    }

    fn events(&mut self, bodies: impl Iterator<Item = Body>) {
        bodies.for_each(|body| self.event(body));
    }

    fn message(&mut self, body: Body, sequence: u32, port: u32, interrupted: bool) {
        self.feed(&Input::Netlink(Message { body, sequence, port, interrupted }));
    }

    /// Answers the running dump with all that exists, or with `listed`.
    fn answer(&mut self, listed: Option<Vec<Body>>) {
        let (dump, only, sequence) = self.asked.take().expect("a dump");
        let wanted = |ifindex: u32| only.is_none_or(|only| only == ifindex);
        let listed = listed.unwrap_or_else(|| match dump {
            Dump::Interface => vec![Body::NewLink(self.links[0].clone())],
            Dump::Links => self.links.iter().cloned().map(Body::NewLink).collect(),
            Dump::Addresses => {
                let addresses = self.addresses.iter().filter(|address| wanted(address.ifindex));
                addresses.copied().map(Body::NewAddress).collect()
            }
        });
        let interrupted = self.interrupts && dump != Dump::Interface && only.is_none();
        for body in listed.into_iter().chain([Body::Done(None)]) {
            self.message(body, sequence, PORT, interrupted);
        }
    }

    fn refuse(&mut self) {
        let (_, _, sequence) = self.asked.take().expect("a dump");
        self.message(Body::Error(EBUSY), sequence, PORT, false);
    }

    /// Lets time pass. The queue is empty at each deadline, and all dumps are answered.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.feed(&Input::QueueEmpty);
            match self.monitor.deadline() {
                _ if self.asked.is_some() => self.answer(None),
                Some(deadline) if deadline <= end => self.now = self.now.max(deadline),
                _ => break,
            }
        }
        self.now = end;
    }

    fn all<T>(&self, select: impl Fn(&Action) -> Option<T>) -> Vec<T> {
        self.actions.iter().filter_map(select).collect()
    }

    fn written(&self) -> Vec<State> {
        self.all(|action| if let Action::WriteState(state) = action { Some(*state) } else { None })
    }

    fn dumps(&self) -> Vec<Dump> {
        self.all(|act| if let Action::RequestDump { dump, .. } = act { Some(*dump) } else { None })
    }

    fn lines(&self, is_meant: impl Fn(&LogEvent) -> bool) -> Vec<LogEvent> {
        let line = |action: &_| if let Action::Log(event) = action { Some(*event) } else { None };
        self.all(|action| line(action).filter(&is_meant))
    }

    fn syncs(&self) -> usize {
        self.all(|action| matches!(action, Action::Sync(_)).then_some(())).len()
    }
}

fn announcing(tables: &mut Tables) -> MonitorConfig<'_> {
    MonitorConfig { announce: Some((AnnounceTiming::default(), tables)), ..config() }
}

fn vip() -> Address {
    address(WATCHED, Kernel::default().vip(), AddressFlags::Permanent)
}

/// The watched interface, set down.
fn down() -> Link {
    Link { flags: LinkFlags::empty(), ..link(WATCHED, "ha") }
}

/// The VIP's address on another interface.
fn elsewhere() -> Address {
    Address { ifindex: LINK, ..vip() }
}

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

#[test]
fn synced_is_logged_for_commands_of_its_state() {
    let mut lab = Lab::new(MonitorConfig { sync_conntrack: true, ..config() }).started();
    lab.event(Body::NewAddress(vip()));
    let ended = |status| HelperNews::Ended(CommandResult::Exited(status));
    // The first command was for the state backup.
    for status in [0, 1, 1, 1, 1] {
        lab.feed(&Input::Helper(HelperKind::Conntrackd, ended(status)));
    }
    assert_eq!(lab.syncs(), 4, "the commands of the state primary");
    assert_eq!(lab.lines(|event| matches!(event, LogEvent::Synced { .. })), []);
}

#[test]
fn no_conntrackd_command_during_exit() {
    let mut lab = Lab::new(MonitorConfig { sync_conntrack: true, ..config() }).started();
    lab.agent_hangs = true;
    lab.feed(&Input::Control(Control::Exit(15)));
    lab.event(Body::NewAddress(vip()));
    lab.feed(&Input::QueueEmpty);
    let ended = HelperNews::Ended(CommandResult::Exited(0));
    lab.feed(&Input::Helper(HelperKind::Conntrackd, ended));
    assert_eq!((lab.written(), lab.syncs()), (vec![State::Active], 0));
    let by = lab.now + Duration::from_secs(1);
    assert!(
        lab.monitor.deadline().is_some_and(|at| at > lab.now && at <= by),
        "no deadline for the exit"
    );
    lab.feed(&Input::Agent(Outcome::Delivered { by_another: false }));
    assert_eq!(lab.syncs(), 0);
}

/// With LVS, the address may be on the watched interface and on `lo`.
#[test]
fn misplaced_address_has_a_line_a_minute_on_a_backup() {
    let flap = |lab: &mut Lab| {
        for _ in 0..300 {
            lab.event(Body::NewAddress(elsewhere()));
            lab.now += Duration::from_millis(5);
            lab.event(Body::DelAddress(elsewhere()));
            lab.pass(Duration::from_millis(5));
        }
        lab.lines(|event| matches!(event, LogEvent::Limited(LimitedEvent::Misplaced { .. }, _)))
            .len()
    };
    let mut lab = Lab::active(config());
    assert_eq!(flap(&mut lab), 0, "while the VIP is present");
    lab.addresses.clear();
    lab.event(Body::DelAddress(vip()));
    assert_eq!(flap(&mut lab), 1);
    lab.now += Duration::from_secs(60);
    assert_eq!(flap(&mut lab), 2);
}

#[test]
fn failed_detection_after_a_success_has_a_line_at_once() {
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    for (between, lines) in [(failed, 1), (vip(), 2)] {
        let mut lab = Lab::active(config());
        lab.events([failed, between, failed].map(Body::NewAddress).into_iter());
        let is_meant = |event: &_| matches!(event, LogEvent::Limited(LimitedEvent::DadFailed, _));
        assert_eq!(lab.lines(is_meant).len(), lines);
    }
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

/// Programs can bind to an optimistic address.
#[test]
fn hook_waits_for_the_end_of_detection() {
    let tentative = AddressFlags::Tentative;
    for (flags, states) in [
        (tentative, &[][..]),
        (tentative | AddressFlags::Optimistic, &[HookState::Master]),
        (AddressFlags::Permanent, &[HookState::Master]),
    ] {
        let there = Address { flags, ..vip() };
        let config = MonitorConfig { hook: true, ..config() };
        let mut lab = Lab { addresses: vec![there], ..Lab::new(config) };
        lab.pass(Duration::from_secs(1));
        let run = |act: &_| if let Action::RunHook(state) = act { Some(*state) } else { None };
        assert_eq!(lab.all(run), states, "{flags:?}");
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
    assert_eq!(lab.monitor.status().troubles, [None; 11], "listed");
    lab.event(Body::NewAddress(there));
    assert_eq!(lab.monitor.status().troubles, [None; 11], "an event");
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

/// Beside an agent the end of the delivery has them written.
#[test]
fn metrics_are_written_at_a_reload_without_an_agent() {
    let mut lab =
        Lab::active(MonitorConfig { notify_agent: false, write_metrics: true, ..config() });
    lab.feed(&Input::Control(Control::Reload));
    lab.pass(Duration::ZERO);
    assert!(lab.actions.contains(&Action::WriteMetrics));
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

/// An interface that is down may be about to be deleted, so the line waits.
#[test]
fn cause_of_a_change() {
    let link = |flags| Body::NewLink(Link { flags, ..link(WATCHED, "ha") });
    let failed = Address { flags: AddressFlags::Dadfailed, ..vip() };
    for (events, cause, millis) in [
        ([link(LinkFlags::empty()), Body::DelAddress(vip())], Cause::InterfaceDown, 1000),
        ([link(LinkFlags::Up), Body::DelAddress(vip())], Cause::CarrierLost, 0),
        ([link(UP), Body::DelAddress(vip())], Cause::AddressRemoved, 0),
        ([link(UP), Body::NewAddress(failed)], Cause::DuplicateAddress, 0),
    ] {
        let mut lab = Lab::active(config());
        lab.events(events.into_iter());
        let causes = |lab: &Lab| lab.lines(|event| matches!(event, LogEvent::Changed(_)));
        for at in [0, 999, 1000] {
            lab.now += Duration::from_millis(if at == 1000 { 1 } else { at });
            lab.feed(&Input::QueueEmpty);
            let expected = if at >= millis { vec![LogEvent::Changed(cause)] } else { vec![] };
            assert_eq!(causes(&lab), expected, "{cause:?} after {at} ms");
        }
    }
}

#[test]
fn cause_of_a_change_is_logged_before_the_exit() {
    let mut lab = Lab::active(config());
    lab.events([Body::NewLink(down()), Body::DelAddress(vip())].into_iter());
    lab.feed(&Input::QueueEmpty);
    lab.feed(&Input::Control(Control::Exit(15)));
    let is_meant = |event: &_| *event == LogEvent::Changed(Cause::InterfaceDown);
    assert_eq!(lab.lines(is_meant).len(), 1);
}

/// Unless it is deleted soon.
#[test]
fn interface_that_is_down_has_a_line() {
    let mut lab = Lab::active(config());
    lab.event(Body::NewLink(down()));
    let is_meant =
        |event: &_| matches!(event, LogEvent::Limited(LimitedEvent::InterfaceDown(_), _));
    for (millis, lines) in [(0, 0), (999, 0), (1, 1)] {
        lab.now += Duration::from_millis(millis);
        lab.feed(&Input::QueueEmpty);
        assert_eq!(lab.lines(is_meant).len(), lines, "{}", lab.now);
    }
}

/// Until then, keepalived announces it.
#[test]
fn vip_is_announced_again_after_a_split_brain() {
    let mut tables = Box::new(Tables::new());
    let config = MonitorConfig { detect_split_brain: true, ..announcing(&mut tables) };
    let mut lab = Lab::active(config);
    let announced = |lab: &Lab| lab.actions.iter().any(|act| matches!(act, Action::SendFrame(_)));
    let claim = Claim { mac: [2, 0, 0, 0, 0, 9], ip: vip().cidr.address() };
    lab.feed(&Input::Frame(Some((WATCHED, claim))));
    lab.pass(Duration::from_secs(2));
    let begun = lab.lines(|event| matches!(event, LogEvent::SplitBrain { .. }));
    assert_eq!((begun.len(), announced(&lab)), (1, false));
    lab.pass(Duration::from_secs(40));
    assert!(announced(&lab));
}

#[test]
fn exit_follows_delivery_of_the_namespace_end() {
    let mut lab = Lab { addresses: vec![vip()], agent_hangs: true, ..Lab::new(config()) };
    lab.feed(&Input::QueueEmpty);
    for _ in 0..2 {
        lab.answer(None);
        lab.feed(&Input::QueueEmpty);
    }
    let delivered = Input::Agent(Outcome::Delivered { by_another: false });
    let closed = Input::Agent(Outcome::Closed);
    for input in [&delivered, &closed, &Input::NamespaceGone, &delivered, &closed] {
        assert!(!lab.actions.contains(&Action::Exit(ExitReason::NamespaceGone)), "{input:?}");
        lab.feed(input);
    }
    assert_eq!(lab.actions.last(), Some(&Action::Exit(ExitReason::NamespaceGone)));
}

/// Other programs rely on them.
#[test]
fn words_and_numbers_are_stable() {
    let states = [(State::Active, ActiveWord::Primary), (State::Backup, ActiveWord::Primary)];
    assert_eq!(states.map(|(state, active)| state.word(active)), ["primary", "backup"]);
    let words = [HookState::Master, HookState::Backup, HookState::Fault].map(HookState::word);
    assert_eq!(words, ["MASTER", "BACKUP", "FAULT"]);
    assert_eq!([SyncCommand::Commit, SyncCommand::Bulk].map(SyncCommand::flag), ["-c", "-B"]);
    let helpers = [HelperKind::Conntrackd, HelperKind::Hook].map(HelperKind::name);
    assert_eq!(helpers, ["conntrackd", "hook"]);
    assert_eq!((MAX_OUTPUT, MAX_REPORT), (15_425, 15_445));
}
