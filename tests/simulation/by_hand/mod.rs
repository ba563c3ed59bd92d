//! Cases that are too rare in random lives, and earlier faults, each with as few inputs as possible.

mod effects;
mod listing;
mod split_brain;

use keepwatch::monitor::{
    Action, AnnounceTiming, Dump, Duration, Failure, Input, Instant, LimitedEvent, LogEvent,
    Monitor, MonitorConfig, Outcome, State, Tables,
};
use keepwatch::wire::Claim;
use keepwatch::wire::rtnl::{Address, Body, Link, Message};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use crate::world::config;
use crate::world::kernel::{Kernel, PORT, address, link};

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
    /// What other stations answer to a question, and the frames not read yet.
    answers: Vec<Claim>,
    frames: Vec<Input>,
    /// All actions so far, and their times.
    actions: Vec<Action>,
    times: Vec<Instant>,
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
            answers: Vec::new(),
            frames: Vec::new(),
            actions: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Returns a lab whose VIP is present and reported.
    fn active(config: MonitorConfig<'a>) -> Self {
        Self::started(Self { addresses: vec![vip()], ..Self::new(config) })
    }

    fn started(mut self) -> Self {
        self.pass(Duration::from_secs(1));
        (self.actions, self.times) = (Vec::new(), Vec::new());
        self
    }

    fn feed(&mut self, input: &Input) {
        self.monitor.handle(input, self.now);
        while let Some(action) = self.monitor.next_action(self.now) {
            match &action {
                Action::WriteState(_) => {
                    self.monitor.handle(&Input::StateFile(Ok(())), self.now);
                }
                Action::RequestDump { dump, only, sequence } => {
                    assert_eq!(self.asked.replace((*dump, *only, *sequence)), None);
                }
                Action::PrepareState { .. } => {
                    self.monitor.handle(&Input::StatePrepared(Ok(())), self.now);
                }
                Action::WriteMetrics => {
                    self.monitor.handle(&Input::MetricsFile(Ok(())), self.now);
                }
                Action::SendFrame(frame) => {
                    self.monitor.handle(&Input::Sent(frame.address, Ok(())), self.now);
                }
                Action::SendProbe(probe) => {
                    let answer =
                        |claim: &Claim| Input::Frame(Some((probe.ifindex, *claim, self.now)));
                    self.frames.extend(self.answers.iter().map(answer));
                    self.monitor.handle(&Input::Probed(Ok(())), self.now);
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
            self.times.push(self.now);
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
            while let Some(frame) = self.frames.pop() {
                self.feed(&frame);
            }
            self.feed(&Input::QueueEmpty);
            if !self.frames.is_empty() {
                continue;
            }
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

    /// Returns the number of lines about a misplaced VIP.
    fn misplaced(&self) -> usize {
        let is_meant = |event: &LogEvent| {
            matches!(event, LogEvent::Limited(LimitedEvent::Misplaced { .. }, _))
        };
        self.lines(is_meant).len()
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
