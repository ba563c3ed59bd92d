//! A service that follows a virtual address: two nodes with keepalived, and on each keepwatch with the hook
//! `docs/hook.sh`, which here starts and stops a service that answers with the name of its node.
//!
//! `cargo run --release --example service` needs keepalived besides Rust and Linux. It makes namespaces of its
//! own and ends by itself. The exit code is 0 only if the right node answered every time.

#![expect(clippy::print_stdout, reason = "it talks to a person")]

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::files::{Directory, content};
use lab::namespace::{self, Netns};
use lab::rtnl::Rtnl;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

mod build;

const HOOK: &str = include_str!("../../docs/hook.sh");
const VIP: &str = "192.0.2.10/24";
const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)), 80);
/// How long a node may take to answer before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let program = build::build()?;
    let keepalived = Command::new("keepalived").arg("--version").output();
    let keepalived = keepalived.map_err(|_| "keepalived is not installed")?.stderr;
    let keepalived = String::from_utf8_lossy(&keepalived);
    namespace::enter().map_err(|error| format!("namespaces: {error}: try it as root"))?;
    println!(
        "{} beside {} on two nodes, which share {VIP}. The hook of each is\n\n{HOOK}",
        build::version(&program)?,
        keepalived.split(" (").next().unwrap_or_default()
    );

    let rtnl = Rtnl::new();
    rtnl.add_bridge("lan");
    rtnl.up("lan");
    rtnl.add_address("lan", "192.0.2.1/24");
    let directory = Directory::new();
    let mut left = Node::new(&rtnl, &directory, "left", 2, 100)?;
    let mut right = Node::new(&rtnl, &directory, "right", 3, 50)?;
    let _keepwatch = [left.watch(&program)?, right.watch(&program)?];

    let began = Instant::now();
    left.start()?;
    right.start()?;
    left.answers("both start", began, &right)?;
    let began = Instant::now();
    left.keepalived = None;
    right.answers("keepalived of left ends", began, &left)?;
    let began = Instant::now();
    left.start()?;
    left.answers("keepalived of left starts", began, &right)?;
    let began = Instant::now();
    rtnl.down("left");
    right.answers("left loses its link", began, &left)?;
    let began = Instant::now();
    rtnl.up("left");
    left.answers("left has its link again", began, &right)?;
    println!("\nthe service was where the address was, and nowhere else");
    Ok(())
}

/// Asks the service where the address is for the name of its node.
fn ask() -> io::Result<String> {
    let mut answer = String::new();
    let timeout = Duration::from_millis(50);
    TcpStream::connect_timeout(&SERVICE, timeout)?.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A router of the two.
struct Node<'a> {
    name: &'static str,
    directory: &'a Path,
    netns: Netns,
    keepalived: Option<Process>,
    /// Whether the service runs here.
    serves: Arc<AtomicBool>,
}

