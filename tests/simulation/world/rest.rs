//! The end of a life: all faults end, and everything pending is done.

use keepwatch::monitor::{CommandResult, Duration, FoundStateFile, Keepalived};

use super::{CHECK, Simulation};

/// The time to deliver the truth after the last fault: a dump times out after 5 s, and retries come within 5 s.
const DELIVERED_WITHIN: Duration = Duration::from_secs(10);

impl Simulation<'_> {
    /// Whether the file, and the agent if configured, have the truth.
    fn consumers_have_the_truth(&self) -> bool {
        let truth = Some(self.truth());
        let agent_knows = self.options.has_no_agent || self.agent.acknowledged == truth;
        self.exited || (self.disk.written == truth && agent_knows)
    }

    /// Whether only checks, probes and watchdog notices remain.
    fn only_checks(&self) -> bool {
        // Pending lines wait for a minute at most. A restarted agent is notified again for an hour. A changed state file is
        // found within ten minutes.
        let agent_is_done =
            self.agent.acted_on_at(self.now + Duration::from_secs(30)) == self.reported;
        let is_written = self.disk.find() == FoundStateFile::Intact;
        let is_notified = self.options.has_no_agent || agent_is_done;
        let is_done = is_written && is_notified && self.conntrackd.is_done();
        let patience = if is_done { CHECK * 7 } else { CHECK * 400 };
        let hook_is_done = !self.hook.lives || !self.hook.retry.is_pending();
        hook_is_done && self.now > self.busy + patience && self.metrics.has(&self.monitor.status())
    }

    /// Ends all faults, and waits until nothing is left to do.
    pub(super) fn come_to_rest(&mut self) {
        (self.disk.works, self.agent.is_full, self.manager.is_full) = (true, false, false);
        self.agent.listen(true, Duration::ZERO, self.now);
        self.keepalived.shows = Keepalived::Runs;
        (self.metrics.failure, self.wire.is_contested) = (None, false);
        self.lans.iter_mut().for_each(|lan| lan.egress = Ok(()));
        self.busy = self.now;
        let mut by = self.now + DELIVERED_WITHIN + self.disk.hangs + self.metrics.hangs;
        if self.namespace_deleted && self.namespace_gone.is_none() {
            // The next check finds it.
            by += CHECK;
        }
        for _ in 0..10_000 {
            self.kernel.next_answer = None;
            self.read(usize::MAX);
            self.receive_claims();
            if self.agent.is_connected() {
                self.agent_replies(Ok(()));
            }
            if self.conntrackd.is_running() {
                self.command_ends(CommandResult::Exited(0));
            }
            if self.hook.is_running() {
                self.hook_ends(CommandResult::Exited(0));
            }
            assert!(self.now < by || self.consumers_have_the_truth(), "p6_truth_arrives_in_time");
            let quiet = !self.kernel.has_unread()
                && !self.agent.is_connected()
                && !self.conntrackd.is_running()
                && !self.hook.is_running();
            match self.monitor.deadline() {
                _ if self.exited => return,
                _ if !quiet => {}
                None => return,
                Some(deadline) if self.now < deadline && self.only_checks() => return,
                Some(deadline) => self.now = self.now.max(deadline),
            }
        }
        panic!("the core does not come to rest: {:?}", self.monitor);
    }
}
