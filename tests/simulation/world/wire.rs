//! The segment of the watched interface: claims of the VIP, and the socket that receives them.

use std::collections::VecDeque;

use keepwatch::errno::Errno;
use keepwatch::monitor::{Announcement, Duration, Input, Instant, Probe, State};
use keepwatch::wire::Claim;
use keepwatch::wire::rtnl::Mac;

use super::Simulation;
use super::kernel::{Kernel, MAC, UP, VIRTUAL_MAC};
use super::lan::is_virtual;

const OTHER_MAC: Mac = [2, 0, 0, 0, 0, 2];

/// The interval of probes.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(15);
/// The time without claims that ends an episode, also with probes, of which three must be unanswered.
const QUIET: Duration = Duration::from_secs(30);
const QUIET_AND_PROBES: Duration = Duration::from_secs(46);

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
}

#[derive(Debug, Default)]
pub struct Wire {
    /// The interface of the core's last `WatchClaims`.
    pub listening: Option<u32>,
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
    /// Another station has the VIP, and answers probes.
    pub is_contested: bool,
    /// The counted claims, except those of episodes that are over.
    claims: Vec<(Mac, Instant)>,
    /// How many of them came before the last `WatchClaims`, and may be in no episode.
    since: usize,
    counted: u64,
    /// The first claimant of the logged episode.
    pub claimant: Option<Mac>,
    /// The episode is over, as the VIP was removed.
    pub is_over: bool,
    /// The number of frames that must announce the VIP after an episode, unless the kernel has sent a message since.
    pub unannounced: u32,
    /// At least one episode is over.
    has_been_over: bool,
    /// The times of the lines, of the last report, and of the last probe.
    lines: Vec<Instant>,
    pub reported: Option<Instant>,
    probed: Option<Instant>,
}

impl Wire {
    pub fn listen(&mut self, ifindex: u32, rebind: bool, kernel: &Kernel) {
        if rebind || self.bound_to != Some(ifindex) {
            let there = kernel.ifindex == Some(ifindex);
            self.bound_to = there.then_some(ifindex);
            self.bound = there.then_some(kernel.instance).or(self.bound);
        }
        self.queue.clear();
        (self.listening, self.is_current) = (Some(ifindex), kernel.mac_known == Some(ifindex));
        (self.since, self.probed) = (self.claims.len(), None);
    }

    pub fn is_bound_to(&self, kernel: &Kernel) -> bool {
        kernel.ifindex.is_some() && self.bound == Some(kernel.instance)
    }

    pub fn read(&mut self, reads: bool) {
        assert_ne!(self.reads, reads, "p12_reading_is_switched_once");
        self.reads = reads;
    }

    pub fn goes_on(&self, deadline: Option<Instant>, now: Instant) -> bool {
        let goes_on = deadline.is_some_and(|deadline| deadline <= now + SECOND);
        self.reads || self.read == MAX_READS && goes_on
    }

    /// Asserts that every claim was in an episode, and that all episodes are over.
    pub fn assert_all_logged(&self) {
        assert!(self.claims.len() <= self.since, "p12_no_claim_in_vain: {:?}", self.claims);
        assert_eq!(self.claimant, None, "p12_episodes_are_over");
        assert_eq!(self.unannounced, 0, "p12_vip_is_announced_again");
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
        let claim = |mac| Input::Frame(Some((ifindex, Claim { mac, ip })));
        self.wire.is_contested ^= claims.by == Station::Silent;
        let frames = match claims.by {
            Station::Noise(frames) => vec![Input::Frame(None); frames.into()],
            Station::Others(stations) => {
                (0..stations).map(|station| claim([2, 1, 0, 0, 0, station])).collect()
            }
            Station::Other => vec![claim(OTHER_MAC)],
            Station::Watched => vec![claim(MAC)],
            Station::Virtual => vec![claim(VIRTUAL_MAC)],
            Station::FirstLink => vec![claim(self.lans[0].mac)],
            Station::Silent => Vec::new(),
        };
        let room = QUEUE.saturating_sub(self.wire.queue.len());
        self.wire.queue.extend(frames.into_iter().take(room));
    }

    /// Reads frames until the queue is empty, or the core pauses.
    pub(super) fn receive_claims(&mut self) {
        while self.wire.reads
            && !self.exited
            && let Some(frame) = self.wire.queue.pop_front()
        {
            self.wire.note_read(self.now);
            self.feed(&frame);
            let goes_on = self.wire.goes_on(self.monitor.deadline(), self.now);
            assert!(goes_on || !self.wire.is_current || self.exited, "p12_reading_goes_on");
        }
    }

    /// Returns the station of a claim that may be counted.
    pub(super) fn foreign_claimant(&self, frame: &Input) -> Option<Mac> {
        let Input::Frame(Some((ifindex, Claim { mac, ip }))) = *frame else { return None };
        let here =
            self.monitor.status().ifindex == Some(ifindex) && ip == self.kernel.vip().address();
        let received = here && self.reported == Some(State::Active);
        (received && (is_virtual(mac) || mac != self.kernel.mac)).then_some(mac)
    }

