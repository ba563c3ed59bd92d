//! Warnings at the start about unsafe but working set-ups.

use core::net::IpAddr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::net::if_::if_nametoindex;
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::program::ConntrackdPath;
use crate::options::Config;
use crate::sys::log_sink::Syslog;
use crate::sys::netns::NamespaceWatch;
use crate::wire::cidr::Cidr;

/// Returns the warnings, a line each.
pub(super) fn find_warnings(
    config: &Config,
    conntrackd: Option<&ConntrackdPath>,
    namespace: Option<&NamespaceWatch>,
) -> Vec<String> {
    let mut warnings = Vec::from_iter(conntrackd.and_then(|program| program.refused.clone()));
    warnings.extend(check_syslog(config));
    warnings.extend(check_vip(&config.vip));
    let name = config.interface.to_string();
    if let Some((own, _)) =
        name.split_once('@').filter(|_| if_nametoindex(config.interface.as_bytes()).is_err())
    {
        warnings.push(format!("no interface {name}: in `ip link` the name ends before @: {own}"));
    }
    let conf_dir = config.conf_dir.display();
    if mode(&config.conf_dir).contains(Mode::S_IWOTH) {
        let risk = "any user can replace the state file (chmod o-w)";
        warnings.push(format!("world-writable directory: {conf_dir}; {risk}"));
    }
    let agent = config.agent_socket.as_deref().and_then(Path::parent);
    warnings.extend(agent.and_then(check_agent_directory));
    if let Some(Err(errno)) = namespace.map(NamespaceWatch::is_gone) {
        let problem = format!("user {} cannot look at the network namespace: {errno}", geteuid());
        warnings.push(format!("{problem}; its deletion will go unnoticed"));
    }
    warnings
}

/// Returns a warning if no log daemon takes lines. It must be printed, as it cannot be logged.
#[must_use]
pub fn check_syslog(config: &Config) -> Option<String> {
    let errno = if config.use_syslog { Syslog::check().err()? } else { return None };
    Some(format!("/dev/log: {errno}; lines are lost while that lasts (--use-syslog)"))
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
        _ => return None,
    };
    Some(format!("--monitor_cidr {vip}: {what}"))
}

/// Returns a warning if any user can create the agent's directory, whose owner is trusted as the agent.
fn check_agent_directory(directory: &Path) -> Option<String> {
    let above = directory.ancestors().skip(1).find(|above| above.exists())?;
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
