//! Destinations of the log besides standard error: a file or syslog.

use core::mem::take;
use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Uid, geteuid};

use super::files::is_at;
use super::own_file::{self, Refusal};
use crate::errno::Errno;
use crate::monitor::Duration;

/// A log file, which can be reopened after a rotation.
#[derive(Debug)]
pub struct LogFile {
    path: CString,
    file: File,
    /// The user that the daemon runs as.
    pub(crate) user: Uid,
    pub(crate) gaps: Gaps,
}

/// What could not be written to a file, or to standard error.
#[derive(Debug, Default)]
pub struct Gaps {
    /// The last line is incomplete.
    is_cut: bool,
    /// The number of lost bytes, until that is logged.
    lost: usize,
    /// The last bytes are lost, too.
    lasts: bool,
}

impl Gaps {
    /// Writes complete lines by `write`, which returns the number of bytes written. The rest is lost, and counted.
    pub fn write(&mut self, lines: &[u8], mut write: impl FnMut(&[u8]) -> usize) {
        if self.is_cut {
            self.is_cut = write(b"\n") == 0;
        }
        // No line runs into a cut one.
        let length = if self.is_cut { 0 } else { write(lines) };
        if length > 0 {
            self.is_cut = length < lines.len();
        }
        self.lasts = length < lines.len();
        self.lost = self.lost.saturating_add(lines.len() - length);
    }

    /// Returns the number of lost bytes once that can be logged.
    pub fn lost(&self) -> Option<usize> {
        Some(self.lost).filter(|lost| *lost > 0 && !self.lasts)
    }

    /// Handles that this number has been written, unless that was lost, too.
    pub fn handle_logged(&mut self, lost: usize) {
        self.lost -= if self.lasts { 0 } else { lost };
    }
}

impl LogFile {
    /// An append-only file (`chattr +a`) can be opened only with `O_APPEND`.
    pub(crate) const FLAGS: OFlag = OFlag::O_WRONLY.union(OFlag::O_APPEND).union(OFlag::O_CREAT);

    /// Opens or creates the file, mode 0644: see [`own_file::open`].
    pub fn open(path: CString) -> Result<Self, Refusal> {
        let user = geteuid();
        let file = own_file::open(&path, Self::FLAGS, user)?;
        Ok(Self { path, file, user, gaps: Gaps::default() })
    }

    /// Returns whether the path is not this file.
    pub fn has_moved(&self) -> bool {
        is_at(&self.path, &self.file) != Ok(true)
    }

    /// Returns whether the file was renamed, as by a rotation, or removed. Not for root: another user may have put a link in
    /// place of its directory, through which root must create no file without a signal.
    pub fn was_renamed(&self) -> bool {
        !self.user.is_root() && self.has_moved()
    }

    /// Reopens the path. On an error the old file stays open.
    pub fn reopen(&mut self) -> Result<(), Refusal> {
        let file = own_file::open(&self.path, Self::FLAGS, self.user)?;
        // Only the old file ends with a cut line.
        self.gaps.is_cut &= !self.has_moved();
        self.file = file;
        Ok(())
    }

    /// Appends complete lines.
    pub fn write(&mut self, lines: &[u8]) {
        let file = &mut self.file;
        self.gaps.write(lines, |bytes| file.write(bytes).unwrap_or(0));
    }
}

/// The socket of the log daemon, which may be restarted.
const LOG_DAEMON: &str = "/dev/log";

/// The most bytes that are kept for a log daemon without room. `net.unix.max_dgram_qlen` is 10 on `OpenWrt`, and a hook
/// may print 64 lines.
const MAX_KEPT: usize = 16 * 1024;

#[derive(Debug)]
#[expect(clippy::disallowed_types, reason = "its room is allocated when the socket is opened")]
pub struct Syslog {
    socket: UnixDatagram,
    /// Lines for which there was no room, each with its LF.
    kept: Vec<u8>,
    /// The number of lines that were neither sent nor kept.
    lost: u32,
    /// Whether the log daemon got the last line that was sent.
    is_present: bool,
}

