//! The hook: a program that takes its time, fails or hangs, and the process that runs it.

use keepwatch::monitor::{
    Action, Actions, CommandResult, Control, Duration, HelperKind, HelperNews, HookCall, HookState,
    Input, Instant, Request, State,
};
use keepwatch::wire::rtnl::{Body, Message};
use netlink_packet_route::link::LinkFlags;

use super::Simulation;
use super::kernel::{Kernel, Meaning, UP, name};

#[derive(Debug)]
pub struct Hook {
    /// There is a process that runs it.
    pub lives: bool,
    /// That was killed and begun anew.
    pub restarted: bool,
    /// The last run that began.
    last: Option<HookCall>,
    running: bool,
    /// When that failed, if it did.
    failed_at: Option<Instant>,
    /// Nothing has happened since that could make a run worth more than a repetition.
    idle: bool,
    /// It may be run again so often for what it was told.
    again: u32,
    /// It is to be run again whatever it was told, and has not begun to.
    reloaded: bool,
    /// What the core has been told last of the watched interface.
    told_flags: LinkFlags,
    /// And that it is down, or not there.
    has_been_down: bool,
    /// The last run that began has succeeded, for this state.
    pub told: Option<HookState>,
}

impl Hook {
    pub fn new(lives: bool) -> Self {
        Self {
            lives,
            restarted: false,
            last: None,
            running: false,
            failed_at: None,
            idle: false,
            again: 0,
            reloaded: false,
            told_flags: UP,
            has_been_down: false,
            told: None,
        }
    }

    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Notes what the core learns from this.
    pub fn note(&mut self, input: &Input, kernel: &Kernel) {
        let reload = *input == Input::Control(Control::Reload);
        self.again += u32::from(reload);
        self.reloaded |= reload;
        self.idle &= !matches!(
            input,
            Input::Netlink(_) | Input::RequestFailed { .. } | Input::NamespaceGone
        );
        if let Input::Netlink(Message { body: Body::NewLink(link), .. }) = input
            && link.name == Some(name("ha"))
            && !matches!(kernel.meaning, Meaning::Nothing)
        {
            self.told_flags = link.flags;
        }
        self.has_been_down |= kernel.absence_told || !self.told_flags.contains(UP);
        self.has_been_down |= *input == Input::NamespaceGone;
    }

    /// It has been run again for each reason to.
    pub fn is_repeated(&self) -> bool {
        !self.lives || !self.reloaded
    }

    fn run(&mut self, call: HookCall, now: Instant) {
        assert!(self.lives, "nobody is there to run it");
        assert!(!self.running, "two runs at once");
        let HookCall { state, previous } = call;
        match self.last {
            Some(last) if last.state == state => {
                assert_eq!(call, last, "the same call again");
                let failed_at = self.failed_at.filter(|_| self.idle && self.again == 0);
                let rested = |at| now >= at + Duration::from_millis(50);
                assert!(failed_at.is_none_or(rested), "run again and again");
                if self.told.is_some() {
                    self.again = self.again.checked_sub(1).expect("a reason to repeat it");
                }
            }
            last => assert_eq!(previous, last.map(|last| last.state), "the order"),
        }
        (self.last, self.running, self.told) = (Some(call), true, None);
        self.reloaded = false;
    }

    fn end(&mut self, result: CommandResult, now: Instant) {
        if std::mem::take(&mut self.running) {
            let succeeded = result == CommandResult::Exited(0);
            self.told = self.last.filter(|_| succeeded).map(|last| last.state);
            self.failed_at = (!succeeded).then_some(now);
            self.idle = true;
        }
    }
}

impl Simulation<'_> {
    pub(super) fn run_hook(&mut self, call: HookCall) {
        assert!(!self.news, "the hook before the file");
        assert!(!self.asked_to_leave, "to be killed at once");
        let reported = match call.state {
            HookState::Master => Some(State::Active),
            HookState::Backup => Some(State::Backup),
            HookState::Fault => self.reported.filter(|_| self.hook.has_been_down),
        };
        assert!(reported.is_some() && reported == self.reported, "{call:?}");
        self.hook.run(call, self.now);
    }

    /// The hook comes after the file, and then at once, unless it runs or that is no news to it.
    pub(super) fn note_hook(&self, input: &Input, actions: &Actions) {
        let call = actions.iter().find_map(|action| match action {
            Action::Run(Request::Hook(call)) => Some(call.state),
            _ => None,
        });
        let writes = actions.iter().any(|action| matches!(action, Action::WriteState(_)));
        assert!(call.is_none() || !writes, "the hook before the file");
        let is_free = self.hook.lives && !self.hook.running && !self.asked_to_leave;
        if *input == Input::StateFile(Ok(State::Active)) && self.news && is_free {
            let up = self.hook.told_flags.contains(LinkFlags::Up);
            let state = if up { HookState::Master } else { HookState::Fault };
            let last = self.hook.last.map(|last| last.state);
            assert!(last == Some(state) || call == Some(state), "the hook at once");
        }
    }

    pub(super) fn hook_ends(&mut self, result: CommandResult) {
        self.hook.end(result, self.now);
        self.feed(&Input::Helper(HelperKind::Hook, HelperNews::Ended(result)));
    }

    pub(super) fn helper_dies(&mut self, helper: HelperKind) {
        match helper {
            HelperKind::Conntrackd => self.conntrackd.die(),
            HelperKind::Hook => (self.hook.lives, self.hook.running) = (false, false),
        }
        self.feed(&Input::Helper(helper, HelperNews::Gone));
    }

    /// A process that runs programs is killed, and with it the one under way.
    pub(super) fn helper_restarts(&mut self, helper: HelperKind) {
        let (lives, restarted) = match helper {
            HelperKind::Conntrackd => (self.conntrackd.lives, &mut self.conntrackd.restarted),
            HelperKind::Hook => (self.hook.lives, &mut self.hook.restarted),
        };
        *restarted |= lives;
        if lives {
            self.feed(&Input::Helper(helper, HelperNews::Restarted));
        }
        match helper {
            HelperKind::Conntrackd if self.conntrackd.is_running() => {
                self.command_ends(CommandResult::Signalled(9));
            }
            HelperKind::Hook if self.hook.running => self.hook_ends(CommandResult::Signalled(9)),
            _ => {}
        }
    }

    /// What the hook is to be told.
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

    /// Whether the hook has been told the truth, or nobody can tell it.
    pub(super) fn hook_is_done(&self) -> bool {
        !self.hook.lives || self.hook.told == Some(self.hook_truth())
    }
}
