//! What can happen, as data: the steps of a failed life are printed as its story. They are decoded from bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use keepwatch::errno::Errno;
use keepwatch::monitor::{CommandResult, Control, DumpResult, Failure, HelperKind, Input};
use netlink_packet_route::link::LinkFlags;

use super::kernel::{UP, wireless};
use super::lan::{AddressChange, LinkChange};
use super::peers::Reply;
use super::wire::{Claims, Station};
use super::{SIGTERM, Simulation};

/// Everything that happens to a core.
#[derive(Clone)]
pub struct Life {
    pub options: Options,
    pub steps: Vec<Step>,
}

/// How the core is started, and what it finds.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u8,
    pub ipv6_vip: bool,
    pub announces: bool,
    pub detects_split_brain: bool,
    pub probes: bool,
    pub syncs_conntrack: bool,
    /// Nothing tells of mounts.
    pub mounts_are_hidden: bool,
    /// The watched interface has a MAC of VRRP.
    pub has_virtual_mac: bool,
    pub writes_metrics: bool,
    /// The other links have addresses before the core starts.
    pub has_old_addresses: bool,
    pub has_hook: bool,
    pub has_no_agent: bool,
    /// A service manager is told.
    pub has_manager: bool,
    /// And wants signs of life.
    pub has_watchdog: bool,
}

/// Links are the two beside the watched one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Or refreshes it.
    AddVip,
    RemoveVip,
    /// The VIP's address is put on one of the other links, or with another prefix length on the watched one; or it is
    /// taken away there.
    MisplaceVip {
        on_link: Option<usize>,
    },
    /// Another host has the VIP, too.
    FailVip,
    CreateInterface,
    DeleteInterface,
    RenameInterface,
    /// It goes to another namespace and comes back with its old index.
    ReturnInterface {
        with_vip: bool,
    },
    /// If there is no watched interface, its name becomes the first link's alternative name.
    TakeAlternativeName,
    /// The watched interface is set up or down, or its carrier comes or goes.
    SetFlags(LinkFlags),
    /// What a wireless driver tells of the watched interface.
    WirelessEvent,
    /// And of another link.
    LinkWirelessEvent(usize),
    ChangeAddress(usize, AddressChange),
    ChangeLink(usize, LinkChange),
    /// What becomes of frames on so many links.
    SetEgress(usize, Result<(), Errno>),
    Read(usize),
    MalformedMessage,
    ForeignMessage(u8),
    /// How the next dump ends.
    EndNextDump(DumpResult),
    /// The next dump lists what was there as it was, and after the events of what has changed since.
    NextDumpLags,
    /// The next dump of links ends before the watched interface.
    CutNextLinks,
    /// Time passes, and the core looks at every deadline.
    Wait(Duration),
    /// Time passes, and the core does not run.
    Stall(Duration),
    /// Those of metrics fail like this, if at all, and the next hangs for so long.
    DiskWorks {
        works: bool,
        for_metrics: Option<Errno>,
        hangs_for_metrics: Duration,
    },
    /// So does the next write of the state.
    DiskHangs(Duration),
    AgentReplies(Reply),
    /// And nobody reads that yet.
    AgentRepliesUnread(Reply),
    /// There is no room for more who call it; and when it is started again, it takes so long to know its routers.
    AgentListens {
        listens: bool,
        is_full: bool,
        starts_for: Duration,
    },
    CommandEnds(CommandResult),
    HookEnds(CommandResult),
    HelperDies(HelperKind),
    Control(Control),
    Claim(Claims),
    ChangeMounts,
    /// Where nothing tells of mounts, the core may be told at once all the same.
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
            Step::MalformedMessage => self.kernel.insert(Input::MalformedMessage),
            Step::ForeignMessage(port) => self.feed(&Input::ForeignSender(port.into())),
            Step::EndNextDump(result) => self.kernel.next_dump_end = Some(result),
            Step::NextDumpLags => self.kernel.next_dump_lags = true,
            Step::CutNextLinks => self.kernel.cut_next_links = true,
            Step::Wait(duration) => self.pass(duration.into()),
            Step::Stall(duration) => self.now += duration.into(),
            Step::DiskWorks { works, for_metrics, hangs_for_metrics } => {
                (self.disk.works, self.metrics.failure) = (works, for_metrics);
                self.metrics.hangs = hangs_for_metrics.into();
            }
            Step::DiskHangs(duration) => self.disk.hangs = duration.into(),
            Step::AgentReplies(reply) => self.agent_replies(reply),
            Step::AgentRepliesUnread(reply) => self.agent.reply_unread(reply),
            Step::AgentListens { listens, is_full, starts_for } => {
                (self.agent.listens, self.agent.is_full) = (listens, is_full);
                self.agent.starts_for = starts_for.into();
            }
            Step::CommandEnds(result) => self.command_ends(result),
            Step::HelperDies(helper) => self.helper_dies(helper),
            Step::HookEnds(result) => self.hook_ends(result),
            Step::Control(control) => self.control(control),
            Step::Claim(claims) => self.claim(claims),
            Step::ChangeMounts => self.change_mounts(),
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
        self.kernel.set_vip(vip && with_vip);
    }
}

