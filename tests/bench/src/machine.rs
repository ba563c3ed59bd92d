//! The machine in general terms.

use std::fs;
use std::thread;

use nix::sys::utsname::uname;

/// How many cores there are to run on.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// CPU, cores, memory and kernel.
pub fn description() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
        line.map_or_else(String::new, |(_, value)| value.trim().to_string())
    };
    let (cpu, flags) = (value(&cpuinfo, "model name"), value(&cpuinfo, "flags"));
    let kind = if flags.contains(" hypervisor ") { "virtual machine" } else { "machine" };
    let kilobytes: u64 = value(&meminfo, "MemTotal").replace(" kB", "").parse().unwrap_or(0);
    let kernel = uname().map_or_else(
        |_| String::new(),
        |uname| {
            let release = uname.release().to_string_lossy().into_owned();
            // Without what a distributor or an owner put behind the version.
            release.split(['-', '+']).next().unwrap_or_default().to_string()
        },
    );
    format!(
        "{kind}, {cpu}, {} cores, {} GB, Linux {kernel} {}",
        cores(),
        (kilobytes + (1 << 19)) >> 20,
        std::env::consts::ARCH
    )
}

/// How many processes wanted to run in the last minute.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_string()
}
