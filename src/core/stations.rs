//! Split brain: other stations that claim the VIP while it is ours.

use heapless::Vec;

use super::Instant;
use super::repeat::Repeat;
use crate::wire::rtnl::Mac;

/// Stations that are told apart. More than one is rare, more than a few is an attack.
const MAX_STATIONS: usize = 16;

/// The stations that have been heard.
#[derive(Debug, Default)]
pub(super) struct Stations {
    heard: Vec<(Mac, Repeat), MAX_STATIONS>,
    /// The one to be forgotten next.
    oldest: usize,
}

impl Stations {
    /// Takes a claim. Some: log it, with this many since the last line about the station.
    pub(super) fn heard(&mut self, mac: Mac, now: Instant) -> Option<u32> {
        if let Some((_, repeat)) = self.heard.iter_mut().find(|(known, _)| *known == mac) {
            return repeat.occurred(now);
        }
        let mut repeat = Repeat::default();
        let count = repeat.occurred(now);
        if let Err(station) = self.heard.push((mac, repeat)) {
            if let Some(forgotten) = self.heard.get_mut(self.oldest) {
                *forgotten = station;
            }
            self.oldest = (self.oldest + 1) % MAX_STATIONS;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_station_once_a_minute() {
        let mut stations = Stations::default();
        let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        assert_eq!(stations.heard(a, Instant::ZERO), Some(1));
        assert_eq!(stations.heard(a, Instant::from_secs(1)), None);
        assert_eq!(stations.heard(b, Instant::from_secs(2)), Some(1));
        assert_eq!(stations.heard(a, Instant::from_secs(60)), Some(2));
    }

    #[test]
    fn when_there_are_too_many_the_oldest_is_forgotten() {
        let mut stations = Stations::default();
        let mac = |n| [2, 0, 0, 0, 0, n];
        for n in 0..=16 {
            assert_eq!(stations.heard(mac(n), Instant::ZERO), Some(1));
        }
        assert_eq!(stations.heard(mac(1), Instant::ZERO), None, "still known");
        assert_eq!(stations.heard(mac(0), Instant::ZERO), Some(1), "forgotten");
    }
}
