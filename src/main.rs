//! The program: command line in, exit code out. What it does is in the library.

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use keepwatch::check;
use keepwatch::core::{Ending, Tables};
use keepwatch::options::{self, Command, Config};
use keepwatch::run::Daemon;
use keepwatch::sys::process::{self, Side, Starter};

/// Something does not work.
const FAILURE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;

/// Here, and not on the stack, of the announcer's memory only that is used which is needed.
static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

fn main() -> ExitCode {
    match options::parse(std::env::args_os().skip(1).collect()) {
        Ok(Command::Run(config)) => run(&config),
        Ok(Command::Check(config)) => check(&config),
        Ok(Command::Print(text)) => {
            // A reader that has gone away is no failure of ours.
            let _ = stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => complain(&error.0, USAGE),
    }
}

fn run(config: &Config) -> ExitCode {
    process::close_inherited();
    let side = if config.foreground {
        Starter::from_environment().map(Side::Daemon)
    } else {
        process::daemonize()
    };
    let mut starter = match side {
        Ok(Side::Daemon(starter)) => starter,
        Ok(Side::Parent(pipe)) => {
            return match process::await_daemon(pipe) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&error, FAILURE),
            };
        }
        Err(error) => return complain(&error, FAILURE),
    };
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    match Daemon::start(config, &mut starter, &mut tables).and_then(|mut daemon| daemon.run()) {
        Ok(Ending::Asked) => ExitCode::SUCCESS,
        Ok(Ending::NamespaceGone) => ExitCode::from(FAILURE),
        Err(error) => {
            starter.failed(&error);
            ExitCode::from(FAILURE)
        }
    }
}

fn check(config: &Config) -> ExitCode {
    let (report, works) = check::check(config);
    let _ = stdout().write_all(report.as_bytes());
    ExitCode::from(if works { 0 } else { FAILURE })
}

fn complain(error: &str, code: u8) -> ExitCode {
    let _ = writeln!(stderr(), "keepwatch: {error}");
    ExitCode::from(code)
}
