//! `--list` with processes of other users, who can imitate an instance.

#![cfg(target_arch = "x86_64")]

use std::fs;
use std::iter::repeat_with;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::files::{Directory, Watch};
use lab::namespace::Pids;
use lab::users::OTHER_USER;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::list::{among, output, table};
use crate::world::{Killed, World, copy_program, mount_hanging, setup};

/// A process of another user cannot hide a dead instance, make root read a file of root's, or take the list away.
#[apply(trial_with_other_users)]
fn instances_of_another_user() {
    let (pids, world) = (Pids::new(), World::new());
    let _keepwatch = pids.run(|| world.setup.start());
    let elsewhere = Directory::new();
    let theirs = elsewhere.path().join("theirs");
    let [program, dead, metrics] = ["neutron-keepalived-state-change", "dead", "metrics"]
        .map(|name| world.setup.directory().join(name));
    copy_program(&world.setup, &program);
    let start = |directory: &Path| {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("state"), "backup").unwrap();
        let mut command = Command::new(&program);
        command.args(["--router_id=r1", "--monitor_interface=ha1", "--monitor_cidr=192.0.2.1"]);
        command.arg(format!("--conf_dir={}", directory.display())).arg("--foreground");
        command.arg(format!("--metrics-file={}", metrics.display())).arg("--no-announce");
        command.uid(OTHER_USER).stderr(Stdio::null());
        command
    };
    let mut command = start(&dead);
    let _stopped = pids.run(|| {
        let stopped = lab::traced::spawn_up_to(&mut command, nix::libc::SYS_chdir);
        kill(stopped.pid(), Signal::SIGSTOP).unwrap();
        Killed(stopped.go_on())
    });
    let mut command = start(&theirs);
    chown(&theirs, Some(OTHER_USER), None).unwrap();
    let files = Watch::new(&theirs);
    let _running = Killed(pids.run(|| command.spawn().unwrap()));
    let is_theirs =
        || fs::metadata(theirs.join("state")).is_ok_and(|file| file.uid() == OTHER_USER);
    files.until("a state", || is_theirs().then_some(()));
    fs::remove_file(&program).unwrap();

    let figures = r#"keepwatch_split_brain{router_id="r1",interface="ha1",vip="192.0.2.1/32"} 1"#;
    let link = world.setup.directory().join("link");
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("yes", &|| chown(&metrics, Some(OTHER_USER), None).unwrap()),
        ("-", &|| {
            fs::rename(&metrics, &link).unwrap();
            symlink(&link, &metrics).unwrap();
        }),
        ("-", &|| {
            fs::remove_file(&metrics).unwrap();
            mkfifo(&metrics, Mode::S_IRWXU).unwrap();
        }),
        ("-", &|| ()),
    ];
    for (split_brain, make) in kinds {
        let _ = fs::remove_file(&metrics);
        fs::write(&metrics, figures).unwrap();
        make();
        let (code, rows) = table(&pids);
        let [_, stale, instance] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!([&*instance[0], &instance[3], &instance[6]], ["r1", "backup", "12345"]);
        assert_eq!(instance[11], split_brain);
        let replaced = "program was replaced: restart the instance";
        let refused = format!("no metrics: {}: ", metrics.display());
        assert_eq!(instance[12].starts_with(&refused), split_brain == "-", "{}", instance[12]);
        assert!(instance[12].ends_with(replaced), "{}", instance[12]);
        let remark = format!("stale: no running process writes {}/state", dead.display());
        assert_eq!([&*stale[0], &stale[12]], ["dead", &remark]);
        assert_eq!(code, Some(2));
    }

    let _server = mount_hanging(&theirs);
    let (code, rows) = table(&pids);
    assert_eq!((code, rows.len(), &*rows[0][0]), (Some(2), 2, &*world.setup.router));
}

/// It was started by 1.0.0, which took more characters.
#[apply(trial)]
fn router_id_that_would_be_refused() {
    let (pids, world) = (Pids::new(), World::new());
    fs::write(world.setup.state_file(), "backup").unwrap();
    let mut command = Command::new(&world.setup.program);
    command.args(["--router_id=lan/a", "--monitor_interface=ha1", "--monitor_cidr=192.0.2.1"]);
    command.arg(format!("--conf_dir={}", world.setup.conf_dir.display()));
    let _stopped = pids.run(|| {
        // Before it reads its options.
        let stopped = lab::traced::spawn_up_to(&mut command, nix::libc::SYS_set_tid_address);
        kill(stopped.pid(), Signal::SIGSTOP).unwrap();
        Killed(stopped.go_on())
    });
    let (_, rows) = table(&pids);
    let [instance] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!([&*instance[0], &instance[3]], ["lan/a", "backup"]);
}

