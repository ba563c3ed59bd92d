//! The hook `hand-over`: requests root's hook of `keepwatch-follow@.service`, and exits with that hook's exit code.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use nix::unistd::geteuid;

use crate::errno::Errno;
use crate::helper::PATH;
use crate::log::of_user;
use crate::start::{program, trust};

/// The socket of `keepwatch-follow@.socket`, which `keepwatch@.service` mounts here for its instance.
const SOCKET: &str = "/run/keepwatch-follow/socket";

/// Sends the state and waits for the exit code of root's hook.
///
/// # Errors
/// One line that says why there is no exit code.
// Not in the frame of `main`, whose pages the daemon keeps.
#[inline(never)]
pub fn hand_over(instance: &str, state: &str) -> Result<u8, String> {
    let ask = |mut socket: UnixStream| {
        socket.write_all(state.as_bytes())?;
        io::read_to_string(socket)
    };
    let answer = UnixStream::connect(SOCKET).and_then(ask);
    let answer = answer.map_err(|error| no_socket(instance, error.into()))?;
    let unanswered = |_| "root's hook was not run: see journalctl -u 'keepwatch-follow@*'".into();
    answer.parse().map_err(unanswered)
}

/// Checks that root could take over a hook of this instance.
pub(crate) fn check(instance: &str) -> Result<(), String> {
    if let Err(error) = fs::metadata(SOCKET) {
        return Err(no_socket(instance, error.into()));
    }
    let hook = format!("/etc/keepwatch/{instance}.hook");
    let checked = match fs::metadata(&hook) {
        Err(error) => Err(of_user(Errno::from(error), geteuid()).to_string()),
        Ok(found) if !found.is_file() || found.mode() & 0o111 == 0 => Err("not executable".into()),
        Ok(_) => match trust::find_unsafe(hook.as_ref()) {
            Some(why) => Err(why),
            None => {
                program::check_interpreter(hook.as_ref(), PATH.as_ref()).map_err(|(why, _)| why)
            }
        },
    };
    checked.map_err(|error| format!("{hook}: {error}"))
}

fn no_socket(instance: &str, errno: Errno) -> String {
    let socket = format!("keepwatch-follow@{instance}.socket");
    let why = of_user(errno, geteuid());
    format!("{socket} does not listen ({why}): systemctl enable --now '{socket}'")
}
