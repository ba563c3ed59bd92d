//! Cases that are too rare in random lives, and earlier faults, each with as few inputs as possible.

mod effects;
mod questions;
mod split_brain;
mod two_routers;

use std::net::IpAddr;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, AnnounceTiming, Answer, Duration, Failure, HookState, Input, Instant, LimitedEvent,
    LogEvent, Monitor, MonitorConfig, Outcome, Question, State, Tables,
};
use keepwatch::wire::Claim;
use keepwatch::wire::rtnl::{Address, Body, Link};
use netlink_packet_route::address::AddressFlags;
use netlink_packet_route::link::LinkFlags;

use crate::world::config;
use crate::world::kernel::{Kernel, address, link, name};

const WATCHED: u32 = 5;
const LINK: u32 = 7;
const EBUSY: Errno = Errno(16);
const DELIVERED: Outcome = Outcome::Delivered { by_another: false };

/// A monitor, and a simple kernel that answers on request.
struct Lab<'a> {
    monitor: Monitor<'a>,
    /// When the test's own inputs begin.
    start: Instant,
    now: Instant,
    links: Vec<Link>,
    addresses: Vec<Address>,
    /// Answers about more than one interface are interrupted.
    interrupts: bool,
    /// Answers about the addresses of one interface come in parts, so they may have gaps.
    divides: bool,
    /// A link with the watched name as alternative name.
    alternative: Option<Link>,
    agent_hangs: bool,
    /// What other stations answer to a probe, and the frames not read yet.
    answers: Vec<Claim>,
    frames: Vec<Input>,
    /// All actions so far, and their times.
    actions: Vec<(Action, Instant)>,
}

