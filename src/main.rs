//! The program: command line in, exit code out. The library does the rest.

use std::env::{args_os, var};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use keepwatch::daemon::Daemon;
use keepwatch::hand_over::hand_over;
use keepwatch::log::printable;
use keepwatch::monitor::{ExitReason, Tables};
use keepwatch::options::{self, CliAction, Config};
use keepwatch::start::daemonize::daemonize;
use keepwatch::start::{self, StartError, process, service_manager};
use keepwatch::sys::signals;
use keepwatch::{check, list};
use nix::unistd::alarm;

/// Exit code of a temporary failure.
const FAILURE: u8 = 1;
/// Exit code of a wrong command line.
const USAGE: u8 = 2;
/// Exit code of a failure that lasts until an administrator mends it: `EX_CONFIG` of `sysexits(3)`, after which the packages'
/// service files do not restart the daemon.
const CONFIGURATION: u8 = 78;

/// Seconds after which SIGALRM ends `--check` and `--list`.
const CHECK_LIMIT: u32 = 20;

/// In .bss, so that untouched pages cost no memory.
static TABLES: Mutex<Tables> = Mutex::new(Tables::new());

fn main() -> ExitCode {
    signals::init();
    let mut argv = args_os();
    let program = argv.next().unwrap_or_default();
    let argv: Vec<_> = argv.collect();
    // As a hook, with any arguments. Otherwise it answers --help and --version.
    if Path::new(&program).ends_with("hand-over")
        && let (Ok(id), Ok(state)) = (var("KEEPWATCH_ROUTER_ID"), var("KEEPWATCH_STATE"))
    {
        return hand_over(&id, &state).map_or_else(|error| fail(&error, FAILURE), ExitCode::from);
    }
    if argv.iter().any(|word| word == "--check" || word == "--list") {
        // Parsing the options can already block on a dead mount.
        signals::unblock_all_but_usr2();
        alarm::set(CHECK_LIMIT);
    }
    let command = options::parse(argv);
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(command, Ok(CliAction::Run(_))) {
        signals::unblock_all_but_usr2();
    }
    match command {
        Ok(CliAction::Run(config)) => {
            // "--check" was another option's value.
            alarm::cancel();
            run(&config, &mut tables)
        }
        Ok(CliAction::Check(config)) => match check::check(&config, &mut tables) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if config.foreground => fail(&error.line, exit_code(&error)),
            // A daemon's parent exits with this for any error.
            Err(error) => fail(&error.line, FAILURE),
        },
        Ok(CliAction::List(json)) => list::list(json).into(),
        Ok(CliAction::Print(text)) => {
            process::print(&text, FAILURE);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, if options::may_pass() { FAILURE } else { USAGE }),
    }
}

fn run(config: &Config, tables: &mut Tables) -> ExitCode {
    process::close_all_but(None);
    if let Some(warning) = start::check_log(config) {
        process::print_error(&warning);
    }
    let starter = if config.foreground {
        service_manager::from_environment().map(Some)
    } else {
        daemonize(|failure| process::print_error(&printable(failure)))
    };
    let mut starter = match starter {
        Ok(Some(starter)) => starter,
        // This is the parent, and the daemon is ready.
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return fail(&error, FAILURE),
    };
    let daemon = Daemon::start(config, &mut starter, tables, false);
    match daemon.map(|(mut daemon, _)| daemon.run()) {
        Ok(ExitReason::Signal(_)) => ExitCode::SUCCESS,
        Ok(_) => FAILURE.into(),
        Err(error) => {
            starter.failed(&printable(&error.line));
            exit_code(&error).into()
        }
    }
}

fn exit_code(error: &StartError) -> u8 {
    if error.lasts { CONFIGURATION } else { FAILURE }
}

fn fail(error: &str, code: u8) -> ExitCode {
    process::print_error(&printable(error));
    code.into()
}
