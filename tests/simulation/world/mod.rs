//! A simulated world around the core: a kernel with overruns, disks that fail or hang, an agent that restarts,
//! conntrackd, a failing hook, a namespace that is deleted, and time that jumps. A property test chooses the steps
//! ([`choices`]), or a fuzzer by its bytes.
//!
//! The truth is the state of the simulated kernel. After every input the invariants hold. Once everything works and
//! nothing more happens, the truth has arrived everywhere. Each invariant is an assertion here, whose name begins with
//! the number of its promise: `p6_newest_state_arrives`. Those about time check both directions:
//!
//! - A failed action is retried after 50 ms at the earliest, and never later than promised: see [`retry`].
//! - Equal failures have one line a minute, and one at once after a success. Every log line is checked.
//! - Actions that need a current view happen only at an empty queue.
//! - Deadlines lie ahead, at most as far as promised.
//!
//! A restarted agent answers 200 for a while before it knows its routers, and loses these notifications. On a busy node
//! its threads may overtake each other.

mod actions;
pub mod choices;
mod conntrackd;
mod feed;
mod hook;
mod invariants;
mod keepalived;
pub mod kernel;
pub mod lan;
mod manager;
mod metrics;
mod peers;
mod rest;
mod retry;
mod step;
pub mod wire;

use std::cell::RefCell;

use conntrackd::Conntrackd;
use hook::Hook;
pub use hook::timing;
use keepalived::PidFile;
use keepwatch::monitor::{
    AnnounceTiming, Cause, CommandResult, Control, Duration, HelperKind, HelperNews, HookState,
    Input, Instant, Monitor, MonitorConfig, NamespaceCheck, RENOTIFY, State, Tables, Trouble,
};
use keepwatch::wire::rtnl::Body;
use kernel::{Kernel, QUEUE, UP, name};
use lan::Lan;
use manager::Manager;
use metrics::MetricsFile;
use peers::{Agent, Disk, Reply};
use retry::{Limits, Questions};
pub use step::{Life, Options, Step};
use wire::{PROBE_INTERVAL, Wire};

impl Life {
    /// Executes the steps, and checks that the truth arrives everywhere. Returns the number of transitions.
    pub fn live(&self) -> u64 {
        TABLES.with_borrow_mut(|tables| {
            *tables = Tables::new();
            let mut simulation = Simulation::new(self.options, tables);
            simulation.live(&self.steps);
            simulation.monitor.status().counters.transitions
        })
    }
}

thread_local! {
    /// Shared by all lives, as allocating them for each takes time.
    static TABLES: RefCell<Tables> = const { RefCell::new(Tables::new()) };
}

pub const SIGTERM: i32 = 15;
/// More actions than any input causes.
const MAX_ACTIONS: u32 = 100;
/// The interval between checks of the namespace.
const CHECK: Duration = Duration::from_secs(10);

/// Returns the configuration that watches an IPv4 VIP for an agent only.
pub fn config<'a>() -> MonitorConfig<'a> {
    let vip = Kernel::default().vip();
    MonitorConfig { notify_agent: true, queue_len: QUEUE, ..MonitorConfig::new(name("ha"), vip) }
}

/// The core and everything around it.
#[derive(Debug)]
pub struct Simulation<'a> {
    pub monitor: Monitor<'a>,
    pub now: Instant,
    kernel: Kernel,
    lans: [Lan; 2],
    keepalived: PidFile,
    disk: Disk,
    metrics: MetricsFile,
    agent: Agent,
    conntrackd: Conntrackd,
    hook: Hook,
    options: Options,
    /// The core knows that mounts have changed, and has not checked the namespace since.
    mounts_changed: bool,
    /// A check of the namespace has failed, and is repeated until then.
    check_by: Option<Instant>,
    next_action_fails: bool,
    /// When the core last checked the files.
    checked: Instant,
    /// When the core last checked the namespace.
    looked: Option<Instant>,
    namespace_deleted: bool,
    /// When the core was informed of that.
    namespace_gone: Option<Instant>,
    /// The newest state that the core has reported.
    reported: Option<State>,
    /// Its cause and that of the state before, unless it is a duplicate address or a missing interface.
    causes: [Option<Cause>; 2],
    wire: Wire,
    /// The VIP has failed duplicate address detection at least once.
    vip_has_failed: bool,
    manager: Manager,
    /// All truths since the exit was requested.
    truths_since_asked: Vec<State>,
    /// A new state has been reported, and its write has not been tried yet.
    news: bool,
    /// The write has been tried, and the agent must be notified at once.
    agent_is_next: bool,
    /// A write has been tried since the last input.
    wrote: bool,
    /// The hook must run for this before the next input.
    hook_is_next: Option<HookState>,
    /// The time of the last input, and whether that was `QueueEmpty`.
    fed_at: Instant,
    at_empty_queue: bool,
    /// When the queue was last empty, or none if it may have more since.
    emptied_at: Option<Instant>,
    /// The core was asked to report the state again.
    reloaded: bool,
    /// A signal has asked for the log to be reopened.
    reopens_log: bool,
    exit_requested: bool,
    leave_by: Option<Instant>,
    /// The same while the hook delays the exit.
    hook_leave_by: Option<Instant>,
    pub exited: bool,
    /// The last logged location of a misplaced address.
    misplaced_line: Option<Trouble>,
    /// The number of lines with the cause of a change.
    changes: u64,
    /// The time of the last action, except for checks and probes.
    busy: Instant,
    /// The helper that has ended, and when.
    helper_gone: Option<(HelperKind, Instant)>,
    /// The pid file is another daemon's; then, the core knows it.
    pid_file_is_lost: bool,
    is_superseded: bool,
    sent: bool,
    questions: Questions,
    /// The queue has been read to its end since the last loss of events.
    is_readable: bool,
    limits: Limits,
    /// When the deadline was last due after an empty queue, although nothing was done, and how often in a row.
    stayed: Option<(Instant, u32)>,
}

