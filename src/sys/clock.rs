//! The clock for deadlines, and local time, for the log.

#![expect(unsafe_code, reason = "localtime_r")]

use core::fmt;
use core::mem::zeroed;

use nix::libc;
use nix::sys::prctl;
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{
    ClockId as TimerfdClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags,
};
use nix::time::{ClockId, clock_gettime};
use smoltcp::time::Instant;

use crate::errno::Errno;

/// Returns the time since the boot, suspensions included (`CLOCK_BOOTTIME`).
pub fn now() -> Instant {
    Instant::from_micros(micros(ClockId::CLOCK_BOOTTIME))
}

/// Returns a moment by the clock of service managers, which stands still during a suspension (`CLOCK_MONOTONIC`).
pub fn monotonic_micros(moment: Instant) -> i64 {
    moment.total_micros() - (now().total_micros() - micros(ClockId::CLOCK_MONOTONIC))
}

fn micros(clock: ClockId) -> i64 {
    // Fails only for unknown clocks.
    clock_gettime(clock).map_or(0, |time| time.num_microseconds())
}

/// Lets the kernel end a wait up to 2 ms late, with others' (`PR_SET_TIMERSLACK`). When hundreds of daemons wait for one
/// agent, each wake-up of an idle processor costs more than an attempt to connect. Events are not delayed.
pub fn allow_late_timers() {
    // In nanoseconds. Without it there are only more wake-ups.
    let _ = prctl::set_timerslack(2_000_000);
}

/// Returns the Unix time of an earlier moment, in seconds, by the wall clock as it is set now.
pub fn unix_time(moment: Instant) -> u64 {
    let micros = micros(ClockId::CLOCK_REALTIME) - (now().total_micros() - moment.total_micros());
    u64::try_from(micros / 1_000_000).unwrap_or_default()
}

/// Returns the moment of a Unix time in microseconds, by the wall clock as it is set now. It is negative before the boot.
pub fn moment_of(unix_micros: i64, now: Instant) -> Instant {
    let age = micros(ClockId::CLOCK_REALTIME).saturating_sub(unix_micros);
    Instant::from_micros(now.total_micros().saturating_sub(age))
}

/// Opens a timer that notices when the wall clock is set (`TFD_TIMER_CANCEL_ON_SET` of `timerfd_create(2)`).
pub fn watch() -> Result<TimerFd, Errno> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let timer = TimerFd::new(TimerfdClockId::CLOCK_REALTIME, flags)?;
    // The largest time of 32 bits, with or without sign as the C library has it.
    let last = if cfg!(target_pointer_width = "32") { i32::MAX.into() } else { u32::MAX.into() };
    let never = Expiration::OneShot(TimeSpec::seconds(last));
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(never, flags)?;
    Ok(timer)
}

#[derive(Clone, Copy)]
pub struct LocalTime {
    tm: libc::tm,
    millis: i32,
}

/// Returns the local time, by the time zone that `TZ` or `/etc/localtime` named at the first call.
pub fn local_time() -> LocalTime {
    at(clock_gettime(ClockId::CLOCK_REALTIME).unwrap_or(TimeSpec::new(0, 0)))
}

/// Returns a Unix time as local time, by the same time zone.
pub fn at(time: TimeSpec) -> LocalTime {
    let seconds = time.tv_sec();
    // SAFETY: all zeroes are a valid `tm`.
    let mut tm = unsafe { zeroed() };
    // SAFETY: both pointers are valid for the call, which fails for years that do not fit an int.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
    LocalTime { tm, millis: i32::try_from(time.num_milliseconds() % 1000).unwrap_or_default() }
}

#[cfg(not(feature = "defmt"))]
impl LocalTime {
    /// Those of the "C" locale.
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

    /// Returns the time as `syslog(3)` writes it (RFC 3164 section 4.1.2), in 15 bytes.
    pub fn for_syslog(&self) -> impl fmt::Display {
        let libc::tm { tm_mon, tm_mday, tm_hour, tm_min, tm_sec, .. } = self.tm;
        let month = usize::try_from(tm_mon).ok().and_then(|month| Self::MONTHS.get(month));
        fmt::from_fn(move |f| {
            let month = month.unwrap_or(&"Jan");
            write!(f, "{month} {tm_mday:2} {tm_hour:02}:{tm_min:02}:{tm_sec:02}")
        })
    }
}

impl fmt::Display for LocalTime {
    /// Writes the time as oslo.log does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tm, millis } = self;
        let (year, month, day) = (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
        let (hour, minute, second) = (tm.tm_hour, tm.tm_min, tm.tm_sec);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
    }
}

#[cfg(feature = "defmt")]
impl LocalTime {
    /// Packs year, month, day, hour, minute, second and millisecond in 12, 4, 5, 5, 6, 6 and 10 bits.
    pub fn packed(&self) -> u64 {
        let Self { tm, millis } = self;
        let date = [(tm.tm_year + 1900, 12), (tm.tm_mon + 1, 4), (tm.tm_mday, 5)];
        let time = [(tm.tm_hour, 5), (tm.tm_min, 6), (tm.tm_sec, 6), (*millis, 10)];
        date.iter().chain(&time).fold(0, |packed, (value, bits)| {
            packed << bits | (u64::try_from(*value).unwrap_or_default() & ((1 << bits) - 1))
        })
    }
}
