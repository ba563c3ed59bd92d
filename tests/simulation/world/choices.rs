//! The steps of random lives: each kind with its frequency, the simplest first.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use keepwatch::errno::Errno;
use keepwatch::monitor::State::{Active, Backup};
use keepwatch::monitor::{Answer, CommandResult, Control, Failure, HelperKind, Keepalived};
use netlink_packet_route::link::LinkFlags;

use super::SIGTERM;
use super::kernel::UP;
use super::lan::{AddressChange, LinkChange};
use super::peers::Reply;
use super::step::{Life, Options, Step};
use super::wire::{Claims, Station};

const BYTE: std::ops::RangeInclusive<u64> = 0..=255;

/// The steps of each kind. Frequent kinds occur several times.
pub static CHOICES: LazyLock<Vec<Vec<Step>>> = LazyLock::new(|| {
    let kinds = [
        (16, vec![Step::AddVip]),
        (16, vec![Step::RemoveVip]),
        (16, (0..8).map(Step::Read).collect()),
        (6, vec![Step::CreateInterface]),
        (8, vec![Step::DeleteInterface, Step::RenameInterface]),
        (8, BYTE.map(|n| Step::Wait(Duration::from_millis(n.pow(2)))).collect()),
        (8, BYTE.map(|n| Step::Stall(Duration::from_millis(n.pow(3)))).collect()),
        (8, replies().map(Step::AgentReplies).to_vec()),
        (1, replies().map(Step::AgentRepliesUnread).to_vec()),
        (4, vec![listens(false, false, 0), listens(false, true, 0)]),
        (4, (0..128).flat_map(|n| [false, true].map(|full| listens(true, full, n * 27))).collect()),
        (4, (1..28).map(|secs| Step::AgentIsSlow(Duration::from_secs(secs))).collect()),
        (8, disks().collect()),
        (8, results().map(Step::CommandEnds).to_vec()),
        (1, vec![Step::RestartConntrackd]),
        (4, results().map(Step::HookEnds).to_vec()),
        (2, vec![Step::FailNextAction]),
        (4, vec![Step::Control(Control::Reload)]),
        (2, vec![Step::Control(Control::Status)]),
        (1, vec![Step::Control(Control::ReopenLog)]),
        (1, [None, Some(Active), Some(Backup)].map(Step::ReplaceStateFile).to_vec()),
        (1, [Active, Backup].map(Step::OverwriteStateFile).to_vec()),
        (1, [true, false].map(|removes| Step::TouchSpare { removes }).to_vec()),
        (1, [true, true, false].map(Step::DiskExchanges).to_vec()),
        (8, answers().map(Step::EndNextAnswer).to_vec()),
        (2, vec![Step::SplitNextAnswer]),
        (8, [0, 1].into_iter().flat_map(address_changes).collect()),
        (8, [0, 1].into_iter().flat_map(link_changes).collect()),
        (3, [UP, LinkFlags::Up, LinkFlags::empty()].map(Step::SetFlags).to_vec()),
        (8, claims().collect()),
        (2, [None, Some(0), Some(1)].map(|on_link| Step::MisplaceVip { on_link }).to_vec()),
        (2, vec![Step::MalformedMessage(None)]),
        (2, vec![Step::SetEgress(2, Ok(())), egress_fails(1), egress_fails(2)]),
        (2, [true, false].map(Step::ManagerTakes).to_vec()),
        (1, vec![Step::FailVip, Step::TakeAlternativeName, Step::SetClock, Step::RemoveMetrics]),
        (
            2,
            [Keepalived::Gone, Keepalived::Runs, Keepalived::Unknown]
                .map(Step::SetKeepalived)
                .to_vec(),
        ),
        (1, [true, false].map(|with_vip| Step::ReturnInterface { with_vip }).to_vec()),
        (1, vec![Step::WirelessEvent, Step::LinkWirelessEvent(0), Step::LinkWirelessEvent(1)]),
        (1, vec![Step::ForeignMessage(8), Step::MalformedMessage(Some(99))]),
        (1, [0, 2800, 5600, 8400].map(|n| Step::DiskHangs(Duration::from_millis(n))).to_vec()),
        (1, vec![Step::ChangeMounts]),
        (1, ends()),
    ];
    let repeat = |(times, kind): (usize, Vec<Step>)| std::iter::repeat_n(kind, times);
    kinds.into_iter().flat_map(repeat).collect()
});

/// Returns the steps that end a life soon.
fn ends() -> Vec<Step> {
    let mut ends = vec![Step::Control(Control::Exit(SIGTERM)), Step::LosePidFile];
    ends.extend([true, false].map(|at_once| Step::DeleteNamespace { at_once }));
    ends.extend([HelperKind::Conntrackd, HelperKind::Hook].map(Step::HelperDies));
    ends
}

