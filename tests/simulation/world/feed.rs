//! Drives the core: executes one action after another, and passes in each result before the next.

use keepwatch::monitor::{Duration, Input, Outcome, Trouble};

use super::lan::Lan;
use super::{MAX_ACTIONS, Simulation};

impl Simulation<'_> {
    /// Passes in an input, executes the core's actions, and checks the invariants.
    pub(super) fn feed(&mut self, input: &Input) {
        if self.exited {
            return;
        }
        let is_queue_empty = *input == Input::QueueEmpty;
        (self.fed_at, self.at_empty_queue) = (self.now, is_queue_empty);
        (self.sent, self.wrote) = (false, false);
        self.hand_in(input);
        let mut actions = 0;
        while !self.exited
            && let Some(action) = self.monitor.next_action(self.now)
        {
            actions += 1;
            assert!(actions < MAX_ACTIONS, "p4_actions_are_bounded: {action:?}");
            self.note_action(&action);
            if let Some(result) = self.carry_out(&action) {
                self.hand_in(&result);
            }
        }
        if self.exited {
            return;
        }
        assert!(
            !self.news && !self.agent_is_next && self.hook_is_next.is_none(),
            "p4_new_state_is_reported_at_once"
        );
        self.metrics.follow(&self.monitor.status());
        self.nothing_is_forgotten();
        self.no_retry_is_late();
        self.metrics.p14_are_written_in_time(
            &self.monitor.status(),
            self.fed_at,
            self.now,
            is_queue_empty,
        );
        self.alive_is_in_time(is_queue_empty.then_some(self.fed_at));
        let ahead = self.monitor.deadline().is_none_or(|deadline| deadline > self.now);
        let stays = is_queue_empty && !ahead && !self.sent && self.now == self.fed_at;
        let stayed = self.stayed.filter(|(at, _)| stays && *at == self.now);
        self.stayed = stays.then(|| (self.now, stayed.map_or(1, |(_, turns)| turns + 1)));
        // A delivery out of turn is followed by the metrics.
        let moved = self.stayed.is_none_or(|(_, turns)| turns <= 2);
        assert!(moved, "p7_deadline_lies_ahead");
    }

    /// Passes in an input, or the result of an action.
    pub(super) fn hand_in(&mut self, input: &Input) {
        let is_loss = match input {
            Input::MalformedMessage(about) => about.is_none() || *about == self.kernel.ifindex,
            input => *input == Input::Overrun,
        };
        if is_loss {
            self.lans.iter_mut().for_each(Lan::announce_anew);
            self.is_readable = false;
        }
        self.is_readable |= *input == Input::QueueEmpty;
        self.note_failures(input);
        self.kernel.note(input, self.questions.asked());
        self.hook.note(input, &self.kernel);
        let is_from_kernel = matches!(input, Input::Event(_) | Input::Answered(_) | Input::Overrun);
        if is_from_kernel || *input == Input::NamespaceGone {
            self.wire.is_current = false;
        }
        // An exiting core does not report the end of its namespace.
        let is_leaving = self.exit_requested || self.is_superseded;
        if *input == Input::NamespaceGone && !is_leaving && self.namespace_gone.is_none() {
            self.namespace_gone = Some(self.now);
            self.exit_by(self.now + Duration::from_secs(5));
            self.note_truth();
        }
        match input {
            Input::QueueEmpty => self.emptied_at = Some(self.now),
            Input::Event(_)
            | Input::Overrun
            | Input::MalformedMessage(_)
            | Input::ForeignSender(_) => self.emptied_at = None,
            _ => {}
        }
        let foreign = self.foreign_claimant(input);
        self.monitor.handle(input, self.now);
        let is_delivered = matches!(input, Input::Agent(Outcome::Delivered { .. }));
        assert!(!is_delivered || !self.shows(Trouble::AgentFails), "p6_failure_is_over");
        self.note_claim(foreign);
    }
}
