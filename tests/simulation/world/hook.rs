//! The hook, which may fail or hang, and its helper.

use keepwatch::monitor::{
    Cause, CommandResult, Control, Duration, HelperKind, HelperNews, HookState, HookTiming, Input,
    Instant, State, Trouble,
};
use netlink_packet_route::link::LinkFlags;

use super::Simulation;
use super::kernel::{Kernel, UP};
use super::retry::Retry;

const LIMIT: Duration = Duration::from_secs(90);
/// The waits after the first failure and after many.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

pub fn timing(delays: bool) -> HookTiming {
    HookTiming { limit: LIMIT, delay: Duration::from_secs(if delays { 4 } else { 0 }) }
}

#[derive(Debug, Default)]
pub struct Hook {
    /// The helper lives.
    pub lives: bool,
    /// The state of the last run.
    last: Option<HookState>,
    running: bool,
    /// The state of the last run that was killed, if no run has succeeded since.
    killed_for: Option<HookState>,
    /// When the last run failed, if it did.
    failed_at: Option<Instant>,
    pub retry: Retry,
    /// No input since then could have changed the state.
    idle: bool,
    /// When the runs before the exit began.
    begun: Vec<Instant>,
    /// How many runs may repeat a state that has succeeded.
    again: u32,
    /// A run is due after a reload.
    reloaded: bool,
    /// The core has known at least once that the interface is down or absent.
    has_been_down: bool,
    /// The output of the failing run must have a line.
    pub prints: bool,
    /// The state of the last run, if that has succeeded.
    pub succeeded_for: Option<HookState>,
}

impl Hook {
    pub fn new(lives: bool) -> Self {
        Self { lives, ..Self::default() }
    }

    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Notes what the core learns from an input.
    pub fn note(&mut self, input: &Input, kernel: &Kernel) {
        let reload = *input == Input::Control(Control::Reload);
        self.again += u32::from(reload);
        self.reloaded |= reload;
        self.idle &= !matches!(
            input,
            Input::Event(_)
                | Input::Answered(_)
                | Input::NamespaceGone
                | Input::Control(Control::Exit(_))
        );
        self.idle &= !kernel.is_settling;
        if let Input::Control(Control::Exit(_)) | Input::NamespaceGone = input {
            self.begun.clear();
        }
        self.has_been_down |= kernel.absences > 0 || !kernel.known_flags.contains(UP);
        self.has_been_down |= *input == Input::NamespaceGone;
    }

    /// Returns when the next run may begin: five may in ten seconds, and that of an exit.
    pub fn turn(&self) -> Option<Instant> {
        self.begun.iter().rev().nth(4).map(|fifth| *fifth + Duration::from_secs(10))
    }

    /// Returns the cause of a change, as far as the flags tell.
    pub fn cause(flags: LinkFlags, state: State) -> Cause {
        match flags {
            _ if state == State::Active => Cause::AddressAdded,
            flags if !flags.contains(LinkFlags::Up) => Cause::InterfaceDown,
            flags if !flags.contains(LinkFlags::Running) => Cause::CarrierLost,
            _ => Cause::AddressRemoved,
        }
    }

    /// Whether no run is due after a reload.
    pub fn is_repeated(&self) -> bool {
        !self.lives || !self.reloaded
    }

    fn run(&mut self, state: HookState, limit: Duration, now: Instant) {
        assert_eq!(limit > LIMIT, self.killed_for == Some(state), "p20_killed_run_gets_more_time");
        assert!((LIMIT..=LIMIT * 20 / 3).contains(&limit), "p20_limit_is_bounded");
        assert!(self.lives, "p20_helper_lives");
        assert!(!self.running, "p20_one_run_at_a_time");
        assert!(self.turn().is_none_or(|turn| now >= turn), "p20_five_runs_in_ten_seconds");
        self.begun.push(now);
        self.retry.begin();
        if self.last == Some(state) {
            let failed_at = self.failed_at.filter(|_| self.idle && self.again == 0);
            let rested = |at| now >= at + WAITS[0];
            assert!(failed_at.is_none_or(rested), "p20_hook_is_not_hammered");
            if self.succeeded_for.is_some() {
                self.again = self.again.checked_sub(1).expect("p20_repeated_for_a_reason");
            }
        } else {
            self.retry.reset();
        }
        (self.last, self.running, self.succeeded_for) = (Some(state), true, None);
        self.reloaded = false;
    }

    fn end(&mut self, result: CommandResult, now: Instant) {
        if std::mem::take(&mut self.running) {
            let succeeded = result == CommandResult::Exited(0);
            if result == CommandResult::TimedOut {
                self.killed_for = self.last;
            } else if succeeded {
                self.killed_for = None;
            }
            self.succeeded_for = self.last.filter(|_| succeeded);
            self.failed_at = (!succeeded).then_some(now);
            if succeeded {
                self.retry.reset();
            } else {
                self.retry.fail_between(WAITS, now);
            }
            self.idle = true;
        }
    }
}