fn replies() -> [Reply; 8] {
    let [ok, status, socket] = [Ok(()), Err(Failure::Status(500)), Err(Failure::Socket(Errno(5)))];
    [ok, ok, ok, ok, Err(Failure::ClosedEarly), Err(Failure::Malformed), status, socket]
}

fn results() -> [CommandResult; 9] {
    use CommandResult::{Exited, NotConfigured, NotStarted, Signalled, TimedOut};
    let [ok, missing] = [Exited(0), NotConfigured(Errno::NOT_FOUND)];
    [ok, ok, ok, ok, Exited(1), Signalled(9), TimedOut, NotStarted(Errno(2)), missing]
}

fn answers() -> [Answer; 2] {
    [Answer::Interrupted, Answer::Failed(Errno(16))]
}

fn listens(listens: bool, is_full: bool, secs: u64) -> Step {
    Step::AgentListens { listens, is_full, starts_for: Duration::from_secs(secs) }
}

fn egress_fails(links: usize) -> Step {
    Step::SetEgress(links, Err(Errno(105)))
}

fn disks() -> impl Iterator<Item = Step> {
    let metrics = [None, None, Some(Errno(28)), Some(Errno::EXISTS)];
    [true, false].into_iter().flat_map(move |works| {
        metrics.into_iter().flat_map(move |for_metrics| {
            [0, 0, 20].map(|secs| {
                let hangs_for_metrics = Duration::from_secs(secs);
                Step::DiskWorks { works, for_metrics, hangs_for_metrics }
            })
        })
    })
}

fn address_changes(link: usize) -> impl Iterator<Item = Step> {
    (0..128).map(move |n: u8| {
        let (host, bit) = (n % 8, |bit: u8| n & bit != 0);
        let v4 = (Ipv4Addr::new(10, 0, 0, host).into(), if bit(16) { 32 } else { 24 });
        let v6 = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(), 64);
        let address = if bit(8) { v6 } else { v4 };
        let (optimistic, fails, refreshed) = (bit(16), bit(32), bit(64));
        Step::ChangeAddress(link, AddressChange { address, optimistic, fails, refreshed })
    })
}

fn link_changes(link: usize) -> impl Iterator<Item = Step> {
    use LinkChange::{Carrier, Delete, Forwarding, Mac, VirtualMac};
    let changes = [Carrier, Carrier, Carrier, Carrier, Mac, VirtualMac, Forwarding, Delete];
    changes.into_iter().map(move |change| Step::ChangeLink(link, change))
}

fn claims() -> impl Iterator<Item = Step> {
    use Station::{FirstLink, Hairpin, Noise, Other, Others, Silent, Virtual, Watched};
    let stations =
        [Other, Watched, Virtual, Silent, FirstLink, Others(8), Others(48), Noise(48), Hairpin];
    let claim = |by, n| Claims { by, on_other_interface: n == 1, of_other_address: n == 2 };
    stations.into_iter().flat_map(move |by| (0..3).map(move |n| Step::Claim(claim(by, n))))
}

/// Decodes the fuzzer's bytes: two for the options, then two for each step, its kind and its number. A kind of only one
/// step has one byte.
impl<'a> Arbitrary<'a> for Life {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let options = Options::decode(bytes.arbitrary()?);
        let mut steps = Vec::new();
        while !bytes.is_empty() {
            let kind = bytes.choose(&CHOICES)?;
            steps.push(*bytes.choose(kind)?);
        }
        Ok(Self { options, steps })
    }
}

impl Life {
    pub fn decode(script: &[u8]) -> Self {
        Unstructured::new(script).arbitrary().expect("a life of any bytes")
    }

    /// Returns the script of this life, or none if a step is not among the choices.
    fn encode(&self) -> Option<Vec<u8>> {
        let mut script = self.options.bits.to_vec();
        for step in &self.steps {
            let of = |kind: &Vec<Step>| kind.iter().position(|choice| choice == step);
            let (kind, choice) = (0..).zip(&*CHOICES).find_map(|(n, kind)| Some((n, of(kind)?)))?;
            script.push(kind);
            let is_alone = CHOICES[usize::from(kind)].len() == 1;
            script.extend((!is_alone).then_some(u8::try_from(choice).ok()?));
        }
        Some(script)
    }

    /// Returns the command that runs this life again.
    pub fn replay(&self) -> Option<String> {
        let mut replay = "LIFE=".to_owned();
        for byte in self.encode()? {
            write!(replay, "{byte:02x}").ok()?;
        }
        Some(replay + " cargo test --test simulation newest_state")
    }
}