impl<'a> Simulation<'a> {
    pub fn new(options: Options, tables: &'a mut Tables) -> Self {
        let unfiltered = options.kernel_is_old;
        let mut kernel = Kernel::new(options.ipv6_vip, options.has_virtual_mac, unfiltered);
        kernel.has_own_address = options.has_own_address;
        kernel.is_filtered = !options.announces;
        let mut lans = [(); 2].map(|()| Lan::new(kernel.new_index()));
        if options.has_old_addresses {
            lans = lans.map(Lan::with_old_address);
        }
        let now = Instant::from_secs(1);
        let check = [NamespaceCheck::WhenMountsChange, NamespaceCheck::Every(CHECK)];
        let config = MonitorConfig {
            vip: kernel.vip(),
            seed: options.bits[0].into(),
            announce: options.announces.then_some((AnnounceTiming::default(), tables)),
            detect_split_brain: options.detects_split_brain,
            probe_interval: options.probes.then_some(PROBE_INTERVAL),
            renotify: RENOTIFY.map(Duration::from_secs).into_iter().collect(),
            notify_agent: !options.has_no_agent,
            sync_conntrack: options.syncs_conntrack,
            hook: options.has_hook.then_some(timing(options.delays_hook)),
            write_metrics: options.writes_metrics,
            check_namespace: check[usize::from(options.mounts_are_hidden)],
            check_files: true,
            check_keepalived: options.checks_keepalived,
            notify_manager: options.has_manager,
            watchdog: options.has_watchdog.then_some(manager::PERIOD),
            ..config()
        };
        Self {
            monitor: Monitor::new(config),
            now,
            kernel,
            lans,
            keepalived: PidFile::new(options.checks_keepalived),
            metrics: MetricsFile::new(options.writes_metrics),
            disk: Disk { works: true, ..Disk::default() },
            agent: Agent::new(),
            conntrackd: Conntrackd::new(options.syncs_conntrack),
            hook: Hook::new(options.has_hook),
            options,
            mounts_changed: false,
            check_by: None,
            next_action_fails: false,
            checked: now,
            looked: None,
            namespace_deleted: false,
            namespace_gone: None,
            reported: None,
            causes: [None; 2],
            wire: Wire::default(),
            vip_has_failed: false,
            manager: Manager::default(),
            truths_since_asked: Vec::new(),
            news: false,
            agent_is_next: false,
            wrote: false,
            hook_is_next: None,
            fed_at: now,
            at_empty_queue: false,
            emptied_at: None,
            reloaded: false,
            reopens_log: false,
            exit_requested: false,
            leave_by: None,
            hook_leave_by: None,
            exited: false,
            misplaced_line: None,
            changes: 0,
            busy: now,
            helper_gone: None,
            pid_file_is_lost: false,
            is_superseded: false,
            sent: false,
            questions: Questions::default(),
            is_readable: false,
            limits: Limits::default(),
            stayed: None,
        }
    }

    fn live(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
        self.finish();
    }

