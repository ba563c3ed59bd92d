//! The program: command line in, exit code out. What it does is in the library.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use keepwatch::check;
use keepwatch::daemon::Daemon;
use keepwatch::list;
use keepwatch::log::printable;
use keepwatch::monitor::{ExitReason, Tables};
use keepwatch::options::{self, CliAction, Config};
use keepwatch::sys::daemonize::daemonize;
use keepwatch::sys::process;
use keepwatch::sys::service_manager::ReadinessNotifier;
use keepwatch::sys::signals;
use nix::unistd::alarm;

/// Something does not work.
const FAILURE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;

/// An instance is dead, or contradicts another.
const TROUBLE: u8 = 3;

/// Seconds after which SIGALRM ends `--check` and `--list`.
const CHECK_LIMIT: u32 = 20;

/// In .bss and not on the stack, so that untouched pages cost no memory.
static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

fn main() -> ExitCode {
    signals::init();
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    if argv.iter().any(|word| word == "--check" || word == "--list") {
        // What reads the options already waits for a file system that is gone, until it is killed.
        signals::unblock();
        alarm::set(CHECK_LIMIT);
    }
    execute(argv)
}

fn execute(argv: Vec<OsString>) -> ExitCode {
    let command = options::parse(argv);
    if !matches!(command, Ok(CliAction::Run(_))) {
        signals::unblock();
    }
    match command {
        Ok(CliAction::Run(config)) => {
            // It was the value of an option.
            alarm::cancel();
            run(&config)
        }
        Ok(CliAction::Check(config)) if check::check(&config) => ExitCode::SUCCESS,
        Ok(CliAction::Check(_)) => FAILURE.into(),
        Ok(CliAction::List(json)) if list::list(json) => ExitCode::SUCCESS,
        Ok(CliAction::List(_)) => TROUBLE.into(),
        Ok(CliAction::Print(text)) => {
            process::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, USAGE),
    }
}

fn run(config: &Config) -> ExitCode {
    process::close_inherited();
    let starter = if config.foreground {
        ReadinessNotifier::from_environment().map(Some)
    } else {
        daemonize()
    };
    let mut starter = match starter {
        Ok(Some(starter)) => starter,
        // The daemon is up.
        Ok(None) => return ExitCode::SUCCESS,
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
