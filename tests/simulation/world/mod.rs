//! A world for the core to live in: a kernel with a queue that overflows, disks that fail or hang, an agent that comes
//! and goes, and whose reply is not read at once, conntrackd, a hook that fails, a namespace that is deleted, and time
//! that jumps. A property test chooses what happens ([`choices`]), and so does a fuzzer with its bytes.
//!
//! After every input the invariants hold, and once everything works and nothing more happens, the truth has arrived
//! everywhere. Each invariant is an assertion here. Its name begins with the number of the promise that it checks:
//! `p6_newest_state_arrives`. Those of limits in time work in both directions:
//!
//! - What has failed is tried again after 50 ms at the earliest, and never later than promised: see [`retry`].
//! - Of equal failures there is one line a minute, and one at once after a success. Every line of the log is checked.
//! - What needs the kernel's latest news is done only at an empty queue.
//! - Whatever is scheduled lies ahead, and at most as far as promised.
//!
//! An agent that was away answers 200 for a while before it knows its routers, and forgets the report.

mod actions;
pub mod choices;
mod feed;
mod hook;
mod invariants;
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

use hook::Hook;
use keepwatch::monitor::{
    AnnounceTiming, Cause, CommandResult, Control, Duration, HelperKind, HelperNews, HookState,
    Input, Instant, Monitor, MonitorConfig, NamespaceCheck, State, Tables, Trouble,
};
use keepwatch::wire::rtnl::Body;
use kernel::{Kernel, PORT, name};
use lan::Lan;
use manager::Manager;
use metrics::MetricsFile;
use peers::{Agent, Conntrackd, Disk, Reply};
use retry::{Dumps, Limits};
pub use step::{Life, Options, Step};
use wire::{PROBE_INTERVAL, Wire};

impl Life {
    /// Lives it, lets the world come to rest, and checks that the truth has arrived everywhere.
    /// Returns how often the state has been reported as a new one.
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
    /// Large enough for it to take time to make them anew for each life.
    static TABLES: RefCell<Tables> = const { RefCell::new(Tables::new()) };
}

/// By this signal.
const SIGTERM: i32 = 15;
/// More than one input ever brings about.
const MAX_ACTIONS: u32 = 100;
/// How often the core looks whether the namespace is there.
const CHECK: Duration = Duration::from_secs(10);

/// Watches an IPv4 VIP and does nothing else.
pub fn config<'a>() -> MonitorConfig<'a> {
    let vip = Kernel::default().vip();
    MonitorConfig { notify_agent: true, ..MonitorConfig::new(name("ha"), vip, PORT) }
}

/// The core and everything around it.
#[derive(Debug)]
pub struct Simulation<'a> {
    pub monitor: Monitor<'a>,
    pub now: Instant,
    kernel: Kernel,
    lans: [Lan; 2],
    disk: Disk,
    metrics: MetricsFile,
    agent: Agent,
    conntrackd: Conntrackd,
    hook: Hook,
    options: Options,
    /// A change of the mounts has been told, and the core has yet to look.
    mounts_changed: bool,
    /// When the core looked at the namespace.
    looked: Option<Instant>,
    namespace_deleted: bool,
    /// When the core came to know of it.
    namespace_gone: Option<Instant>,
    /// The newest state that the core has reported.
    reported: Option<State>,
    /// Why, unless the address has another owner, or the interface proves to be gone.
    cause: Option<Cause>,
    wire: Wire,
    /// The VIP has failed duplicate address detection at least once.
    vip_has_failed: bool,
    manager: Manager,
    /// What has been so since it was asked to leave.
    truths_since_asked: Vec<State>,
    /// A new state has been reported, and the file has yet to be tried.
    news: bool,
    /// The file has been tried, and the agent is to be told at once.
    agent_is_next: bool,
    /// A state has been written, or tried to be, since the last input.
    wrote: bool,
    /// The hook is to be run for this before the next input.
    hook_is_next: Option<HookState>,
    /// When the last input came, and whether it was that the queue is empty.
    fed_at: Instant,
    at_empty_queue: bool,
    /// When the queue was empty, unless there may be more since.
    emptied_at: Option<Instant>,
    /// It was asked to report the same again.
    reloaded: bool,
    asked_to_leave: bool,
    leave_by: Option<Instant>,
    pub exited: bool,
    /// Where a line has said last that the VIP's address is.
    misplaced_line: Option<Trouble>,
    /// How often a line has said that the state has changed, and why.
    changes: u64,
    /// When something was last done but looking for the namespace.
    busy: Instant,
    /// A process that runs programs has gone, and when.
    helper_gone: Option<(HelperKind, Instant)>,
    /// The pid file is another daemon's, and the core has come to know that.
    pid_file_is_lost: bool,
    is_superseded: bool,
    sent: bool,
    dumps: Dumps,
    limits: Limits,
    /// When the deadline was last the present after an empty queue, and nothing was done.
    stayed: Option<Instant>,
}

