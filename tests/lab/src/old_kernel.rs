//! A kernel that knows less: a seccomp filter that refuses a system call or a socket option, as
//! kernels do that have never heard of it; and one that shows less.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::sched::{CloneFlags, unshare};

use crate::namespace::mount_tmpfs;

/// Makes `setsockopt(level, option)` fail with `ENOPROTOOPT` in the program that is started.
pub fn without_option(command: &mut Command, level: libc::c_int, option: libc::c_int) {
    // Offsets in struct seccomp_data: nr 0, args 16, each of 64 bits, of which the low half counts.
    let low = if cfg!(target_endian = "big") { 4 } else { 0 };
    let filter = [
        load(0),
        go_on_if(libc::SYS_setsockopt as u32, 5),
        load(16 + 8 + low),
        go_on_if(word(level), 3),
        load(16 + 16 + low),
        go_on_if(word(option), 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | word(libc::ENOPROTOOPT)),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    install_in(command, filter);
}

/// Makes a system call fail with `ENOSYS` in the program that is started.
pub fn without_call(command: &mut Command, call: libc::c_long) {
    fail_call(command, call, libc::ENOSYS);
}

/// Makes a system call fail with `EPERM` in the program that is started, as containers do whose filter is older
/// than the call.
pub fn refused_call(command: &mut Command, call: libc::c_long) {
    fail_call(command, call, libc::EPERM);
}

/// Makes a system call return 0 and do nothing in the program that is started.
pub fn without_effect(command: &mut Command, call: libc::c_long) {
    fail_call(command, call, 0);
}

fn fail_call(command: &mut Command, call: libc::c_long, errno: libc::c_int) {
    let filter = [
        load(0),
        go_on_if(call as u32, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | word(errno)),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    install_in(command, filter);
}

/// Makes a system call never return in the program that is started, as one that waits for a file system
/// whose server is gone.
pub fn hanging(command: &mut Command, call: libc::c_long) {
    let mut filter = [
        load(0),
        go_on_if(call as u32, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its instructions live until the call returns.
        let listener = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            )
        };
        // The program has the listener itself, and never answers. The copy outlives exec.
        // SAFETY: takes nothing but the number.
        if unsafe { libc::dup(listener as libc::c_int) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls only, on data of its own.
    unsafe { command.pre_exec(install) };
}

/// Makes `prctl(PR_SET_SECCOMP)` fail with `EINVAL` in the program that is started.
pub fn without_seccomp(command: &mut Command) {
    let low = if cfg!(target_endian = "big") { 4 } else { 0 };
    let filter = [
        load(0),
        go_on_if(libc::SYS_prctl as u32, 3),
        load(16 + low),
        go_on_if(word(libc::PR_SET_SECCOMP), 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | word(libc::EINVAL)),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    install_in(command, filter);
}

/// Keeps `/proc` from the program that is started.
pub fn without_proc(command: &mut Command) {
    // SAFETY: between fork and exec it makes two system calls.
    unsafe {
        command.pre_exec(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount_tmpfs(Path::new("/proc"))
        });
    }
}

fn install_in<const N: usize>(command: &mut Command, mut filter: [libc::sock_filter; N]) {
    // SAFETY: between fork and exec it makes two system calls, on data of its own.
    unsafe {
        command.pre_exec(move || install(&mut filter));
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

fn word(value: libc::c_int) -> u32 {
    u32::from_ne_bytes(value.to_ne_bytes())
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// To the next instruction if equal, else over as many as `otherwise`.
fn go_on_if(value: u32, otherwise: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: 0, jf: otherwise, k: value }
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