/// Runs `--list` as root after a script, in a PID namespace with a `/run` of its own, where `/run/keepwatch-own` is the program and
/// `as_other` runs a command as another user. Returns the exit code and standard output.
fn list_after(script: &str) -> (Option<i32>, String) {
    let script = format!(
        "mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mkdir /run/keepwatch || exit
        install -m 755 \"$0\" /run/keepwatch-own
        as_other() {{ setpriv --reuid={OTHER_USER} --regid={OTHER_USER} --clear-groups \"$@\"; }}
        # PID WORD: waits until a process has this word in its command line.
        starts() {{ until tr '\\0' '\\n' </proc/$1/cmdline | grep -qe \"$2\"; do sleep 0.1; done; }}
        dead() {{ mkdir -p $1 && printf backup >$1/state; }}
        # NAME [COMMAND...]: starts an instance in /run/keepwatch by the command, and waits for its state.
        watch() {{
            name=$1; shift
            \"$@\" /run/keepwatch-own --foreground --no-announce --router_id=$name --conf_dir=/run/keepwatch/$name \
                --monitor_interface=lo --monitor_cidr=fd00::1/64 >/dev/null 2>&1 &
            until [ -e /run/keepwatch/$name/state ]; do sleep 0.1; done
        }}
        {script}"
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).arg(setup().program);
    output(&Pids::new(), among(command, 0))
}

/// A setuid program is root's, but its command line is another user's. A process of root's that is no script is not the
/// original, whatever its name.
#[apply(trial_with_other_users)]
fn dead_instance_is_not_hidden() {
    for run in ["as_other bash -c", "bash -c"] {
        let (code, text) = list_after(&format!(
            "dead /run/keepwatch/lan; link=/run/neutron-keepalived-state-change
            install -m 4755 $(readlink -f /bin/sleep) /run/sleep; ln -s sleep $link
            {run} \"exec -a 'x --conf_dir=/run/keepwatch/lan' $link 1000\" >/dev/null 2>&1 & starts $! --conf_dir
            exec $0 --list"
        ));
        let remark = "stale: no running process writes /run/keepwatch/lan/state\n";
        assert!(code == Some(2) && text.ends_with(remark), "{run}: {code:?} {text}");
    }
}

/// What another user claims is in rows below, and neither in the exit code nor in other rows.
#[apply(trial_with_other_users)]
fn claims_of_strangers() {
    const WATCH: &str =
        "--foreground --no-announce --monitor_interface=lo --monitor_cidr=fd00::1/64";
    let (code, text) = list_after(&format!(
        "install -d -o {OTHER_USER} /run/user /run/user/theirs
        as_other /run/keepwatch-own {WATCH} --router_id=theirs --conf_dir=/run/user/theirs >/dev/null 2>&1 &
        install -d -o {OTHER_USER} /run/keepwatch/given
        as_other /run/keepwatch-own {WATCH} --router_id=given --conf_dir=/run/keepwatch/given >/dev/null 2>&1 &
        mkdir /run/ours; /run/keepwatch-own {WATCH} --router_id=ours --conf_dir=/run/ours >/dev/null 2>&1 &
        until [ -e /run/user/theirs/state ] && [ -e /run/keepwatch/given/state ] && [ -e /run/ours/state ]; do
            sleep 0.1
        done; exec $0 --list"
    ));
    let rows: Vec<Vec<_>> =
        text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let [.., last] = &rows[..] else { panic!("{text}") };
    let [first, second] =
        ["given", "ours"].map(|name| rows.iter().find(|row| row[0] == name).unwrap());
    let claims = |row: &[&str]| row.join(" ").contains("same VIP as pid");
    // Those of an instance for whose user root has made the directory count, like those of root's.
    assert!(claims(first) != claims(second), "{text}");
    assert_eq!(
        (last[0], last[6], *last.last().unwrap(), code),
        ("theirs", "12345", "-", Some(2)),
        "{text}"
    );
}

/// In root's directory, which a group may write to, the user of an instance owns only the state file.
#[apply(trial_with_other_users)]
fn directory_of_root() {
    let (code, text) = list_after(&format!(
        "install -d -g {OTHER_USER} -m 775 /run/keepwatch/lan; watch lan as_other
        $0 --list 2>&1 && pkill -STOP -x keepwatch-own
        printf x >/run/keepwatch/lan/state; exec $0 --list 2>&1"
    ));
    assert_eq!((code, text.lines().count()), (Some(2), 4), "{text}");
    assert!(text.ends_with("/run/keepwatch/lan/state: Invalid argument (EINVAL)\n"), "{text}");
}

/// A process that is not shown is not one that has ended.
#[apply(trial_with_other_users)]
fn processes_that_are_hidden() {
    let (code, text) = list_after(
        "mount -t proc -o hidepid=ptraceable proc /proc; mkdir /run/keepwatch/lan; watch lan
        exec setpriv --bounding-set=-sys_ptrace $0 --list 2>&1",
    );
    let line =
        "keepwatch: no right to look into processes (CAP_SYS_PTRACE): instances are incomplete\n";
    assert!(code == Some(3) && text.ends_with(line) && !text.contains("stale"), "{code:?} {text}");
}

/// Another user's long command lines take no time.
#[apply(trial_with_other_users)]
fn long_command_lines() {
    let (pids, world) = (Pids::new(), World::new());
    let _keepwatch = pids.run(|| world.setup.start());
    world.agent.wait_acknowledged("backup");
    let program = world.setup.directory().join("keepwatch-long");
    copy_program(&world.setup, &program);
    let _stopped: Vec<_> = pids.run(|| {
        let start = || {
            let mut command = Command::new(&program);
            command.args(vec!["--hook-env="; 2600]).args(vec!["-d"; 10_000]).uid(OTHER_USER);
            let stopped = lab::traced::spawn_up_to(&mut command, nix::libc::SYS_set_tid_address);
            kill(stopped.pid(), Signal::SIGSTOP).unwrap();
            Killed(stopped.go_on())
        };
        repeat_with(start).take(20).collect()
    });
    let (code, rows) = table(&pids);
    assert_eq!((code, rows.len()), (Some(0), 1), "{rows:?}");
}

/// Many imitations neither fill the list of directories, nor does a rename of any file.
#[apply(trial_with_other_users)]
fn many_strangers() {
    let (code, text) = list_after(&format!(
        "own=/run/neutron-keepalived-state-change; mkfifo -m 666 /run/never
        printf '#!/bin/sh\\nread x </run/never' >$own && chmod +x $own
        for n in $(seq 300); do dead /run/$n/r && chown {OTHER_USER} /run/$n/r /run/$n
            as_other $own --conf_dir=/run/$n/r >/dev/null 2>&1 &
        done; until [ $(cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^--conf_dir=/run/') = 300 ]
        do sleep 0.1; done; exec $0 --list 2>&1"
    ));
    assert_eq!((code, &*text), (Some(0), "No instance found.\n"));
}

/// A state file that root may not read has its reason on standard error.
#[apply(trial_with_other_users)]
fn state_that_may_not_be_read() {
    let (code, text) = list_after(&format!(
        "install -d -o {OTHER_USER} -m 700 /run/keepwatch/given; watch given as_other
        exec setpriv --bounding-set=-dac_override,-dac_read_search $0 --list 2>&1 >/dev/null"
    ));
    let reason = "keepwatch: /run/keepwatch/given/state: Permission denied (EACCES)\n";
    assert_eq!((code, &*text), (Some(3), reason));
}

/// In a user namespace of its own a process can mount a file system that never answers: nothing is opened there.
#[apply(trial_with_other_users)]
fn instance_in_a_user_namespace() {
    let (code, text) = list_after(&format!(
        "install -d -o {OTHER_USER} /run/user /run/user/theirs
        as_other unshare --user --map-root-user /run/keepwatch-own --foreground --no-announce --router_id=theirs \
            --monitor_interface=lo --monitor_cidr=fd00::1/64 --conf_dir=/run/user/theirs >/dev/null 2>&1 &
        until [ -e /run/user/theirs/state ]; do sleep 0.1; done; exec $0 --list"
    ));
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((code, row[0], row[3]), (Some(0), "theirs", "-"), "{text}");
    assert!(text.ends_with("/run/user/theirs/state: Permission denied (EACCES)\n"), "{text}");
}
