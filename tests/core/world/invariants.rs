//! What has to hold at every moment.

use keepwatch::core::{Action, Actions, Duration, Ending, Note, State};
use keepwatch::wire::Claim;

use super::World;
use super::kernel::MAC;

/// The longest time ahead for which a retry is scheduled.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl World<'_> {
    /// What is not done yet is being done, or will be.
    pub(super) fn nothing_is_forgotten(&self) {
        let deadline = self.monitor.deadline();
        let soon = deadline.is_some_and(|deadline| deadline <= self.now + LONGEST_WAIT);
        let unread = self.kernel.has_unread();
        assert!(soon || unread || self.reported == Some(self.truth()), "the truth");
        assert!(soon || self.disk.file == self.reported, "the state file");
        assert!(soon || self.agent.acknowledged == self.reported, "the agent");
        assert!(self.conntrackd.is_running() || self.conntrackd.is_done(), "conntrackd");
        assert!(self.leave_by.is_none_or(|by| self.now < by), "it ought to have left");
    }

    /// A new state goes to the file, then to the agent.
    pub(super) fn note_report(&mut self, actions: &Actions, in_flight: bool) {
        let place = |wanted: &Action| actions.iter().position(|action| action == wanted);
        let written = actions.iter().find_map(|action| match action {
            Action::WriteState(state) => Some(*state),
            _ => None,
        });
        let Some(state) = written else { return };
        let notify = place(&Action::Notify(state));
        if notify.is_some() {
            assert!(notify > place(&Action::WriteState(state)), "the agent before the file");
            self.agent.expect_report();
        }
        if self.reported != Some(state) {
            let free = !in_flight || place(&Action::HangUp).is_some();
            assert!(notify.is_some() || !free, "the agent is told at once");
            self.reported = Some(state);
            self.conntrackd.want(state);
        }
    }

    /// No line says what is not so.
    pub(super) fn read_log(&self, note: &Note) {
        match *note {
            Note::SplitBrain { mac, ifindex, .. } => {
                let claim = Claim { mac, ip: self.kernel.cidr.address() };
                assert_eq!(self.claim, Some((ifindex, claim)), "somebody said so");
                assert!(mac != MAC && self.listening == Some(ifindex), "it was to be heard");
                assert_eq!(self.reported, Some(State::Active), "while the VIP is here");
            }
            Note::Synced(state) => {
                assert!(self.conntrackd.is_done() && self.reported == Some(state));
            }
            Note::Wrote(state) => assert_eq!(self.disk.file, Some(state)),
            Note::Notified(state) => assert_eq!(self.agent.acknowledged, Some(state)),
            _ => {}
        }
    }

    /// It leaves because it was asked to, or because nothing is left to be watched or told.
    pub(super) fn exit(&mut self, ending: Ending) {
        self.exited = true;
        if ending == Ending::Asked {
            assert!(self.asked_to_leave, "nobody asked");
            return;
        }
        let gone = self.namespace_gone.expect("a namespace that has gone");
        let backup = Some(State::Backup);
        assert_eq!(self.reported, backup);
        let told = self.agent.acknowledged == backup && self.disk.file == backup;
        assert!(told || self.now >= gone + Duration::from_secs(5), "it has not told, nor tried");
    }
}