impl Syslog {
    /// Checks that the log daemon can be reached by datagrams. Sends nothing.
    pub fn check() -> Result<(), Errno> {
        Ok(UnixDatagram::unbound()?.connect(LOG_DAEMON)?)
    }

    /// Opens a socket. The log daemon need not run yet.
    #[expect(clippy::disallowed_types, reason = "it runs at the start")]
    pub fn open() -> Result<Self, Errno> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, kept: Vec::with_capacity(MAX_KEPT), lost: 0, is_present: false })
    }

    /// Sends a line, or keeps it behind those that wait for room.
    pub fn send(&mut self, line: &[u8]) {
        if self.kept.is_empty() && self.try_send(line) {
            return;
        }
        // Lines are lost only at the end, where they are counted.
        let is_late = self.lost > 0 && !self.kept.is_empty();
        if is_late || self.kept.len() + line.len() >= MAX_KEPT {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        self.kept.extend_from_slice(line);
        self.kept.push(b'\n');
    }

    /// Sends the lines that were kept, as far as there is room. Returns the number of lost lines once that can be logged.
    pub fn send_kept(&mut self) -> Option<u32> {
        let mut kept = take(&mut self.kept);
        let mut sent = 0;
        for line in kept.split_inclusive(|byte| *byte == b'\n') {
            if !self.try_send(line.strip_suffix(b"\n").unwrap_or(line)) {
                break;
            }
            sent += line.len();
        }
        kept.drain(..sent);
        self.kept = kept;
        (self.lost > 0 && self.is_present && self.kept.is_empty()).then(|| take(&mut self.lost))
    }

    /// Returns the socket while lines wait for room. It can be polled for that.
    pub fn waiting(&self) -> Option<RawFd> {
        (!self.kept.is_empty()).then(|| self.socket.as_raw_fd())
    }

    /// Waits until the log daemon has room, up to a time.
    pub fn wait_for_room(&self, limit: Duration) {
        let limit = limit.total_millis().try_into().unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
        // After an error the caller tries again, until its time is over.
        let _ = poll(&mut fds, limit);
    }

    /// Returns `false` if the log daemon has no room. A line that cannot be sent for another reason is lost.
    fn try_send(&mut self, line: &[u8]) -> bool {
        // By its path, so that a restarted log daemon gets the line.
        let sent = self.socket.send_to(line, LOG_DAEMON);
        self.is_present = sent.is_ok();
        match sent {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // The kernel reports only the room of a peer. Without it, the lines wait for the next one.
                let _ = self.socket.connect(LOG_DAEMON);
                return false;
            }
            Err(_) => self.lost = self.lost.saturating_add(1),
            Ok(_) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be room for the line that was none for the end of the one before.
    #[test]
    fn cut_line_does_not_run_into_the_next_one() {
        let (mut gaps, mut written) = (Gaps::default(), heapless::Vec::<u8, 16>::new());
        gaps.write(b"first\n", |line| line.len() - 1);
        for has_room in [false, true] {
            gaps.write(b"next\n", |bytes| {
                let fits = has_room || bytes != b"\n";
                let bytes = if fits { bytes } else { b"" };
                written.extend_from_slice(bytes).unwrap();
                bytes.len()
            });
        }
        assert_eq!(written, b"\nnext\n");
        assert_eq!(gaps.lost(), Some(6));
    }

    #[test]
    fn number_of_lost_bytes_is_not_lost() {
        let mut gaps = Gaps::default();
        let (all, none) = (|bytes: &[u8]| bytes.len(), |_: &[u8]| 0);
        gaps.write(b"line\n", none);
        assert_eq!(gaps.lost(), None);
        gaps.write(b"line\n", all);
        assert_eq!(gaps.lost(), Some(5));
        gaps.write(b"5 are lost\n", none);
        gaps.handle_logged(5);
        gaps.write(b"line\n", all);
        assert_eq!(gaps.lost(), Some(16));
        gaps.write(b"16 are lost\n", all);
        gaps.handle_logged(16);
        assert_eq!(gaps.lost(), None);
    }
}
