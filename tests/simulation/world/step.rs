//! The steps of a life as data, which are printed if it fails.

use std::fmt;
use std::time::Duration;

use keepwatch::errno::Errno;
use keepwatch::monitor::{Answer, CommandResult, Control, HelperKind, Input, Keepalived, State};
use netlink_packet_route::link::LinkFlags;

use super::Simulation;
use super::kernel::wireless;
use super::lan::{AddressChange, LinkChange};
use super::peers::Reply;
use super::wire::Claims;

/// All inputs of a core.
#[derive(Clone)]
pub struct Life {
    pub options: Options,
    pub steps: Vec<Step>,
}

/// The configuration of the core, and the world at its start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The bytes that encode the options. The first is also the seed.
    pub bits: [u8; 2],
    pub ipv6_vip: bool,
    pub announces: bool,
    pub detects_split_brain: bool,
    pub probes: bool,
    pub syncs_conntrack: bool,
    /// Mounts have no events.
    pub mounts_are_hidden: bool,
    /// The watched interface has a virtual MAC.
    pub has_virtual_mac: bool,
    /// It has an address beside the VIP.
    pub has_own_address: bool,
    pub writes_metrics: bool,
    /// The other links have addresses before the core starts.
    pub has_old_addresses: bool,
    pub checks_keepalived: bool,
    pub has_hook: bool,
    /// The hook waits until a state has lasted.
    pub delays_hook: bool,
    pub has_no_agent: bool,
    pub has_manager: bool,
    /// The service manager expects WATCHDOG.
    pub has_watchdog: bool,
    /// Answers list the addresses of all interfaces.
    pub kernel_is_old: bool,
}

/// A step. Links are numbered without the watched one: 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Adds or refreshes the VIP.
    AddVip,
    RemoveVip,
    /// Adds the VIP's address to another link, or with another prefix length to the watched one, or removes it there.
    MisplaceVip {
        on_link: Option<usize>,
    },
    /// Duplicate address detection of the VIP fails.
    FailVip,
    CreateInterface,
    DeleteInterface,
    RenameInterface,
    /// The interface moves to another namespace, and returns with its old index.
    ReturnInterface {
        with_vip: bool,
    },
    /// Without a watched interface, the watched name becomes the first link's alternative name.
    TakeAlternativeName,
    /// Sets the watched interface up or down, or its carrier on or off.
    SetFlags(LinkFlags),
    /// An event of a wireless driver about the watched interface.
    WirelessEvent,
    /// An event of a wireless driver about another link.
    LinkWirelessEvent(usize),
    ChangeAddress(usize, AddressChange),
    ChangeLink(usize, LinkChange),
    /// Sets the result of sending frames on this many links.
    SetEgress(usize, Result<(), Errno>),
    Read(usize),
    /// A malformed message about the link with this index, if that can be read.
    MalformedMessage(Option<u32>),
    ForeignMessage(u8),
    /// Sets the end of the next answer.
    EndNextAnswer(Answer),
    /// The next answer comes in two parts.
    SplitNextAnswer,
    /// Time passes, and the core runs at every deadline.
    Wait(Duration),
    /// Time passes, and the core does not run.
    Stall(Duration),
    /// Sets whether writes of the state work, how writes of metrics fail, and how long the next of these hangs.
    DiskWorks {
        works: bool,
        for_metrics: Option<Errno>,
        hangs_for_metrics: Duration,
    },
    /// Another process removes the metrics file.
    RemoveMetrics,
    /// Sets how long the next write of the state hangs.
    DiskHangs(Duration),
    AgentReplies(Reply),
    /// The agent replies, and the core does not read that yet.
    AgentRepliesUnread(Reply),
    /// Sets whether the agent listens, whether its backlog is full, and how long it needs for its routers after a
    /// start.
    AgentListens {
        listens: bool,
        is_full: bool,
        starts_for: Duration,
    },
    /// The agent needs so much longer to act on its next notification.
    AgentIsSlow(Duration),
    CommandEnds(CommandResult),
    RestartConntrackd,
    HookEnds(CommandResult),
    /// The system call of the next action fails that has no result otherwise.
    FailNextAction,
    /// Sets whether the service manager's socket has room.
    ManagerTakes(bool),
    LosePidFile,
    HelperDies(HelperKind),
    Control(Control),
    Claim(Claims),
    ChangeMounts,
    SetClock,
    SetKeepalived(Keepalived),
    /// Another process replaces the state file, or without a word removes it.
    ReplaceStateFile(Option<State>),
    /// The agent writes the state file in place.
    OverwriteStateFile(State),
    /// Another process writes the spare, or removes it.
    TouchSpare {
        removes: bool,
    },
    /// Sets whether the disk can exchange two files.
    DiskExchanges(bool),
    /// Deletes the namespace. Without events of mounts, the core may still notice it `at_once`.
    DeleteNamespace {
        at_once: bool,
    },
}

