//! Promise 13: a hostile configuration gains nothing that its owner could not do without it. The program that
//! stands in for conntrackd does what one could do that such a configuration has taken over.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use lab::daemon::{Running, Setup};
use lab::files::content;
use lab::trial::with_other_users;
use lab::users::{NOBODY, SOMEBODY};
use libtest_mimic::Trial;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::conntrackd::Tracked;
use crate::conntrackd_process::{only_child, processes};
use crate::hook_process::wait_exec;
use crate::world::setup;

pub fn trials() -> Vec<Trial> {
    with_other_users(lab::trials![
        mounts,
        user_of_the_daemon,
        owner_of_the_directory,
        owner_of_the_file,
        owner_of_a_file_elsewhere,
        link_by_way_of_somebody,
        what_is_no_configuration,
        directory_in_anothers_place,
        directory_that_comes_again,
    ])
    .collect()
}

const SECRET: &str = "hidden-in-a-file-of-root";

/// Tries everything, and says what has come of it. `$2` is the configuration.
const INTRUDER: &str = r#"
cd "${2%/*}"
echo "user $(id -u) $(id -G)"
while read -r line; do echo "configuration $line"; done <"$2"
for file in /etc/shadow @/secret ./secret; do
    if cat $file; then echo "broken in: read $file"; fi
done
for file in @/written ./written ./conntrackd.conf; do
    if echo >>$file; then echo "broken in: wrote $file"; fi
done
for directory in / /usr /usr/bin /etc; do
    if [ -w $directory ]; then echo "broken in: could write to $directory"; fi
done
for socket in @/socket ./other.ctl /run /proc/1 /sys/kernel /dev/mem; do
    if [ -e $socket ]; then echo "broken in: sees $socket"; fi
done
if [ -S ./conntrackd.ctl ]; then echo "sees the control socket"; fi
for fd in 3 4 5 6 7 8 9; do
    if true 2>/dev/null <&$fd; then echo "broken in: descriptor $fd"; fi
