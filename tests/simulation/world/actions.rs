//! What becomes of what the core wants done.

use keepwatch::monitor::{Action, Dump, Failure, Input, Outcome, Request, State};
use keepwatch::wire::rtnl::Body;

use super::Simulation;
use super::lan::Lan;

impl Simulation<'_> {
    /// Some: that came of it at once.
    pub(super) fn carry_out(&mut self, action: &Action) -> Option<Input> {
        match *action {
            Action::RequestDump { dump, sequence } => {
                self.latest_news_are_read();
                let content = self.listed(dump);
                return self.kernel.begin_dump(dump, sequence, content);
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
            Action::SetAddressFilter(ifindex) => {
                let heeded = Some(ifindex.unwrap_or(0));
                assert_ne!(std::mem::replace(&mut self.kernel.heeded, heeded), heeded, "set again");
            }
            Action::WatchClaims { ifindex, rebind } => {
                self.wire.listen(ifindex, rebind, &self.kernel);
            }
            Action::ReadFrames(reads) => {
                assert!(!reads || self.reported == Some(State::Active), "for nothing");
                self.wire.read(reads);
            }
            Action::WriteState(state) => {
                self.now += std::mem::take(&mut self.disk.hangs);
                let written = self.disk.write(state);
                self.manager.written |= written.is_ok();
                self.file_is_tried();
                return Some(Input::StateFile(written));
            }
            Action::WriteMetrics => {
                assert!(self.at_empty_queue, "others may have to be served");
                let status = self.monitor.status();
                self.metrics.follow(&status);
                self.now += self.metrics.begin(&status, self.now);
                return Some(Input::MetricsFile(self.metrics.write(&status, self.now)));
            }
            Action::Notify(state) => {
                assert!(!self.options.has_no_agent, "there is nobody");
                return self.agent.notify(state, self.now).map(Input::Agent);
            }
            Action::HangUp => {
                assert!(self.agent.is_connected(), "there is nothing to hang up");
                let is_wanted = self.agent.in_flight() == self.reported && !self.reloaded;
                let is_early = is_wanted && self.leave_by.is_none();
                assert!(!is_early || self.agent.has_had_its_time(self.now), "hung up early");
                let outcome = self.agent.read_reply(self.now).unwrap_or_else(|| {
                    assert!(self.agent.hang_up(self.now), "it has ended");
                    Outcome::Failed(Failure::TimedOut)
                });
                return Some(Input::Agent(outcome));
            }
            Action::SignalReady => self.be_ready(),
            Action::TellManager(notice) => self.tell_manager(notice),
            Action::Run(Request::Sync(command)) => self.conntrackd.run(command),
            Action::Run(Request::Hook(state)) => self.run_hook(state),
            Action::CheckNamespace => {
                // What has been so until then is to be written, whatever the look changes.
                self.metrics.follow(&self.monitor.status());
                return self.look_at_namespace();
            }
            Action::Exit(ending) => self.exit(ending),
            Action::Log(ref note) => self.read_log(note),
            Action::LogStatus => {
                assert_eq!(self.monitor.status().counters.unannounced, 0, "there is room");
            }
            Action::ReopenLog => {}
        }
        None
    }

    /// Nothing that could be read has come since the queue was empty, for all that the core knows.
    fn latest_news_are_read(&self) {
        assert_eq!(self.emptied_at, Some(self.now), "there may be something to be read");
    }

    /// Something is mounted or unmounted. It is told once, until the core has looked.
    pub(super) fn change_mounts(&mut self) {
        if !self.options.mounts_are_hidden && !self.mounts_changed {
            self.mounts_changed = true;
            self.feed(&Input::MountsChanged);
        }
    }

    /// Where nothing tells of mounts, the daemon may find out `at_once` all the same.
    pub(super) fn delete_namespace(&mut self, at_once: bool) {
        self.namespace_deleted = true;
        self.change_mounts();
        if self.options.mounts_are_hidden && at_once {
            self.feed(&Input::NamespaceGone);
        }
    }

    pub(super) fn look_at_namespace(&mut self) -> Option<Input> {
        self.mounts_changed = false;
        self.namespace_deleted.then_some(Input::NamespaceGone)
    }

    pub(super) fn listed_addresses(&self, ifindex: Option<u32>) -> Vec<Body> {
        let lans = self.lans.iter().flat_map(Lan::listed);
        lans.chain(self.kernel.listed_vip(ifindex)).collect()
    }

    /// What the kernel lists, in a dump that nothing comes between.
    pub(super) fn listed(&mut self, dump: Dump) -> Vec<Body> {
        match dump {
            Dump::Links => {
                let lans: Vec<_> = self.lans.iter().filter_map(Lan::link).collect();
                lans.into_iter().chain(self.kernel.link()).collect()
            }
            Dump::Interface => self.kernel.interface(self.lans[0].link()).into_iter().collect(),
            Dump::Addresses(ifindex) | Dump::Others(ifindex) => {
                assert_ne!(ifindex, 0, "of all interfaces");
                self.listed_addresses(Some(ifindex))
            }
            Dump::Everywhere => self.listed_addresses(None),
        }
    }
}
