//! Makes a system call of a program, or of a process that it forks, fail once.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;

use nix::errno::Errno;
use nix::libc::{self, SYS_close, SYS_munmap, SYS_rt_sigprocmask, c_long, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A call of a process: its number, and how many of its kind precede it.
pub type Place = (&'static str, c_long, u32);

/// What happens at a place. Without an error, the process is killed.
pub type Fault = (Place, Option<Errno>);

/// What is known of the processes of a life.
#[derive(Debug, Default)]
pub struct Traced {
    pub counts: BTreeMap<(&'static str, c_long), u32>,
    pub alive: HashMap<Pid, &'static str>,
    pub ended: Vec<(&'static str, WaitStatus)>,
    pub has_struck: bool,
    pub is_over: bool,
}

/// Returns the name of a process by that of its parent.
fn child_of(parent: &str, is_first: bool) -> &'static str {
    match (parent, is_first) {
        ("starter", _) => "session",
        ("session", _) => "daemon",
        ("daemon", true) => "conntrackd helper",
        ("daemon", false) => "hook helper",
        ("conntrackd helper", _) => "command",
        _ => "run",
    }
}

/// Runs a command and its descendants to their ends, up to the programs that they execute.
pub fn trace(mut command: Command, fault: Option<Fault>, traced: &Mutex<Traced>) {
    // SAFETY: one system call between fork and exec.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    let first = Pid::from_raw(command.spawn().unwrap().id().cast_signed());
    let flags = Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD);
    waitpid(first, flags).unwrap();
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(first, options).unwrap();
    traced.lock().unwrap().alive.insert(first, "starter");
    // Those inside a call, with what it is to return. Children that have stopped before their parents.
    let (mut inside, mut early) = (HashMap::new(), HashSet::new());
    // The dynamic linker's calls are not the program's.
    let mut has_begun = false;
    let mut forks = 0;
    let mut next = Some((first, None));
    // Only processes that may have the fault stop at each call, and none after it.
    let is_past = Cell::new(false);
    let resume = |pid, name: &str, signal| {
        let is_meant = !is_past.get() && fault.is_none_or(|((whose, ..), _)| whose == name);
        // ESRCH: it has been killed.
        let _ = if is_meant { ptrace::syscall(pid, signal) } else { ptrace::cont(pid, signal) };
    };
    loop {
        if let Some((pid, signal)) = next.take() {
            let name = traced.lock().unwrap().alive.get(&pid).copied();
            resume(pid, name.unwrap_or_default(), signal);
        }
        let Ok(status) = waitpid(None, flags) else { break };
        let pid = status.pid().unwrap();
        let mut traced = traced.lock().unwrap();
        next = Some((pid, None));
        match status {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => {
                if pid != first {
                    let _ = ptrace::detach(pid, None);
                    traced.alive.remove(&pid);
                    next = None;
                }
            }
            WaitStatus::PtraceEvent(..) => {
                let child = Pid::from_raw(ptrace::getevent(pid).unwrap() as i32);
                forks += u32::from(traced.alive[&pid] == "daemon");
                let name = child_of(traced.alive[&pid], forks == 1);
                traced.alive.insert(child, name);
                if early.remove(&child) {
                    resume(child, name, None);
                }
            }
            WaitStatus::PtraceSyscall(_) => {
                let Ok(mut registers) = ptrace::getregs(pid) else { continue };
                if let Some(result) = inside.remove(&pid) {
                    if let Some(result) = result {
                        let _ = ptrace::setregs(pid, result);
                        is_past.set(true);
                    }
                    continue;
                }
                let call = registers.orig_rax.cast_signed();
                let name = traced.alive[&pid];
                has_begun |= name != "starter" || call == SYS_rt_sigprocmask;
                if !has_begun {
                    inside.insert(pid, None);
                    continue;
                }
                let count = traced.counts.entry((name, call)).or_default();
                let place = (name, call, *count);
                *count += 1;
                let Some((_, error)) = fault.filter(|(at, _)| *at == place) else {
                    inside.insert(pid, None);
                    continue;
                };
                traced.has_struck = true;
                let Some(error) = error else {
                    kill(pid, Signal::SIGKILL).unwrap();
                    next = None;
                    continue;
                };
                let result = user_regs_struct { rax: -i64::from(error as i32) as u64, ..registers };
                inside.insert(pid, Some(result));
                // These have an effect also if they fail.
                if ![SYS_close, SYS_munmap].contains(&call) {
                    // A call without effect, which the filter allows.
                    (registers.orig_rax, registers.rdi) = (SYS_close as u64, u64::MAX);
                    ptrace::setregs(pid, registers).unwrap();
                }
            }
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {
                if !traced.alive.contains_key(&pid) {
                    early.insert(pid);
                    next = None;
                }
            }
            WaitStatus::Stopped(_, signal) => next = Some((pid, Some(signal))),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                inside.remove(&pid);
                if let Some(name) = traced.alive.remove(&pid) {
                    traced.ended.push((name, status));
                }
                // Their parents have been killed.
                if traced.alive.is_empty() {
                    for pid in early.drain() {
                        let _ = kill(pid, Signal::SIGKILL);
                    }
                }
                next = None;
            }
            other => panic!("{other:?}"),
        }
    }
    traced.lock().unwrap().is_over = true;
}
