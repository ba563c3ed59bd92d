//! The metrics file as Prometheus' `node_exporter` reads it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};

use lab::daemon::Setup;
use lab::files::{Watch, content, read_line};
use libtest_mimic::Trial;

use crate::world::{Killed, World, setup};

pub fn trials() -> Vec<Trial> {
    lab::trials![textfile_collector]
}

/// What a router may be called that is hardest to quote.
const ODD: &str = r#"a"b\c\n{x="y"},#"#;

/// A router with a name, and its metrics file in a directory.
fn setup_with(router: &str, directory: &Path, file: &str) -> (Setup, PathBuf) {
    let file = directory.join(file);
    let mut setup = setup().with(format!("--metrics-file={}", file.display()));
    setup.router = router.into();
    (setup, file)
}

/// Waits until a metrics file tells of the active state.
fn wait_active(file: &Path) {
    let is_so = |line: &str| line.starts_with("keepwatch_active{") && line.ends_with("} 1");
    let watch = Watch::new(file.parent().unwrap());
    watch.until("the active state", || content(file).lines().any(is_so).then_some(()));
}

/// `node_exporter`, with nothing to tell but what is in a directory, and what it says on its standard error.
fn start_exporter(directory: &Path) -> (Killed, ChildStderr) {
    let mut child = Command::new("prometheus-node-exporter")
        .args(["--collector.disable-defaults", "--collector.textfile"])
        .arg(format!("--collector.textfile.directory={}", directory.display()))
        .arg("--web.listen-address=127.0.0.1:9100")
        .stderr(Stdio::piped())
        .spawn()
        .expect("prometheus-node-exporter");
    let mut stderr = child.stderr.take().unwrap();
    let exporter = Killed(child);
    loop {
        let line = read_line(&mut stderr);
        assert!(!line.is_empty(), "it does not listen");
        if line.contains("Listening on") {
            return (exporter, stderr);
        }
    }
}

/// What Prometheus would be told.
fn scrape() -> String {
    let mut stream = TcpStream::connect("127.0.0.1:9100").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Two daemons write into its directory, and what lies there besides.
fn textfile_collector() {
    let directory = lab::files::Directory::new();
    let (setup, file) = setup_with("r1", directory.path(), "r1.prom");
    let world = World::with(setup);
    world.rtnl.up("lo");
    let (other, other_file) = setup_with(ODD, directory.path(), "odd.prom");
    let first = world.setup.start();
    let _second = other.start();
    // What a new file is called until it is renamed.
    std::fs::write(directory.path().join(".state.keepwatch-0123"), "half of a fi").unwrap();
    world.set_vip(true);
    for file in [&file, &other_file] {
        wait_active(file);
    }
    let _exporter = start_exporter(directory.path());
    let text = scrape();
    assert!(text.contains("node_textfile_scrape_error 0\n"), "{text}");
    assert_eq!(text.matches("node_textfile_mtime_seconds{").count(), 2, "{text}");
    let odd = ODD.replace('\\', r"\\").replace('"', r#"\""#);
    for router in ["r1", &odd] {
        let labels = format!("{{interface=\"ha0\",router_id=\"{router}\",vip=\"169.254.0.5/24\"}}");
        for sample in ["keepwatch_active", "keepwatch_claims_total"] {
            assert!(text.contains(&format!("\n{sample}{labels} ")), "{sample}{labels}\n{text}");
        }
    }
    // One that has ended is not told of any more.
    first.terminate();
    let text = scrape();
    assert!(!text.contains("router_id=\"r1\"") && text.contains("keepwatch_active"), "{text}");
}
