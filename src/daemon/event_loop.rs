//! The loop: waits, reads what is ready, passes it to the core, and has the core's actions executed. [`crate::monitor`]
//! says what the core expects of the loop.

use std::io::ErrorKind;
use std::os::fd::RawFd;

use mio::{Events, Poll, Token};
use nix::sys::signalfd::SignalFd;
use nix::sys::timerfd::TimerFd;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use signal_hook::low_level::signal_name;

use super::sources::{AGENT, CLOCK, CONNTRACKD, HOOK, MOUNTS, PACKETS, ROUTE, SIGNALS, SOURCES};
use crate::helper::Helper;
use crate::log::{self, Names, debug, info};
use crate::metrics::MetricsFile;
use crate::monitor::{
    Control, Duration, ExitReason, HelperKind, HookRun, Input, Instant, Monitor, Predecessor,
    Source,
};
use crate::sys::{
    agent::Agent,
    clock,
    keepalived::KeepalivedFile,
    netlink::{self, EventSocket, QuestionSocket},
    netns::NamespaceWatch,
    packet::PacketSocket,
    pid_file::PidFile,
    service_manager::ReadinessNotifier,
    signals,
    state_file::StateFile,
};
use crate::wire::helper::SyncRequest;

type Ready = [bool; SOURCES];

/// Netlink datagrams read in one turn, so that a burst starves neither the agent nor signals.
const DATAGRAMS_PER_TURN: usize = 64;

/// How long to hold log lines so that the one about the agent's reply joins the same write.
const LOG_BATCH_DELAY: Duration = Duration::from_millis(10);

/// The running daemon: see [`Daemon::start`] and [`Daemon::run`].
#[derive(Debug)]
pub struct Daemon<'a> {
    pub(crate) names: Names<'a>,
    pub(crate) poll: Poll,
    pub(crate) events: Events,
    pub(crate) route: EventSocket,
    pub(crate) questions: QuestionSocket,
    pub(crate) signals: SignalFd,
    /// Becomes readable when the wall clock is set.
    pub(crate) clock: TimerFd,
    pub(crate) agent: Option<Agent>,
    pub(crate) state_file: StateFile,
    pub(crate) metrics_file: Option<MetricsFile>,
    pub(crate) starter: &'a mut ReadinessNotifier,
    pub(crate) packets: Option<PacketSocket>,
    pub(crate) namespace: Option<NamespaceWatch>,
    pub(crate) keepalived: Option<KeepalivedFile>,
    pub(crate) conntrackd: Option<Helper<SyncRequest>>,
    pub(crate) hook: Option<Helper<HookRun>>,
    /// Removed and unlocked after the helpers above have ended: fields are dropped in order.
    pub(crate) pid_file: Option<PidFile>,
    /// None after another state.
    pub(crate) predecessor: Option<Predecessor>,
    /// Too large for the stack.
    pub(crate) monitor: Box<Monitor<'a>>,
    /// Whether frames are read; otherwise the kernel drops them once its buffer is full.
    pub(crate) reads_frames: bool,
    /// Whether log lines wait for the agent's reply.
    pub(crate) log_waits: bool,
    /// The socket of a log daemon without room, which is watched.
    pub(crate) full_log: Option<RawFd>,
    pub(crate) exit_reason: Option<ExitReason>,
}