impl<'a> Node<'a> {
    fn new(
        rtnl: &Rtnl,
        directory: &'a Directory,
        name: &'static str,
        number: u8,
        priority: u8,
    ) -> Result<Self, Box<dyn Error>> {
        let netns = Netns::new();
        rtnl.add_veth(name, "eth0");
        rtnl.set_bridge(name, Some("lan"));
        rtnl.move_to("eth0", &netns);
        rtnl.up(name);
        netns.run(|| {
            let rtnl = Rtnl::new();
            rtnl.up("eth0");
            rtnl.add_address("eth0", &format!("192.0.2.{number}/24"));
        });
        let serves = Arc::default();
        let node = Self { name, directory: directory.path(), netns, keepalived: None, serves };
        let configuration = format!(
            "vrrp_instance lan {{
    interface eth0
    virtual_router_id 5
    priority {priority}
    virtual_ipaddress {{
        {VIP} dev eth0
    }}
}}
"
        );
        fs::write(node.file("keepalived.conf"), configuration)?;
        node.serve()?;
        Ok(node)
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{}.{name}", self.directory.display(), self.name)
    }

    /// Starts keepwatch as on any router.
    fn watch(&self, program: &Path) -> Result<Process, Box<dyn Error>> {
        let hook = self.file("hook");
        let service = self.file("service");
        let text = HOOK
            .replace("systemctl start haproxy", &format!("echo start >{service}"))
            .replace("systemctl stop haproxy", &format!("echo stop >{service}"));
        fs::write(&hook, text)?;
        fs::set_permissions(&hook, Permissions::from_mode(0o755))?;
        let conf_dir = self.file("state");
        fs::create_dir(&conf_dir)?;
        let mut command = Command::new(program);
        command.args(["--foreground", "--router_id", self.name, "--conf_dir", &conf_dir]);
        command.args(["--monitor_interface", "eth0", "--monitor_cidr", VIP]);
        command.args(["--no-announce", "--detect-split-brain", "--hook", &hook]);
        self.run(command)
    }

    fn start(&mut self) -> Result<(), Box<dyn Error>> {
        let mut command = Command::new("keepalived");
        command.args(["--dont-fork", "--vrrp", "--log-console"]);
        command.args(["--use-file", &self.file("keepalived.conf")]);
        command.args(["--pid", &self.file("pid"), "--vrrp_pid", &self.file("vrrp-pid")]);
        self.keepalived = Some(self.run(command)?);
        Ok(())
    }

    fn run(&self, mut command: Command) -> Result<Process, Box<dyn Error>> {
        let log = File::options().create(true).append(true).open(self.file("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Process(self.netns.run(|| command.spawn())?))
    }

    /// Starts what starts and stops the service when the hook says so.
    fn serve(&self) -> Result<(), Box<dyn Error>> {
        let path = self.file("service");
        mkfifo(path.as_str(), Mode::S_IRUSR | Mode::S_IWUSR)?;
        // For writing, too, so that it does not end with the hook.
        let said = File::options().read(true).write(true).open(path)?;
        let (name, serves) = (self.name, Arc::clone(&self.serves));
        self.netns.run(|| thread::spawn(move || serve(name, said, &serves)));
        Ok(())
    }

    /// Waits until the service answers here, and has ended on the other node.
    fn answers(&self, event: &str, began: Instant, other: &Self) -> Result<(), Box<dyn Error>> {
        while !ask().is_ok_and(|answer| answer == self.name) || other.serves.load(Ordering::SeqCst)
        {
            if began.elapsed() > PATIENCE {
                for node in [self, other] {
                    println!("{}", content(Path::new(&node.file("log"))));
                }
                return Err(format!("{event}: the service is not on {} alone", self.name).into());
            }
            // As a client would.
            thread::sleep(Duration::from_millis(10));
        }
        println!(
            "{event:<26} {:<5} answers after {:>5.2} s",
            self.name,
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// The service: answers with the name of its node, between a line `start` and another.
fn serve(name: &str, said: File, serves: &AtomicBool) {
    let mut said = BufReader::new(said);
    let mut service: Option<TcpListener> = None;
    loop {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![readable(said.get_ref().as_fd())];
        fds.extend(service.iter().map(|service| readable(service.as_fd())));
        let _ = poll(&mut fds, PollTimeout::NONE);
        if fds.first().and_then(PollFd::any) == Some(true) {
            let mut line = String::new();
            let _ = said.read_line(&mut line);
            // It cannot be bound to an address that is not here.
            service = if line == "start\n" { TcpListener::bind(SERVICE).ok() } else { None };
            serves.store(service.is_some(), Ordering::SeqCst);
        } else if let Some(Ok((mut client, _))) = service.as_ref().map(TcpListener::accept) {
            let _ = client.write_all(name.as_bytes());
        }
    }
}

/// Ends when it is dropped, in an orderly way.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(pid) = self.0.id().try_into() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.0.wait();
    }
}
