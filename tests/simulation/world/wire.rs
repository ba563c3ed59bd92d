//! The segment of the watched interface: claims of the VIP, and the socket that receives them.

use std::collections::VecDeque;
use std::mem::replace;
use std::net::{IpAddr, Ipv4Addr};

use keepwatch::errno::Errno;
use keepwatch::monitor::{Announcement, Duration, Ending, Input, Instant, Probe, State};
use keepwatch::wire::rtnl::Mac;
use keepwatch::wire::{Claim, ClaimKind};

use super::Simulation;
use super::kernel::{Kernel, MAC, UP, VIRTUAL_MAC};
use super::lan::is_virtual;

const OTHER_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// The interval of probes.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(15);
/// The longest time between two probes during a suspicion.
pub const SUSPICION: Duration = Duration::from_secs(60);
/// The time without claims that ends an episode with a station that answers nothing.
const QUIET: Duration = Duration::from_secs(30);
/// The probes in a row without an answer that end one with a station that answers.
const UNANSWERED: usize = 3;

/// The number of frames in a full socket.
const QUEUE: usize = 40;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// The maximum in a minute.
const MAX_LINES: usize = 16;
/// The maximum in a second, which begins with the first.
const MAX_READS: usize = 16;

/// Frames that may claim the VIP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claims {
    pub by: Station,
    pub on_other_interface: bool,
    pub of_other_address: bool,
}

/// The station whose MAC a frame has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Station {
    Other,
    /// A flood of claims of this many stations.
    Others(u8),
    /// A flood of frames that are no claims.
    Noise(u8),
    /// The watched interface.
    Watched,
    /// The VRRP instance.
    Virtual,
    /// The first of our other links.
    FirstLink,
    /// A station that gets or loses the VIP, and claims it only in answer to a probe.
    Silent,
    /// None: the network begins or ends to send our own broadcasts back.
    Hairpin,
}

#[derive(Debug, Default)]
pub struct Wire {
    /// The interface of the core's last `WatchClaims`.
    turned_to: Option<u32>,
    /// The interface of the last that did not fail.
    pub listening: Option<u32>,
    /// When that was: frames from before are not heard.
    since: Option<Instant>,
    /// The core knows the MAC there, and has received no message of the kernel since that could change it.
    pub is_current: bool,
    /// The instance of the interface to which the kernel has bound the socket.
    bound: Option<u32>,
    /// The index to which the core has bound it.
    bound_to: Option<u32>,
    queue: VecDeque<Input>,
    /// Frames are read.
    reads: bool,
    /// The number of frames read in the current second.
    read: usize,
    second_ends: Option<Instant>,
    /// A failed action of the socket is repeated until then.
    pub retry_by: Option<Instant>,
    /// Another station has the VIP, and answers probes.
    pub is_contested: bool,
    /// The network sends our broadcasts back.
    reflects: bool,
    /// It has sent a probe back since the VIP is here.
    has_reflected: bool,
    /// The counted claims since the VIP is here.
    signs: Vec<Sign>,
    counted: u64,
    /// The claimant of the logged episode.
    pub claimant: Option<Mac>,
    /// The episode is over, as the VIP was removed.
    pub is_over: bool,
    /// The times of the lines, of the last report, and of the probes since the last sign.
    lines: Vec<Instant>,
    pub reported: Option<Instant>,
    probes_since_sign: Vec<Instant>,
    probed: Option<Instant>,
    /// When a station had not answered three probes, so the hook may run again, perhaps after another run, and when
    /// another one had not meanwhile; and when that was for the last time that it did.
    pub unanswered: Option<(Instant, Instant)>,
    delivered: Option<Instant>,
}

/// A counted claim.
#[derive(Clone, Copy, Debug)]
pub struct Sign {
    mac: Mac,
    /// When the kernel received it.
    at: Instant,
    is_answer: bool,
    /// It is from a link of this host, and need not count.
    is_own: bool,
    /// That link was there.
    is_present: bool,
    /// It had our MAC.
    is_twin: bool,
}

impl Wire {
    /// Notes where the core wants to listen, even if that fails: it asks on another interface without a rest.
    pub fn turn_to(&mut self, only: Option<u32>) {
        if replace(&mut self.turned_to, only) != only {
            self.probed = None;
        }
    }

    pub fn listen(&mut self, only: Option<u32>, rebind: bool, kernel: &Kernel, now: Instant) {
        let ifindex = only.expect("p12_only_the_link_below_a_virtual_mac_asks");
        if rebind || self.bound_to != Some(ifindex) {
            let there = kernel.ifindex == Some(ifindex);
            self.bound_to = there.then_some(ifindex);
            self.bound = there.then_some(kernel.instance).or(self.bound);
        }
        self.turned_to = only;
        self.queue.clear();
        self.since = Some(now);
        (self.probed, self.retry_by) = (None, None);
        (self.listening, self.is_current) = (Some(ifindex), kernel.mac_known == Some(ifindex));
    }