impl<'a> Lab<'a> {
    fn new(config: MonitorConfig<'a>) -> Self {
        Self {
            monitor: Monitor::new(config),
            start: Instant::ZERO,
            now: Instant::ZERO,
            links: vec![link(WATCHED, "ha"), link(LINK, "lan")],
            addresses: Vec::new(),
            interrupts: false,
            divides: false,
            alternative: None,
            agent_hangs: false,
            answers: Vec::new(),
            frames: Vec::new(),
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
        self.start = self.now;
        self
    }

    fn feed(&mut self, input: &Input) {
        self.monitor.handle(input, self.now);
        while let Some(action) = self.monitor.next_action(self.now) {
            let results = match &action {
                Action::WriteState(_) => vec![Input::StateFile(Ok(()))],
                Action::PrepareState { .. } => vec![Input::StatePrepared(Ok(()))],
                Action::Ask(question) => self.answer(*question),
                Action::WriteMetrics => vec![Input::MetricsFile(Ok(()))],
                Action::SendFrame(frame) => vec![Input::Sent(frame.address, Ok(()))],
                Action::SendProbe(probe) => {
                    let answer =
                        |claim: &Claim| Input::Frame(Some((probe.ifindex, *claim, self.now)));
                    self.frames.extend(self.answers.iter().map(answer));
                    vec![Input::Probed(Ok(()))]
                }
                Action::Notify(_) if !self.agent_hangs => {
                    [DELIVERED, Outcome::Closed].map(Input::Agent).into()
                }
                Action::HangUp => vec![Input::Agent(Outcome::Failed(Failure::TimedOut))],
                _ => vec![],
            };
            for result in results {
                self.monitor.handle(&result, self.now);
            }
            let is_exit = matches!(action, Action::Exit(_));
            self.actions.push((action, self.now));
            if is_exit {
                return;
            }
        }
    }

    fn event(&mut self, body: Body) {
        self.feed(&Input::Event(body));
    }

    fn events(&mut self, bodies: impl Iterator<Item = Body>) {
        bodies.for_each(|body| self.event(body));
    }

    /// Returns the answer to a question, with all that exists.
    fn answer(&self, question: Question) -> Vec<Input> {
        let links = self.links.iter().cloned();
        let watched = Some(name("ha"));
        let listed: Vec<_> = match question {
            Question::Interface => {
                let named = links.clone().find(|link| link.name == watched);
                named.or(self.alternative.clone()).map(Body::NewLink).into_iter().collect()
            }
            Question::Link(ifindex) => {
                links.filter(|link| link.ifindex == ifindex).map(Body::NewLink).collect()
            }
            Question::Links => links.map(Body::NewLink).collect(),
            Question::Addresses { only } => {
                let wanted = |address: &&Address| only.is_none_or(|only| only == address.ifindex);
                self.addresses.iter().filter(wanted).copied().map(Body::NewAddress).collect()
            }
        };
        let is_all = matches!(question, Question::Links | Question::Addresses { only: None });
        let is_alone = matches!(question, Question::Addresses { only: Some(_) });
        let has_gaps = self.interrupts && is_all || self.divides && is_alone;
        let end = if has_gaps { Answer::Interrupted } else { Answer::Complete };
        listed.into_iter().map(Input::Entry).chain([Input::Answered(end)]).collect()
    }

    /// Lets time pass. The queue is empty at each deadline.
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
                Some(deadline) if deadline <= end => self.now = self.now.max(deadline),
                _ => break,
            }
        }
        self.now = end;
    }

    fn all<T>(&self, select: impl Fn(&Action) -> Option<T>) -> Vec<T> {
        self.actions.iter().filter_map(|(action, _)| select(action)).collect()
    }

    fn written(&self) -> Vec<State> {
        self.all(|action| if let Action::WriteState(state) = action { Some(*state) } else { None })
    }

    /// Returns the address in each frame.
    fn announced(&self) -> Vec<IpAddr> {
        self.all(|action| match action {
            Action::SendFrame(frame) => Some(frame.address.ip),
            _ => None,
        })
    }

    fn has(&self, wanted: &Action) -> bool {
        self.actions.iter().any(|(action, _)| action == wanted)
    }

    fn last(&self) -> Option<&Action> {
        self.actions.last().map(|(action, _)| action)
    }

    /// Returns the states of the hook's runs.
    fn runs(&self) -> Vec<HookState> {
        self.all(|act| if let Action::RunHook { state, .. } = act { Some(*state) } else { None })
    }

    fn questions(&self) -> Vec<Question> {
        self.all(|act| if let Action::Ask(question) = act { Some(*question) } else { None })
    }

    fn lines(&self, is_meant: impl Fn(&LogEvent) -> bool) -> Vec<LogEvent> {
        let line = |action: &_| if let Action::Log(event) = action { Some(*event) } else { None };
        self.all(|action| line(action).filter(&is_meant))
    }

    /// Returns the number of such lines among those of which one a minute is logged.
    fn limited(&self, is_meant: impl Fn(&LimitedEvent) -> bool) -> usize {
        self.lines(|line| matches!(line, LogEvent::Limited(event, _) if is_meant(event))).len()
    }

    /// Returns the number of lines about a misplaced VIP.
    fn misplaced(&self) -> usize {
        self.limited(|event| matches!(event, LimitedEvent::Misplaced { .. }))
    }
}

fn announcing(tables: &mut Tables) -> MonitorConfig<'_> {
    MonitorConfig { announce: Some((AnnounceTiming::default(), tables)), ..config() }
}

fn vip() -> Address {
    address(WATCHED, Kernel::default().vip(), AddressFlags::Permanent)
}

/// The questions about the watched interface.
const WATCHED_QUESTIONS: [Question; 2] =
    [Question::Interface, Question::Addresses { only: Some(WATCHED) }];
const ALL: Question = Question::Addresses { only: None };

/// The watched interface, set down.
fn down() -> Link {
    Link { flags: LinkFlags::empty(), ..link(WATCHED, "ha") }
}

/// The VIP's address on another interface.
fn elsewhere() -> Address {
    Address { ifindex: LINK, ..vip() }
}
