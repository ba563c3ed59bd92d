//! Promise 20: the user as whom the hook runs.

#![expect(unsafe_code, reason = "keyrings")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::thread;

use lab::daemon::{Setup, proc_status, wait_end};
use lab::files::content;
use lab::namespace::mount_over;
use lab::users::{NOBODY, OTHER_USER};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::scripted::{HOOK_TIMED_OUT, Scripted, helper, hooked, wait_hook_succeeded};
use crate::world::setup;

/// Returns a world with a hook that records its user, groups and capabilities.
fn identified(setup: Setup) -> Scripted {
    let hooked = hooked(setup);
    for directory in [&hooked.record, &hooked.world.setup.conf_dir, &hooked.world.setup.state_path]
    {
        chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let script = "echo $(id -u) $(id -g) $(id -G) >$RECORD/identity
        grep -E '^(Cap|NoNewPrivs)' /proc/self/status >$RECORD/rights";
    hooked.when("BACKUP", script);
    hooked
}

/// Adds groups to `/etc/group` as the calling thread and its children see it.
fn add_groups(hooked: &Scripted) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let file = hooked.world.setup.directory().join("group");
    let groups = content(Path::new("/etc/group"));
    let more = "keepwatch-one:x:54001:nobody\nkeepwatch-two:x:54002:root,nobody\n";
    fs::write(&file, groups + more + "keepwatch-three:x:54003:nobodys\n").unwrap();
    mount_over(Path::new("/etc/group"), &file).unwrap();
}

fn assert_identity(hooked: &Scripted, identity: &str) {
    assert_eq!(content(&hooked.record.join("identity")), identity);
    let rights = content(&hooked.record.join("rights"));
    let right = |name: &str| rights.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    for set in ["CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"] {
        assert_eq!(right(set), "0".repeat(16), "{set}");
    }
    // As with `su`, it may change its user by a setuid program.
    assert_eq!(right("NoNewPrivs:\t"), "0");
}

#[apply(trial_with_other_users)]
fn user_of_the_hook() {
    let hooked = identified(setup().with("--hook-user=nobody"));
    let setup = &hooked.world.setup;
    let start = || {
        add_groups(&hooked);
        setup.daemonize()
    };
    let keepwatch = thread::scope(|scope| scope.spawn(start).join().unwrap());
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    assert_identity(&hooked, "65534 65534 65534 54001 54002\n");
    assert!(keepwatch.proc_status("Uid").starts_with("0\t"));
    // The helper has the same user, and only the capability to kill the hook.
    let (ids, kill) = (["65534"; 4].join("\t"), "0000000000000020".to_owned());
    for (field, value) in [("Uid", &ids), ("Gid", &ids), ("CapPrm", &kill), ("CapEff", &kill)] {
        assert_eq!(proc_status(helper(&keepwatch), field), *value, "{field}");
    }
}

/// A starter that is not root gives the daemon the capabilities that it needs.
#[apply(trial_with_other_users)]
fn capabilities_of_the_starter() {
    let hooked = identified(setup());
    let setup = &hooked.world.setup;
    chown(setup.directory(), Some(NOBODY), None).unwrap();
    let needed = "+net_raw,+setgid,+setuid,+sys_admin";
    let [inherited, ambient] = ["inh", "ambient"].map(|set| format!("--{set}-caps={needed}"));
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let setpriv = [&["setpriv"][..], &user, &[&inherited, &ambient]].concat();
    let keepwatch = setup.adopt(&setup.command_behind(&setpriv).output().unwrap());
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    assert_identity(&hooked, "65534 65534 65534\n");
}

#[apply(trial_with_other_users)]
fn user_of_the_daemon() {
    for (group, identity) in [("", "65534 65534 65534\n"), ("54321", "65534 54321 54321\n")] {
        let mut setup = setup().with("--user=nobody");
        if !group.is_empty() {
            setup = setup.with(format!("--group={group}"));
        }
        let hooked = identified(setup);
        chown(hooked.world.setup.directory(), Some(NOBODY), None).unwrap();
        let keepwatch = hooked.world.setup.start();
        wait_hook_succeeded(&keepwatch, "BACKUP", 1);
        assert_identity(&hooked, identity);
    }
}