impl Simulation<'_> {
    pub(super) fn run_hook(&mut self, state: HookState, limit: Duration) {
        assert!(!self.leaves_at_once(state), "p20_no_run_during_exit");
        let delay = timing(self.options.delays_hook).delay;
        let has_lasted = self.wire.reported.is_some_and(|at| self.now >= at + delay);
        let needs_none = state == HookState::Fault || self.exit_requested;
        assert!(has_lasted || needs_none, "p20_state_has_lasted");
        let is_repeated = self.hook.last == Some(state);
        // A run that has failed is repeated at once as well.
        let fails_early = self.hook.failed_at.is_some_and(|at| self.now < at + WAITS[0]);
        let is_early =
            self.hook.succeeded_for.is_some() || fails_early && self.wire.unanswered.is_some();
        if is_repeated && self.hook.again == 0 && is_early {
            self.wire.deliver_again(self.now);
            self.hook.again += 1;
        }
        assert!(is_repeated || !self.shows(Trouble::HookFails), "p20_failure_is_of_this_state");
        if self.hook_is_next == Some(state) {
            self.hook_is_next = None;
        }
        let reported = match state {
            HookState::Master => Some(State::Active),
            HookState::Backup => Some(State::Backup),
            HookState::Fault => self.reported.filter(|_| self.hook.has_been_down),
        };
        assert!(
            reported.is_some() && reported == self.reported,
            "p20_state_is_reported_first: {state:?}"
        );
        self.hook.run(state, limit, self.now);
    }

    /// Expects a run at once for a new active state, unless the hook is running or has had that state.
    pub(super) fn expect_hook(&mut self) {
        let up = self.kernel.known_flags.contains(LinkFlags::Up);
        let state = if up { HookState::Master } else { HookState::Fault };
        let is_free = self.hook.lives && !self.hook.running && !self.leaves_at_once(state);
        let is_news = self.hook.last != Some(state);
        let has_turn = self.hook.turn().is_none_or(|turn| self.now >= turn);
        let waits = !has_turn || self.options.delays_hook && state == HookState::Master;
        self.hook_is_next = (is_free && is_news && !waits).then_some(state);
    }

    /// Whether an exit would end a run at once.
    fn leaves_at_once(&self, state: HookState) -> bool {
        if self.exit_requested {
            state == HookState::Master
        } else {
            self.is_superseded || self.helper_gone.is_some()
        }
    }

    /// Whether a run that is not for MASTER is under way, or follows the one under way.
    pub(super) fn hook_delays_exit(&self) -> bool {
        let master = Some(HookState::Master);
        let pending = self.monitor.status().hook_pending;
        self.hook.running && (self.hook.last != master || pending != master)
    }

    pub(super) fn hook_ends(&mut self, result: CommandResult) {
        self.end_hook(result);
        self.feed(&Input::Helper(HelperKind::Hook, HelperNews::Ended(result)));
        assert!(!self.hook.prints, "p20_output_has_a_line");
    }

    /// Ends a run, before the core is told.
    pub(super) fn end_hook(&mut self, result: CommandResult) {
        let fails = !self.exited && self.hook.running && result != CommandResult::Exited(0);
        if fails {
            let state = self.hook.last.expect("a run");
            self.limits.fail(("hook", state as usize), self.now);
        } else if self.hook.running {
            self.limits.end("hook");
        }
        self.hook.prints = fails && self.monitor.logs_output(HelperKind::Hook, result, self.now);
        self.hook.end(result, self.now);
    }

    pub(super) fn helper_dies(&mut self, helper: HelperKind) {
        let lived = match helper {
            HelperKind::Conntrackd => self.conntrackd.die(),
            HelperKind::Hook => {
                self.hook.running = false;
                std::mem::take(&mut self.hook.lives)
            }
        };
        if lived && self.leave_by.is_none() {
            self.helper_gone = Some((helper, self.now));
            self.exit_by(self.now + Duration::from_secs(5));
            self.note_truth();
        }
        self.feed(&Input::Helper(helper, HelperNews::Gone));
    }

    /// Returns the state that the hook must have in the end.
    pub(super) fn hook_truth(&self) -> HookState {
        let flags = self.kernel.flags;
        let reachable = self.kernel.ifindex.is_some() && self.namespace_gone.is_none();
        match self.truth() {
            _ if !reachable || !flags.contains(LinkFlags::Up) => HookState::Fault,
            State::Active => HookState::Master,
            State::Backup if flags.contains(LinkFlags::Running) => HookState::Backup,
            State::Backup => HookState::Fault,
        }
    }

    /// Whether the hook has succeeded for the truth, or cannot run any more.
    pub(super) fn hook_is_done(&self) -> bool {
        !self.hook.lives || self.hook.succeeded_for == Some(self.hook_truth())
    }
}