impl<'a> Simulation<'a> {
    pub fn new(options: Options, tables: &'a mut Tables) -> Self {
        let unfiltered = options.kernel_is_old;
        let mut kernel = Kernel::new(options.ipv6_vip, options.has_virtual_mac, unfiltered);
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
            renotify: [30, 120, 600].map(Duration::from_secs).into_iter().collect(),
            notify_agent: !options.has_no_agent,
            sync_conntrack: options.syncs_conntrack,
            hook: options.has_hook,
            write_metrics: options.writes_metrics,
            check_namespace: check[usize::from(options.mounts_are_hidden)],
            notify_manager: options.has_manager,
            watchdog: options.has_watchdog.then_some(manager::PERIOD),
            ..config()
        };
        Self {
            monitor: Monitor::new(config),
            now,
            kernel,
            lans,
            metrics: MetricsFile::new(options.writes_metrics),
            disk: Disk { works: true, ..Disk::default() },
            agent: Agent::new(),
            conntrackd: Conntrackd::new(options.syncs_conntrack),
            hook: Hook::new(options.has_hook),
            options,
            mounts_changed: false,
            looked: None,
            namespace_deleted: false,
            namespace_gone: None,
            reported: None,
            cause: None,
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
            asked_to_leave: false,
            leave_by: None,
            exited: false,
            misplaced_line: None,
            changes: 0,
            busy: now,
            helper_gone: None,
            pid_file_is_lost: false,
            is_superseded: false,
            sent: false,
            dumps: Dumps::default(),
            limits: Limits::default(),
            stayed: None,
        }
    }

    fn live(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step);
        }
        self.come_to_an_end();
    }

    /// Lets the world come to rest, and checks that the truth has arrived everywhere.
    pub fn come_to_an_end(&mut self) {
        self.come_to_rest();
        if self.exited {
            return;
        }
        let truth = self.truth();
        assert_eq!(self.disk.file, Some(truth), "p3_state_file_holds_the_truth");
        let told = self.reported.filter(|_| !self.options.has_no_agent);
        assert_eq!(self.agent.acknowledged, told, "p6_newest_state_arrives");
        let heeded = self.agent.heeded(self.now + Duration::from_secs(2));
        assert_eq!(heeded, told, "p6_restarted_agent_knows_it");
        assert_eq!(self.agent.failures, 0, "p6_return_is_said");
        let heeded = (!self.options.announces).then_some(self.kernel.ifindex.unwrap_or(0));
        assert_eq!(self.kernel.heeded, heeded, "p8_filter_is_right");
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
        assert!(self.metrics.says(&self.monitor.status()), "p14_metrics_are_true");
        if self.options.announces && truth == State::Active {
            self.lans.iter().for_each(|lan| lan.is_announced(self.kernel.mac));
        }
        if self.options.detects_split_brain && truth == State::Active {
            assert_eq!(self.wire.listening, self.kernel.ifindex, "p12_listens_where_the_vip_is");
            assert!(self.wire.is_bound_to(&self.kernel), "p12_socket_is_bound");
            self.wire.all_is_said();
        }
        self.control(Control::Exit(SIGTERM));
        self.read(usize::MAX);
        assert!(self.exited, "p14_leaves_at_once_with_nothing_to_do");
    }

    fn truth(&self) -> State {
        let there = self.kernel.ifindex.is_some() && self.kernel.has_vip && !self.kernel.vip_failed;
        if there && self.namespace_gone.is_none() { State::Active } else { State::Backup }
    }

    pub fn step(&mut self, step: Step) {
        self.happen(step);
        self.note_truth();
        self.hear();
    }

    fn note_truth(&mut self) {
        let truth = self.truth();
        let leaves = self.asked_to_leave || self.helper_gone.is_some();
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
        if control == Control::Reload {
            self.metrics.reloads += 1;
            self.reload();
        }
        if control == Control::Exit(SIGTERM) {
            self.asked_to_leave = true;
            self.note_truth();
            self.leave_at_the_latest(self.now + Duration::from_secs(1));
        }
        if control == Control::Status && self.reported.is_some() {
            self.metrics.expect();
        }
        self.feed(&Input::Control(control));
    }

    fn leave_at_the_latest(&mut self, by: Instant) {
        self.leave_by = Some(self.leave_by.map_or(by, |earlier| earlier.min(by)));
    }

    fn agent_replies(&mut self, reply: Reply) {
        let outcome = self.agent.reply(reply, self.now);
        self.feed(&Input::Agent(outcome));
    }

    fn command_ends(&mut self, result: CommandResult) {
        self.conntrackd.end(result, self.now);
        self.feed(&Input::Helper(HelperKind::Conntrackd, HelperNews::Ended(result)));
    }

    /// Reads so many datagrams, or until there are no more, which is an input, too.
    fn read(&mut self, datagrams: usize) {
        for _ in 0..datagrams {
            if let Some(dump) = self.kernel.lagging_dump() {
                let present = self.listed(dump);
                self.kernel.catch_up(present);
            }
            let input = self.kernel.read();
            self.feed(&input);
            if input == Input::QueueEmpty {
                return;
            }
        }
    }

    /// Lets time pass, with a look at the queue at every deadline on the way.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(deadline) = self.monitor.deadline()
            && deadline <= end
            && !self.exited
        {
            self.now = self.now.max(deadline);
            self.read(usize::MAX);
            self.hear();
        }
        self.now = self.now.max(end);
    }
}
