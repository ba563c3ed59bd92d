//! `--list`: every instance of a machine, for which a PID namespace stands in.

#![expect(unsafe_code, reason = "system calls between fork and exec")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::daemon::{Running, Setup, send};
use lab::files::{Directory, Watch, content, look, read_line, write_program};
use lab::namespace::{Netns, Pids, unbind};
use lab::users::NOBODY;
use nix::mount::{MsFlags, mount};
use nix::pty::{Winsize, openpty};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo, setuid};

use crate::metrics::world_with;
use crate::scripted::{hooked, install, wait_hook_succeeded};
use crate::stalls::stop;
use crate::starter::limit_descriptors;
use crate::world::{Killed, NO_AGENT, NO_INTERFACE, World, mount_hanging, setup, while_repeating};

/// Runs a command as this user, with the `/proc` of its PID namespace.
pub fn among(mut command: Command, user: u32) -> Command {
    let see = move || {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?;
        Ok(setuid(Uid::from_raw(user))?)
    };
    // SAFETY: nothing but system calls.
    unsafe { command.pre_exec(see) };
    command.env("TZ", "UTC0").stdin(Stdio::null());
    command
}

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(setup().program);
    command.args(words);
    among(command, 0)
}

/// Returns the exit code and standard output.
pub fn output(pids: &Pids, mut command: Command) -> (Option<i32>, String) {
    let output = pids.run(|| command.output().unwrap());
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Returns the exit code and the cells of each row.
pub fn table(pids: &Pids) -> (Option<i32>, Vec<Vec<String>>) {
    let (code, text) = output(pids, program(&["--list"]));
    let cells = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(String::from).collect()
    };
    (code, text.lines().skip(1).map(cells).collect())
}

/// Returns the pid in the daemon's own PID namespace.
fn pid(keepwatch: &Running<'_>) -> String {
    keepwatch.proc_status("NSpid").split_whitespace().last().unwrap().into()
}

