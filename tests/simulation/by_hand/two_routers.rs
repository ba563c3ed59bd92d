//! Two active routers, each with a core, on a network that loses answers.

use keepwatch::monitor::{Action, Duration, Input, LogEvent, MonitorConfig, Tables};
use keepwatch::wire::{Claim, ClaimKind};

use super::{Lab, WATCHED, announcing, vip};

const TICK: Duration = Duration::from_millis(100);
/// The rounds of everything in an hour, at 0, 1, 3, 7, 15, 25, 35, 45 and 55 minutes, and those for a cache.
const ROUNDS: usize = 9 + 12;
/// A round of the VIP is three times a request and a reply.
const FRAMES: usize = 6;

/// Passes the frames of one router since its last turn to the other. Returns how many announced the VIP.
fn deliver(
    from: &mut Lab<'_>,
    to: &mut Lab<'_>,
    mac: u8,
    is_lost: &mut impl FnMut() -> bool,
) -> usize {
    let claim = |last, kind| Claim { mac: [2, 0, 0, 0, 9, last], ip: vip().cidr.address(), kind };
    let mut announced = 0;
    for (action, _) in std::mem::take(&mut from.actions) {
        let now = from.now;
        let frame = |claim| Input::Frame(Some((WATCHED, claim, now)));
        match action {
            Action::SendProbe(_) if !is_lost() => {
                from.frames.push(frame(claim(3 - mac, ClaimKind::Answer)));
            }
            Action::SendFrame(_) => {
                announced += 1;
                to.frames.push(frame(claim(mac, ClaimKind::Unsolicited)));
            }
            _ => {}
        }
    }
    announced
}

#[test]
fn routers_that_cannot_ask_each_other_announce_seldom() {
    for percent_lost in [0, 10, 50, 100] {
        let mut tables = [(); 2].map(|()| Box::new(Tables::new()));
        let [mut one, mut other] = tables.each_mut().map(|tables| {
            Lab::active(MonitorConfig { detect_split_brain: true, ..announcing(tables) })
        });
        let mut random: u32 = 1;
        let mut is_lost = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % 100 < percent_lost
        };
        let claim = Claim {
            mac: [2, 0, 0, 0, 9, 2],
            ip: vip().cidr.address(),
            kind: ClaimKind::Unsolicited,
        };
        one.frames.push(Input::Frame(Some((WATCHED, claim, one.now))));
        let (mut frames, mut named) = ([0; 2], false);
        for _ in 0..36_000 {
            one.pass(TICK);
            other.pass(TICK);
            let is_named = |event: &_| matches!(event, LogEvent::SplitBrain { .. });
            named |= !one.lines(is_named).is_empty();
            frames[0] += deliver(&mut one, &mut other, 1, &mut is_lost);
            frames[1] += deliver(&mut other, &mut one, 2, &mut is_lost);
        }
        assert!(
            frames.iter().all(|frames| *frames <= ROUNDS * FRAMES),
            "{percent_lost}: {frames:?}"
        );
        assert!(named || percent_lost == 100, "{percent_lost}");
    }
}
