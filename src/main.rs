//! The program: command line in, exit code out. What it does is in the library.

#![no_main]
#![expect(unsafe_code, reason = "called by the C library")]

use std::ffi::{OsString, c_char, c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use keepwatch::check;
use keepwatch::daemon::Daemon;
use keepwatch::log::printable;
use keepwatch::monitor::{ExitReason, Tables};
use keepwatch::options::{self, CliAction, Config};
use keepwatch::sys::daemonize::{ForkSide, await_daemon, daemonize};
use keepwatch::sys::process;
use keepwatch::sys::readiness::ReadinessNotifier;
use keepwatch::sys::signals;

/// All is well.
const SUCCESS: c_int = 0;
/// Something does not work.
const FAILURE: c_int = 1;
/// The command line is wrong.
const USAGE: c_int = 2;

/// Seconds for all of `--check`: twice what looking for the state may take.
const CHECK_LIMIT: c_uint = 20;

/// In .bss and not on the stack, so that untouched pages cost no memory.
static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

/// Called by the C library and not by Rust's own start, which brings 10 kB of code to say that the
/// stack has overflown, before the same signal ends the process.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: this is the start of the program, and these are its arguments.
    let argv = match unsafe { process::init_runtime(count, words) } {
        Ok(argv) => argv,
        Err(error) => return fail(&error, FAILURE),
    };
    // A path on a file system that does not answer hangs already while the options are read.
    if options::asks_for_check(&argv) {
        return match process::run_limited(CHECK_LIMIT, || execute(argv)) {
            Ok(Some(code)) => code,
            Ok(None) => fail(&format!("--check: not done after {CHECK_LIMIT} seconds"), FAILURE),
            Err(errno) => fail(&format!("--check: {errno}"), FAILURE),
        };
    }
    execute(argv)
}

fn execute(argv: Vec<OsString>) -> c_int {
    let command = options::parse(argv);
    if !matches!(command, Ok(CliAction::Run(_))) {
        signals::unblock();
    }
    match command {
        Ok(CliAction::Run(config)) => run(&config),
        Ok(CliAction::Check(config)) => check(&config),
        Ok(CliAction::Print(text)) => {
            process::print(&text);
            SUCCESS
        }
        Err(error) => fail(&error.0, USAGE),
    }
}

fn run(config: &Config) -> c_int {
    process::close_inherited();
    let side = if config.foreground {
        ReadinessNotifier::from_environment().map(ForkSide::Daemon)
    } else {
        daemonize()
    };
    let mut starter = match side {
        Ok(ForkSide::Daemon(starter)) => starter,
        Ok(ForkSide::Parent(waiting)) => {
            return match await_daemon(&waiting) {
                Ok(()) => SUCCESS,
                Err(error) => fail(&error, FAILURE),
            };
        }
        Err(error) => return fail(&error, FAILURE),
    };
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    match Daemon::start(config, &mut starter, &mut tables).and_then(|mut daemon| daemon.run()) {
        Ok(ExitReason::Signal(_)) => SUCCESS,
        Ok(ExitReason::NamespaceGone) => FAILURE,
        Err(error) => {
            starter.failed(&printable(&error));
            FAILURE
        }
    }
}

// Were it part of `main`, its stack would be the daemon's, for as long as that runs.
#[inline(never)]
fn check(config: &Config) -> c_int {
    if check::check(config) { SUCCESS } else { FAILURE }
}

fn fail(error: &str, code: c_int) -> c_int {
    process::print_error(&printable(error));
    code
}
