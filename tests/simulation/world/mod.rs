//! A world for the core to live in: a kernel with a queue that overflows, a disk that fails or hangs, an
//! agent that comes and goes, and whose reply is not read at once, conntrackd, a namespace that is
//! deleted, and time that jumps. What happens is told by bytes, so that a property test and a fuzzer can
//! both drive it.
//!
//! Whatever happens, at every moment
//!
//! - the newest truth has arrived, or there is something to be read or a time at which to look again,
//!   at most 5 s ahead: nothing is ever forgotten;
//! - a new state goes to the file first and then at once to the agent, unless an attempt is under way,
//!   and whatever conntrackd does meanwhile;
//! - there is at most one attempt, one dump and one command at a time, and no attempt is repeated
//!   without a wait: 50 ms at least, but for the first four after a full backlog;
//! - no reply and no end of a dump that has come is given up, however late it is read; nor is one taken for
//!   that of another dump, or a dump with gaps for a complete one;
//! - the watched interface is not said to be gone, nor an alternative name to be taken, before the kernel
//!   has said so; that a dump does not show it says nothing;
//! - no frame goes out while the VIP is not here, unless the news of that are still to be read;
//! - no frame goes out for an address that the core could know to be gone, undecided or failed, nor
//!   with anything but the present MAC and router flag, nor with another VRRP instance's virtual MAC, nor
//!   for an address that was there before the core;
//! - a link that takes no frames, or whose queue does not move, takes no more than its share of the send
//!   buffer, and the other link's frames go out all the same;
//! - whoever listens for claims of the VIP is bound to the interface that is there now, and reads few
//!   frames a second; each foreign claim is counted, and logged if the VIP stays for a second, and there
//!   are few lines a minute;
//! - what is scheduled lies ahead, and whatever has been seen to there is not seen to again;
//! - a command belongs to the newest state and comes in its place;
//! - once asked to, it leaves within 1 s, and sooner only if it has reported what was so when it was
//!   asked; without a namespace, within 5 s and not before it has told.
//!
//! An agent that was away answers 200 for a while before it knows its routers, and forgets the report.
//!
//! And when nothing more happens and everything works, the file and the agent have the truth,
//! conntrackd has done what belongs to it, and if the VIP is here, every address has been announced.

mod actions;
mod invariants;
mod kernel;
mod lan;
mod namespace;
mod peers;
mod rest;
mod told;
mod wire;

use std::cell::RefCell;

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, AnnounceTiming, Control, Duration, Input, Instant, Monitor, MonitorConfig,
    NamespaceCheck, Sent, State, Tables,
};
use keepwatch::wire::rtnl::Body;
use kernel::{Kernel, MAC, PORT, VIRTUAL_MAC, name};
use lan::{Egress, Lan};
use peers::{Agent, Conntrackd, Disk};
use told::Told;
use wire::Wire;

thread_local! {
    /// Large enough for it to take time to make them anew for each life.
    static TABLES: RefCell<Tables> = const { RefCell::new(Tables::new()) };
}

/// What asks it to leave.
const LEAVE: u8 = 31;
/// By this signal.
const SIGTERM: i32 = 15;
/// How often the core looks whether the namespace is there.
const CHECK: Duration = Duration::from_secs(10);

/// The core and everything around it.
pub struct World<'a> {
    monitor: Monitor<'a>,
    now: Instant,
    kernel: Kernel,
    lans: [Lan; 2],
    told: Told,
    disk: Disk,
    agent: Agent,
    conntrackd: Conntrackd,
    /// Nothing tells of mounts.
    mounts_are_hidden: bool,
    /// A change of the mounts has been told, and the core has yet to look.
    mounts_changed: bool,
    /// When the core looked at the namespace.
    looked: Option<Instant>,
    detects: bool,
    namespace_deleted: bool,
    /// When the core came to know of it.
    namespace_gone: Option<Instant>,
    /// The newest state that the core has reported.
    reported: Option<State>,
    wire: Wire,
    /// The VIP has failed duplicate address detection at least once.
    vip_has_failed: bool,
    ready: bool,
    /// What has been so since it was asked to leave.
    truths_since_asked: Vec<State>,
    /// What is being written has yet to be told to the agent.
    news: bool,
    /// When that was to be written, no attempt was under way.
    free: bool,
    /// It was asked to report the same again.
    reloaded: bool,
    asked_to_leave: bool,
    leave_by: Option<Instant>,
    exited: bool,
    /// When something was last done but looking for the namespace.
    busy: Instant,
    /// How many inputs have brought about the present one.
    depth: u8,
    sent: bool,
}