    pub fn is_bound_to(&self, kernel: &Kernel) -> bool {
        kernel.ifindex.is_some() && self.bound == Some(kernel.instance)
    }

    pub fn read(&mut self, reads: bool) {
        assert_ne!(self.reads, reads, "p12_reading_is_switched_once");
        self.reads = reads;
        self.retry_by.take_if(|_| reads);
    }

    /// Whether a failed action may be repeated.
    pub fn has_rested(&self, now: Instant) -> bool {
        self.retry_by.is_none_or(|by| now >= by)
    }

    pub fn fail(&mut self, now: Instant) {
        (self.retry_by, self.is_current) = (Some(now + SECOND), false);
    }

    pub fn goes_on(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let goes_on = deadline.is_some_and(|deadline| deadline <= now + SECOND);
        self.reads || self.read == MAX_READS && goes_on
    }

    /// Asserts that the hook may run again, as another station's may have moved something.
    pub fn deliver_again(&mut self, now: Instant) {
        let (since, last) = self.unanswered.take().expect("p20_repeated_for_a_reason");
        self.unanswered = (last > since).then_some((last, last));
        let delivered = self.delivered.replace(since);
        let rested = delivered.is_none_or(|delivered| now >= delivered + MINUTE * 5);
        assert!(rested, "p12_repetitions_are_few");
    }

    /// Whether a claim has been counted since the VIP is here.
    pub fn is_claimed(&self) -> bool {
        !self.signs.is_empty()
    }

    /// Asserts that no episode is left.
    pub fn assert_all_over(&self) {
        assert_eq!(self.claimant, None, "p12_episodes_are_over");
    }

    /// Whether the kernel received a sign of this station more than a second after an earlier one of any. A claim from our
    /// own virtual MAC needs an answer.
    fn is_confirmed_by(&self, mac: Mac) -> bool {
        let is_sure = |sign: &&Sign| !sign.is_present && (sign.is_answer || !sign.is_twin);
        let is_late = |last: &Sign, first: &Sign| {
            let second = first.at + SECOND;
            last.at > second || last.is_answer && last.at == second
        };
        let is_later = |last: &Sign| self.signs.iter().any(|first| is_late(last, first));
        self.signs.iter().filter(|sign| sign.mac == mac).filter(is_sure).any(is_later)
    }

    fn note_read(&mut self, now: Instant) {
        if self.second_ends.is_none_or(|end| now >= end) {
            (self.second_ends, self.read) = (Some(now + SECOND), 0);
        }
        self.read += 1;
        assert!(self.read <= MAX_READS, "p12_reads_are_few");
    }

    fn note_line(&mut self, now: Instant) {
        let earlier = self.lines.len().checked_sub(MAX_LINES).and_then(|n| self.lines.get(n));
        assert!(earlier.is_none_or(|earlier| now >= *earlier + MINUTE), "p12_lines_are_few");
        self.lines.push(now);
    }
}

