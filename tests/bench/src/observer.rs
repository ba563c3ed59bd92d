//! Watches state files, is the agent and receives frames, with one thread, one clock and one `poll`.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::NEWEST_REPLY;
use lab::agent::read_request;
use lab::capture;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

#[derive(Debug)]
pub struct Seen {
    pub at: Instant,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// The state file has been written.
    StateFile,
    /// The agent has received a request with this state.
    Report(String),
    /// An interface has received a frame.
    Frame,
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Without sleeping, so that our own wake-up is not measured.
    Spin,
    Sleep,
}

#[derive(Debug)]
pub struct Observer {
    listener: UnixListener,
    files: Inotify,
    frames: Option<File>,
    seen: VecDeque<Seen>,
}

impl Observer {
    pub fn new(socket: &Path) -> Result<Self, Box<dyn Error>> {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        let files = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { listener, files, frames: None, seen: VecDeque::new() })
    }

    /// Watches the state file in this directory. Programs rename it into place, or write into it and close it.
    pub fn watch(&self, conf_dir: &Path) -> Result<(), Box<dyn Error>> {
        let events = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;
        self.files.add_watch(conf_dir, events)?;
        Ok(())
    }

    /// Receives the frames of this interface from now on.
    pub fn watch_frames(&mut self, interface: &str) {
        self.frames = Some(capture::open(interface).into());
    }

    /// Returns the next observation until a deadline.
    pub fn next(&mut self, until: Instant, wait: Wait) -> Result<Option<Seen>, Box<dyn Error>> {
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return Ok(Some(seen));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.poll(if wait == Wait::Spin { Duration::ZERO } else { left })?;
        }
    }

    /// Lets time pass, and discards its observations.
    pub fn idle(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let until = Instant::now() + time;
        while self.next(until, Wait::Sleep)?.is_some() {}
        Ok(())
    }

    fn poll(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let milliseconds = PollTimeout::try_from(time.as_micros().div_ceil(1000))?;
        // Without frames, another descriptor is there twice.
        let frames = self.frames.as_ref().map_or(self.files.as_fd(), File::as_fd);
        let mut fds = [self.listener.as_fd(), self.files.as_fd(), frames]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, milliseconds) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let at = Instant::now();
        let [calls, files, frames] = fds.map(|fd| fd.any() == Some(true));
        if calls {
            let (stream, _) = self.listener.accept()?;
            self.seen.extend(receive(stream));
        }
        let events = if files { self.files.read_events()? } else { Vec::new() };
        if events.iter().any(|event| event.name.as_deref() == Some("state".as_ref())) {
            self.seen.push_back(Seen { at, what: What::StateFile });
        }
        if frames && let Some(socket) = &mut self.frames {
            // A few at once, to be faster than the program.
            let received =
                iter::repeat_with(|| socket.read(&mut [0; 64])).take_while(Result::is_ok);
            let seen = received.take(16).map(|_| Seen { at, what: What::Frame });
            self.seen.extend(seen);
        }
        Ok(())
    }
}

/// Reads a request, and answers it like the newest agent. A program that is killed meanwhile sends no complete one.
fn receive(mut stream: UnixStream) -> Option<Seen> {
    let text = read_request(&mut stream);
    text.ends_with("\r\n\r\n").then_some(())?;
    let at = Instant::now();
    let _ = stream.write_all(NEWEST_REPLY);
    // Python programs write the names in lower case.
    let mut headers = text.lines().filter_map(|line| line.split_once(": "));
    let (_, state) = headers.find(|(name, _)| name.eq_ignore_ascii_case("X-Neutron-State"))?;
    Some(Seen { at, what: What::Report(state.into()) })
}
