//! Stops programs at a system call, and reuses the pid of a process that has ended.

use std::fs::File;
use std::mem;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;

use nix::errno::Errno;
use nix::libc::{self, c_long};
use nix::sched::{CloneFlags, setns};
use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::files::look;
use crate::inject::{resume, wait};

/// A stopped program.
#[derive(Debug)]
pub struct Stopped(Child);

/// Starts a program and stops it after its first call of this kind.
pub fn spawn_up_to(command: &mut Command, call: c_long) -> Stopped {
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    let stopped = Stopped(command.spawn().expect("to start the program"));
    wait(stopped.pid());
    stopped.go_on_up_to(call);
    stopped
}

/// Stops a process before a call for whose number and arguments the condition holds. Runs the closure, and lets the
/// process go on.
pub fn at_call(pid: Pid, mut is_it: impl FnMut(u64, [u64; 2]) -> bool, then: impl FnOnce()) {
    ptrace::attach(pid).expect("to trace a process");
    wait(pid);
    loop {
        resume(pid);
        let registers = ptrace::getregs(pid).expect("its registers");
        if is_it(registers.orig_rax, [registers.rdi, registers.rsi]) {
            break;
        }
    }
    then();
    // ESRCH: it has been killed.
    let detached = ptrace::detach(pid, None);
    assert!(matches!(detached, Ok(()) | Err(Errno::ESRCH)), "{detached:?}");
}

impl Stopped {
    /// Lets it go on to the exit of the next such call.
    pub fn go_on_up_to(&self, call: c_long) {
        let pid = self.pid();
        resume(pid);
        while ptrace::getregs(pid).expect("its registers").orig_rax != call.cast_unsigned() {
            resume(pid);
        }
        // From the entry of the call.
        resume(pid);
    }

    /// Lets it go on.
    pub fn go_on(self) -> Child {
        ptrace::detach(self.pid(), None).expect("to let it go");
        self.0
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().expect("a pid"))
    }
}

/// Starts an idle process with this pid in the PID namespace of another process, as soon as the pid is free.
pub fn start_as(number: i32, neighbour: u32) -> Pid {
    let namespace = File::open(format!("/proc/{neighbour}/ns/pid")).expect("a PID namespace");
    let numbers = [number];
    let start = move || {
        setns(namespace, CloneFlags::CLONE_NEWPID).expect("to enter the PID namespace");
        // SAFETY: all zeroes are valid arguments.
        let mut arguments: libc::clone_args = unsafe { mem::zeroed() };
        arguments.exit_signal = libc::SIGCHLD as u64;
        (arguments.set_tid, arguments.set_tid_size) = (numbers.as_ptr() as u64, 1);
        let mut process = -1;
        look("a free number", || {
            let size = size_of_val(&arguments);
            // SAFETY: as fork(2); the new process only waits.
            process = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
            if process == 0 {
                // SAFETY: system calls without pointers. The process handles no signals, so the wait has no end.
                unsafe { libc::pause() };
                std::process::abort();
            }
            process > 0
        });
        Pid::from_raw(process as i32)
    };
    thread::spawn(start).join().expect("a thread that starts a process")
}
