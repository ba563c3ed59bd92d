//! keepwatch with an allocator that is forbidden once the daemon is set up.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use keepwatch::daemon::Daemon;
use keepwatch::monitor::{ExitReason, Tables};
use keepwatch::options::{self, CliAction};
use keepwatch::start::process::close_all_but;
use keepwatch::start::service_manager;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::malloc::forbid;

static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

/// Runs like the program's own `main`, in the foreground.
pub fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).collect();
    let Ok(CliAction::Run(config)) = options::parse(arguments) else { return ExitCode::from(2) };
    allocate_on(Signal::SIGWINCH);
    close_all_but(None);
    let mut starter = service_manager::from_environment().expect("no service manager");
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = Daemon::start(&config, &mut starter, &mut tables, false);
    let (mut daemon, _) = daemon.expect("to start");
    forbid(true);
    let ending = daemon.run();
    forbid(false);
    drop(daemon);
    ExitCode::from(u8::from(!matches!(ending, ExitReason::Signal(_))))
}

/// Makes a signal allocate, to prove that allocations in the loop are noticed.
fn allocate_on(signal: Signal) {
    extern "C" fn allocate(signal: i32) {
        std::hint::black_box(format!("signal {signal}"));
    }
    let action = SigAction::new(SigHandler::Handler(allocate), SaFlags::empty(), SigSet::empty());
    #[expect(unsafe_code, reason = "a signal handler")]
    // SAFETY: the handler allocates on purpose, which ends the process.
    unsafe { sigaction(signal, &action) }.expect("to catch a signal");
}