    /// Notes whether the core has counted a claim. Only `foreign` ones may count.
    pub(super) fn note_claim(&mut self, foreign: Option<Mac>) {
        let claims = self.monitor.status().counters.claims;
        if claims == self.wire.counted {
            assert!(
                foreign.is_none() || !self.wire.is_current,
                "p12_foreign_claims_count: {foreign:?}"
            );
        } else {
            self.wire.claims.push((foreign.expect("p12_only_foreign_claims_count"), self.now));
            self.wire.counted += 1;
            assert_eq!(claims, self.wire.counted, "p12_claims_are_counted");
        }
    }

    /// Asserts that a line about the begin of an episode is true.
    pub(super) fn read_split_brain(&mut self, claimant: Mac, ifindex: u32) {
        let (now, wire) = (self.now, &mut self.wire);
        wire.note_line(now);
        assert_eq!(wire.claimant.replace(claimant), None, "p12_episode_begins_once");
        let mut claims = wire.claims.iter();
        let is_claimed = claims.any(|(mac, at)| *mac == claimant && now >= *at + SECOND);
        assert!(is_claimed, "p12_claim_is_confirmed");
        assert_eq!(Some(ifindex), self.kernel.ifindex, "p12_split_brain_is_on_the_interface");
        assert_eq!(self.truth(), State::Active, "p12_vip_is_still_here");
        // The next line needs another turn.
        self.sent = true;
    }

    /// Asserts that a line about the end of an episode is true.
    pub(super) fn read_split_brain_over(&mut self, claimant: Mac, claims: u32, lasted: Duration) {
        self.wire.note_line(self.now);
        let quiet = if self.options.probes { QUIET_AND_PROBES } else { QUIET };
        let wire = &mut self.wire;
        assert_eq!(wire.claimant.take(), Some(claimant), "p12_end_is_of_this_claimant");
        let before = wire.claims.len() - usize::try_from(claims).expect("claims");
        assert!(before == 0 || before <= wire.since, "p12_claims_are_of_the_episode");
        let ((first, began), (_, last)) = (wire.claims[before], wire.claims[wire.claims.len() - 1]);
        assert_eq!((first, last - began), (claimant, lasted), "p12_length_is_right");
        let is_quiet = self.now >= last + quiet;
        let has_gone = wire.is_over || wire.listening != self.monitor.status().ifindex;
        assert!(is_quiet || has_gone, "p12_episode_is_over");
        wire.has_been_over = true;
        if is_quiet && !has_gone && self.options.announces && self.kernel.flags.contains(UP) {
            wire.unannounced = if self.kernel.vip().address().is_ipv4() { 6 } else { 3 };
        }
        self.forget_claims();
        self.sent = true;
    }

    /// Forgets claims that are not logged, as the VIP has gone. A logged episode must still have its end.
    pub(super) fn forget_claims(&mut self) {
        self.wire.unannounced = 0;
        self.wire.is_over = self.wire.claimant.is_some();
        if !self.wire.is_over {
            self.wire.claims.clear();
            self.wire.since = 0;
        }
    }

    /// Asserts that the VIP is announced only after an episode.
    pub(super) fn announce_vip(&mut self, announcement: &Announcement) {
        assert!(self.wire.has_been_over, "p11_keepalived_announces_the_vip");
        assert_eq!(announcement.address.ip, self.kernel.vip().address(), "p11_frame_is_of_the_vip");
        self.wire.unannounced = self.wire.unannounced.saturating_sub(1);
    }

    /// Asserts that a probe is due. The station that has the VIP answers.
    pub(super) fn probe(&mut self, probe: Probe) -> Result<(), Errno> {
        assert!(
            self.options.probes && self.reported == Some(State::Active),
            "p12_probes_are_wanted"
        );
        assert!(
            self.truth() == State::Active || self.kernel.has_unread(),
            "p12_probe_while_active"
        );
        let settled = self.wire.reported.is_some_and(|at| self.now >= at + SECOND);
        assert!(settled, "p12_probe_after_a_second");
        let rested = self.wire.probed.is_none_or(|probed| self.now >= probed + PROBE_INTERVAL);
        assert!(rested, "p12_probes_are_few");
        self.wire.probed = Some(self.now);
        if self.kernel.has_unread() {
            return Err(Errno(19));
        }
        let answer_to = if is_virtual(self.kernel.mac) { [0xff; 6] } else { self.kernel.mac };
        let ifindex = self.kernel.ifindex.expect("an interface");
        assert_eq!(probe, Probe { ifindex, mac: self.kernel.mac, answer_to }, "p12_probe_is_right");
        if self.wire.is_contested {
            let (by, elsewhere) = (Station::Other, false);
            self.claim(Claims { by, on_other_interface: elsewhere, of_other_address: elsewhere });
        }
        Ok(())
    }
}
