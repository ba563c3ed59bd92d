//! Other users.

use std::fs;
use std::thread;

use nix::libc;
use nix::unistd::geteuid;

/// The user nobody.
pub const NOBODY: u32 = 65_534;
/// A user without a password entry.
pub const OTHER_USER: u32 = 12_345;

/// Whether the test can become another user, which an ordinary user's namespace does not have.
pub fn has_others() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let users = map.split_whitespace().nth(2).and_then(|count| count.parse().ok());
    geteuid().is_root() && users.is_some_and(|users: u32| users > NOBODY)
}

/// Runs a function as another user.
pub fn run_as<T: Send>(user: u32, f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let run = scope.spawn(move || {
            // SAFETY: a system call without pointers. Unlike libc's function it changes only this thread, which ends
            // here.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            assert_eq!(changed, 0, "setresuid needs root");
            f()
        });
        run.join().expect("a thread of another user")
    })
}