impl<'a> World<'a> {
    fn new(options: u8, tables: &'a mut Tables) -> Self {
        let option = |bit: u8| options & (1 << bit) != 0;
        let vip = if option(0) { "fd00::5/64" } else { "169.254.0.5/24" };
        let vip = vip.parse().expect("an address");
        let mut kernel = Kernel::new(vip, if option(5) { VIRTUAL_MAC } else { MAC });
        let mut lans = [(); 2].map(|()| Lan::new(kernel.new_index()));
        if option(7) {
            lans = lans.map(Lan::with_old_address);
        }
        let now = Instant::from_secs(1);
        let watch = MonitorConfig {
            interface: name("ha"),
            vip,
            port: PORT,
            seed: options.into(),
            announce: (!option(1)).then_some((AnnounceTiming::default(), tables)),
            detect_split_brain: !option(2),
            renotify: [30, 120, 600].map(Duration::from_secs).into_iter().collect(),
            sync_conntrack: option(3),
            check_namespace: if option(4) {
                NamespaceCheck::Every(CHECK)
            } else {
                NamespaceCheck::WhenMountsChange
            },
        };
        Self {
            monitor: Monitor::new(watch),
            now,
            kernel,
            lans,
            told: Told::new(),
            disk: Disk { works: true, hangs: Duration::ZERO, file: None },
            agent: Agent::new(),
            conntrackd: Conntrackd::new(option(3)),
            mounts_are_hidden: option(4),
            mounts_changed: false,
            looked: None,
            detects: !option(2),
            namespace_deleted: false,
            namespace_gone: None,
            reported: None,
            wire: Wire::default(),
            vip_has_failed: false,
            ready: false,
            truths_since_asked: Vec::new(),
            news: false,
            free: true,
            reloaded: false,
            asked_to_leave: false,
            leave_by: None,
            exited: false,
            busy: now,
            depth: 0,
            sent: false,
        }
    }

    /// Lets things happen as the bytes say, then lets the world come to rest, and checks that the
    /// truth has arrived everywhere.
    ///
    /// The first byte is for the options, then two are for each thing that happens.
    pub fn live(script: &[u8]) {
        let (options, script) = script.split_first().map_or((0, script), |(o, rest)| (*o, rest));
        TABLES.with_borrow_mut(|tables| {
            *tables = Tables::new();
            World::new(options, tables).live_through(options, script);
        });
    }

    fn live_through(&mut self, options: u8, script: &[u8]) {
        for step in script.chunks(2) {
            self.step(step[0], step.get(1).copied().unwrap_or_default());
            self.hear();
        }
        self.come_to_rest(options & 64 != 0);
        if self.exited {
            return;
        }
        let truth = self.truth();
        assert_eq!(self.disk.file, Some(truth), "the state file holds the truth");
        assert_eq!(self.agent.acknowledged, Some(truth), "the agent has said 200 to the truth");
        assert_eq!(self.agent.heeded, Some(truth), "an agent that was away has come to know it");
        assert!(self.ready && !self.namespace_deleted);
        assert!(self.conntrackd.is_done());
        if options & 2 == 0 && truth == State::Active {
            self.lans
                .iter()
                .filter(|lan| lan.is_open())
                .for_each(|lan| lan.is_announced(self.kernel.mac));
        }
        if options & 4 == 0 && truth == State::Active {
            assert_eq!(self.wire.listening, self.kernel.ifindex, "where the VIP is");
            assert!(self.wire.is_bound_to(&self.kernel));
            self.wire.all_is_said();
        }
        self.ask(LEAVE);
        self.read(usize::MAX);
        assert!(self.exited, "with nothing in flight and nothing to read it leaves at once");
    }

