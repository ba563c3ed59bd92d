//! An agent that behaves well or badly, on a real Unix socket.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, listen};

use crate::files::{wait_readable, wait_unless_stopped};
use crate::received::Received;
use crate::{NEWEST_REPLY, PATIENCE};

/// What an agent does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Sends these pieces, each in a write of its own, and closes.
    Reply(Vec<&'static [u8]>),
    /// Sends this one byte at a time, and closes.
    Dribble(&'static [u8]),
    /// Replies like the newest Neutron, after this delay.
    Late(Duration),
    /// Reads, and closes without a reply.
    CloseEarly,
    /// Closes without reading.
    CloseUnread,
    /// Sends nothing and keeps the connection open.
    Hang,
    /// Sends this and keeps the connection open.
    ReplyAndHang(&'static [u8]),
    /// Never stops sending.
    Babble,
}

impl Behaviour {
    /// Replies like the newest Neutron: one piece, LF, no blank line.
    pub fn newest() -> Self {
        Self::Reply(vec![NEWEST_REPLY])
    }

    /// Replies like older releases: several pieces, CRLF.
    pub fn eventlet() -> Self {
        Self::Reply(vec![
            b"HTTP/1.1 200",
            b" OK\r\nContent-Type: text/html; charset=UTF-8\r\nContent-Length: 0\r",
            b"\nDate: Fri, 20 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n\r\n",
        ])
    }
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    /// The first line of the request.
    pub line: String,
    pub router: String,
    pub state: String,
    /// Whether it was answered with 200.
    pub acknowledged: bool,
}

#[derive(Debug, Default)]
struct Shared {
    arrivals: Received<Arrival>,
    behaviour: Mutex<Option<Behaviour>>,
}

/// A listening agent.
#[derive(Debug)]
pub struct Agent {
    path: PathBuf,
    shared: Arc<Shared>,
    /// The thread that serves, if it listens, and the socket that ends it.
    served: Option<(UnixStream, thread::JoinHandle<()>)>,
}

impl Agent {
    /// Listens on `<state_path>/keepalived-state-change`, with the newest Neutron's reply and its backlog of 5.
    pub fn start(state_path: &Path) -> Self {
        let path = state_path.join("keepalived-state-change");
        let mut agent = Self { path, shared: Arc::default(), served: None };
        agent.listen();
        agent
    }

    /// Listens, also after a stop.
    pub fn listen(&mut self) {
        let listener = bind(&self.path, 5);
        let (stop, stopped) = UnixStream::pair().expect("a socket pair");
        let shared = Arc::clone(&self.shared);
        let thread = thread::spawn(move || serve(&listener, &stopped, &shared));
        self.served = Some((stop, thread));
    }

    pub fn listens(&self) -> bool {
        self.served.is_some()
    }

    /// Sets the behaviour for the next requests.
    pub fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().expect("the behaviour") = Some(behaviour);
    }

    /// Returns all requests so far.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals.lock().clone()
    }

    /// Returns the state that was last answered with 200.
    pub fn acknowledged(&self) -> Option<String> {
        last_acknowledged(&self.shared.arrivals.lock())
    }

    /// Waits until this state is the last one answered with 200.
    pub fn wait_acknowledged(&self, state: &str) {
        self.wait(&format!("a 200 for {state}"), |arrivals| {
            last_acknowledged(arrivals).as_deref() == Some(state)
        });
    }

    /// Waits until the requests so far satisfy a condition.
    pub fn wait(&self, what: &str, condition: impl Fn(&[Arrival]) -> bool) {
        drop(self.shared.arrivals.wait(PATIENCE, what, condition));
    }

    /// Asserts that the last request was for this state, and was answered with 200.
    pub fn assert_last_state(&self, state: &str) {
        let arrivals = self.shared.arrivals.lock();
        let last = arrivals.last().expect("at least one request");
        assert!(last.acknowledged && last.state == state, "{arrivals:#?}");
    }

    /// Stops listening. The socket file stays, as after a SIGKILL, unless `tidy`.
    pub fn stop(&mut self, tidy: bool) {
        self.shut_down();
        if tidy {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn shut_down(&mut self) {
        if let Some((stop, thread)) = self.served.take() {
            let _ = stop.shutdown(std::net::Shutdown::Both);
            let _ = thread.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn last_acknowledged(arrivals: &[Arrival]) -> Option<String> {
    arrivals.iter().rfind(|arrival| arrival.acknowledged).map(|arrival| arrival.state.clone())
}

/// Listens with this backlog. Every user may connect. Replaces an older socket in one step.
fn bind(path: &Path, backlog: i32) -> UnixListener {
    let new = path.with_file_name("new-socket");
    let listener = UnixListener::bind(&new).expect("the agent's socket");
    listen(&listener, Backlog::new(backlog).expect("a backlog")).expect("to listen");
    fs::set_permissions(&new, Permissions::from_mode(0o777))
        .expect("to open the socket to every user");
    fs::rename(new, path).expect("to replace the agent's socket");
    listener
}

/// Serves one connection after another, and keeps hanging ones open.
fn serve(listener: &UnixListener, stopped: &UnixStream, shared: &Shared) {
    let mut hanging = Vec::new();
    while wait_unless_stopped(listener, stopped) {
        let Ok((stream, _)) = listener.accept() else { continue };
        hanging.extend(converse(stream, stopped, shared));
    }
}

/// Serves one request. Returns the connection if it is to stay open.
fn converse(mut stream: UnixStream, stopped: &UnixStream, shared: &Shared) -> Option<UnixStream> {
    let behaviour = shared.behaviour.lock().expect("the behaviour").clone();
    let behaviour = behaviour.unwrap_or(Behaviour::newest());
    if behaviour == Behaviour::CloseUnread {
        // Only unread bytes make a close a reset.
        wait_readable(&stream, PATIENCE);
        record(shared, Instant::now(), "", false);
        return None;
    }
    let text = read_request(&mut stream);
    let at = Instant::now();
    let is_200 = |reply: &[u8]| reply.starts_with(b"HTTP/1.1 200");
    // A reply counts as acknowledged once all of it has been sent.
    let acknowledged = match &behaviour {
        Behaviour::Reply(pieces) => {
            pieces.iter().all(|piece| stream.write_all(piece).is_ok()) && is_200(&pieces.concat())
        }
        Behaviour::Dribble(reply) => {
            let mut dribble = reply.iter().inspect(|_| thread::sleep(Duration::from_millis(1)));
            dribble.all(|byte| stream.write_all(&[*byte]).is_ok()) && is_200(reply)
        }
        Behaviour::ReplyAndHang(reply) => stream.write_all(reply).is_ok() && is_200(reply),
        Behaviour::Late(delay) => {
            thread::sleep(*delay);
            stream.write_all(NEWEST_REPLY).is_ok()
        }
        Behaviour::Babble => {
            babble(&mut stream, stopped);
            false
        }
        Behaviour::CloseEarly | Behaviour::CloseUnread | Behaviour::Hang => false,
    };
    record(shared, at, &text, acknowledged);
    matches!(behaviour, Behaviour::Hang | Behaviour::ReplyAndHang(_)).then_some(stream)
}

/// Reads a request up to its end or the connection's.
pub fn read_request(stream: &mut UnixStream) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while !text.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.extend_from_slice(&buffer[..length]),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn babble(stream: &mut UnixStream, stopped: &UnixStream) {
    let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
    let _ = stopped.set_nonblocking(true);
    let mut byte = [0; 1];
    loop {
        match stream.write(&[b'x'; 4096]) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
        if !matches!(nix::unistd::read(stopped, &mut byte), Err(nix::Error::EAGAIN)) {
            return;
        }
    }
}

fn record(shared: &Shared, at: Instant, text: &str, acknowledged: bool) {
    let header = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .unwrap_or_default()
            .to_string()
    };
    let (router, state) = (header("X-Neutron-Router-Id"), header("X-Neutron-State"));
    let line = text.lines().next().unwrap_or_default().to_string();
    shared.arrivals.push(Arrival { at, line, router, state, acknowledged });
}

/// A listening socket with a full backlog, whose listener accepts only when told to.
#[derive(Debug)]
pub struct FullBacklog {
    listener: UnixListener,
    _waiting: UnixStream,
}

impl FullBacklog {
    pub fn new(state_path: &Path) -> Self {
        let path = state_path.join("keepalived-state-change");
        // A backlog of 0 holds one.
        let listener = bind(&path, 0);
        let waiting = UnixStream::connect(&path).expect("to connect");
        Self { listener, _waiting: waiting }
    }

    /// Makes room, and returns the next connection.
    pub fn accept(&self) -> UnixStream {
        let accept = || {
            assert!(wait_readable(&self.listener, PATIENCE), "no connection");
            self.listener.accept().expect("a connection").0
        };
        drop(accept());
        accept()
    }
}
