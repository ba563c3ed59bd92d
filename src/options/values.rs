//! Parses the value of each option. An error says what was expected.

use std::fs;
use std::num::NonZeroU8;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{Gid, Uid, geteuid};

use crate::errno::Errno;
use crate::log::of_user;
use crate::monitor::{ActiveWord, Duration, Renotify, State};
use crate::start::{netns, passwd};
use crate::wire::cidr::Cidr;
use crate::wire::ifname::InterfaceName;

const AGENT_SOCKET: &str = "keepalived-state-change";
/// The longest path of a Unix socket: `sun_path` less its NUL.
const MAX_SOCKET_PATH: usize = 107;

/// See [`may_pass`]. `argh` passes on only the text of an error.
static MAY_PASS: AtomicBool = AtomicBool::new(false);

pub(super) fn expected<T>(value: Option<T>, what: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("expected {what}"))
}

/// Returns an error, with this process's user if that was denied something.
pub(crate) fn denied(errno: impl Into<Errno>) -> String {
    let errno = errno.into();
    if errno.may_pass() {
        MAY_PASS.store(true, Ordering::Relaxed);
    }
    of_user(errno, geteuid()).to_string()
}

/// Returns whether an error may pass without an administrator, so that a service manager should try again.
pub fn may_pass() -> bool {
    MAY_PASS.load(Ordering::Relaxed)
}

pub(super) fn interface(text: &str) -> Result<InterfaceName, String> {
    expected(
        InterfaceName::new(text.as_bytes()),
        "an interface name: 1 to 15 bytes without white space, / and :, and not . or ..",
    )
}

pub(super) fn vip(text: &str) -> Result<Cidr, String> {
    if text.contains('%') {
        return expected(
            None,
            "an address without % and a zone, as --monitor_interface is its zone",
        );
    }
    let vip: Cidr = expected(
        text.parse().ok(),
        "an IPv4 or IPv6 address with its prefix length, without leading zeros, such as 169.254.0.5/24 or \
        fd00::5/64",
    )?;
    let is_possible = !vip.address().is_unspecified() && !vip.address().is_multicast();
    expected(is_possible.then_some(vip), "a unicast address")
}

/// Returns an absolute path, as the daemon changes its directory. `None` if it has a NUL, which would cut it, or if it is
/// relative to a deleted directory.
fn absolute(text: &str) -> Option<PathBuf> {
    std::path::absolute(text).ok().filter(|_| !text.contains('\0'))
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    expected(absolute(text), "a path")
}

/// Reads the path of a file. If it is that of an existing directory, opening it fails.
pub(super) fn file_path(text: &str) -> Result<PathBuf, String> {
    relative_path(text).and_then(|_| path(text))
}

/// Reads the path of a file, which may be relative to `--log-dir`.
pub(super) fn relative_path(text: &str) -> Result<PathBuf, String> {
    let is_path = !text.is_empty() && !text.contains('\0');
    expected(is_path.then_some(()), "a path")?;
    let is_directory = ["/", "/."].iter().any(|end| text.ends_with(end));
    expected((!is_directory).then(|| text.into()), "a file")
}

pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    let what = "an existing directory";
    let path = expected(absolute(text), what)?;
    match fs::metadata(&path).map_err(Errno::from) {
        Err(errno) if errno != Errno::NOT_FOUND => {
            Err(format!("expected {what}: {}", denied(errno)))
        }
        found => expected(found.is_ok_and(|found| found.is_dir()).then_some(path), what),
    }
}

/// Reads the path of a file that is no existing directory.
pub(super) fn file(text: &str) -> Result<PathBuf, String> {
    expected(file_path(text).ok().filter(|path| !path.is_dir()), "a file")
}

pub(super) fn namespace(text: &str) -> Result<PathBuf, String> {
    let is_name = !text.contains('/') && !matches!(text, "" | "." | "..");
    let is_path = text.starts_with('/');
    expected(
        Some(netns::path(text)).filter(|_| (is_name || is_path) && !text.contains('\0')),
        "the name of a network namespace or an absolute path",
    )
}

pub(super) fn agent_socket(text: &str) -> Result<PathBuf, String> {
    let socket = absolute(text).map(|directory| directory.join(AGENT_SOCKET));
    expected(
        socket.filter(|path| path.as_os_str().len() <= MAX_SOCKET_PATH),
        "the directory of the agent's socket, whose path has at most 107 bytes",
    )
}

pub(super) fn active_word(text: &str) -> Result<ActiveWord, String> {
    let words = [ActiveWord::Master, ActiveWord::Primary];
    let word = words.into_iter().find(|word| State::Active.word(*word) == text);
    expected(word, "master or primary")
}

pub(super) fn user(text: &str) -> Result<(Uid, Option<Gid>), String> {
    found(passwd::user(text), "the name or number of a user")
}

pub(super) fn group(text: &str) -> Result<Gid, String> {
    found(passwd::group(text), "the name or number of a group")
}

/// Returns the result of a search, or its error.
fn found<T>(result: nix::Result<Option<T>>, what: &str) -> Result<T, String> {
    expected(result.map_err(|errno| format!("expected {what}: {}", denied(errno)))?, what)
}

/// Reads the name of an environment variable.
pub(super) fn variable(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let is_name = text.bytes().all(is_part) && !text.starts_with(|c: char| c.is_ascii_digit());
    let name = Some(text.to_string()).filter(|name| is_name && !name.is_empty());
    expected(name, "the name of an environment variable: letters, digits and _")
}

pub(super) fn rcvbuf(text: &str) -> Result<usize, String> {
    expected(number(text, 1..=(1 << 30) - 1), "a number of bytes from 1 to 1073741823")
}

pub(super) fn rounds(text: &str) -> Result<NonZeroU8, String> {
    let rounds = number(text, 1..=100).and_then(NonZeroU8::new);
    expected(rounds, "a number from 1 to 100")
}

pub(super) fn delay(text: &str) -> Result<Duration, String> {
    expected(seconds(text, 100_000), "seconds from 0.1 to 3600")
}

/// Reads whole seconds. 0 does not come here: argv.rs takes it for --no-probe.
pub(super) fn whole_seconds(text: &str) -> Result<Duration, String> {
    expected(number(text, 1..=3600).map(Duration::from_secs), "a number of seconds from 0 to 3600")
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    expected(seconds(text, 0), "seconds from 0 to 3600")
}

pub(super) fn renotify(text: &str) -> Result<Renotify, String> {
    let read = || {
        let mut times = Renotify::new();
        let mut least = 1;
        for seconds in text.split(',').filter(|_| text != "0") {
            let seconds = number(seconds, least..=86_400)?;
            times.push(Duration::from_secs(seconds)).ok()?;
            least = seconds + 1;
        }
        Some(times)
    };
    expected(read(), "0, or 1 to 9 ascending numbers of seconds up to 86400, such as 30,120,600")
}

fn number<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|number| range.contains(number) && !text.starts_with('+'))
}

/// Reads a time from `least` microseconds to an hour in decimal seconds, such as `0.001`. Parsing a floating-point number
/// would add 18 kB to the program.
fn seconds(text: &str, least: u32) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let unit = 10_u32.pow(6_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    let micros = number(whole, 0..=3600)? * 1_000_000 + number(fraction, 0..=999_999)? * unit;
    (least..=3_600_000_000).contains(&micros).then(|| Duration::from_micros(micros.into()))
}
