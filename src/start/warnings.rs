//! Warnings at the start about unsafe but working set-ups.

use core::net::IpAddr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{OFlag, open};
use nix::net::if_::if_nametoindex;
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::program::ConntrackdPath;
use crate::log::of_user;
use crate::options::Config;
use crate::sys::files::SAFELY;
use crate::sys::log_sink::Syslog;
use crate::sys::netns::NamespaceWatch;
use crate::sys::own_file::Refusal;
use crate::sys::stderr;
use crate::wire::cidr::Cidr;

/// Returns the warnings, a line each.
pub(super) fn find_warnings(
    config: &Config,
    conntrackd: Option<&ConntrackdPath>,
    namespace: Option<&NamespaceWatch>,
) -> Vec<String> {
    let mut warnings = Vec::from_iter(conntrackd.and_then(|program| program.refused.clone()));
    warnings.extend(check_log(config));
    warnings.extend(check_vip(&config.vip));
    let name = config.interface.to_string();
    if let Some((own, _)) =
        name.split_once('@').filter(|_| if_nametoindex(config.interface.as_bytes()).is_err())
    {
        warnings.push(format!("no interface {name}: in `ip link` the name ends before @: {own}"));
    }
    warnings.extend(check_directories(config));
    let agent = config.agent_socket.as_deref().and_then(Path::parent);
    warnings.extend(agent.and_then(check_agent_directory));
    warnings.extend(config.keepalived_pid_file.as_deref().and_then(check_keepalived));
    if let Some(Err(errno)) = namespace.map(NamespaceWatch::is_gone) {
        let problem = format!("user {} cannot look at the network namespace: {errno}", geteuid());
        warnings.push(format!("{problem}; its deletion may go unnoticed"));
    }
    warnings
}

/// Returns a warning for each directory in which any user can replace a file of the daemon's.
fn check_directories(config: &Config) -> Vec<String> {
    let files = [
        ("state file", Some(config.state_file())),
        ("metrics file", config.metrics_file.clone()),
        ("log", config.log_file.clone()),
        ("pid file", config.pid_file.clone()),
    ];
    let mut warned = Vec::new();
    let mut warnings = Vec::new();
    for (what, path) in files {
        let directory = path.as_deref().and_then(Path::parent).map(PathBuf::from);
        let is_new = |directory: &PathBuf| !warned.contains(directory);
        let is_open = |directory: &PathBuf| mode(directory).contains(Mode::S_IWOTH);
        if let Some(directory) = directory.filter(is_new).filter(is_open) {
            let risk = format!("any user can replace the {what} (chmod o-w)");
            warnings.push(format!("world-writable directory: {}; {risk}", directory.display()));
            warned.push(directory);
        }
    }
    warnings
}

/// Returns a warning if lines would be lost. It must be printed, as it cannot be logged.
#[must_use]
pub fn check_log(config: &Config) -> Option<String> {
    if config.use_syslog {
        let why = of_user(Syslog::check().err()?, geteuid());
        return Some(format!("/dev/log: {why}; lines are lost while that lasts (--use-syslog)"));
    }
    let is_lost = config.foreground && config.log_file.is_none() && !stderr::prepare();
    is_lost.then(|| "standard error: no right to this terminal: lines are lost (--log-file)".into())
}

/// Returns a warning about an address that no station can have, or that no other station can reach.
fn check_vip(vip: &Cidr) -> Option<String> {
    // A network of one or two addresses has neither.
    let host_bits = 32_u32.checked_sub(vip.prefix_len().into()).filter(|bits| *bits > 1);
    let what = match (vip.address(), host_bits) {
        (address, _) if address.is_loopback() => "a loopback address, which only this host reaches",
        (IpAddr::V4(address), Some(bits)) => {
            let mask = u32::MAX.checked_shr(32 - bits).unwrap_or(0);
            match u32::from(address) & mask {
                0 => "the address of the network, not of a host",
                host if host == mask => "the broadcast address of the network, not of a host",
                _ => return None,
            }
        }
        (IpAddr::V4(address), None) if address.is_broadcast() => "the broadcast address",
        // RFC 4291 section 2.6.1, but of two addresses each is a host's (RFC 6164).
        (IpAddr::V6(address), _)
            if vip.prefix_len() <= 126
                && u128::from(address) & (u128::MAX >> vip.prefix_len()) == 0 =>
        {
            "the anycast address of the network's routers, which each of them answers for"
        }
        _ => return None,
    };
    Some(format!("--monitor_cidr {vip}: {what}"))
}

/// Returns a warning if keepalived's pid file cannot be read. Without one, keepalived does not run.
fn check_keepalived(path: &Path) -> Option<String> {
    let flags = OFlag::O_RDONLY | SAFELY;
    let opened = open(path, flags, Mode::empty()).map(File::from);
    let refusal = match opened {
        Err(NixErrno::ENOENT) => return None,
        Err(errno) => Refusal::from(errno),
        Ok(file) if file.metadata().is_ok_and(|found| found.is_file()) => return None,
        Ok(_) => Refusal::NotRegular,
    };
    let why = of_user(refusal, geteuid());
    let path = path.display();
    Some(format!("--keepalived-pid-file {path}: {why}; keepalived is not watched meanwhile"))
}

/// Returns a warning if any user can create the agent's directory, whose owner is trusted as the agent.
fn check_agent_directory(directory: &Path) -> Option<String> {
    let above = directory.ancestors().skip(1).find(|above| above.metadata().is_ok())?;
    let is_sticky = mode(above).contains(Mode::S_ISVTX);
    let is_trusted = |owner| owner == 0 || owner == geteuid().as_raw();
    let is_safe = is_sticky && fs::metadata(directory).is_ok_and(|file| is_trusted(file.uid()));
    (mode(above).contains(Mode::S_IWOTH) && !is_safe).then(|| {
        let (above, directory) = (above.display(), directory.display());
        format!(
            "world-writable directory: {above}; the creator of {directory} is trusted as agent: \
             choose another --state_path"
        )
    })
}

fn mode(path: &Path) -> Mode {
    Mode::from_bits_truncate(fs::metadata(path).map_or(0, |file| file.mode()))
}
