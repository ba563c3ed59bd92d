//! Injects system calls into a running keepwatch, as an attacker who controls it could make them.

use nix::libc::c_long;
use nix::sys::ptrace::{self, AddressType, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::daemon::Running;

/// An argument of a system call.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    Number(i64),
    /// The address of these bytes, which are written to the process first.
    Bytes(&'a [u8]),
}

/// How far below the stack pointer the bytes are written, beyond anything in use.
const BELOW_STACK: u64 = 2048;

impl Running<'_> {
    /// Makes the process execute a system call before the next one of its own, and lets it go on. Returns the call's
    /// result, a negative errno if it failed, or none if a filter killed the process without a core dump.
    pub fn make_call(&self, call: c_long, arguments: &[Argument<'_>]) -> Option<i64> {
        let pid = self.nix_pid();
        stop_at_next_call(pid);
        let own = ptrace::getregs(pid).expect("its registers");
        let mut registers = own;
        registers.orig_rax = call.try_into().expect("the number of a call");
        let mut place = own.rsp - BELOW_STACK;
        let mut values = [0; 6];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match argument {
                Argument::Number(number) => number.cast_unsigned(),
                Argument::Bytes(bytes) => {
                    let start = place;
                    for word in bytes.chunks(8) {
                        let mut padded = [0; 8];
                        padded[..word.len()].copy_from_slice(word);
                        ptrace::write(pid, place as AddressType, i64::from_ne_bytes(padded))
                            .expect("to write to its stack");
                        place += 8;
                    }
                    start
                }
            };
        }
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
            values;
        ptrace::setregs(pid, registers).expect("to change its registers");
        // The kernel may or may not stop the process once more before the filter kills it.
        match resume(pid) {
            WaitStatus::Signaled(_, Signal::SIGSYS, false) => return None,
            stop => assert_eq!(stop, WaitStatus::PtraceSyscall(pid), "the end of {call}"),
        }
        let returned = ptrace::getregs(pid).expect("its registers").rax.cast_signed();
        // Go back to its own call, an instruction of two bytes.
        let again = nix::libc::user_regs_struct { rip: own.rip - 2, rax: own.orig_rax, ..own };
        ptrace::setregs(pid, again).expect("to change its registers");
        match resume(pid) {
            WaitStatus::Signaled(_, Signal::SIGSYS, false) => None,
            WaitStatus::PtraceSyscall(_) => {
                ptrace::detach(pid, None).expect("to let it go");
                Some(returned)
            }
            other => panic!("{other:?} after {call}"),
        }
    }

    /// Makes the process execute a system call of i386, by `int 0x80`, instead of the next one of its own. Returns
    /// whether it was killed for that: with SIGSYS by a filter, with SIGSEGV by a kernel without such calls.
    pub fn is_killed_by_i386_call(&self, call: u64) -> bool {
        let pid = self.nix_pid();
        stop_at_next_call(pid);
        let own = ptrace::getregs(pid).expect("its registers");
        let instruction = own.rip - 2;
        let at = instruction as AddressType;
        let word = ptrace::read(pid, at).expect("to read its code");
        ptrace::write(pid, at, word & !0xffff | 0x80cd).expect("to write its code");
        // Its own call becomes one without effect.
        let close = nix::libc::SYS_close.cast_unsigned();
        let nothing = nix::libc::user_regs_struct { orig_rax: close, rdi: u64::MAX, ..own };
        ptrace::setregs(pid, nothing).expect("to change its registers");
        assert_eq!(resume(pid), WaitStatus::PtraceSyscall(pid), "the end of that");
        // Not a call that the kernel would start again.
        let (rip, rax, orig_rax) = (instruction, call, u64::MAX);
        let other = nix::libc::user_regs_struct { rip, rax, orig_rax, ..own };
        ptrace::setregs(pid, other).expect("to change its registers");
        // The stops at the call's begin and end come first, also at the end of one that the filter kills for.
        let is_end = |status: &_| !matches!(status, WaitStatus::PtraceSyscall(_));
        let end = (0..3).map(|_| resume(pid)).find(is_end);
        if let Some(WaitStatus::Signaled(_, Signal::SIGSYS, false)) = end {
            return true;
        }
        ptrace::kill(pid).expect("to kill it");
        matches!(end, Some(WaitStatus::Stopped(_, Signal::SIGSEGV)))
    }
}

/// Stops a process before its next system call.
fn stop_at_next_call(pid: Pid) {
    ptrace::attach(pid).expect("to trace keepwatch");
    assert_eq!(wait(pid), WaitStatus::Stopped(pid, Signal::SIGSTOP));
    ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD)
        .expect("to distinguish calls from signals");
    assert_eq!(resume(pid), WaitStatus::PtraceSyscall(pid), "its next call");
}

pub(crate) fn resume(pid: Pid) -> WaitStatus {
    ptrace::syscall(pid, None).expect("to let it run to its next stop");
    wait(pid)
}

pub(crate) fn wait(pid: Pid) -> WaitStatus {
    waitpid(pid, Some(WaitPidFlag::__WALL)).expect("a stopped program")
}