impl Life {
    /// In the place of the first step: what follows are more options.
    pub const MORE_OPTIONS: u8 = 255;

    /// The first byte is for the options, as is the third if the second is [`Life::MORE_OPTIONS`]; then two are for
    /// each step. Recorded scripts keep their meaning.
    pub fn decode(script: &[u8]) -> Self {
        let (options, script) = script.split_first().map_or((0, script), |(o, rest)| (*o, rest));
        let (more, script) = match script {
            [Self::MORE_OPTIONS, more, script @ ..] => (*more, script),
            _ => (0, script),
        };
        let steps = script
            .chunks(2)
            .map(|step| Step::decode(step[0], step.get(1).copied().unwrap_or_default()));
        Self { options: Options::decode(options, more), steps: steps.collect() }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.options)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "    {step:?}"))
    }
}

impl Options {
    fn decode(byte: u8, more: u8) -> Self {
        let bit = |bit: u8| byte & (1 << bit) != 0;
        Self {
            seed: byte,
            ipv6_vip: bit(0),
            announces: !bit(1),
            detects_split_brain: !bit(2),
            probes: !bit(2) && more & 0x40 != 0,
            syncs_conntrack: bit(3),
            mounts_are_hidden: bit(4),
            has_virtual_mac: bit(5),
            has_old_addresses: bit(7),
            has_hook: more & 1 != 0,
            has_no_agent: more & 6 == 6,
            has_manager: more & 8 != 0,
            has_watchdog: more & 0b1_1000 == 0b1_1000,
            writes_metrics: more & 0x20 != 0,
        }
    }
}

impl Step {
    pub fn decode(what: u8, how: u8) -> Self {
        match if (240..252).contains(&what) { what } else { what % 20 } {
            240..246 => Self::HookEnds(decode_result(how)),
            246..250 => decode_watched_link(how),
            250..252 => Self::MisplaceVip { on_link: usize::from(how % 3).checked_sub(1) },
            0 | 1 => Self::AddVip,
            2 | 3 => Self::RemoveVip,
            4 => Self::CreateInterface,
            5 if how.is_multiple_of(2) => Self::RenameInterface,
            5 => Self::DeleteInterface,
            6 => Self::ChangeAddress(usize::from(how >> 7), decode_address(how)),
            7 => Self::ChangeLink(usize::from(how >> 7), decode_link(how)),
            8 | 9 => Self::Read(usize::from(how % 8)),
            10 => Self::Wait(Duration::from_millis(u64::from(how).pow(2))),
            11 => Self::AgentReplies(decode_reply(how)),
            12 => Self::AgentListens {
                listens: how.is_multiple_of(2),
                is_full: how > 127,
                starts_for: Duration::from_secs(u64::from(how / 2) * 4),
            },
            13 => Self::DiskWorks {
                works: how.is_multiple_of(2),
                for_metrics: match how & 6 {
                    2 => Some(Errno(28)),
                    6 => Some(Errno::EXISTS),
                    _ => None,
                },
                hangs_for_metrics: Duration::from_secs(if how < 192 { 0 } else { 20 }),
            },
            14 => Self::Control(match how % 32 {
                0..16 => Control::Reload,
                31 => Control::Exit(SIGTERM),
                _ => Control::Status,
            }),
            15 => Self::EndNextDump(match how % 3 {
                0 => DumpResult::Interrupted,
                1 => DumpResult::Failed(Errno(16)),
                _ => DumpResult::TimedOut,
            }),
            16 => Self::Stall(Duration::from_millis(u64::from(how).pow(3))),
            17 if how == 255 => Self::HelperDies(HelperKind::Conntrackd),
            17 => Self::CommandEnds(decode_result(how)),
            18 => Self::Claim(decode_claims(how)),
            _ => Self::decode_trouble(how),
        }
    }

