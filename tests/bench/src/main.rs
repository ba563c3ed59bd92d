//! Measures one program that watches one router, and prints CSV. `tests/bench/run` selects the program, and makes the
//! router's namespace, the tables and the picture.

mod counters;
mod descendants;
mod load;
mod observer;
mod trial;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use argh::FromArgs;
use lab::namespace::Netns;
use observer::Observer;
use trial::{Cores, Trial};

/// Measures one program that watches one router.
#[derive(Debug, FromArgs)]
pub struct Options {
    /// the router's namespace, below /run/netns, with an interface `ha0`
    #[argh(option)]
    namespace: String,
    /// the router's directory, which is recreated for each start, with a directory `conf` for the state file
    #[argh(option)]
    directory: PathBuf,
    /// the agent's socket
    #[argh(option)]
    socket: PathBuf,
    /// number of starts; the last one makes the changes
    #[argh(option, default = "10")]
    starts: usize,
    /// changes of the VIP
    #[argh(option, default = "100")]
    changes: usize,
    /// changes after memory was reclaimed
    #[argh(option, default = "10")]
    reclaimed: usize,
    /// changes while all cores are busy
    #[argh(option, default = "400")]
    loaded: usize,
    /// changes of the VIP that announce all `--addresses` of `lan0`, and as many with a change amid the announcements
    #[argh(option, default = "0")]
    announcements: usize,
    /// the number of addresses of `lan0`, whose peer is `lan0-peer`
    #[argh(option, default = "0")]
    addresses: usize,
    /// another file of the program, which is dropped from the cache when memory is reclaimed
    #[argh(option)]
    needs: Vec<PathBuf>,
    /// it takes milliseconds: sleep while waiting, and let it use all cores
    #[argh(switch)]
    slow: bool,
    /// it reports nothing before an address event
    #[argh(switch)]
    silent: bool,
    /// the program and its arguments
    #[argh(positional, greedy)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let options = argh::from_env();
    if !descendants::are_alone() {
        eprintln!("bench: must be process 1 of a PID namespace");
        return ExitCode::FAILURE;
    }
    let result = run(&options);
    descendants::kill_all();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let cores = Cores::new()?;
    Netns::named(&options.namespace).enter();
    cores.keep_to_ours()?;
    let mut observer = Observer::new(&options.socket)?;
    println!("phase,file_ms,agent_ms,first_ms,last_ms,cpu_ms,switches,system_calls,major_faults");
    for start in 1..=options.starts {
        let mut trial = Trial::start(options, &mut observer, &cores)?;
        if start == options.starts {
            trial.warm_up()?;
            trial.changes(options.changes)?;
            trial.after_reclaim(options.reclaimed)?;
            trial.announcements(options.announcements)?;
            trial.under_load(options.loaded, &cores)?;
        }
    }
    Ok(())
}
