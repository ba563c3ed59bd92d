//! Files, and waits for their changes.

use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::PATIENCE;
use crate::ending::Deadline;

/// Watches the files of a directory.
#[derive(Debug)]
pub struct Watch(Inotify);

impl Watch {
    pub fn new(directory: &Path) -> Self {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .expect("an inotify instance");
        let events = AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_DELETE;
        inotify.add_watch(directory, events).expect("a directory to watch");
        Self(inotify)
    }

    /// Waits until the condition returns a value. It is evaluated whenever a file changes.
    pub fn until<T>(&self, what: impl Display, condition: impl FnMut() -> Option<T>) -> T {
        self.within(PATIENCE, what, condition)
    }

    /// Like [`Watch::until`], with this patience.
    pub fn within<T>(
        &self,
        patience: Duration,
        what: impl Display,
        mut condition: impl FnMut() -> Option<T>,
    ) -> T {
        let mut deadline = Deadline::after(patience);
        loop {
            if let Some(result) = condition() {
                return result;
            }
            wait_readable(&self.0, deadline.nap(&what));
            while self.0.read_events().is_ok() {}
        }
    }
}

/// Waits for a condition without an event, by polling.
pub fn look(what: impl Display, mut is_so: impl FnMut() -> bool) {
    let mut deadline = Deadline::after(PATIENCE);
    while !is_so() {
        sleep(deadline.nap(&what).min(Duration::from_millis(5)));
    }
}

/// Waits until a descriptor to which a daemon writes is readable.
pub fn await_readable(fd: impl AsFd, what: &str) {
    let mut deadline = Deadline::after(PATIENCE);
    while !wait_readable(&fd, Duration::ZERO) {
        wait_readable(&fd, deadline.nap(&what));
    }
}

/// Waits until a descriptor is readable. Returns whether it is.
pub fn wait_readable(fd: impl AsFd, patience: Duration) -> bool {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).is_ok_and(|ready| ready > 0)
}

/// Returns the number of bytes that the other end of a socket has not read yet (`unix(7)`).
pub fn unread(socket: impl AsFd) -> i32 {
    let mut bytes = 0;
    // SAFETY: the kernel writes an int.
    unsafe { nix::libc::ioctl(socket.as_fd().as_raw_fd(), nix::libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// Waits until a descriptor is readable. Returns false if `stopped` is readable.
pub fn wait_unless_stopped(fd: impl AsFd, stopped: impl AsFd) -> bool {
    let mut fds = [fd.as_fd(), stopped.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        // After a signal neither is ready, and a caller that believed otherwise would wait for ever.
        let _ = poll(&mut fds, PollTimeout::NONE);
        let [ready, stopped] = fds.each_ref().map(|fd| fd.any() == Some(true));
        if ready || stopped {
            return !stopped;
        }
    }
}

/// Returns the content of a file, empty if it does not exist.
pub fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Writes a program that every user may run.
pub fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("to write a program");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("to have it run");
}

/// Reads a pipe up to the end of a line, or until a test's patience ends.
pub fn read_line(mut pipe: impl Read + AsFd) -> String {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\n") && wait_readable(&pipe, PATIENCE) {
        match pipe.read(&mut byte) {
            Ok(0) | Err(_) => break,
            Ok(_) => text.extend(byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Waits for a datagram of a daemon, and returns it.
pub fn receive(socket: &UnixDatagram) -> String {
    await_readable(socket, "a datagram");
    let mut buffer = [0; 1024];
    let length = socket.recv(&mut buffer).expect("a datagram");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// A temporary directory, which is removed on drop.
#[derive(Debug)]
pub struct Directory(std::path::PathBuf);

impl Directory {
    /// Creates one, readable for every user.
    pub fn new() -> Self {
        let template = std::env::temp_dir().join("keepwatch-XXXXXX");
        let path = nix::unistd::mkdtemp(&template).expect("a temporary directory");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("to open the directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a directory inside, which is created if it does not exist.
    pub fn sub(&self, name: &str) -> std::path::PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("a directory");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Unmounts what tests have mounted inside, the newest first.
        let mounts = content(Path::new("/proc/thread-self/mounts"));
        let points = mounts.lines().filter_map(|mount| mount.split(' ').nth(1)).map(Path::new);
        for point in
            points.filter(|point| point.starts_with(&self.0)).collect::<Vec<_>>().iter().rev()
        {
            let _ = umount2(*point, MntFlags::MNT_DETACH);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}
