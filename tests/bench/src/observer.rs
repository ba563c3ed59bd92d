//! Sees state files change, and is the agent: one thread, one clock, one `epoll`.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::NEWEST_REPLY;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

#[derive(Debug)]
pub struct Seen {
    pub at: Instant,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// The watched state file is there as a whole.
    StateFile,
    /// The agent has received a request with this state.
    Report(String),
}

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Without sleeping, so that our own waking up is not measured.
    Spin,
    Sleep,
}

#[derive(Debug)]
pub struct Observer {
    epoll: Epoll,
    listener: UnixListener,
    files: Inotify,
    /// Those that have not sent all of their request, by their descriptor.
    connections: HashMap<u64, (UnixStream, Vec<u8>)>,
    seen: VecDeque<Seen>,
}

impl Observer {
    pub fn new(socket: &Path) -> Result<Self, Box<dyn Error>> {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let files = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, readable(&listener))?;
        epoll.add(&files, readable(&files))?;
        let (connections, seen) = (HashMap::new(), VecDeque::new());
        Ok(Self { epoll, listener, files, connections, seen })
    }

    /// Sees the state file in this directory from now on: renamed into place, or, by the programs
    /// that write into it, closed.
    pub fn watch(&self, conf_dir: &Path) -> Result<(), Box<dyn Error>> {
        let events = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;
        self.files.add_watch(conf_dir, events)?;
        Ok(())
    }

    /// The next thing seen, if there is one until then.
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

    /// Lets time pass, and forgets what was seen in it.
    pub fn idle(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let until = Instant::now() + time;
        while self.next(until, Wait::Sleep)?.is_some() {}
        Ok(())
    }

    fn poll(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let mut events = [EpollEvent::empty(); 32];
        let timeout = EpollTimeout::try_from(time.as_micros().div_ceil(1000))?;
        let ready = match self.epoll.wait(&mut events, timeout) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        let at = Instant::now();
        let mut files = false;
        for event in &events[..ready] {
            if event.data() == token(&self.files) {
                files = true;
            } else if event.data() == token(&self.listener) {
                self.accept()?;
            } else if let Some((stream, text)) = self.connections.remove(&event.data()) {
                self.receive(stream, text)?;
            }
        }
        if files {
            self.read_files(at);
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), Box<dyn Error>> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            self.receive(stream, Vec::new())?;
        }
        Ok(())
    }

    /// Reads what there is. A whole request is answered as the newest agent does.
    fn receive(&mut self, mut stream: UnixStream, mut text: Vec<u8>) -> Result<(), Box<dyn Error>> {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(()),
        }
        let at = Instant::now();
        if text.ends_with(b"\r\n\r\n") {
            // Whoever is killed meanwhile does not want it any more.
            let _ = stream.write_all(NEWEST_REPLY);
            let text = String::from_utf8_lossy(&text);
            // The Python generation writes the names in small letters.
            let mut headers = text.lines().filter_map(|line| line.split_once(": "));
            let state = headers.find(|(name, _)| name.eq_ignore_ascii_case("X-Neutron-State"));
            let state = state.map_or_else(String::new, |(_, state)| state.into());
            self.seen.push_back(Seen { at, what: What::Report(state) });
        } else {
            let token = token(&stream);
            let _ = self.epoll.delete(&stream);
            self.epoll.add(&stream, readable(&stream))?;
            self.connections.insert(token, (stream, text));
        }
        Ok(())
    }

    fn read_files(&mut self, at: Instant) {
        let events = self.files.read_events().unwrap_or_default();
        if events.iter().any(|event| event.name.as_deref() == Some("state".as_ref())) {
            self.seen.push_back(Seen { at, what: What::StateFile });
        }
    }
}

fn token(fd: &impl AsFd) -> u64 {
    u64::try_from(fd.as_fd().as_raw_fd()).unwrap_or(u64::MAX)
}

fn readable(fd: &impl AsFd) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token(fd))
}