impl Simulation<'_> {
    /// Queues frames, as far as the socket has room.
    pub(super) fn claim(&mut self, claims: Claims) {
        let ifindex = self.wire.listening.unwrap_or(1) + u32::from(claims.on_other_interface);
        let ip = if claims.of_other_address {
            [192, 0, 2, 1].into()
        } else {
            self.kernel.vip().address()
        };
        let claim = |mac| {
            Input::Frame(Some((ifindex, Claim { mac, ip, kind: ClaimKind::Unsolicited }, self.now)))
        };
        self.wire.is_contested ^= claims.by == Station::Silent;
        self.wire.reflects ^= claims.by == Station::Hairpin;
        let frames = match claims.by {
            Station::Noise(frames) => vec![Input::Frame(None); frames.into()],
            Station::Others(stations) => {
                (0..stations).map(|station| claim([2, 1, 0, 0, 0, station])).collect()
            }
            Station::Other => vec![claim(OTHER_MAC)],
            Station::Watched => vec![claim(MAC)],
            Station::Virtual => vec![claim(VIRTUAL_MAC)],
            Station::FirstLink => vec![claim(self.lans[0].mac)],
            Station::Silent | Station::Hairpin => Vec::new(),
        };
        self.receive_frames(frames);
    }

    fn receive_frames(&mut self, frames: Vec<Input>) {
        let room = QUEUE.saturating_sub(self.wire.queue.len());
        self.wire.queue.extend(frames.into_iter().take(room));
    }

    /// Reads frames until the queue is empty, or the core pauses, and before each the events that precede it.
    pub(super) fn receive_claims(&mut self) {
        while self.wire.reads
            && !self.exited
            && let Some(frame) = self.wire.queue.pop_front()
        {
            while self.kernel.has_unread() && !self.exited {
                self.read(1);
            }
            self.wire.note_read(self.now);
            self.feed(&frame);
            let goes_on = self.wire.goes_on(self.monitor.deadline(), self.now);
            assert!(goes_on || !self.wire.is_current || self.exited, "p12_reading_goes_on");
        }
    }

    /// Returns a claim that may be counted.
    pub(super) fn foreign_claimant(&self, frame: &Input) -> Option<Sign> {
        let Input::Frame(Some((ifindex, Claim { mac, ip, kind }, at))) = *frame else {
            return None;
        };
        let here =
            self.monitor.status().ifindex == Some(ifindex) && ip == self.kernel.vip().address();
        let heard = self.wire.since.is_some_and(|since| at >= since);
        let received =
            here && heard && self.reported == Some(State::Active) && kind != ClaimKind::Probe;
        let is_own = self.lans.iter().any(|lan| lan.mac == mac);
        let is_present = self.lans.iter().any(|lan| lan.has(mac));
        let is_answer = kind == ClaimKind::Answer;
        let is_twin = mac == self.kernel.mac;
        let sign = Sign { mac, at, is_answer, is_own, is_present, is_twin };
        (received && (is_virtual(mac) || mac != self.kernel.mac)).then_some(sign)
    }

    /// Notes whether the core has counted a claim. Only `foreign` ones may count.
    pub(super) fn note_claim(&mut self, foreign: Option<Sign>) {
        let claims = self.monitor.status().counters.claims;
        if claims == self.wire.counted {
            // Our own frames may come back.
            let is_returned = |sign: &Sign| sign.mac == self.kernel.mac && self.wire.has_reflected;
            let may_be_ours = foreign.is_none_or(|sign| sign.is_own || is_returned(&sign));
            assert!(may_be_ours || !self.wire.is_current, "p12_foreign_claims_count: {foreign:?}");
        } else {
            let sign = foreign.expect("p12_only_foreign_claims_count");
            self.wire.signs.push(sign);
            // A claim that was left unread does not answer a later probe.
            if sign.is_answer
                || self.wire.probes_since_sign.last().is_none_or(|last| sign.at >= *last)
            {
                self.wire.probes_since_sign.clear();
            }
            self.wire.counted += 1;
            assert_eq!(claims, self.wire.counted, "p12_claims_are_counted");
        }
    }

    /// Asserts that a line about the begin of an episode is true.
    pub(super) fn read_split_brain(&mut self, claimant: Mac, ifindex: u32) {
        let (now, wire) = (self.now, &mut self.wire);
        wire.note_line(now);
        assert_eq!(wire.claimant.replace(claimant), None, "p12_episode_begins_once");
        assert!(wire.is_confirmed_by(claimant), "p12_claim_is_confirmed");
        assert_eq!(Some(ifindex), self.kernel.ifindex, "p12_split_brain_is_on_the_interface");
        assert_eq!(self.truth(), State::Active, "p12_vip_is_still_here");
        // The next line needs another turn.
        self.sent = true;
    }

    /// Asserts that a line about the end of an episode is true.
    pub(super) fn read_split_brain_over(
        &mut self,
        claimant: Mac,
        claims: u32,
        times: [Duration; 2],
        ending: Ending,
    ) {
        self.wire.note_line(self.now);
        let [lasted, silent] = times;
        let wire = &mut self.wire;
        assert_eq!(wire.claimant.take(), Some(claimant), "p12_end_is_of_this_claimant");
        let claims = usize::try_from(claims).expect("claims");
        assert!((2..=wire.signs.len()).contains(&claims), "p12_claims_are_of_the_episode");
        let last = wire.signs.iter().map(|sign| sign.at).max().expect("a sign");
        let begins = |sign: &Sign| last - sign.at == lasted;
        assert!(wire.signs.iter().any(begins), "p12_length_is_right");
        assert_eq!(silent, self.now - last, "p12_silence_is_right");
        let has_gone = wire.is_over || wire.listening != self.monitor.status().ifindex;
        assert_eq!(ending == Ending::VipRemoved, has_gone, "p12_vip_was_removed");
        let is_answered = wire.signs.iter().any(|sign| sign.is_answer);
        match ending {
            Ending::VipRemoved => {}
            Ending::NoLongerAnswers => {
                assert!(is_answered, "p12_station_had_answered");
                assert!(wire.probes_since_sign.len() >= UNANSWERED, "p12_station_was_asked");
                let last = wire.probes_since_sign.last().expect("a probe");
                assert!(self.now >= *last + SECOND, "p12_answer_was_awaited");
            }
            Ending::NeverAnswered => assert!(self.now >= last + QUIET, "p12_episode_is_over"),
        }
        if has_gone {
            wire.is_over = false;
            self.forget_claims();
        }
        self.sent = true;
    }

    /// Asserts that a station has not answered.
    pub(super) fn read_unconfirmed(&mut self, mac: Mac) {
        let (now, wire) = (self.now, &mut self.wire);
        wire.note_line(now);
        assert_eq!(wire.claimant, None, "p12_split_brain_is_not_denied");
        assert!(wire.signs.iter().any(|sign| sign.mac == mac), "p12_station_has_claimed");
        assert!(wire.probes_since_sign.len() >= UNANSWERED, "p12_station_was_asked");
        assert!(
            wire.probes_since_sign.last().is_some_and(|last| now >= *last + SECOND),
            "p12_time_to_answer"
        );
    }

    /// Forgets claims, as the VIP has gone. A logged episode must still have its end.
    pub(super) fn forget_claims(&mut self) {
        self.wire.is_over = self.wire.claimant.is_some();
        // When the VIP comes back, the first probe is due after a second, even if the socket cannot be bound.
        (self.wire.has_reflected, self.wire.probed) = (false, None);
        if !self.wire.is_over {
            self.wire.signs.clear();
        }
    }

    /// Asserts that the VIP is announced only after a claim.
    pub(super) fn announce_vip(&mut self, announcement: &Announcement) {
        assert!(self.wire.counted > 0, "p11_keepalived_announces_the_vip");
        let is_there = [Some(self.kernel.vip().address()), self.kernel.own_address()]
            .contains(&Some(announcement.address.ip));
        assert!(is_there, "p11_frame_is_of_an_address_there");
    }

    /// Asserts that a probe is due and harms nobody. The station that has the VIP answers.
    pub(super) fn probe(&mut self, probe: Probe) -> Result<(), Errno> {
        let is_wanted = self.options.probes || !self.wire.signs.is_empty();
        assert!(is_wanted && self.reported == Some(State::Active), "p12_probes_are_wanted");
        assert!(
            self.truth() == State::Active || self.kernel.has_unread(),
            "p12_probe_while_active"
        );
        let settled = self.wire.reported.is_some_and(|at| self.now >= at + SECOND);
        assert!(settled, "p12_probe_after_a_second");
        let between = if self.wire.signs.is_empty() { PROBE_INTERVAL } else { SECOND };
        let rested = self.wire.probed.is_none_or(|probed| self.now >= probed + between);
        assert!(rested, "p12_probes_are_few");
        self.wire.probed = Some(self.now);
        if self.kernel.has_unread() {
            return Err(Errno(19));
        }
        let is_own = !is_virtual(self.kernel.mac);
        let answer_to = if is_own { self.kernel.mac } else { [0xff; 6] };
        let (ifindex, from) = (self.kernel.ifindex.expect("an interface"), probe.from);
        let expected = Probe { ifindex, mac: self.kernel.mac, from, answer_to };
        assert_eq!(probe, expected, "p12_probe_is_right");
        let own = self.kernel.own_address().filter(|_| is_own);
        assert!(from.is_unspecified() || Some(from) == own, "p12_own_address_asks");
        let may_harm = from.is_ipv6() && from.is_unspecified();
        assert!(!may_harm || self.wire.claimant.is_none(), "p12_harm_is_not_done_for_long");
        assert!(self.kernel.flags.contains(UP) || self.kernel.has_unread(), "p12_carrier_is_on");
        self.wire.probes_since_sign.push(self.now);
        let count = self.wire.probes_since_sign.len();
        if count >= UNANSWERED {
            let (_, last) = self.wire.unanswered.get_or_insert((self.now, self.now));
            // Later rounds are those of the same suspicion.
            if count == UNANSWERED {
                *last = self.now;
            }
        }
        self.answer(ifindex, from);
        Ok(())
    }

    /// Delivers the answers to a probe: our own comes back with the probe.
    fn answer(&mut self, ifindex: u32, from: IpAddr) {
        let (ip, now) = (self.kernel.vip().address(), self.now);
        let frame = |mac, kind| Input::Frame(Some((ifindex, Claim { mac, ip, kind }, now)));
        let own = self.kernel.mac;
        let mut frames = Vec::new();
        if self.wire.reflects && from == Ipv4Addr::UNSPECIFIED {
            self.wire.has_reflected |= is_virtual(own);
            frames = vec![frame(own, ClaimKind::Probe), frame(own, ClaimKind::Answer)];
        }
        if self.wire.is_contested {
            frames.push(frame(OTHER_MAC, ClaimKind::Answer));
        }
        self.receive_frames(frames);
    }
}