    fn decode_trouble(how: u8) -> Self {
        match how % 8 {
            0 | 1 => Self::MalformedMessage,
            2 => Self::ForeignMessage(how),
            5 if how < 128 => Self::LinkWirelessEvent(usize::from(how >> 6)),
            3..6 => decode_egress(how),
            _ if how > 127 => Self::DeleteNamespace { at_once: how.is_multiple_of(2) },
            6 => match how {
                0..32 => Self::DiskHangs(Duration::from_millis(u64::from(how / 8) * 2800)),
                32..64 => Self::ReturnInterface { with_vip: how < 48 },
                64..80 => Self::NextDumpLags,
                80..96 => Self::ChangeMounts,
                _ => Self::WirelessEvent,
            },
            _ => match how {
                0..64 => Self::AgentRepliesUnread(decode_reply(how / 8)),
                64..80 => Self::CutNextLinks,
                80..96 => Self::TakeAlternativeName,
                _ => Self::FailVip,
            },
        }
    }
}

fn decode_address(how: u8) -> AddressChange {
    let (n, bit) = (how % 8, |bit: u8| how & bit != 0);
    let v4 = IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
    let v6 = IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()));
    let address = if bit(8) { (v6, 64) } else { (v4, if bit(16) { 32 } else { 24 }) };
    AddressChange {
        optimistic: bit(16),
        fails: bit(32),
        refreshed: bit(64),
        ..AddressChange::of(address)
    }
}

fn decode_link(how: u8) -> LinkChange {
    match how % 8 {
        0..4 => LinkChange::Carrier,
        5 if how & 64 != 0 => LinkChange::VirtualMac,
        4 | 5 => LinkChange::Mac,
        6 => LinkChange::Forwarding,
        _ => LinkChange::Delete,
    }
}

/// What becomes of the watched link, and of the process that runs the hook.
fn decode_watched_link(how: u8) -> Step {
    match how {
        0..64 => Step::SetFlags(UP),
        64..128 => Step::SetFlags(LinkFlags::Up),
        128..252 => Step::SetFlags(LinkFlags::empty()),
        252.. => Step::HelperDies(HelperKind::Hook),
    }
}

fn decode_egress(how: u8) -> Step {
    let egress = if how % 8 == 3 { Ok(()) } else { Err(Errno(105)) };
    Step::SetEgress(if how & 8 == 0 { 2 } else { 1 }, egress)
}

fn decode_reply(how: u8) -> Reply {
    match how % 8 {
        0..4 => Ok(()),
        4 => Err(Failure::ClosedEarly),
        5 => Err(Failure::Malformed),
        6 => Err(Failure::Status(500)),
        _ => Err(Failure::Socket(Errno(5))),
    }
}

fn decode_result(how: u8) -> CommandResult {
    match how % 8 {
        7 if how & 8 != 0 => CommandResult::NotConfigured(Errno::NOT_FOUND),
        0..4 => CommandResult::Exited(0),
        4 => CommandResult::Exited(1),
        5 => CommandResult::Signalled(9),
        6 => CommandResult::TimedOut,
        _ => CommandResult::NotStarted(Errno(2)),
    }
}

fn decode_claims(how: u8) -> Claims {
    let frames = (how >> 5) * 8;
    Claims {
        by: match (how >> 5, how & 0b11001) {
            (4.., 0b11000 | 0b11001) => Station::Nobody(frames),
            (4.., _) => Station::Others(frames),
            (_, 0) => Station::Other,
            (_, 1) => Station::Watched,
            (_, 0b01000 | 0b01001) => Station::Virtual,
            (_, 0b11000 | 0b11001) => Station::Silent,
            _ => Station::FirstLink,
        },
        on_other_interface: how & 4 != 0,
        of_other_address: how & 2 != 0,
    }
}