    fn truth(&self) -> State {
        let there = self.kernel.ifindex.is_some() && self.kernel.vip && !self.kernel.vip_failed;
        if there && self.namespace_gone.is_none() { State::Active } else { State::Backup }
    }

    fn step(&mut self, what: u8, how: u8) {
        self.happen(what, how);
        if self.asked_to_leave {
            self.truths_since_asked.push(self.truth());
        }
    }

    fn happen(&mut self, what: u8, how: u8) {
        match what % 20 {
            0 | 1 => self.kernel.set_vip(true),
            2 | 3 => self.kernel.set_vip(false),
            4 => self.kernel.create_interface(),
            5 => self.kernel.lose_interface(how.is_multiple_of(2)),
            6 => {
                let event = self.lans[usize::from(how >> 7)].change_address(how);
                self.emit(event);
            }
            7 => {
                let lan = &mut self.lans[usize::from(how >> 7)];
                let events = lan.change_link(how, || self.kernel.new_index());
                self.emit(events);
            }
            8 | 9 => self.read(usize::from(how % 8)),
            10 => self.pass(Duration::from_millis(u64::from(how).pow(2))),
            11 => self.agent_acts(how),
            12 => {
                self.agent.listens = how.is_multiple_of(2);
                self.agent.is_full = how > 127;
                self.agent.starts_for = Duration::from_secs(u64::from(how / 2) * 4);
            }
            13 => self.disk.works = how.is_multiple_of(2),
            14 => self.ask(how),
            15 => self.kernel.spoil_the_next_dump(how),
            16 => self.now += Duration::from_millis(u64::from(how).pow(3)),
            17 => self.conntrackd_acts(how),
            18 => self.claim(how),
            _ => self.trouble(how),
        }
    }

    fn emit(&mut self, events: impl IntoIterator<Item = Body>) {
        for event in events {
            self.kernel.emit(event);
        }
    }

    fn ask(&mut self, how: u8) {
        let request = match how % 32 {
            0..16 => Control::Reload,
            LEAVE => Control::Exit(SIGTERM),
            _ => Control::Status,
        };
        self.reloaded |= request == Control::Reload;
        if request == Control::Exit(SIGTERM) {
            self.asked_to_leave = true;
            self.truths_since_asked.push(self.truth());
            self.leave_at_the_latest(self.now + Duration::from_secs(1));
        }
        self.feed(&Input::Control(request));
    }

    fn leave_at_the_latest(&mut self, by: Instant) {
        self.leave_by = Some(self.leave_by.map_or(by, |earlier| earlier.min(by)));
    }

    fn trouble(&mut self, how: u8) {
        match how % 8 {
            0 | 1 => self.kernel.insert(Input::MalformedMessage),
            2 => self.feed(&Input::ForeignSender(how.into())),
            3 => self.set_egress(how, Egress::Open),
            4 if how > 127 => self.set_egress(how, Egress::Refuses(Sent::Failed(Errno(6)))),
            4 if how > 63 => self.set_egress(how, Egress::Refuses(Sent::Blocked)),
            4 => self.set_egress(how, Egress::Refuses(Sent::QueueFull)),
            5 if how > 127 => self.lans[0].set_egress(Egress::Stuck),
            5 => {
                let event = self.lans[usize::from(how >> 6)].wireless_event();
                self.emit(event);
            }
            // The daemon is told at once, or finds out when it looks.
            _ if how > 127 => self.delete_namespace(how.is_multiple_of(2)),
            6 if how < 32 => self.disk.hangs = Duration::from_millis(u64::from(how / 8) * 2800),
            6 if how < 64 => {
                let vip = self.kernel.vip;
                self.kernel.return_interface();
                self.kernel.set_vip(vip && how < 48);
            }
            6 if how < 96 => self.conntrackd_restarts(),
            6 if how < 112 => self.change_mounts(),
            6 => {
                let event = self.kernel.wireless_event();
                self.emit(event);
            }
            _ if how < 64 => self.agent.reply_unread(how / 8),
            _ if how < 80 => self.kernel.cut_next_links = true,
            _ if how < 96 => self.kernel.alternative = self.kernel.ifindex.is_none(),
            _ => {
                self.kernel.fail_vip();
                self.vip_has_failed |= self.kernel.vip_failed;
            }
        }
    }