impl Simulation<'_> {
    pub(super) fn happen(&mut self, step: Step) {
        match step {
            Step::AddVip => self.kernel.set_vip(true),
            Step::RemoveVip => self.kernel.set_vip(false),
            Step::MisplaceVip { on_link: None } => self.kernel.misplace_vip(),
            Step::MisplaceVip { on_link: Some(link) } => {
                let vip = self.kernel.vip();
                let vip = AddressChange::of((vip.address(), vip.prefix_len()));
                let event = self.lans[link].change_address(vip);
                self.emit(event);
            }
            Step::FailVip => self.fail_vip(),
            Step::CreateInterface => self.kernel.create_interface(),
            Step::DeleteInterface => self.kernel.lose_interface(false),
            Step::RenameInterface => self.kernel.lose_interface(true),
            Step::ReturnInterface { with_vip } => self.return_interface(with_vip),
            Step::TakeAlternativeName => self.kernel.alternative = self.kernel.ifindex.is_none(),
            Step::SetFlags(flags) => self.kernel.set_flags(flags),
            Step::WirelessEvent => self.emit(self.kernel.interface(None).map(wireless)),
            Step::LinkWirelessEvent(link) => self.emit(self.lans[link].link().map(wireless)),
            Step::ChangeAddress(link, change) => {
                let event = self.lans[link].change_address(change);
                self.emit(event);
            }
            Step::ChangeLink(link, change) => {
                let events = self.lans[link].change_link(change, || self.kernel.new_index());
                self.emit(events);
            }
            Step::SetEgress(links, egress) => {
                self.lans[..links].iter_mut().for_each(|lan| lan.egress = egress);
            }
            Step::Read(datagrams) => self.read(datagrams),
            Step::MalformedMessage(about) => self.kernel.insert(Input::MalformedMessage(about)),
            Step::ForeignMessage(port) => self.feed(&Input::ForeignSender(port.into())),
            Step::EndNextAnswer(answer) => self.kernel.next_answer = Some(answer),
            Step::SplitNextAnswer => self.kernel.splits_next = true,
            Step::Wait(duration) => self.pass(duration.into()),
            Step::Stall(duration) => self.now += duration.into(),
            Step::DiskWorks { works, for_metrics, hangs_for_metrics } => {
                (self.disk.works, self.metrics.failure) = (works, for_metrics);
                self.metrics.hangs = hangs_for_metrics.into();
            }
            Step::RemoveMetrics => self.metrics.is_removed = true,
            Step::DiskHangs(duration) => self.disk.hangs = duration.into(),
            Step::AgentReplies(reply) => self.agent_replies(reply),
            Step::AgentRepliesUnread(reply) => self.agent.reply_unread(reply),
            Step::AgentListens { listens, is_full, starts_for } => {
                self.agent.is_full = is_full;
                self.agent.listen(listens, starts_for.into(), self.now);
            }
            Step::AgentIsSlow(duration) => self.agent.next_thread_takes = duration.into(),
            Step::RestartConntrackd => self.conntrackd.was_restarted = true,
            Step::CommandEnds(result) => self.command_ends(result),
            Step::HelperDies(helper) => self.helper_dies(helper),
            Step::HookEnds(result) => self.hook_ends(result),
            Step::FailNextAction => self.next_action_fails = true,
            Step::ManagerTakes(takes) => self.manager.is_full = !takes,
            Step::LosePidFile => self.pid_file_is_lost = true,
            Step::Control(control) => self.control(control),
            Step::Claim(claims) => self.claim(claims),
            Step::ChangeMounts => self.change_mounts(),
            Step::SetClock => self.set_clock(),
            Step::SetKeepalived(shows) => self.keepalived.shows = shows,
            Step::ReplaceStateFile(word) => self.disk.replace(word),
            Step::OverwriteStateFile(word) => self.disk.overwrite(word),
            Step::TouchSpare { removes } => self.disk.touch_spare(removes),
            Step::DiskExchanges(exchanges) => self.disk.cannot_exchange = !exchanges,
            Step::DeleteNamespace { at_once } => self.delete_namespace(at_once),
        }
    }

    fn fail_vip(&mut self) {
        self.kernel.fail_vip();
        self.vip_has_failed |= self.kernel.vip_failed;
    }

    fn return_interface(&mut self, with_vip: bool) {
        let vip = self.kernel.has_vip;
        self.kernel.return_interface();
        self.note_truth();
        self.kernel.set_vip(vip && with_vip);
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.replay().map_or(Ok(()), |replay| writeln!(f, "{replay}"))?;
        writeln!(f, "{:?}", self.options)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "    {step:?}"))
    }
}

impl Options {
    /// Decodes options. All zero means the defaults: announcements and split-brain detection.
    pub fn decode(bits: [u8; 2]) -> Self {
        let [byte, more] = bits;
        let bit = |bit: u8| byte & (1 << bit) != 0;
        Self {
            bits,
            ipv6_vip: bit(0),
            announces: !bit(1),
            detects_split_brain: !bit(2),
            probes: !bit(2) && more & 0x40 != 0,
            syncs_conntrack: bit(3),
            mounts_are_hidden: bit(4),
            has_virtual_mac: bit(5),
            has_own_address: bit(6),
            has_old_addresses: bit(7),
            checks_keepalived: bit(6),
            has_hook: more & 1 != 0,
            delays_hook: bit(6),
            has_no_agent: more & 6 == 6,
            has_manager: more & 8 != 0,
            has_watchdog: more & 0b1_1000 == 0b1_1000,
            writes_metrics: more & 0x20 != 0,
            kernel_is_old: more & 0x80 != 0,
        }
    }
}
