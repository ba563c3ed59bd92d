//! Executes the core's actions.

use mio::Token;

use super::event_loop::Daemon;
use super::sources::AGENT;
use crate::errno::Errno;
use crate::log::{self, warning};
use crate::metrics::MetricsFile;
use crate::monitor::{Action, FoundFiles, HookRun, Input, Instant, ManagerNotice, Outcome, State};
use crate::sys::agent::Agent;
use crate::sys::clock;
use crate::wire::helper::SyncRequest;
use crate::wire::http;

impl Daemon<'_> {
    /// Executes an action. Returns its result, if that is known now. Returns an error for an action whose failure has
    /// no input of its own.
    pub(super) fn execute(&mut self, action: &Action) -> Result<Option<Input>, Errno> {
        // Of a feature that is off, the core wants nothing.
        const NONE: Errno = Errno::NO_DEVICE;
        Ok(match *action {
            Action::Ask(question) => {
                let failed = self.questions.ask(question, &self.names.config.interface);
                // Of few addresses: the entries and the end of each family may have parts of their own.
                failed.or_else(|| (0..4).find_map(|_| self.read_part()))
            }
            Action::WriteState(state) => Some(self.write_state(state)),
            Action::PrepareState { state, since } => {
                let changed_at = self.changed_at(since);
                let other = state.other().word(self.names.config.active_word);
                Some(Input::StatePrepared(self.state_file.prepare(other, changed_at)))
            }
            Action::WriteMetrics => {
                let status = self.monitor.status();
                let changed_at =
                    status.changed_at.map(|since| self.changed_at(since)).unwrap_or_default();
                let file = self.metrics_file.as_mut().ok_or(NONE)?;
                Some(Input::MetricsFile(file.write(&status, changed_at)))
            }
            Action::Notify(state) => self.notify(state),
            Action::WatchClaims { only, rebind } => {
                self.packets.as_mut().ok_or(NONE)?.listen(only, rebind)?;
                None
            }
            Action::ReadFrames(reads_frames) => {
                self.set_reads_frames(reads_frames)?;
                None
            }
            Action::SendFrame(ref announcement) => {
                let sent = self.packets.as_ref().ok_or(NONE)?.send(announcement);
                Some(Input::Sent(announcement.address, sent))
            }
            Action::SendProbe(ref probe) => {
                Some(Input::Probed(self.packets.as_ref().ok_or(NONE)?.probe(probe)))
            }
            Action::HangUp => Some(Input::Agent(self.agent.as_mut().ok_or(NONE)?.hang_up())),
            Action::SignalReady => {
                self.starter.ready();
                None
            }
            Action::NotifyManager(notice) => self.notify_manager(notice),
            Action::Log(ref event) => {
                event.log(&self.names);
                None
            }
            Action::LogStatus => {
                self.names.log_status(&self.monitor.status());
                None
            }
            Action::ReopenLog => Some(Input::LogReopened { succeeded: log::reopen() }),
            Action::Sync(command) => {
                self.conntrackd.as_mut().ok_or(NONE)?.run(&SyncRequest::Run(command))?;
                None
            }
            Action::CheckConntrackd => {
                self.conntrackd.as_mut().ok_or(NONE)?.run(&SyncRequest::Check)?;
                None
            }
            Action::RunHook { state, limit, anew } => {
                let limit = limit.total_millis().try_into().unwrap_or(u32::MAX);
                self.hook.as_mut().ok_or(NONE)?.run(&HookRun { state, limit, anew })?;
                None
            }
            Action::CheckFiles => Some(Input::FilesChecked(self.check_files())),
            Action::CheckKeepalived => {
                Some(Input::KeepalivedChecked(self.keepalived.as_mut().ok_or(NONE)?.check()))
            }
            Action::CheckNamespace => {
                // Registers first, so that no later change is missed. If that fails, the next look is a retry.
                let watched = self.watch_mounts();
                if self.namespace.as_ref().ok_or(NONE)?.is_gone()? {
                    return Ok(Some(Input::NamespaceGone));
                }
                watched?;
                None
            }
            Action::Exit(reason) => {
                if let Some(state) = self.monitor.unknown_to_agent() {
                    let word = state.word(self.names.config.active_word);
                    warning!("agent not notified of {} before the exit", word);
                }
                self.exit_reason = Some(reason);
                None
            }
        })
    }

    fn write_state(&mut self, state: State) -> Input {
        self.predecessor.take_if(|(before, _)| *before != state);
        let written = self.state_file.write(state.word(self.names.config.active_word));
        if let Err(errno) = written {
            let path = self.names.state_file.display();
            self.starter.not_yet(format_args!("state file {path}: {errno}"));
        }
        Input::StateFile(written)
    }

    /// Returns the Unix time of the state's last change, which was reported at `since`, or 0 if unknown. It is by the wall
    /// clock as it is set now: at the change it may have been wrong. A predecessor's state has the predecessor's time.
    fn changed_at(&self, since: Instant) -> u64 {
        let changed_at = self.predecessor.map_or(Some(since), |(_, changed_at)| changed_at);
        changed_at.map(clock::unix_time).unwrap_or_default()
    }

    fn notify(&mut self, state: State) -> Option<Input> {
        let word = state.word(self.names.config.active_word);
        // Never fails: the buffer has room for every word.
        let request = http::encode(&self.names.config.router_id, word).ok()?;
        let sent = self.agent.as_mut()?.notify(&request, self.poll.registry(), Token(AGENT));
        sent.err().map(|failure| Input::Agent(Outcome::Failed(failure)))
    }

    fn check_files(&self) -> FoundFiles {
        FoundFiles {
            pid_file_lost: self.pid_file.as_ref().is_some_and(|pid_file| !pid_file.is_own()),
            agent_replaced: self.agent.as_ref().is_some_and(Agent::is_replaced),
            log_renamed: log::was_renamed(),
            metrics_lost: self.metrics_file.as_ref().is_some_and(MetricsFile::is_lost),
            state_file: self.state_file.find(),
        }
    }

    fn notify_manager(&self, notice: ManagerNotice) -> Option<Input> {
        let manager = self.starter.manager()?;
        Some(Input::ManagerNotified(match notice {
            ManagerNotice::Reloading(at) => {
                let micros = clock::monotonic_micros(at);
                manager.send(format_args!("RELOADING=1\nMONOTONIC_USEC={micros}"))
            }
            ManagerNotice::Ready => manager.send(format_args!("READY=1")),
            ManagerNotice::Stopping => manager.send(format_args!("STOPPING=1")),
            ManagerNotice::Alive => manager.send(format_args!("WATCHDOG=1")),
            ManagerNotice::Status => {
                let summary = self.names.summary(&self.monitor.status());
                manager.send(format_args!("STATUS={summary}"))
            }
        }))
    }
}