    /// Of both links, or of the first alone.
    fn set_egress(&mut self, how: u8, egress: Egress) {
        let links = if how & 8 == 0 { 2 } else { 1 };
        self.lans[..links].iter_mut().for_each(|lan| lan.set_egress(egress));
    }

    fn agent_acts(&mut self, how: u8) {
        let outcome = self.agent.act(how, self.now);
        self.feed(&Input::Agent(outcome));
    }

    fn conntrackd_acts(&mut self, how: u8) {
        if how == 255 {
            self.conntrackd.die();
            self.feed(&Input::HelperGone);
        } else {
            let end = self.conntrackd.end(how, self.now);
            self.feed(&Input::CommandEnded(end));
        }
    }

    /// The process that runs the commands is killed, and with it the one under way.
    fn conntrackd_restarts(&mut self) {
        if self.conntrackd.restart() {
            self.feed(&Input::HelperRestarted);
        }
        if self.conntrackd.is_running() {
            let end = self.conntrackd.abort();
            self.feed(&Input::CommandEnded(end));
        }
    }

    /// Reads so many datagrams. That there are no more it tells only at a deadline: otherwise the daemon
    /// does not look.
    fn read(&mut self, datagrams: usize) {
        for _ in 0..datagrams {
            let input = self.kernel.read();
            if input != Input::Tick {
                self.feed(&input);
                continue;
            }
            if self.monitor.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.feed(&input);
            }
            return;
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

    fn feed(&mut self, input: &Input) {
        if self.exited {
            return;
        }
        self.depth += 1;
        assert!(self.depth < 8, "one thing leads to another without end");
        self.told.tell(input, self.kernel.meaning, self.now);
        if matches!(input, Input::Overrun | Input::MalformedMessage) {
            self.lans.iter_mut().for_each(Lan::announce_anew);
        }
        self.kernel.tell(input);
        self.wire.heeds &= !matches!(
            input,
            Input::Netlink(_) | Input::RequestFailed { .. } | Input::NamespaceGone
        );
        // Whoever is about to leave has no news any more.
        let leaves = self.asked_to_leave || self.namespace_gone.is_some();
        if *input == Input::NamespaceGone && !leaves {
            self.namespace_gone = Some(self.now);
            self.leave_at_the_latest(self.now + Duration::from_secs(5));
        }
        let fed_at = self.now;
        let in_flight = self.agent.is_in_flight();
        let actions = self.monitor.on(input, self.now);
        self.note_report(input, &actions, in_flight);
        self.note_look(&actions);
        for action in actions {
            if action != Action::CheckNamespace {
                self.busy = self.now;
            }
            self.told.asked(&action, self.now);
            if let Some(outcome) = self.carry_out(&action) {
                self.feed(&outcome);
            }
        }
        self.depth -= 1;
        if self.depth == 0 && !self.exited {
            self.nothing_is_forgotten();
            let sent = std::mem::take(&mut self.sent);
            if *input == Input::Tick && !sent {
                let ahead = self.monitor.deadline().is_none_or(|deadline| deadline > fed_at);
                assert!(ahead, "nothing was done at a deadline, and it did not move");
            }
        }
    }
}
