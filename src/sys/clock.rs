//! The monotonic clock, for deadlines, and local time, for the log.

#![expect(unsafe_code, reason = "localtime_r")]

use core::fmt;
use core::mem::MaybeUninit;

use nix::libc;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use smoltcp::time::Instant;

/// The monotonic time (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Instant {
    // This fails only for unknown clocks.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(Instant::ZERO, |time| Instant::from_micros(time.num_microseconds()))
}

/// The Unix time of an earlier moment, in seconds, by the clock on the wall as it is set now.
#[must_use]
pub fn unix_time(moment: Instant) -> u64 {
    let wall = clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.num_microseconds());
    let micros = wall - (now().total_micros() - moment.total_micros());
    u64::try_from(micros / 1_000_000).unwrap_or_default()
}

/// A moment in local time, to the millisecond.
#[derive(Clone, Copy)]
pub struct LocalTime {
    tm: libc::tm,
    millis: i64,
}

/// The local time, by the time zone that `TZ` or `/etc/localtime` named at the first call.
pub fn local_time() -> LocalTime {
    let (seconds, millis) = clock_gettime(ClockId::CLOCK_REALTIME)
        .map_or((0, 0), |time| (time.tv_sec(), time.num_milliseconds() % 1000));
    let mut tm = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, and all zeroes are a valid `tm` in case it
    // fails, which it does for years that do not fit an int.
    let tm = unsafe {
        libc::localtime_r(&raw const seconds, tm.as_mut_ptr());
        tm.assume_init()
    };
    LocalTime { tm, millis }
}

impl fmt::Display for LocalTime {
    /// `2026-11-20 10:00:00.123`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tm, millis } = self;
        let (year, month) = (tm.tm_year + 1900, tm.tm_mon + 1);
        write!(f, "{year:04}-{month:02}-{:02} ", tm.tm_mday)?;
        write!(f, "{:02}:{:02}:{:02}.{millis:03}", tm.tm_hour, tm.tm_min, tm.tm_sec)
    }
}

impl LocalTime {
    /// Year, month, day, hour, minute, second and millisecond in 12, 4, 5, 5, 6, 6 and 10 bits.
    #[cfg(feature = "defmt")]
    #[must_use]
    pub fn packed(&self) -> u64 {
        let Self { tm, millis } = self;
        let fields = [
            (i64::from(tm.tm_year) + 1900, 12),
            (i64::from(tm.tm_mon) + 1, 4),
            (tm.tm_mday.into(), 5),
            (tm.tm_hour.into(), 5),
            (tm.tm_min.into(), 6),
            (tm.tm_sec.into(), 6),
            (*millis, 10),
        ];
        fields.iter().fold(0, |packed, (value, bits)| {
            packed << bits | (u64::try_from(*value).unwrap_or_default() & ((1 << bits) - 1))
        })
    }

    /// `Nov 20 10:00:00`, as syslog wants it (RFC 3164 section 4.1.2).
    #[must_use]
    pub fn syslog(&self) -> impl fmt::Display {
        Syslog(self.tm)
    }
}

struct Syslog(libc::tm);

impl fmt::Display for Syslog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let Self(tm) = self;
        let month = usize::try_from(tm.tm_mon).ok().and_then(|month| MONTHS.get(month));
        write!(f, "{} {:2} ", month.unwrap_or(&"Jan"), tm.tm_mday)?;
        write!(f, "{:02}:{:02}:{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use smoltcp::time::Duration;

    use super::*;

    #[test]
    fn prints_as_in_the_log_and_as_syslog_wants() {
        // SAFETY: all zeroes are a valid `tm`.
        let mut tm: libc::tm = unsafe { core::mem::zeroed() };
        (tm.tm_year, tm.tm_mon, tm.tm_mday) = (126, 10, 2);
        (tm.tm_hour, tm.tm_min, tm.tm_sec) = (1, 2, 3);
        let time = LocalTime { tm, millis: 4 };
        assert_eq!(time.to_string(), "2026-11-02 01:02:03.004");
        assert_eq!(time.syslog().to_string(), "Nov  2 01:02:03");
    }

    #[test]
    fn clock_on_the_wall_is_that_of_std() {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (began, moment) = (wall(), now());
        let time = unix_time(moment - Duration::from_secs(1000));
        assert!((began - 1001..=wall() - 1000).contains(&time), "{time}");
        assert!((0..1000).contains(&local_time().millis));
    }
}
