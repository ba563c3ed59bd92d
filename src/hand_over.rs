//! The hook `hand-over`: requests root's hook of `keepwatch-follow@.service`, and exits with that hook's exit code.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use crate::errno::Errno;

/// The socket of `keepwatch-follow@.socket`, which `keepwatch@.service` mounts here for its instance.
const SOCKET: &str = "/run/keepwatch-follow/socket";

/// Sends the state and waits for the exit code of root's hook.
///
/// # Errors
/// One line that says why there is no exit code.
pub fn hand_over(state: &str) -> Result<u8, String> {
    let ask = |mut socket: UnixStream| {
        socket.write_all(state.as_bytes())?;
        io::read_to_string(socket)
    };
    let answer = UnixStream::connect(SOCKET).and_then(ask);
    let answer = answer.map_err(|error| format!("{SOCKET}: {}", Errno::from(error)))?;
    let unanswered = |_| "root's hook was not run: see journalctl -u 'keepwatch-follow@*'".into();
    answer.parse().map_err(unanswered)
}
