//! Executes the core's actions.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, CommandResult, Duration, Failure, FoundFiles, Input, Instant, Outcome, Question, State,
};
use keepwatch::wire::rtnl::Body;

use super::Simulation;
use super::lan::Lan;

const NO_MEMORY: Errno = Errno(12);
/// When a failed check of the namespace is repeated.
const NAMESPACE_RETRY: Duration = Duration::from_secs(5);

impl Simulation<'_> {
    /// Executes an action. Returns its result if it has one at once.
    pub(super) fn carry_out(&mut self, action: &Action) -> Option<Input> {
        if self.next_action_fails && self.fail(action) {
            self.next_action_fails = false;
            return Some(Input::Failed(action.clone(), NO_MEMORY));
        }
        match *action {
            Action::Ask(question) => {
                self.sent = true;
                assert!(self.is_readable, "p8_old_events_are_read");
                self.questions.begin(question);
                let announces = self.options.announces && self.reported == Some(State::Active);
                assert!(
                    question != Question::Links || announces || self.options.detects_split_brain,
                    "p11_links_are_listed_for_frames"
                );
                let content = self.listed(question);
                let inputs = self.kernel.ask(question, content);
                return self.pass_answer_in(inputs);
            }
            Action::SendFrame(ref announcement) => {
                self.sent = true;
                self.latest_news_are_read();
                return Some(Input::Sent(announcement.address, self.announce(announcement)));
            }
            Action::SendProbe(probe) => {
                self.sent = true;
                self.latest_news_are_read();
                return Some(Input::Probed(self.probe(probe)));
            }
            Action::WatchClaims { only, rebind } => {
                assert!(self.wire.has_rested(self.now), "p12_failed_socket_rests");
                self.wire.listen(only, rebind, &self.kernel, self.now);
            }
            Action::ReadFrames(reads) => {
                assert!(
                    !reads || self.reported == Some(State::Active),
                    "p12_frames_are_read_while_active"
                );
                assert!(!reads || self.wire.has_rested(self.now), "p12_failed_socket_rests");
                self.wire.read(reads);
            }
            Action::WriteState(state) => return Some(self.write_state(state)),
            Action::PrepareState { state, since } => return Some(self.prepare(state, since)),
            Action::WriteMetrics => {
                assert!(!self.disk.is_unprepared, "p4_spare_before_metrics");
                assert!(self.at_empty_queue, "p4_metrics_come_last");
                let status = self.monitor.status();
                self.metrics.follow(&status);
                self.now += self.metrics.begin(&status, self.now);
                return Some(Input::MetricsFile(self.metrics.write(&status, self.now)));
            }
            Action::Notify(state) => {
                assert!(!self.options.has_no_agent, "p6_there_is_an_agent");
                return self.agent.notify(state, self.now).map(Input::Agent);
            }
            Action::HangUp => {
                assert!(self.agent.is_connected(), "p6_connection_to_end");
                let is_wanted = self.agent.in_flight() == self.reported && !self.reloaded;
                let is_early = is_wanted && self.leave_by.is_none();
                assert!(
                    !is_early || self.agent.has_had_its_time(self.now),
                    "p6_agent_has_its_time"
                );
                let outcome = self.agent.read_reply(self.now).unwrap_or_else(|| {
                    assert!(self.agent.hang_up(self.now), "p6_connection_is_open");
                    Outcome::Failed(Failure::TimedOut)
                });
                return Some(Input::Agent(outcome));
            }
            Action::SignalReady => self.signal_ready(),
            Action::NotifyManager(notice) => return Some(self.notify_manager(notice)),
            Action::Sync(command) => {
                assert!(self.leave_by.is_none(), "p13_no_command_while_it_leaves");
                self.conntrackd.run(command, self.now);
            }
            Action::CheckConntrackd => self.conntrackd.check(self.now),
            Action::RunHook { state, limit, .. } => self.run_hook(state, limit),
            Action::CheckFiles => return Some(self.check_files()),
            Action::CheckKeepalived => return Some(self.check_keepalived()),
            Action::CheckNamespace => {
                // The metrics must show the status before the check, which may change it.
                self.metrics.follow(&self.monitor.status());
                return self.look_at_namespace();
            }
            Action::Exit(ending) => self.exit(ending),
            Action::Log(ref note) => self.read_log(note),
            Action::LogStatus => {
                assert_eq!(self.monitor.status().counters.unannounced, 0, "p11_there_is_room");
            }
            Action::ReopenLog => {
                assert!(std::mem::take(&mut self.reopens_log), "p14_log_is_reopened_on_a_signal");
                self.disk.log_fails = !self.disk.works;
                return Some(Input::LogReopened { succeeded: self.disk.works });
            }
        }
        None
    }

    /// Fails an action, if it has no result otherwise. Returns whether it does.
    fn fail(&mut self, action: &Action) -> bool {
        let result = CommandResult::NotStarted(NO_MEMORY);
        match *action {
            Action::RunHook { state, limit, .. } => {
                self.run_hook(state, limit);
                self.end_hook(result);
            }
            Action::Sync(command) => {
                self.conntrackd.run(command, self.now);
                self.conntrackd.end(result, self.now);
            }
            Action::CheckConntrackd => {
                self.conntrackd.check(self.now);
                self.conntrackd.fail_check(self.now);
            }
            Action::WatchClaims { .. } | Action::ReadFrames(true) => {
                if let Action::WatchClaims { only, .. } = action {
                    self.wire.turn_to(*only);
                }
                self.limits.fail(("socket", 0), self.now);
                self.wire.fail(self.now);
            }
            Action::CheckNamespace => {
                self.limits.fail(("namespace", 0), self.now);
                self.metrics.follow(&self.monitor.status());
                self.check_by = Some(self.now + NAMESPACE_RETRY);
            }
            _ => return false,
        }
        true
    }

    fn check_keepalived(&mut self) -> Input {
        // The metrics must show the status before the check, which may change it.
        self.metrics.follow(&self.monitor.status());
        Input::KeepalivedChecked(self.keepalived.check(self.now))
    }

    fn write_state(&mut self, state: State) -> Input {
        self.now += std::mem::take(&mut self.disk.hangs);
        let written = self.disk.write(state, self.now);
        self.manager.written |= written.is_ok();
        self.file_is_tried();
        Input::StateFile(written)
    }

    /// Prepares the spare state file.
    fn prepare(&mut self, state: State, since: Instant) -> Input {
        // An older preparation may be retried.
        let is_newest = self.reported == Some(state) && !self.disk.fails;
        let time = self.monitor.status().changed_at;
        assert!(!is_newest || time == Some(since), "p3_file_has_its_time");
        Input::StatePrepared(self.disk.prepare(state, self.now))
    }

    fn check_files(&mut self) -> Input {
        assert!(self.now >= self.checked + Duration::from_secs(10), "p3_checks_are_few");
        self.checked = self.now;
        if self.pid_file_is_lost {
            self.is_superseded = self.namespace_gone.is_none() && self.helper_gone.is_none();
            self.exit_by(self.now + Duration::from_secs(5));
        }
        Input::FilesChecked(FoundFiles {
            pid_file_lost: self.pid_file_is_lost,
            agent_replaced: self.agent.is_replaced(),
            log_renamed: false,
            // Without its pid file the daemon only exits.
            metrics_lost: self.metrics.check(!self.pid_file_is_lost),
            state_file: self.disk.find(),
        })
    }

    /// Asserts that the core has a current view: the queue has just been empty.
    fn latest_news_are_read(&self) {
        let lasts = Duration::from_micros(500);
        let is_current = self.emptied_at.is_some_and(|at| self.now <= at + lasts);
        assert!(is_current, "p8_latest_news_are_read: {:?} at {:?}", self.emptied_at, self.now);
    }

    /// Changes the mounts. The core has one event of that until it checks the namespace.
    pub(super) fn change_mounts(&mut self) {
        if !self.options.mounts_are_hidden && !self.mounts_changed {
            self.mounts_changed = true;
            self.feed(&Input::MountsChanged);
        }
    }

    /// Deletes the namespace. Without events of mounts, the daemon may still notice it `at_once`.
    pub(super) fn delete_namespace(&mut self, at_once: bool) {
        self.namespace_deleted = true;
        self.change_mounts();
        if self.options.mounts_are_hidden && at_once {
            self.feed(&Input::NamespaceGone);
        }
    }

    pub(super) fn look_at_namespace(&mut self) -> Option<Input> {
        (self.mounts_changed, self.check_by) = (false, None);
        self.namespace_deleted.then_some(Input::NamespaceGone)
    }

    /// Passes in the entries of an answer. Returns its end.
    fn pass_answer_in(&mut self, inputs: Vec<Input>) -> Option<Input> {
        let mut end = None;
        for input in inputs {
            match input {
                Input::Entry(_) => self.hand_in(&input),
                _ => end = Some(input),
            }
        }
        end
    }

    /// Reads the rest of an answer, if there is any. Returns whether there was.
    pub(super) fn read_answer(&mut self) -> bool {
        let Some(question) = self.kernel.open_question() else { return false };
        let content = self.listed(question);
        let inputs = self.kernel.finish(content);
        if let Some(end) = self.pass_answer_in(inputs) {
            self.feed(&end);
        }
        true
    }

    /// Returns what the kernel lists without concurrent changes.
    pub(super) fn listed(&self, question: Question) -> Vec<Body> {
        let links = || {
            let watched = self.kernel.interface(None);
            self.lans.iter().filter_map(Lan::link).chain(watched).chain(self.kernel.renamed())
        };
        match question {
            Question::Interface => self.kernel.interface(self.lans[0].link()).into_iter().collect(),
            Question::Link(ifindex) => {
                let is_this =
                    |body: &Body| matches!(body, Body::NewLink(link) if link.ifindex == ifindex);
                links().filter(is_this).collect()
            }
            Question::Addresses { only } => {
                let all = self.lans.iter().flat_map(Lan::listed).chain(self.kernel.listed_vip());
                all.filter(|body| self.kernel.lists(only, body)).collect()
            }
            Question::Links => links().collect(),
        }
    }
}
