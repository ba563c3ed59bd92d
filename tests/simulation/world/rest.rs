//! The end of a life: everything works, and what is to be done is done.

use keepwatch::monitor::{CommandResult, Duration};

use super::step::Options;
use super::{CHECK, Simulation};

/// After the last fault: a dump that has no end is given up after 5 s, and what has failed is tried again within 5 s.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

impl Simulation<'_> {
    /// The file and the agent, if there is one, have the truth.
    fn everybody_knows(&self) -> bool {
        let truth = Some(self.truth());
        let agent_knows = self.options.has_no_agent || self.agent.acknowledged == truth;
        self.exited || (self.disk.file == truth && agent_knows)
    }

    /// Nothing but looking for the namespace, probing and giving signs of life is left to be done.
    fn only_checks(&self) -> bool {
        // What is yet to be logged waits for a minute at most; an agent that was away is told again after some minutes.
        let heeds = self.agent.heeded(self.now + Duration::from_secs(2)) == self.reported;
        let patience = if self.options.has_no_agent || heeds { CHECK * 7 } else { CHECK * 70 };
        let Options { mounts_are_hidden, has_watchdog, probes, .. } = self.options;
        let has_timer = mounts_are_hidden || has_watchdog || probes;
        has_timer && self.now > self.busy + patience
    }

    /// Everything works from now on; waits until there is nothing left to do.
    pub(super) fn come_to_rest(&mut self) {
        (self.disk.works, self.agent.is_full, self.manager.is_full) = (true, false, false);
        self.agent.listen(true, Duration::ZERO, self.now);
        (self.metrics.failure, self.wire.is_contested) = (None, false);
        self.lans.iter_mut().for_each(|lan| lan.egress = Ok(()));
        self.busy = self.now;
        let by = self.now + TOLD_WITHIN + self.disk.hangs + self.metrics.hangs;
        for _ in 0..10_000 {
            self.kernel.next_dump_end = None;
            self.read(usize::MAX);
            self.hear();
            if self.agent.is_connected() {
                self.agent_replies(Ok(()));
            }
            if self.conntrackd.is_running() {
                self.command_ends(CommandResult::Exited(0));
            }
            if self.hook.is_running() {
                self.hook_ends(CommandResult::Exited(0));
            }
            assert!(self.now < by || self.everybody_knows(), "p6_truth_arrives_in_time");
            let quiet = !self.kernel.has_unread()
                && !self.agent.is_connected()
                && !self.conntrackd.is_running()
                && !self.hook.is_running();
            match self.monitor.deadline() {
                _ if self.exited => return,
                _ if !quiet => {}
                None => return,
                Some(_) if self.only_checks() => return,
                Some(deadline) => self.now = self.now.max(deadline),
            }
        }
        panic!("the core does not come to rest: {:?}", self.monitor);
    }
}
