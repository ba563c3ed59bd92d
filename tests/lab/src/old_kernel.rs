//! Simulated older kernels: a seccomp filter makes a system call or a socket option fail, or `/proc` is missing.

use std::io;
use std::iter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::sched::{CloneFlags, unshare};

use crate::namespace::mount_tmpfs;

/// Makes `setsockopt(level, option)` fail with `ENOPROTOOPT` in the started program.
pub fn without_option(command: &mut Command, level: libc::c_int, option: libc::c_int) {
    let arguments = [(1, level), (2, option)];
    fail_call(command, libc::SYS_setsockopt, &arguments, libc::ENOPROTOOPT);
}

/// Makes a system call fail with `ENOSYS` in the started program.
pub fn without_call(command: &mut Command, call: libc::c_long) {
    fail_call(command, call, &[], libc::ENOSYS);
}

/// Makes a system call fail with `EPERM` in the started program, like a container whose filter is older than the call.
pub fn refused_call(command: &mut Command, call: libc::c_long) {
    fail_call(command, call, &[], libc::EPERM);
}

/// Makes `prctl(PR_SET_SECCOMP)` fail with `EINVAL` in the started program.
pub fn without_seccomp(command: &mut Command) {
    fail_call(command, libc::SYS_prctl, &[(0, libc::PR_SET_SECCOMP)], libc::EINVAL);
}

/// Makes a system call with these arguments, given by position and low half, fail with this errno.
fn fail_call(
    command: &mut Command,
    call: libc::c_long,
    arguments: &[(u32, libc::c_int)],
    errno: libc::c_int,
) {
    // Offsets in struct seccomp_data: nr 0, args 16, each of 64 bits.
    let low = if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut filter = Vec::new();
    let tests =
        arguments.iter().map(|(place, value)| (16 + 8 * place + low, value.cast_unsigned()));
    for (offset, value) in iter::once((0, call as u32)).chain(tests) {
        filter.extend([
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset),
            // Skips the next instruction if equal.
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, value),
            statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ]);
    }
    let errno = libc::SECCOMP_RET_ERRNO | errno.cast_unsigned();
    filter.push(statement(libc::BPF_RET | libc::BPF_K, 0, errno));
    // SAFETY: between fork and exec it makes two system calls, on data of its own.
    unsafe {
        command.pre_exec(move || install(&mut filter));
    }
}

/// Hides `/proc` from the started program.
pub fn without_proc(command: &mut Command) {
    // SAFETY: between fork and exec it makes two system calls.
    unsafe {
        command.pre_exec(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount_tmpfs(Path::new("/proc"))
        });
    }
}

fn install(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions live until the call returns.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if installed { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn statement(code: u32, jt: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf: 0, k }
}