/// A hook of another user possesses no key of the session in which root has started the daemon.
#[apply(trial_with_other_users)]
fn keys_of_roots_session() {
    const NAME: &str = "keepwatch-secret";
    let hooked = identified(setup().with("--hook-user=nobody"));
    hooked.when("BACKUP", "cat /proc/keys >$RECORD/keys; echo end >>$RECORD/keys");
    let mut own = String::new();
    let start = || {
        let name = format!("{NAME}\0");
        let (join, session) = (libc::KEYCTL_JOIN_SESSION_KEYRING, libc::KEY_SPEC_SESSION_KEYRING);
        // SAFETY: the strings end with NUL, and the payload has one byte.
        let key = unsafe {
            assert!(libc::syscall(libc::SYS_keyctl, join, std::ptr::null::<u8>()) > 0);
            let (kind, payload) = (c"user".as_ptr(), c"x".as_ptr());
            libc::syscall(libc::SYS_add_key, kind, name.as_ptr(), payload, 1_usize, session)
        };
        assert!(key > 0, "{}", std::io::Error::last_os_error());
        own = fs::read_to_string("/proc/keys").unwrap();
        hooked.world.setup.daemonize()
    };
    let keepwatch = thread::scope(|scope| scope.spawn(start).join().unwrap());
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    assert!(own.contains(NAME), "{own}");
    let keys = content(&hooked.record.join("keys"));
    assert!(keys.ends_with("end\n") && !keys.contains(NAME), "{keys}");
}

/// A child that has become root by a setuid program is killed, too.
#[apply(trial_with_other_users)]
fn setuid_child_is_killed() {
    assert_killed("");
}

/// Also outside of the program's process group, where /proc hides it.
#[apply(trial_with_other_users)]
fn hidden_child_is_killed() {
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), Some("hidepid=2")).unwrap();
    assert_killed("timeout 1000 ");
}

fn assert_killed(prefix: &str) {
    let hooked = identified(setup().with("--hook-user=nobody").with("--hook-timeout=0.5"));
    let setpriv = hooked.world.setup.directory().join("setpriv");
    fs::copy("/usr/bin/setpriv", &setpriv).unwrap();
    fs::set_permissions(&setpriv, Permissions::from_mode(0o4755)).unwrap();
    let become_root = format!(
        "{prefix}{} --reuid=0 --regid=0 --clear-groups sh -c \
            'echo $(id -ru) $$ >$RECORD/root; mv $RECORD/BACKUP $RECORD/once; exec sleep 1000'",
        setpriv.display()
    );
    hooked.when("BACKUP", &become_root);
    let keepwatch = hooked.world.setup.start();
    let path = hooked.record.join("root");
    hooked.wait("root", || content(&path).ends_with('\n'));
    let pid = content(&path).trim().strip_prefix("0 ").unwrap().parse().unwrap();
    // CAP_KILL
    assert_eq!(proc_status(helper(&keepwatch), "CapPrm"), "0000000000000020");
    keepwatch.wait_log(HOOK_TIMED_OUT, 1);
    wait_end(pid);
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
}

/// The program is refused only at start. Later it may have been repaired.
#[apply(trial_with_other_users)]
fn program_that_the_user_may_not_run() {
    let hooked = identified(setup().with("--hook-user=nobody"));
    // The interpreter of a script reads it.
    for mode in [0o700, 0o711] {
        fs::set_permissions(hooked.program(), Permissions::from_mode(mode)).unwrap();
        let output = hooked.world.setup.run();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.ends_with("/hook: Permission denied (EACCES)\n"), "{error}");
    }
    // An owner other than root matters only if root runs it.
    chown(hooked.program(), Some(OTHER_USER), None).unwrap();
    fs::set_permissions(hooked.program(), Permissions::from_mode(0o755)).unwrap();
    let keepwatch = hooked.world.setup.daemonize();
    wait_hook_succeeded(&keepwatch, "BACKUP", 1);
    fs::set_permissions(hooked.program(), Permissions::from_mode(0o700)).unwrap();
    hooked.world.deliver(true);
    let line = "hook failed for MASTER: not started: Permission denied (EACCES), as user 65534; retrying\n";
    keepwatch.wait_log(line, 1);
}

/// The hook's user may also open its output by name.
#[apply(trial_with_other_users)]
fn output_by_name() {
    for user in ["--user=nobody", "--hook-user=nobody"] {
        let hooked = identified(setup().with(user));
        chown(hooked.world.setup.directory(), Some(NOBODY), None).unwrap();
        hooked.when("BACKUP", "set -e; echo one >/dev/stdout; echo two >/dev/stderr; echo three");
        let keepwatch = hooked.world.setup.start();
        wait_hook_succeeded(&keepwatch, "BACKUP", 1);
        for line in ["one", "two", "three"] {
            keepwatch.wait_log(&format!(": hook: {line}\n"), 1);
        }
    }
}
