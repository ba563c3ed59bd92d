//! The loop: wait, read what is ready, have the core decide, execute that. What it has to keep to is in
//! [`crate::monitor`].

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::signalfd::SignalFd;
use signal_hook::consts::{SIGHUP, SIGUSR1};
use signal_hook::low_level::signal_name;

use crate::errno::Errno;
use crate::log::{self, DisplayArg, TroubleList, debug, error, info, warning};
use crate::metrics::MetricsFile;
use crate::monitor::{
    Action, Control, Duration, ExitReason, HelperKind, Input, Instant, ManagerNotice, Monitor,
    Outcome, State,
};
use crate::options::Config;
use crate::sys::agent::Agent;
use crate::sys::atomic_file::AtomicFile;
use crate::sys::clock;
use crate::sys::helper::Helper;
use crate::sys::netlink::{self, RouteSocket};
use crate::sys::netns::NamespaceWatch;
use crate::sys::packet::PacketSocket;
use crate::sys::pid_file::PidFile;
use crate::sys::service_manager::ReadinessNotifier;
use crate::sys::signals;
use crate::wire::http;

// What the poll reports on.
const ROUTE: usize = 0;
const SIGNALS: usize = 1;
const PACKETS: usize = 2;
/// The mounts, of which names of network namespaces are some.
const MOUNTS: usize = 3;
const CONNTRACKD: usize = 4;
const HOOK: usize = 5;
const AGENT: usize = 6;
type Ready = [bool; 7];

/// Netlink datagrams read in one turn, so that a burst starves neither the agent nor signals.
const DATAGRAMS_PER_TURN: usize = 64;

/// How long to hold log lines so that the one about the agent's reply joins the same write.
const LOG_BATCH_DELAY: Duration = Duration::from_millis(10);

/// The running daemon: see [`Daemon::start`] and [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon<'a> {
    pub(crate) config: &'a Config,
    pub(crate) poll: Poll,
    pub(crate) events: Events,
    pub(crate) route: RouteSocket,
    /// Install the address filter in the kernel.
    pub(crate) filter_events: bool,
    pub(crate) signals: SignalFd,
    pub(crate) agent: Option<Agent>,
    pub(crate) state_file: AtomicFile,
    /// Removed when the daemon ends.
    pub(crate) metrics_file: Option<MetricsFile>,
    /// Removed when the daemon ends.
    pub(crate) _pid_file: Option<PidFile>,
    pub(crate) starter: &'a mut ReadinessNotifier,
    pub(crate) packets: Option<PacketSocket>,
    pub(crate) namespace: Option<NamespaceWatch>,
    pub(crate) conntrackd: Option<Helper>,
    pub(crate) hook: Option<Helper>,
    /// Too much to be moved about on the stack.
    pub(crate) monitor: Box<Monitor<'a>>,
    /// Whether frames are read, or left to the kernel to drop.
    pub(crate) reads_frames: bool,
    /// Lines wait for the agent's reply.
    pub(crate) log_waits: bool,
    /// The time of the last input.
    pub(crate) now: Instant,
    pub(crate) ending: Option<ExitReason>,
}

