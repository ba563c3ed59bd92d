//! The monotonic clock, for deadlines, and local time, for the log.

#![expect(unsafe_code, reason = "localtime_r")]

use core::fmt;
use core::mem::zeroed;

use nix::libc;
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, clock_gettime};
use smoltcp::time::Instant;

/// The monotonic time (`CLOCK_MONOTONIC`).
pub fn now() -> Instant {
    // This fails only for unknown clocks.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(Instant::ZERO, |time| Instant::from_micros(time.num_microseconds()))
}

/// The Unix time of an earlier moment, in seconds, by the clock on the wall as it is set now.
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
    let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap_or(TimeSpec::new(0, 0));
    at(now, now.num_milliseconds() % 1000)
}

/// The local time at this many seconds of Unix time, such as `2026-11-20 10:00:00`.
pub fn show_second(seconds: &str) -> String {
    let mut text = at(TimeSpec::new(seconds.parse().unwrap_or_default(), 0), 0).to_string();
    text.truncate(19);
    text
}

fn at(time: TimeSpec, millis: i64) -> LocalTime {
    let seconds = time.tv_sec();
    // SAFETY: all zeroes are a valid `tm`.
    let mut tm = unsafe { zeroed() };
    // SAFETY: both pointers are valid for the call, which fails for years that do not fit an int.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
    LocalTime { tm, millis }
}

/// As oslo.log writes it; with `#` as syslog wants it (RFC 3164 section 4.1.2), `Nov 20 10:00:00`.
impl fmt::Display for LocalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tm, millis } = self;
        let (month, day) = (usize::try_from(tm.tm_mon).unwrap_or_default(), tm.tm_mday);
        let time = format_args!("{:02}:{:02}:{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec);
        if f.alternate() {
            let names = "JanFebMarAprMayJunJulAugSepOctNovDec";
            write!(f, "{} {day:2} {time}", names.get(month * 3..month * 3 + 3).unwrap_or_default())
        } else {
            let year = tm.tm_year + 1900;
            write!(f, "{year:04}-{:02}-{day:02} {time}.{millis:03}", month + 1)
        }
    }
}

#[cfg(feature = "defmt")]
impl LocalTime {
    /// Year, month, day, hour, minute, second and millisecond in 12, 4, 5, 5, 6, 6 and 10 bits.
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
}