/// A daemon with a helper, and an instance in the foreground that is killed. They have other network namespaces and
/// hostile names, and processes of other programs run beside them.
#[apply(trial)]
fn instances_of_every_kind() {
    let pids = Pids::new();
    assert_eq!(output(&pids, program(&["--list"])), (Some(0), "No instance found.\n".into()));
    assert_eq!(output(&pids, program(&["--list", "--json"])), (Some(0), "[]\n".into()));

    let mut setup = install(setup());
    let [metrics, by_hand] = ["metrics", "by hand"].map(|name| setup.directory().join(name));
    setup.router = "lan".into();
    let world = World::with(setup.with(format!("--metrics-file={}", metrics.display())));
    let setup = &world.setup;
    world.set_vip(true);
    let files = Watch::new(setup.directory());
    assert!(pids.run(|| setup.run()).status.success());
    let labels = format!("{{router_id=\"lan\",interface=\"ha0\",vip=\"{}\"}}", setup.vip);
    let none = ["undelivered", "hook_pending"].map(|name| format!("keepwatch_{name}{labels} 0\n"));
    let delivered = || none.iter().all(|sample| content(&metrics).contains(sample)).then_some(());
    files.until("agent and hook to have the state", delivered);

    let name = "n\u{1b}[31m\"\u{202e}\u{200b}";
    let netns = Netns::new();
    netns.bind(name);
    fs::create_dir(&by_hand).unwrap();
    let mut command = Command::new(&setup.program);
    command
        .arg(format!("--conf_dir={}", by_hand.display()))
        .args(["--monitor_interface=\u{1b}\"", "--monitor_cidr=fd00::1/64"]);
    command.args(["--router_id=by\\hand", "--foreground", "--no-announce"]).stderr(Stdio::null());
    let files = Watch::new(&by_hand);
    let mut killed = Killed(netns.run(|| pids.run(|| command.spawn().unwrap())));
    let state = by_hand.join("state");
    files.until("a state", || File::open(&state).ok());

    // Neutron's own monitors are scripts. Up to release 28 their command line is one word with blanks.
    let script = setup.directory().join("neutron-keepalived-state-change");
    write_program(&script, "#!/bin/sh\necho up; read x");
    let original = |words: &[&str]| {
        let mut command = Command::new(&script);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut original = Killed(pids.run(|| command.spawn().unwrap()));
        assert_eq!(read_line(original.0.stdout.as_mut().unwrap()), "up\n");
        original
    };
    let _originals = ["--conf_dir=DIR", "--conf_dir DIR --pid_file x", "(python --conf_dir=DIR)"]
        .map(|words| {
            let others = setup.directory().join(format!("of-{}", words.len()));
            fs::create_dir(&others).unwrap();
            fs::write(others.join("state"), "backup").unwrap();
            let words = words.replace("DIR", others.to_str().unwrap());
            let is_one = words.starts_with('(');
            original(&if is_one { vec![&*words] } else { words.split(' ').collect() })
        });

    let (code, rows) = table(&pids);
    let [lan, hand] = &rows[..] else { panic!("{rows:?}") };
    let link = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let inode = link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit());
    assert_eq!(lan[..4], ["lan", "ha0", &setup.vip, "master"]);
    assert_eq!(lan[6..11], ["root", env!("CARGO_PKG_VERSION"), inode, "delivered", "delivered"]);
    assert_eq!(hand[..5], ["by\\hand", "\\x1b\"", "fd00::1/64", "backup", "-"]);
    let shown = r#"n\u{1b}[31m"\u{202e}\u{200b}"#;
    assert_eq!(hand[7..], [env!("CARGO_PKG_VERSION"), shown, "none", "none", "-", "-"]);
    assert_eq!(code, Some(0));

    // One of Neutron's own that starts later and writes the same state file.
    let double = original(&[&format!("--conf_dir={}", setup.conf_dir.display())]);
    assert_eq!(table(&pids).0, Some(2));
    drop(double);

    for (figure, (code, cells)) in [
        ("undelivered", (1, "pending, -, -, -")),
        ("hook_pending", (1, "-, pending, -, -")),
        ("split_brain", (2, "-, -, yes, -")),
        ("last_change_timestamp_seconds", (0, "-, -, -, -")),
    ] {
        fs::write(&metrics, format!("keepwatch_{figure}{labels} 1000000001\n")).unwrap();
        let (found, rows) = table(&pids);
        assert_eq!((found, &*rows[0][9..].join(", ")), (Some(code), cells));
    }
    assert_eq!(table(&pids).1[0][4], "2001-09-09 01:46:41");
    let labels = labels.trim_end_matches('}');
    for (code, severity) in [(1, "warning"), (2, "critical")] {
        let trouble = format!(
            "keepwatch_trouble{labels},severity=\"{severity}\",trouble=\"a \\\"b\\\\\"}} 1\n"
        );
        fs::write(&metrics, trouble).unwrap();
        let (found, rows) = table(&pids);
        assert_eq!((found, &*rows[0][12]), (Some(code), "a \"b\\"));
    }

    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let hostile =
        setup.directory().join(OsStr::from_bytes(b"\xff\x1b\"\xe2\x80\xae\xf3\xa0\x80\x81"));
    fs::create_dir(&hostile).unwrap();
    fs::write(hostile.join("state"), "primary").unwrap();
    let (code, text) = output(&pids, program(&["--list", "--json"]));
    let unknown = r#""namespace": null, "agent": null, "hook": null, "split_brain": null"#;
    let directory = setup.directory().display();
    let remark = format!(r#"{unknown}, "remark": "stale: no running process writes {directory}/"#);
    let left = r#"{"name": "by hand", "interface": null, "vip": null, "state": "backup", "since": null, "pid": null, "#;
    for part in [
        left,
        &format!(r#"{remark}by hand/state"}}"#),
        &format!("{remark}\u{fffd}\\u001b\\\"\\u202e\\udb40\\udc01/state\"}}"),
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!((code, text.lines().count()), (Some(2), 3), "{text}");
    unbind(name);
}

#[apply(trial)]
fn conflicting_instances() {
    let (pids, world) = (Pids::new(), World::new());
    let first = pids.run(|| world.setup.start());
    let same_vip = setup();
    let second = pids.run(|| same_vip.start());
    let netns = Netns::new();
    let mut same_file = setup();
    same_file.conf_dir.clone_from(&world.setup.conf_dir);
    same_vip.expect(&[NO_AGENT]);
    // Both write the same log, and see each other's file if they live for ten seconds.
    for setup in [&world.setup, &same_file] {
        setup.expect(&[NO_AGENT, NO_INTERFACE, "another process writes the state file"]);
    }
    let third = netns.run(|| pids.run(|| same_file.start()));
    let (code, rows) = table(&pids);
    let remarks: Vec<_> = rows.iter().map(|row| [&*row[5], &row[12]]).collect();
    let [vip, file] =
        ["VIP", "state file"].map(|what| format!("same {what} as pid {}", pid(&first)));
    assert_eq!(remarks, [[&*pid(&first), "-"], [&pid(&second), &vip], [&pid(&third), &file]]);
    assert_eq!(code, Some(2));
}

/// As on a full disk: the state file is right, the figures are old or missing. The daemon is stopped meanwhile, which is
/// shown, too.
#[apply(trial)]
fn old_or_missing_metrics() {
    let pids = Pids::new();
    let (world, metrics) = world_with(setup());
    let keepwatch = pids.run(|| world.setup.start());
    metrics.wait("notifications_total", 1);
    keepwatch.signal(Signal::SIGSTOP);
    look("it to stop", || keepwatch.proc_status("State").starts_with('T'));
    let remark = || {
        let (code, rows) = table(&pids);
        assert_eq!(code, Some(2));
        rows[0].last().unwrap().clone()
    };
    let stopped = "stopped: its state may be old";
    assert_eq!(remark(), stopped);
    let text = content(&metrics.0);
    let (before, active) = text.split_once("keepwatch_active{").unwrap();
    let active = active.replacen("} 0", "} 1", 1);
    fs::write(&metrics.0, format!("{before}keepwatch_active{{{active}")).unwrap();
    let differs = remark();
    let expected = format!("{stopped}; the metrics have another state, of 20");
    assert!(differs.starts_with(&expected), "{differs}");
    fs::write(&metrics.0, text.replace("router_id=\"", "router_id=\"another")).unwrap();
    let missing = |why: &str| format!("{stopped}; no metrics: {}: {why}", metrics.0.display());
    assert_eq!(remark(), missing("another instance's"));
    fs::remove_file(&metrics.0).unwrap();
    assert_eq!(remark(), missing("No such file or directory (ENOENT)"));
    mkfifo(&metrics.0, Mode::S_IRWXU).unwrap();
    assert_eq!(remark(), missing("Invalid argument (EINVAL)"));
    keepwatch.signal(Signal::SIGCONT);
}

#[apply(trial)]
fn helper_that_outlives_its_daemon() {
    let (pids, hooked) = (Pids::new(), hooked(setup()));
    hooked.when("BACKUP", "sleep 1000 &");
    for _ in 0..2 {
        let keepwatch = pids.run(|| hooked.world.setup.start());
        wait_hook_succeeded(&keepwatch, "BACKUP", 1);
        let (code, rows) = table(&pids);
        assert_eq!((code, rows.len()), (Some(0), 1), "{rows:?}");
        keepwatch.terminate();
        fs::remove_file(hooked.world.setup.log_file()).unwrap();
    }
    assert_eq!(table(&pids), (Some(0), Vec::new()));
    let mut beside = setup();
    beside.conf_dir = hooked.world.setup.directory().join("beside");
    fs::create_dir(&beside.conf_dir).unwrap();
    beside.expect(&[NO_AGENT]);
    let _keepwatch = pids.run(|| beside.start());
    let (code, rows) = table(&pids);
    assert_eq!((code, &*rows[1][0], &*rows[1][3]), (Some(2), "conf", "backup"));
}

/// State files of packages are stale although another mount namespace has live ones under the same path.
#[apply(trial)]
fn stale_state_files_of_packages() {
    let script = r#"mount -t tmpfs none /run && mount -t tmpfs none /var/lib || exit
        unshare -m sh -c 'mount -t tmpfs none /run && mkdir -p /run/keepwatch/lan &&
            exec "$0" --foreground --no-announce --router_id=other --conf_dir=/var/run/keepwatch/lan \
            --monitor_interface=ha0 --monitor_cidr=fd00::1/64' "$0" >/dev/null 2>&1 &
        until [ -e /proc/$!/root/run/keepwatch/lan/state ]; do sleep 0.1; done
        for directory in /run/keepwatch/lan /var/lib/neutron/ha_confs/r1; do
            mkdir -p $directory && printf backup >$directory/state || exit
        done; exec "$0" --list"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(setup().program);
    let (code, text) = output(&Pids::new(), among(command, 0));
    for file in ["/run/keepwatch/lan/state", "/var/lib/neutron/ha_confs/r1/state"] {
        assert!(text.contains(&format!("  stale: no running process writes {file}\n")), "{text}");
    }
    let other = text.lines().find(|line| line.starts_with("other")).unwrap();
    assert!(other.contains("  backup  ") && other.ends_with("  -"), "{other}");
    assert_eq!(code, Some(2));
}

/// Renames a file all the time, which may keep the kernel from opening `..`.
fn while_files_are_renamed<R>(run: impl FnOnce() -> R) -> R {
    let directory = Directory::new();
    let [first, second] = &["a", "b"].map(|name| directory.path().join(name));
    fs::write(first, "").unwrap();
    let rename = || fs::rename(first, second).and_then(|()| fs::rename(second, first)).unwrap();
    while_repeating(rename, run)
}

/// Without a word about what is not searched, an incomplete list would look complete.
#[apply(trial)]
fn more_than_is_searched() {
    let files =
        "mkdir -p $(seq -f /run/keepwatch/%g COUNT) && cd /run/keepwatch && for directory in *; do
        printf backup >$directory/state; done";
    let directories = r"own=/run/neutron-keepalived-state-change; mkfifo /run/never
        printf '#!/bin/sh\nread x </run/never' >$own && chmod +x $own
        for n in $(seq COUNT); do mkdir -p /run/$n/r && printf backup >/run/$n/r/state
        $own --conf_dir=/run/$n/r >/dev/null 2>&1 & done; until [ $(cat /proc/[0-9]*/cmdline |
            tr '\0' '\n' | grep -c '^--conf_dir=/run/') = COUNT ]; do sleep 0.1; done";
    let unsearched = [
        (files, 2048, [2, 2], "too many stale state files: some are missing"),
        // Those of the packages and of Neutron count, too.
        (directories, 253, [0, 3], "too many directories: stale state files may be missing"),
    ];
    for (make, limit, codes, message) in unsearched {
        for (more, expected) in codes.into_iter().enumerate() {
            let (count, is_printed) = (limit + more, more > 0);
            let make = make.replace("COUNT", &count.to_string());
            let places = "mkdir -p /run/keepwatch /var/lib/neutron/ha_confs";
            let script = format!(
                "mount -t tmpfs none /run && mount -t tmpfs none /var/lib && {places} || exit
                {make}; exec \"$0\" --list 2>&1"
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]).arg(setup().program);
            let (code, text) = while_files_are_renamed(|| output(&Pids::new(), among(command, 0)));
            assert_eq!(text.ends_with(&format!("keepwatch: {message}\n")), is_printed, "{text}");
            assert_eq!(code, Some(expected), "{count}");
        }
    }
}

/// Its file is not stale: it is locked. What is unknown for good does not hide what is wrong.
#[apply(trial)]
fn instance_that_cannot_be_seen() {
    let (pids, world, mut hidden) = (Pids::new(), World::new(), setup());
    let keepwatch = pids.run(|| world.setup.start());
    hidden.conf_dir = world.setup.directory().join("hidden");
    fs::create_dir(&hidden.conf_dir).unwrap();
    hidden.expect(&[NO_AGENT, NO_INTERFACE]);
    let out_of_sight = hidden.start();
    let (code, rows) = table(&pids);
    let remark = format!("an unseen process writes {}/state", hidden.conf_dir.display());
    assert_eq!((code, rows[1].last()), (Some(3), Some(&remark)));
    stop(&keepwatch);
    let (code, rows) = table(&pids);
    assert_eq!((code, rows[1].last()), (Some(2), Some(&remark)));
    keepwatch.signal(Signal::SIGCONT);
    out_of_sight.terminate();
    let (code, rows) = table(&pids);
    let remark = format!("stale: no running process writes {}/state", hidden.conf_dir.display());
    assert_eq!((code, rows[1].last()), (Some(2), Some(&remark)));
}

/// On a narrow terminal, each instance is a block instead of a row.
#[apply(trial)]
fn narrow_terminal() {
    let (pids, world) = (Pids::new(), World::new());
    let _keepwatch = pids.run(|| world.setup.start());
    let mut command = program(&["--list"]);
    command.env("COLUMNS", "80");
    let (_, text) = output(&pids, command);
    let begin = format!("NAME         {}\nINTERFACE    ha0\n", world.setup.router);
    assert!(text.starts_with(&begin) && text.lines().count() == 14, "{text}");

    let size = Winsize { ws_row: 25, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let mut command = program(&["--list"]);
    command.stdout(terminal.slave);
    pids.run(|| command.status().unwrap());
    let line = format!("NAME         {}\r\n", world.setup.router);
    assert_eq!(read_line(File::from(terminal.master)), line);
}

/// Without root, unknown values are not troubles.
#[apply(trial_with_other_users)]
fn not_as_root() {
    let (pids, world) = (Pids::new(), World::new());
    let keepwatch = pids.run(|| world.setup.start());
    let mut command = Command::new(&world.setup.program);
    command.arg("--list");
    let output = pids.run(|| among(command, NOBODY).output().unwrap());
    let printed = "keepwatch: not root: instances of other users are missing or incomplete\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), printed);
    let text = String::from_utf8(output.stdout).unwrap();
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    let Setup { router, interface, vip, .. } = &world.setup;
    assert_eq!(row[..6], [router, interface, vip, "-", "-", &pid(&keepwatch)]);
    let remark = format!("{}/state: Permission denied (EACCES)", world.setup.conf_dir.display());
    assert_eq!(row[6..12], ["root", "-", "-", "-", "none", "-"]);
    assert!(text.ends_with(&format!("  {remark}\n")), "{text}");
    assert_eq!(output.status.code(), Some(3));
}

/// The first results are complete. A file system that hangs from then on does not take them away.
#[apply(trial)]
fn second_look_hangs() {
    let (pids, world) = (Pids::new(), World::new());
    let _keepwatch = pids.run(|| world.setup.start());
    let stale = world.setup.directory().join("stale");
    fs::create_dir(&stale).unwrap();
    fs::write(stale.join("state"), "backup").unwrap();
    let mut command = program(&["--list"]);
    let list = pids.run(|| command.stdout(Stdio::piped()).spawn().unwrap());
    let call = format!("/proc/{}/wchan", list.id());
    look("it to pause", || content(Path::new(&call)).contains("nanosleep"));
    // From logrotate.
    send(list.id(), Signal::SIGUSR2);
    let _server = mount_hanging(&stale);
    let output = list.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("stale: no running process writes "), "{text}");
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 3), "{text}");
}

/// An empty list would say that all is well.
#[apply(trial)]
fn too_few_descriptors() {
    let (pids, world) = (Pids::new(), World::new());
    let _keepwatch = pids.run(|| world.setup.start());
    for limit in 4..12 {
        let mut command = program(&["--list"]);
        limit_descriptors(&mut command, limit);
        let (code, text) = output(&pids, command);
        let is_complete = text.contains(&*world.setup.router);
        assert!(is_complete || code == Some(3), "with {limit}: {code:?}\n{text}");
    }
}
