//! Sees state files change, and is the agent: one thread, one clock, one `epoll`.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::NEWEST_REPLY;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::router::ROOT;

#[derive(Debug)]
pub struct Seen {
    pub at: Instant,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// The watched state file is there as a whole.
    StateFile,
    /// The agent has received a request.
    Report { router: String, state: String },
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
    /// Somebody wants us to stop, which must not leave anything running.
    stop: Arc<AtomicBool>,
}

impl Observer {
    pub fn new() -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(state_path())?;
        let listener = UnixListener::bind(state_path().join("keepalived-state-change"))?;
        listener.set_nonblocking(true)?;
        let files = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, readable(&listener))?;
        epoll.add(&files, readable(&files))?;
        let (connections, seen) = (HashMap::new(), VecDeque::new());
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Self { epoll, listener, files, connections, seen, stop })
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
            self.go_on()?;
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

    /// Fails if a signal asked for the end.
    pub fn go_on(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
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
            let header = |name: &str| {
                let mut headers = text.lines().filter_map(|line| line.split_once(": "));
                let value = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
                value.map_or_else(String::new, |(_, value)| value.to_string())
            };
            let (router, state) = (header("X-Neutron-Router-Id"), header("X-Neutron-State"));
            self.seen.push_back(Seen { at, what: What::Report { router, state } });
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

/// A signal asked for the end.
#[derive(Debug)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped by a signal")
    }
}

impl Error for Stopped {}

/// The directory of the agent's socket.
pub fn state_path() -> PathBuf {
    Path::new(ROOT).join("agent")
}

fn token(fd: &impl AsFd) -> u64 {
    u64::try_from(fd.as_fd().as_raw_fd()).unwrap_or(u64::MAX)
}

fn readable(fd: &impl AsFd) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token(fd))
}
