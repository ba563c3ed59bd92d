//! `--check` and the start have the same exit code and error, for any command line and any files.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use lab::namespace::Pids;
use lab::users::{NOBODY, OTHER_USER};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};

use crate::world::{copy_program, setup};

/// Options to choose from. With most of them alone, the daemon starts.
const OPTIONS: [&str; 16] = [
    "--detect-split-brain",
    "--enable_conntrackd",
    "--namespace=nowhere",
    "--namespace=/etc/passwd",
    "--namespace=/proc/self/ns/net",
    "--user=nobody",
    "--user=nobody",
    "--user=12345 --group=12345",
    "--hook=HOOK",
    "--hook=HOOK --hook-user=nobody",
    "--hook=HOOK --hook-user=12345",
    "--metrics-file=/nowhere/metrics",
    "--metrics-file=/LONG/metrics",
    "--keepalived-pid-file=/LONG/pid",
    "--log-file=/nowhere/log",
    "--foreground=no",
];

const OWNERS: [u32; 3] = [0, OTHER_USER, NOBODY];

/// What exists at a path.
#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    Fifo,
    Directory,
    Symlink,
    File { owner: u32, mode: u32, is_locked: bool },
}

const FOUND: [Found; 14] = [
    Found::Nothing,
    Found::Nothing,
    Found::Nothing,
    Found::Nothing,
    Found::Nothing,
    Found::Nothing,
    Found::Fifo,
    Found::Directory,
    Found::Symlink,
    Found::File { owner: 0, mode: 0o600, is_locked: false },
    Found::File { owner: 0, mode: 0o644, is_locked: false },
    Found::File { owner: NOBODY, mode: 0o644, is_locked: false },
    Found::File { owner: OTHER_USER, mode: 0o644, is_locked: false },
    Found::File { owner: 0, mode: 0o644, is_locked: true },
];

impl Found {
    /// Creates it. Returns the locked file.
    fn put(self, path: &Path) -> Option<File> {
        match self {
            Self::Nothing => {}
            Self::Fifo => mkfifo(path, Mode::S_IRWXU).unwrap(),
            Self::Directory => fs::create_dir(path).unwrap(),
            Self::Symlink => symlink("/etc/passwd", path).unwrap(),
            Self::File { owner, mode, is_locked } => {
                let file = File::create(path).unwrap();
                own(path, owner, mode);
                if is_locked {
                    file.lock().unwrap();
                }
                return Some(file);
            }
        }
        None
    }
}

fn own(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), None).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The starter; owner and mode of the directories and of the hook; what exists as pid file, log and state file; the
/// options.
type Case = (u32, [(u32, u32); 3], [Found; 3], Vec<&'static str>);

#[apply(trial_with_other_users)]
fn check_agrees_with_start() {
    let owned = || (select(&OWNERS[..]), select(&[0o755, 0o755, 0o777, 0o1777, 0o700, 0o555][..]));
    let found = || select(&FOUND[..]);
    let cases = (
        select(&[0, 0, 0, OTHER_USER][..]),
        [owned(), owned(), owned()],
        [found(), found(), found()],
        subsequence(OPTIONS.to_vec(), 0..4),
    );
    let more = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config::with_cases(more.unwrap_or(100));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..config });
    let same = runner.run(&cases, |case| {
        assert_same(&case);
        Ok(())
    });
    same.unwrap();
}

fn assert_same((starter, owned, found, options): &Case) {
    // The daemon ends before its files are removed.
    let (setup, pids) = (setup(), Pids::new());
    let [program, hook] = ["keepwatch", "hook"].map(|name| setup.directory().join(name));
    copy_program(&setup, &program);
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    let run = setup.directory().join("run");
    fs::create_dir(&run).unwrap();
    let pid_file = run.join("pid");
    let paths = [&pid_file, &setup.log_file(), &setup.state_file()];
    let _locks: Vec<_> = found.iter().zip(paths).map(|(found, path)| found.put(path)).collect();
    for ((owner, mode), path) in owned.iter().zip([&run, &setup.conf_dir, &hook]) {
        own(path, *owner, *mode);
    }
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(setup.command().get_args()).arg(format!("--pid_file={}", pid_file.display()));
        let options = options.join(" ").replace("HOOK", hook.to_str().unwrap());
        let options = options.replace("LONG", &"a".repeat(300));
        command.arg("--no-announce").args(options.split_whitespace()).args(words);
        command.uid(*starter).gid(*starter);
        let output = pids.run(|| command.output().unwrap());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let check = run(&["--check"]);
    assert_eq!(check, run(&[]));
}
