//! The programs to run: finds conntrackd and checks the hook.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as NixErrno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::{AccessFlags, access, faccessat, geteuid};

use super::trust;
use crate::errno::Errno;
use crate::options::{Config, denied};

const REFUSED: &str = "not run: users other than root can replace it";

/// The result of the search for conntrackd.
#[derive(Debug)]
pub struct ConntrackdPath {
    /// The path of the program found, or the usual path.
    pub path: PathBuf,
    /// A warning about an earlier program in `PATH` that users other than root can replace.
    pub refused: Option<String>,
}

impl Config {
    /// Searches for conntrackd in `PATH` and then where Debian and Neutron's rootwrap have it, as a daemon's `PATH` may lack
    /// these directories. `None`: conntrackd is not enabled.
    pub fn find_conntrackd(&self) -> Option<ConntrackdPath> {
        if !self.enable_conntrackd {
            return None;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let mut refused = None;
        for directory in std::env::split_paths(&path).chain(system) {
            let file = directory.join("conntrackd");
            if file.is_absolute() && try_to_run(&file).is_ok() {
                let Some(why) = trust::find_unsafe(&file) else {
                    return Some(ConntrackdPath { path: file, refused });
                };
                refused.get_or_insert_with(|| format!("{}: {REFUSED}: {why}", file.display()));
            }
        }
        Some(ConntrackdPath { path: "/usr/sbin/conntrackd".into(), refused })
    }

    /// Refuses a hook that would run as root and that other users can replace.
    pub(crate) fn check_hook(&self, hook: &Path) -> Result<(), String> {
        let user = self.run_hook_as().user.unwrap_or_else(geteuid);
        let why = if user.is_root() { trust::find_unsafe(hook) } else { None };
        why.map_or(Ok(()), |why| Err(format!("{REFUSED}: {why}")))
    }
}

/// Returns why the kernel cannot execute a script, if its first line names no program (`fs/binfmt_script.c`), or has env(1)
/// run one that is not in `path`. One that cannot be read is no script here.
pub(crate) fn check_interpreter(script: &Path, path: &OsStr) -> Result<(), (String, Errno)> {
    let mut head = [0; 256];
    let length = read_head(script, &mut head).unwrap_or(0);
    let line = head.get(..length).unwrap_or(&[]).split(|byte| *byte == b'\n').next();
    let Some(line) = line.and_then(|line| line.strip_prefix(b"#!")) else { return Ok(()) };
    if line.ends_with(b"\r") {
        let why = "its first line ends with CR LF, as on Windows; expected LF";
        return Err((why.into(), Errno::NOT_FOUND));
    }
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let interpreter = Path::new(OsStr::from_bytes(interpreter));
    try_to_run(interpreter).map_err(|errno| {
        let interpreter = interpreter.display();
        (format!("its first line names no program: {interpreter}: {}", denied(errno)), errno)
    })?;
    // Of env(1) the program is all that follows, and with -S the first word, unless that is an option or a variable, or quoted.
    let argument = argument.trim_ascii();
    let words =
        argument.strip_prefix(b"-S").map(|words| words.trim_ascii().split(u8::is_ascii_whitespace));
    let argument = words.and_then(|mut words| words.next()).unwrap_or(argument);
    let is_name = !argument.is_empty()
        && !argument.starts_with(b"-")
        && !argument.iter().any(|byte| br#"='"$\"#.contains(byte));
    if !interpreter.ends_with("env") || !is_name {
        return Ok(());
    }
    let name = Path::new(OsStr::from_bytes(argument));
    let is_found = |place: PathBuf| can_run(&place.join(name));
    if name.is_absolute() || std::env::split_paths(path).any(is_found) {
        return Ok(());
    }
    let (path, name) = (path.display(), name.display());
    Err((format!("its first line names no program in {path}: {name}"), Errno::NOT_FOUND))
}

/// Reads the beginning of a regular file. Never waits for its owner, as for another end of a FIFO, or a lease. `EPERM`: root
/// opens no file that another user can replace, as to open a device may have an effect.
pub(crate) fn read_head(path: &Path, head: &mut [u8]) -> Result<usize, Errno> {
    if geteuid().is_root() && !trust::is_safe(path) {
        return Err(NixErrno::EPERM.into());
    }
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let mut file = File::options().read(true).custom_flags(flags).open(path)?;
    Ok(if file.metadata()?.is_file() { file.read(head)? } else { 0 })
}

/// Checks that conntrackd is there, and that users other than root cannot replace it.
pub(crate) fn check_conntrackd(program: &Path) -> Result<(), Errno> {
    fs::metadata(program)?;
    if trust::is_safe(program) { Ok(()) } else { Err(NixErrno::EPERM.into()) }
}

/// Checks that this is a file that the process may execute. `EACCES`: not so, as of `execve(2)`.
pub(crate) fn try_to_run(file: &Path) -> Result<(), Errno> {
    let is_file = fs::metadata(file)?.is_file();
    if is_file { Ok(may_execute(file)?) } else { Err(NixErrno::EACCES.into()) }
}

/// Returns whether a search finds a program here. A failure that may pass is remembered.
pub(crate) fn can_run(file: &Path) -> bool {
    try_to_run(file).map_err(denied).is_ok()
}

/// Checks that this process may execute a file, by its effective user and its capabilities.
pub(crate) fn may_execute(file: &Path) -> nix::Result<()> {
    match faccessat(AT_FDCWD, file, AccessFlags::X_OK, AtFlags::AT_EACCESS) {
        // Old containers' filters refuse `faccessat2(2)`. `access(2)` ignores an ordinary user's capabilities.
        Err(NixErrno::EPERM) => access(file, AccessFlags::X_OK),
        checked => checked,
    }
}