    /// Ends all faults, and checks that the truth arrives everywhere.
    pub fn finish(&mut self) {
        self.come_to_rest();
        if self.exited {
            return;
        }
        let truth = self.truth();
        assert_eq!(self.disk.file, Some(truth), "p3_state_file_holds_the_truth");
        let expected = self.reported.filter(|_| !self.options.has_no_agent);
        assert_eq!(self.agent.acknowledged, expected, "p6_newest_state_arrives");
        let acted_on = self.agent.acted_on_at(self.now + Duration::from_secs(30));
        assert_eq!(acted_on, expected, "p6_agent_acts_on_it_last");
        assert_eq!(self.agent.returned, 0, "p6_return_is_logged");
        assert!(self.manager.ready && !self.namespace_deleted, "p10_end_is_found");
        self.manager_knows();
        assert!(self.conntrackd.is_done(), "p13_all_commands_are_run");
        assert!(self.hook_is_done() && self.hook.is_repeated(), "p20_hook_has_the_truth");
        let troubles = self.troubles();
        assert_eq!(self.monitor.status().troubles, troubles, "p14_troubles_are_true");
        let is_misplaced = |trouble: &Trouble| matches!(trouble, Trouble::Misplaced(..));
        let misplaced = troubles.into_iter().flatten().find(is_misplaced);
        assert!(misplaced.is_none() || self.misplaced_line.is_some(), "p14_misplaced_has_a_line");
        assert_eq!(
            self.monitor.status().counters.transitions,
            1 + self.changes,
            "p7_one_line_for_each_change"
        );
        assert!(self.metrics.has(&self.monitor.status()), "p14_metrics_are_true");
        if self.options.announces && truth == State::Active {
            self.lans.iter().for_each(Lan::is_announced);
        }
        if self.options.detects_split_brain && truth == State::Active {
            assert_eq!(self.wire.listening, self.kernel.ifindex, "p12_listens_where_the_vip_is");
            assert!(self.wire.is_bound_to(&self.kernel), "p12_socket_is_bound");
            // Without a carrier an episode stands still.
            if self.kernel.flags.contains(UP) {
                self.wire.assert_all_over();
            }
        }
        self.control(Control::Exit(SIGTERM));
        self.read(usize::MAX);
        assert!(self.exited, "p14_exits_at_once_with_nothing_to_do");
    }

    fn truth(&self) -> State {
        let present =
            self.kernel.ifindex.is_some() && self.kernel.has_vip && !self.kernel.vip_failed;
        if present && self.namespace_gone.is_none() { State::Active } else { State::Backup }
    }

    pub fn step(&mut self, step: Step) {
        self.happen(step);
        self.note_truth();
        self.receive_claims();
    }

    fn note_truth(&mut self) {
        let truth = self.truth();
        let leaves = self.exit_requested || self.helper_gone.is_some();
        if leaves && !self.truths_since_asked.contains(&truth) {
            self.truths_since_asked.push(truth);
        }
    }

    fn emit(&mut self, events: impl IntoIterator<Item = Body>) {
        for event in events {
            self.kernel.emit(event);
        }
    }

    fn control(&mut self, control: Control) {
        self.reloaded |= control == Control::Reload;
        self.reopens_log |= matches!(control, Control::Reload | Control::ReopenLog);
        if control == Control::Reload {
            self.metrics.reloads += 1;
            self.reload();
        }
        if control == Control::Exit(SIGTERM) {
            let is_second = std::mem::replace(&mut self.exit_requested, true);
            self.note_truth();
            let earlier = self.leave_by;
            self.exit_by(self.now + Duration::from_secs(1));
            let hook_by = earlier.unwrap_or(self.now + Duration::from_secs(8));
            self.hook_leave_by = if is_second { self.leave_by } else { Some(hook_by) };
        }
        if control == Control::Status && self.reported.is_some() {
            self.metrics.expect();
        }
        self.feed(&Input::Control(control));
    }

    /// Sets the wall clock: the metrics have other times then.
    fn set_clock(&mut self) {
        if self.reported.is_some() {
            self.metrics.expect();
        }
        self.feed(&Input::ClockSet);
    }

    fn exit_by(&mut self, by: Instant) {
        self.leave_by = Some(self.leave_by.map_or(by, |earlier| earlier.min(by)));
    }

    fn agent_replies(&mut self, reply: Reply) {
        let outcome = self.agent.reply(reply, self.now);
        self.feed(&Input::Agent(outcome));
    }

    fn command_ends(&mut self, result: CommandResult) {
        let result = self.conntrackd.end(result, self.now);
        self.feed(&Input::Helper(HelperKind::Conntrackd, HelperNews::Ended(result)));
    }

    /// Reads up to this many datagrams. An empty queue is an input, too.
    fn read(&mut self, datagrams: usize) {
        for _ in 0..datagrams {
            if self.read_answer() {
                continue;
            }
            let input = self.kernel.read();
            self.feed(&input);
            if input == Input::QueueEmpty {
                return;
            }
        }
    }

    /// Lets time pass, and reads the queue at every deadline on the way.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(deadline) = self.monitor.deadline()
            && deadline <= end
            && !self.exited
        {
            self.now = self.now.max(deadline);
            self.receive_claims();
            self.read(usize::MAX);
            self.receive_claims();
        }
        self.now = self.now.max(end);
    }
}