done
if unshare -r true; then echo "broken in: other namespaces"; fi
if [ "$(ulimit -c)" != 0 ]; then echo "broken in: core"; fi
for file in /* /etc/* /dev/*; do echo "there is $file"; done
"#;

/// Somebody's directory, with a configuration that names the socket in it, and much that is root's.
struct Hostile {
    tracked: Tracked,
    _sockets: Vec<UnixListener>,
}

impl Hostile {
    fn new(setup: Setup) -> Self {
        let tracked = Tracked::with(setup);
        let setup = &tracked.world.setup;
        let sockets = [
            setup.conf_dir.join("conntrackd.ctl"),
            setup.conf_dir.join("other.ctl"),
            setup.directory().join("socket"),
        ];
        let sockets = sockets.iter().map(|path| UnixListener::bind(path).unwrap()).collect();
        for secret in [setup.conf_dir.join("secret"), setup.directory().join("secret")] {
            fs::write(&secret, SECRET).unwrap();
            fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        }
        let ctl = setup.conf_dir.join("conntrackd.ctl");
        fs::write(setup.conf_dir.join("conntrackd.conf"), format!("Path {}\nend\n", ctl.display()))
            .unwrap();
        let intruder = INTRUDER.replace('@', setup.directory().to_str().unwrap());
        let program = tracked.record.join("conntrackd");
        fs::write(
            &program,
            format!("#!/bin/sh\necho \"called $*\"\nif [ $3 = -n ]; then {intruder} fi\n"),
        )
        .unwrap();
        Self { tracked, _sockets: sockets }
    }

    /// It was run as `user`, who has got nowhere.
    fn assert_shut_in(&self, keepwatch: &Running<'_>, user: u32) {
        let setup = &self.tracked.world.setup;
        self.tracked.wait_synced(keepwatch, "backup");
        let log = setup.log();
        let directory = setup.conf_dir.display();
        for line in [
            &format!("conntrackd: called -C {directory}/conntrackd.conf -t\n"),
            &format!("conntrackd: user {user} {user}\n"),
            &format!("conntrackd: configuration Path {directory}/conntrackd.ctl\n"),
            "conntrackd: configuration end\n",
            "conntrackd: sees the control socket\n",
        ] {
            assert!(log.contains(line), "{line} in {log}");
        }
        assert!(!log.contains("discarded"), "{log}");
        assert!(!log.contains("broken in") && !log.contains(SECRET), "{log}");
        assert_eq!(keepwatch.counter("command_failures"), 0);
        let there =
            log.lines().filter_map(|line| line.split_once("there is ")).map(|(_, path)| path);
        for path in there {
            let expected = ["/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix"]
                .into_iter()
                .chain(["/sbin", "/tmp", "/usr", "/dev/null", "/etc/ld.so.cache"])
                .chain(["/etc/localtime", "/etc/nsswitch.conf", "/etc/protocols"])
                .any(|expected| expected == path);
            assert!(expected, "{path}");
        }
        assert!(!setup.conf_dir.join("written").exists());
    }
}

/// All that is to be seen is read-only, no program in it changes its user, and from where the sockets are none is
/// executed.
fn mounts() {
    let tracked = Tracked::new();
    fs::write(tracked.record.join("conntrackd"), "#!/bin/sh\nexec sleep 1000\n").unwrap();
    let setup = &tracked.world.setup;
    chown(&setup.conf_dir, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let keepwatch = setup.start();
    let program = only_child(processes(&keepwatch)[1]);
    wait_exec(program, "sleep\n");
    let mounts = content(&PathBuf::from(format!("/proc/{program}/mountinfo")));
    let mut seen = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let options: Vec<_> = fields[5].split(',').collect();
        let expected: &[_] = match fields[4] {
            "/" => &["ro", "nosuid", "nodev"],
            "/.sockets" => &["ro", "nosuid", "nodev", "noexec"],
            _ => &["ro", "nosuid"],
        };
        assert!(expected.iter().all(|option| options.contains(option)), "{line}");
        seen.push(fields[4]);
    }
    assert!(
        ["/", "/.sockets", "/usr", "/dev/null"].iter().all(|path| seen.contains(path)),
        "{mounts}"
    );
}

fn user_of_the_daemon() {
    let hostile = Hostile::new(setup().with("--user=nobody").with("--group=nogroup"));
    let setup = &hostile.tracked.world.setup;
    for directory in [&setup.conf_dir, &setup.state_path] {
        chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(&setup.conf_dir, Permissions::from_mode(0o700)).unwrap();
    let keepwatch = setup.start();
    hostile.assert_shut_in(&keepwatch, NOBODY);
    assert!(keepwatch.proc_status("Uid").starts_with("65534"));
}

fn owner_of_the_directory() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    chown(&setup.conf_dir, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    hostile.assert_shut_in(&setup.start(), SOMEBODY);
}

/// In a directory of root's.
fn owner_of_the_file() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    let file = setup.conf_dir.join("conntrackd.conf");
    chown(&file, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    hostile.assert_shut_in(&setup.start(), SOMEBODY);
    chown(&file, Some(0), Some(0)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o646)).unwrap();
    fs::remove_file(setup.log_file()).unwrap();
    hostile.assert_shut_in(&setup.start(), NOBODY);
}

/// Whatever its name is. By a path that could lead out of where it is shut in it is not used at all.
fn owner_of_a_file_elsewhere() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    let theirs = setup.directory().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let ctl = theirs.join("conntrackd.ctl");
    let _socket = UnixListener::bind(&ctl).unwrap();
    fs::write(theirs.join("own.conf"), format!("Path {}\n", ctl.display())).unwrap();
    chown(&theirs, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let start = |path: &str| {
        let _ = fs::remove_file(setup.log_file());
        let option = format!("--conntrackd-conf={}/{path}", setup.directory().display());
        let keepwatch = setup.adopt(&setup.command().arg(option).output().unwrap());
        hostile.tracked.wait_synced(&keepwatch, "backup");
        setup.log()
    };
    let log = start("theirs/own.conf");
    for line in [
        format!("conntrackd: called -C {}/own.conf -n\n", theirs.display()),
        format!("conntrackd: user {SOMEBODY} {SOMEBODY}\n"),
        format!("conntrackd: configuration Path {}\n", ctl.display()),
        "conntrackd: sees the control socket\n".into(),
    ] {
        assert!(log.contains(&line), "{line} in {log}");
    }
    assert!(!log.contains("broken in") && !log.contains(SECRET), "{log}");
    let log = start("theirs/../theirs/own.conf");
    let refused = "conntrackd -n: not started: cannot be confined: Invalid argument (EINVAL)\n";
    assert!(log.contains(refused) && !log.contains("called"), "{log}");
}

/// In a directory of root's, and so is the file, but somebody says which file it is.
fn link_by_way_of_somebody() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    let file = setup.conf_dir.join("conntrackd.conf");
    let theirs = setup.directory().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::rename(&file, theirs.join("file")).unwrap();
    symlink(theirs.join("file"), &file).unwrap();
    chown(&theirs, Some(SOMEBODY), None).unwrap();
    let keepwatch = setup.start();
    keepwatch.wait_log("not started: configuration: ", 1);
}

/// Puts something into the configuration's place.
type Put<'a> = &'a dyn Fn(&PathBuf);

fn what_is_no_configuration() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    chown(&setup.conf_dir, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let file = setup.conf_dir.join("conntrackd.conf");
    let too_much = |path: &PathBuf| fs::write(path, vec![b' '; (1 << 16) + 1]).unwrap();
    let root_only = |path: &PathBuf| {
        fs::write(path, SECRET).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    };
    let put: [(Put<'_>, &str); 6] = [
        (&|path| symlink("secret", path).unwrap(), "(ELOOP)"),
        (&|path| symlink("/etc/shadow", path).unwrap(), "(ELOOP)"),
        (&root_only, "Permission denied (EACCES)"),
        (&|path| mkfifo(path, Mode::S_IRWXU | Mode::S_IROTH).unwrap(), "not permitted (EPERM)"),
        (&|path| fs::create_dir(path).unwrap(), "not permitted (EPERM)"),
        (&too_much, "File too large (EFBIG)"),
    ];
    for (put, error) in put {
        let _ = fs::remove_file(&file).or_else(|_| fs::remove_dir(&file));
        let _ = fs::remove_file(setup.log_file());
        put(&file);
        let keepwatch = setup.start();
        hostile.tracked.wait_synced(&keepwatch, "backup");
        let log = setup.log();
        assert!(log.contains("conntrackd -t: not started: configuration: "), "{log}");
        assert!(log.contains(&format!("{error}\n")) && !log.contains("called"), "{error} in {log}");
        assert!(!log.contains(SECRET) && !log.contains("root:"), "{log}");
    }
}

/// The owner of the directory above has another one take its place, with sockets that are not his.
fn directory_in_anothers_place() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    chown(&setup.conf_dir, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let keepwatch = setup.start();
    hostile.assert_shut_in(&keepwatch, SOMEBODY);
    let others = setup.directory().join("others");
    fs::create_dir(&others).unwrap();
    fs::copy(setup.conf_dir.join("conntrackd.conf"), others.join("conntrackd.conf")).unwrap();
    fs::rename(&setup.conf_dir, setup.directory().join("aside")).unwrap();
    symlink(&others, &setup.conf_dir).unwrap();
    hostile.tracked.world.set_vip(true);
    hostile.tracked.world.agent.wait_acknowledged("master");
    let log = setup.directory().join("aside").join(setup.log_file().file_name().unwrap());
    let refused = "conntrackd -B: not started: configuration: Operation not permitted (EPERM)\n";
    lab::files::Watch::new(&setup.directory().join("aside"))
        .until(refused, || setup.log_in(&log).contains(refused).then_some(()));
    assert!(!content(&log).contains("called -C -c"));
}

/// As the state file does, a command takes what has the directory's name by now.
fn directory_that_comes_again() {
    let hostile = Hostile::new(setup());
    let setup = &hostile.tracked.world.setup;
    chown(&setup.conf_dir, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let keepwatch = setup.start();
    hostile.assert_shut_in(&keepwatch, SOMEBODY);
    let aside = setup.directory().join("aside");
    fs::rename(&setup.conf_dir, &aside).unwrap();
    fs::create_dir(&setup.conf_dir).unwrap();
    chown(&setup.conf_dir, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    fs::write(setup.conf_dir.join("conntrackd.conf"), "other\n").unwrap();
    hostile.tracked.world.set_vip(true);
    let log = aside.join(setup.log_file().file_name().unwrap());
    let synced = "Synced connection tracking state on primary";
    lab::files::Watch::new(&aside)
        .until(synced, || setup.log_in(&log).contains(synced).then_some(()));
    let line = format!("called -C {}/conntrackd.conf -B\n", setup.conf_dir.display());
    assert!(setup.log_in(&log).contains(&line));
}
