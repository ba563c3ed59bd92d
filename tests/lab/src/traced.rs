//! Stopping a program between two of its steps.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::libc::c_long;
use nix::sys::ptrace;
use nix::unistd::Pid;

use crate::inject::{resume, wait};

/// A program that has been stopped.
#[derive(Debug)]
pub struct Stopped(Child);

/// Starts a program and stops it when it has made this system call for the first time.
pub fn spawn_up_to(command: &mut Command, call: c_long) -> Stopped {
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    let stopped = Stopped(command.spawn().expect("to start the program"));
    let pid = stopped.pid();
    wait(pid);
    while ptrace::getregs(pid).expect("its registers").orig_rax != call.cast_unsigned() {
        resume(pid);
    }
    // From before the call to after it.
    resume(pid);
    stopped
}

impl Stopped {
    /// Lets it go on.
    pub fn go_on(self) -> Child {
        ptrace::detach(self.pid(), None).expect("to let it go");
        self.0
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().expect("a pid"))
    }
}
