//! The program: command line in, exit code out. What it does is in the library.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use keepwatch::check;
use keepwatch::daemon::Daemon;
use keepwatch::log::printable;
use keepwatch::monitor::{ExitReason, Tables};
use keepwatch::options::{self, CliAction, Config};
use keepwatch::sys::daemonize::{ForkSide, await_daemon, daemonize};
use keepwatch::sys::process;
use keepwatch::sys::service_manager::ReadinessNotifier;
use keepwatch::sys::signals;

/// Something does not work.
const FAILURE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;

/// For all of `--check`: twice what looking for the state may take.
const CHECK_LIMIT: Duration = Duration::from_secs(20);

/// In .bss and not on the stack, so that untouched pages cost no memory.
static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

fn main() -> ExitCode {
    signals::init();
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    if options::asks_for_check(&argv) {
        return check_within_limit(argv);
    }
    execute(argv)
}

/// A path on a file system that does not answer hangs already while the options are read.
fn check_within_limit(argv: Vec<OsString>) -> ExitCode {
    signals::unblock();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(execute(argv)));
    receiver.recv_timeout(CHECK_LIMIT).unwrap_or_else(|_| {
        fail(&format!("--check: not done after {} seconds", CHECK_LIMIT.as_secs()), FAILURE)
    })
}

fn execute(argv: Vec<OsString>) -> ExitCode {
    let command = options::parse(argv);
    if !matches!(command, Ok(CliAction::Run(_))) {
        signals::unblock();
    }
    match command {
        Ok(CliAction::Run(config)) => run(&config),
        Ok(CliAction::Check(config)) if check::check(&config) => ExitCode::SUCCESS,
        Ok(CliAction::Check(_)) => FAILURE.into(),
        Ok(CliAction::Print(text)) => {
            process::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.0, USAGE),
    }
}

fn run(config: &Config) -> ExitCode {
    process::close_inherited();
    let side = if config.foreground {
        ReadinessNotifier::from_environment().map(ForkSide::Daemon)
    } else {
        daemonize()
    };
    let mut starter = match side {
        Ok(ForkSide::Daemon(starter)) => starter,
        Ok(ForkSide::Parent(waiting)) => {
            return match await_daemon(waiting) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&error, FAILURE),
            };
        }
        Err(error) => return fail(&error, FAILURE),
    };
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    match Daemon::start(config, &mut starter, &mut tables).and_then(|mut daemon| daemon.run()) {
        Ok(ExitReason::Signal(_)) => ExitCode::SUCCESS,
        Ok(ExitReason::NamespaceGone | ExitReason::HelperGone(_)) => FAILURE.into(),
        Err(error) => {
            starter.failed(&printable(&error));
            FAILURE.into()
        }
    }
}

fn fail(error: &str, code: u8) -> ExitCode {
    process::print_error(&printable(error));
    code.into()
}