impl Daemon<'_> {
    /// Runs until the core exits. Returns why it does. Allocates nothing.
    pub fn run(&mut self) -> ExitReason {
        let mut buffer = netlink::event_buffer();
        let mut ready = Ready::default();
        // The poll has not reported anything yet.
        ready[ROUTE] = true;
        loop {
            let unread = self.handle_ready(ready, &mut *buffer);
            if let Some(reason) = self.exit_reason {
                if let ExitReason::Signal(signal) = reason
                    && let Some(name) = signal_name(signal)
                {
                    info!("exiting on {}", name);
                }
                self.log_kills();
                log::finish();
                return reason;
            }
            ready = self.wait(unread);
        }
    }

    /// Handles the sources that are ready. Returns those with more to read.
    fn handle_ready(&mut self, ready: Ready, buffer: &mut [u8]) -> Ready {
        let mut unread = Ready::default();
        // The kernel first, so that a signal that follows a change of address finds it handled. Events that are newer than
        // an answer are read only after it.
        if !self.questions.is_open() || self.read_answer() {
            // Other stations' answers come before the end of the time for them.
            if ready[PACKETS] {
                self.handle_frames(buffer);
            }
            // What frames have caused takes time, in which the VIP may have gone: a backup would ask or announce.
            if ready[ROUTE] || ready[PACKETS] {
                unread[ROUTE] = !self.read_events(buffer);
            }
            if !unread[ROUTE] {
                self.dispatch(&Input::QueueEmpty);
            }
        } else {
            unread[PACKETS] = ready[PACKETS];
        }
        if ready[SIGNALS] {
            unread[SIGNALS] = !self.handle_signals();
        }
        while ready[AGENT]
            && let Some(outcome) = self.agent.as_mut().and_then(Agent::advance)
        {
            self.dispatch(&Input::Agent(outcome));
        }
        if ready[MOUNTS] {
            self.unwatch_mounts();
            self.dispatch(&Input::MountsChanged);
        }
        if ready[CLOCK] {
            // Fails with ECANCELED, which re-arms it.
            let _ = self.clock.wait();
            self.dispatch(&Input::ClockSet);
        }
        if ready[CONNTRACKD] {
            unread[CONNTRACKD] = !self.handle_helper(HelperKind::Conntrackd, buffer);
        }
        if ready[HOOK] {
            unread[HOOK] = !self.handle_helper(HelperKind::Hook, buffer);
        }
        // The poll does not report the rest of an answer to a question that any of these has caused.
        unread[ROUTE] |= self.questions.is_open();
        unread
    }

    /// Sleeps until a source is ready or an action is due. With an `unread` source it does not sleep, as the poll is
    /// edge-triggered (`epoll(7)`) and does not report the source again.
    fn wait(&mut self, unread: Ready) -> Ready {
        let mut ready = unread;
        let waiting = self.agent.as_ref().is_some_and(Agent::is_waiting);
        self.log_waits = waiting && !self.log_waits;
        if !self.log_waits {
            self.flush_log();
        }
        let timeout = if unread.contains(&true) { Some(Duration::ZERO) } else { self.timeout() };
        let polled = self.poll.poll(&mut self.events, timeout.map(Into::into));
        match polled {
            // A timeout proves no empty queue: the process may have been stopped since.
            Ok(()) => ready[ROUTE] |= self.events.is_empty(),
            // SIGCONT, before any source was checked: only a read shows that the netlink queue is empty.
            Err(error) if error.kind() == ErrorKind::Interrupted => ready[ROUTE] = true,
            // The exit waits for file and agent, which a turn over all sources serves.
            Err(error) => {
                self.dispatch(&Input::SourceFailed(Source::Poll, error.into()));
                return [true; SOURCES];
            }
        }
        for event in &self.events {
            if let (Token(AGENT), Some(agent)) = (event.token(), &mut self.agent) {
                agent.handle_event(event.is_read_closed());
            }
            if let Some(ready) = ready.get_mut(event.token().0) {
                *ready = true;
            }
        }
        ready
    }

    /// Returns how long to sleep if nothing happens. `None`: for ever.
    fn timeout(&self) -> Option<Duration> {
        let deadline = self.monitor.deadline()?;
        // Writing the log may have blocked on disk since the last input.
        let now = clock::now();
        let timeout = if deadline > now { deadline - now } else { Duration::ZERO };
        Some(if self.log_waits { timeout.min(LOG_BATCH_DELAY) } else { timeout })
    }

    /// Reads frames, and before each the events that precede it: where a link of this host has gone, a claim from its MAC is
    /// another station's. The core may stop the reading.
    fn handle_frames(&mut self, buffer: &mut [u8]) {
        while self.reads_frames
            && let Some(frame) = self.packets.as_mut().and_then(PacketSocket::receive)
        {
            self.read_events(buffer);
            self.dispatch(&frame);
        }
    }

    /// Reads netlink datagrams, up to [`DATAGRAMS_PER_TURN`]. Returns whether the queue is empty.
    fn read_events(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..DATAGRAMS_PER_TURN {
            if self.questions.is_open() {
                return false;
            }
            let Some(inputs) = self.route.receive(buffer) else { return true };
            for input in inputs {
                self.dispatch(&input);
            }
        }
        false
    }

    /// Reads a part of the kernel's answer, which may have many. Returns whether that was the last.
    fn read_answer(&mut self) -> bool {
        let end = self.read_part();
        if let Some(end) = &end {
            self.dispatch(end);
        }
        end.is_some()
    }

    /// Reads a part of the kernel's answer, and passes its entries in. Returns its end.
    pub(super) fn read_part(&mut self) -> Option<Input> {
        let Self { questions, monitor, .. } = self;
        questions.read_part(|entry| {
            pass_in(monitor, entry);
        })
    }

    /// Reads a bounded number of signals, as they may arrive faster than they are handled. Returns whether none is left.
    fn handle_signals(&mut self) -> bool {
        for _ in signals::HANDLED {
            let signal = match signals::next(&self.signals) {
                Ok(Some(signal)) => signal,
                Ok(None) => return true,
                Err(errno) if errno.is_temporary() => return false,
                Err(errno) => {
                    self.dispatch(&Input::SourceFailed(Source::Signals, errno));
                    return true;
                }
            };
            let control = match signal {
                SIGHUP => Control::Reload,
                SIGUSR1 => Control::Status,
                SIGUSR2 => Control::ReopenLog,
                _ => Control::Exit(signal),
            };
            self.dispatch(&Input::Control(control));
        }
        false
    }

    /// Passes an input in, then executes actions and passes their results in until none is left.
    pub(super) fn dispatch(&mut self, input: &Input) {
        let mut now = pass_in(&mut self.monitor, input);
        while self.exit_reason.is_none()
            && let Some(action) = self.monitor.next_action(now)
        {
            let result = match self.execute(&action) {
                Ok(None) => continue,
                Ok(Some(result)) => result,
                Err(errno) => Input::Failed(action, errno),
            };
            now = pass_in(&mut self.monitor, &result);
        }
    }
}

/// Passes an input to the core. Returns its time.
fn pass_in(monitor: &mut Monitor<'_>, input: &Input) -> Instant {
    let now = clock::now();
    debug!("{}", format_args!("{input:?}"));
    monitor.handle(input, now);
    now
}