impl Daemon<'_> {
    /// Runs until it is asked to exit, or there is nothing left to watch. Returns which. Allocates nothing.
    ///
    /// # Errors
    /// One line, if the poll itself fails, which nothing can be done about.
    pub fn run(&mut self) -> Result<ExitReason, String> {
        let mut buffer = netlink::buffer();
        let mut ready = Ready::default();
        // The first look, before there is anything to wait for; from then on the poll reports.
        ready[ROUTE] = true;
        loop {
            let is_drained = self.handle_ready(ready, &mut buffer);
            if let Some(reason) = self.ending {
                if let ExitReason::Signal(signal) = reason
                    && let Some(name) = signal_name(signal)
                {
                    info!("exiting on {}", name);
                }
                self.log_kills();
                log::flush();
                return Ok(reason);
            }
            ready = self.wait(is_drained)?;
        }
    }

    /// Handles what is ready. Returns whether the route socket has been read to its end.
    fn handle_ready(&mut self, ready: Ready, buffer: &mut netlink::Buffer) -> bool {
        // The kernel first, so that whoever sends a signal after changing an address finds that taken
        // into account.
        let is_drained = !ready[ROUTE] || self.drain_route(buffer);
        if !ready[ROUTE] {
            self.handle(&Input::QueueEmpty, self.now);
        }
        if ready[SIGNALS] {
            self.handle_signals();
        }
        if ready[AGENT] {
            self.handle_replies();
        }
        if ready[PACKETS] {
            self.handle_frames();
        }
        if ready[MOUNTS] {
            self.watch_mounts(None);
            self.dispatch(&Input::MountsChanged);
        }
        let helpers =
            [(ready[CONNTRACKD], HelperKind::Conntrackd), (ready[HOOK], HelperKind::Hook)];
        for (is_ready, kind) in helpers {
            if is_ready {
                self.handle_helper(kind, &mut **buffer);
            }
        }
        is_drained
    }

    /// Sleeps until something is ready or due, unless there is more to be read from the route socket. The poll is
    /// edge-triggered (`epoll(7)`), and so does not report that.
    fn wait(&mut self, is_drained: bool) -> Result<Ready, String> {
        let waiting = self.agent.as_ref().is_some_and(Agent::is_waiting);
        self.log_waits = waiting && !self.log_waits;
        if !self.log_waits {
            log::flush();
        }
        loop {
            let mut timeout = self.timeout();
            if self.log_waits {
                timeout = timeout.map(|timeout| timeout.min(LOG_BATCH_DELAY));
            }
            if !is_drained {
                timeout = Some(Duration::ZERO);
            }
            let polled = self.poll.poll(&mut self.events, timeout.map(Into::into));
            self.now = clock::now();
            match polled {
                Ok(()) => break,
                // SIGCONT: whether something is ready has not been looked at.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    error!("epoll: {}", DisplayArg(&error));
                    log::flush();
                    return Err(format!("epoll: {error}"));
                }
            }
        }
        let mut ready = Ready::default();
        ready[ROUTE] = !is_drained;
        for event in &self.events {
            if let Some(ready) = ready.get_mut(event.token().0) {
                *ready = true;
            }
        }
        Ok(ready)
    }

    /// How long to sleep if nothing happens. None: for ever.
    fn timeout(&self) -> Option<Duration> {
        let deadline = self.monitor.deadline()?;
        // Since the last input a disk may have hung under the log.
        let now = clock::now();
        Some(if deadline > now { deadline - now } else { Duration::ZERO })
    }

    /// Reads netlink datagrams, but only so many in one turn. Returns whether these were all.
    fn drain_route(&mut self, buffer: &mut netlink::Buffer) -> bool {
        for _ in 0..DATAGRAMS_PER_TURN {
            let Some(inputs) = self.route.receive(buffer) else {
                self.dispatch(&Input::QueueEmpty);
                return true;
            };
            for input in inputs {
                self.dispatch(&input);
            }
        }
        false
    }

    fn handle_signals(&mut self) {
        while let Some(signal) = signals::next(&self.signals) {
            self.dispatch(&Input::Control(match signal {
                SIGHUP => Control::Reload,
                SIGUSR1 => Control::Status,
                _ => Control::Exit(signal),
            }));
        }
    }

    fn handle_replies(&mut self) {
        while let Some(outcome) = self.agent.as_mut().and_then(Agent::advance) {
            self.dispatch(&Input::Agent(outcome));
        }
    }

    /// Reads frames until there are no more, or the core has had enough of them.
    fn handle_frames(&mut self) {
        while self.reads_frames
            && let Some(input) = self.packets.as_ref().and_then(PacketSocket::receive)
        {
            self.dispatch(&input);
        }
    }

    /// Has the poll report everything there is but the agent, which comes and goes.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        self.watch(self.route.fd().as_raw_fd(), ROUTE, Some(Interest::READABLE))?;
        self.watch(self.signals.as_raw_fd(), SIGNALS, Some(Interest::READABLE))?;
        for (helper, source) in [(&self.conntrackd, CONNTRACKD), (&self.hook, HOOK)] {
            if let Some(helper) = helper {
                self.watch(helper.fd(), source, Some(Interest::READABLE))?;
            }
        }
        Ok(())
    }

    /// Has the poll report a source, or no longer.
    fn watch(&self, fd: RawFd, source: usize, interest: Option<Interest>) -> io::Result<()> {
        let (registry, mut fd) = (self.poll.registry(), SourceFd(&fd));
        match interest {
            Some(interest) => registry.register(&mut fd, Token(source), interest),
            None => registry.deregister(&mut fd),
        }
    }

    /// Has the poll report the next mount or unmount. From there to the next look at the namespace there may be
    /// many more, which would wake the daemon for nothing.
    fn watch_mounts(&self, interest: Option<Interest>) {
        if let Some(fd) = self.namespace.as_ref().and_then(NamespaceWatch::fd) {
            // Fails if it is registered already.
            let _ = self.watch(fd, MOUNTS, interest);
        }
    }

    /// Has the poll report frames or not. A frame that is there already is reported once registered.
    fn set_reads_frames(&mut self, reads_frames: bool) {
        self.reads_frames = reads_frames;
        if let Some(packets) = &self.packets {
            // Were that to fail, each frame would wake the daemon, and be left.
            let interest = reads_frames.then_some(Interest::READABLE);
            let _ = self.watch(packets.as_raw_fd(), PACKETS, interest);
        }
    }

    /// Hands in what has happened just now, however long a disk has kept us meanwhile, and does what follows.
    pub(super) fn dispatch(&mut self, input: &Input) {
        self.handle(input, clock::now());
    }

    /// Hands in what happened at `now`, and executes one action after another, whose results it hands in, too.
    fn handle(&mut self, input: &Input, now: Instant) {
        self.hand_in(input, now);
        while self.ending.is_none()
            && let Some(action) = self.monitor.next_action(self.now)
        {
            if let Some(result) = self.execute(&action) {
                self.hand_in(&result, clock::now());
            }
        }
    }

    fn hand_in(&mut self, input: &Input, now: Instant) {
        debug!("{}", DisplayArg(format_args!("{input:?}")));
        self.now = now;
        self.monitor.handle(input, now);
    }

    fn execute(&mut self, action: &Action) -> Option<Input> {
        match *action {
            Action::RequestDump { dump, sequence } => {
                let requested = self.route.request(dump, sequence, &self.config.interface);
                return requested.err().map(Input::RequestFailed);
            }
            Action::WriteState(state) => {
                let word = state.word(self.config.active_word).as_bytes();
                let written = self.state_file.replace(word);
                return Some(Input::StateFile(written.map(|_| state)));
            }
            Action::WriteMetrics => {
                let status = self.monitor.status();
                return Some(Input::MetricsFile(self.metrics_file.as_mut()?.write(&status)));
            }
            Action::Notify(state) => {
                let word = state.word(self.config.active_word);
                // It has room for every word.
                let request = http::encode(&self.config.router_id, word).ok()?;
                let sent =
                    self.agent.as_mut()?.notify(&request, self.poll.registry(), Token(AGENT));
                return sent.err().map(|failure| Input::Agent(Outcome::Failed(failure)));
            }
            Action::SetAddressFilter(ifindex) if self.filter_events => {
                let ip = self.config.vip.address();
                if let Err(errno) = self.route.set_address_filter(ifindex, ip) {
                    warning!(
                        "cannot install netlink filter: {}; receiving all address events",
                        DisplayArg(errno)
                    );
                    self.filter_events = false;
                }
            }
            Action::SetAddressFilter(_) => {}
            Action::WatchClaims { ifindex, rebind } => {
                let listen = self.packets.as_mut().map(|packets| packets.listen(ifindex, rebind));
                if let Some(Err(errno)) = listen {
                    warning!("cannot listen for claims of the VIP: {}", DisplayArg(errno));
                }
            }
            Action::ReadFrames(reads_frames) => self.set_reads_frames(reads_frames),
            Action::SendFrame(ref announcement) => {
                let sent = self.packets.as_mut().map(|packets| packets.send(announcement));
                return sent.map(|sent| Input::Sent(announcement.address, sent));
            }
            Action::SendProbe(ref probe) => {
                return self.packets.as_ref().map(|packets| Input::Probed(packets.probe(probe)));
            }
            Action::HangUp => {
                let agent = self.agent.as_mut()?;
                let outcome = agent.advance().unwrap_or_else(|| agent.hang_up());
                return Some(Input::Agent(outcome));
            }
            Action::SignalReady => self.starter.ready(),
            Action::TellManager(notice) => self.tell_manager(notice),
            Action::Log(ref event) => self.config.log_event(event),
            Action::LogStatus => self.config.log_status(&self.monitor.status()),
            Action::ReopenLog => log::reopen(),
            Action::Run(request) => self.request(request),
            Action::CheckNamespace => {
                // First of all, so that no change after the look is missed.
                self.watch_mounts(Some(Interest::PRIORITY));
                let gone = self.namespace.as_ref()?.is_gone();
                return (gone == Ok(true)).then_some(Input::NamespaceGone);
            }
            Action::Exit(reason) => self.ending = Some(reason),
        }
        None
    }

    fn tell_manager(&self, notice: ManagerNotice) {
        let Some(manager) = self.starter.manager() else { return };
        let (state, troubles) = match notice {
            ManagerNotice::Reloading(at) => {
                let micros = at.total_micros();
                return manager.send(format_args!("RELOADING=1\nMONOTONIC_USEC={micros}"));
            }
            ManagerNotice::Stopping => return manager.send(format_args!("STOPPING=1")),
            ManagerNotice::Alive => return manager.send(format_args!("WATCHDOG=1")),
            ManagerNotice::Status { state, ref troubles } => (state, TroubleList(troubles)),
        };
        let verb = if state == State::Active { "is on" } else { "is not on" };
        let Config { active_word, vip, interface, .. } = self.config;
        let word = state.word(*active_word);
        manager.send(format_args!("STATUS={word}: {vip} {verb} {interface}{troubles}"));
    }
}
