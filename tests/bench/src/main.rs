//! keepwatch beside the generations that it replaces, and beside the floor, in one run:
//! `tests/bench/run` makes everything ready for it.

mod bars;
mod candidate;
mod counters;
mod descendants;
mod fail_over;
mod figures;
mod fleet;
mod load;
mod machine;
mod observer;
mod picture;
mod profile;
mod report;
mod router;
mod size;
mod statistics;
mod svg;
mod trial;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use argh::FromArgs;

use candidate::{Candidate, Kind};
use fail_over::FailOver;
use figures::{Figures, Run};
use observer::{Observer, Stopped};
use router::{ROOT, Router};
use trial::{Cores, Trial};

/// Compares keepwatch with what it replaces, and with the least that could do the work.
#[derive(Debug, FromArgs)]
pub struct Options {
    /// the floor
    #[argh(option)]
    floor: PathBuf,
    /// keepwatch as built for this machine, stripped
    #[argh(option)]
    keepwatch: PathBuf,
    /// keepwatch as a static program, stripped
    #[argh(option)]
    keepwatch_static: Option<PathBuf>,
    /// the virtual environment of the shell generation
    #[argh(option)]
    shell: PathBuf,
    /// the virtual environment of the Python generation
    #[argh(option)]
    python: PathBuf,
    /// routers of the Python generation at the same time, at most; default 10
    #[argh(option, default = "10")]
    python_routers: usize,
    /// how often each candidate has its turn; default 5
    #[argh(option, default = "5")]
    runs: usize,
    /// transitions of a fast one in each run; default 100
    #[argh(option, default = "100")]
    transitions: usize,
    /// where results.md and results.svg go; default tests/bench
    #[argh(option, default = "PathBuf::from(\"tests/bench\")")]
    output: PathBuf,
    /// a file whose table of what matters most is replaced
    #[argh(option)]
    readme: Option<PathBuf>,
    /// measure nothing, but let keepwatch make its transitions under this program, such as strace
    #[argh(option)]
    under: Option<String>,
    /// measure nothing but so many routers that fail over together
    #[argh(option)]
    fail_over: Option<usize>,
}

/// A slow one makes fewer transitions by this.
const SLOW_SHARE: usize = 5;
/// A fast one makes so many times more under load, where rare things matter.
const LOAD_SHARE: usize = 4;
/// Foreign address events for a fast one.
const FOREIGN_EVENTS: usize = 10_000;
/// For a slow one; scaled up.
const FOREIGN_EVENTS_SLOW: usize = 200;
/// Numbers of routers whose memory is measured.
const FLEETS: [usize; 3] = [1, 10, 250];

fn main() -> ExitCode {
    let options: Options = argh::from_env();
    let result = run(&options);
    // Whatever went wrong, nothing is left behind.
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
    let load = machine::load();
    // Where the results go is found before /mnt is ours.
    let output = fs::canonicalize(&options.output)?;
    lab::namespace::enter().map_err(|error| format!("namespaces: {error}: it wants root"))?;
    lab::namespace::mount_tmpfs(Path::new(ROOT))?;
    descendants::adopt_orphans()?;
    let cores = Cores::new()?;
    cores.keep_to_ours()?;
    let mut observer = Observer::new()?;
    let candidates = candidates(options)?;
    if let Some(under) = &options.under {
        let own = candidates.into_iter().nth(2).ok_or("keepwatch is there")?;
        let router = Router::new(0)?;
        return profile::run(own, under, &router, &mut observer, &cores, options.transitions);
    }
    let mut all: Vec<_> = candidates.iter().map(|_| Figures::default()).collect();
    let mut routers = (0..FLEETS[2]).map(Router::new).collect::<Result<Vec<_>, _>>()?;
    if let Some(count) = options.fail_over {
        cores.run_anywhere()?;
        fail_overs(&candidates, &mut all, &[count], &mut routers, &observer, options.runs)?;
        let measured: Vec<_> = candidates.iter().zip(&all).collect();
        print!("{}", report::fail_overs(&measured));
        return Ok(());
    }
    for run in 1..=options.runs {
        for (candidate, figures) in candidates.iter().zip(&mut all) {
            eprintln!("run {run} of {}: {}", options.runs, candidate.name);
            turn(candidate, figures, &routers[0], &mut observer, &cores, options.transitions)?;
        }
    }
    for (candidate, figures) in candidates.iter().zip(&mut all) {
        eprintln!("foreign events: {}", candidate.name);
        foreign_events(candidate, figures, &routers[0], &mut observer, &cores)?;
        figures.size = size::of_candidate(candidate)?;
    }
    cores.run_anywhere()?;
    for fleet in FLEETS {
        for (candidate, figures) in candidates.iter().zip(&mut all) {
            let python = candidate.kind == Kind::Python;
            let fleet = if python { fleet.min(options.python_routers) } else { fleet };
            let known = figures.fleets.last().filter(|last| last.routers == fleet).copied();
            let measure = || {
                eprintln!("{fleet} routers: {}", candidate.name);
                fleet::measure(candidate, &routers[..fleet], &mut observer)
            };
            figures.fleets.push(known.map_or_else(measure, Ok)?);
        }
    }
    let [few, many] = fail_over::ROUTERS;
    let counts = [fail_over::ROUTERS_SHELL, few, many];
    fail_overs(&candidates, &mut all, &counts, &mut routers, &observer, options.runs)?;
    let measured: Vec<_> = candidates.iter().zip(&all).collect();
    let table = report::markdown(options, &load, &measured);
    println!("{table}");
    fs::write(output.join("results.md"), table)?;
    fs::write(output.join("results.svg"), picture::draw(&measured))?;
    if let Some(readme) = &options.readme {
        report::insert(readme, &report::summary(&measured))?;
    }
    Ok(())
}

fn candidates(options: &Options) -> Result<Vec<Candidate>, Box<dyn Error>> {
    let script = |venv: &Path| venv.join("bin/neutron-keepalived-state-change");
    let (shell, announces) = (script(&options.shell), Kind::Keepwatch { announces: true });
    let one = |name: &str, kind, program: &Path| Candidate {
        name: name.into(),
        kind,
        program: program.into(),
        under: Vec::new(),
        installed: vec![program.into()],
    };
    let mut candidates = vec![
        one("floor", Kind::Floor { same_job: false }, &options.floor),
        one("floor, same job", Kind::Floor { same_job: true }, &options.floor),
        one(bars::OWN, announces, &options.keepwatch),
    ];
    if let Some(program) = &options.keepwatch_static {
        candidates.push(one(bars::STATIC, announces, program));
    }
    candidates.push(one("shell generation", Kind::Shell, &shell));
    let python = one("Python generation", Kind::Python, &script(&options.python));
    candidates.push(Candidate { installed: vec![options.python.clone()], ..python });
    for candidate in &mut candidates {
        let name = candidate.program.display().to_string();
        candidate.program =
            fs::canonicalize(&candidate.program).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(candidates)
}

/// Failures of a generation that are put up with; they are counted in the results.
const FAILURES: usize = 5;

/// Starts a candidate until it does what it is asked to. keepwatch and the floor have to at once.
fn attempt<T>(
    candidate: &Candidate,
    figures: &mut Figures,
    mut what: impl FnMut(&mut Figures) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    loop {
        match what(figures) {
            Err(error) if error.is::<Stopped>() => return Err(error),
            Err(error) if candidate.is_slow() && figures.failures < FAILURES => {
                figures.failures += 1;
                eprintln!("  once more: {error}");
            }
            other => return other,
        }
    }
}

/// One turn of a candidate: some starts, and transitions of the last one started.
fn turn(
    candidate: &Candidate,
    figures: &mut Figures,
    router: &Router,
    observer: &mut Observer,
    cores: &Cores,
    transitions: usize,
) -> Result<(), Box<dyn Error>> {
    let slow = candidate.is_slow();
    let starts = if slow { 2 } else { 10 };
    let mut run = Run::default();
    for start in 1..=starts {
        attempt(candidate, figures, |_| {
            let mut trial = Trial::start(candidate, router, observer, cores)?;
            run.first_file.push(trial.first_file);
            run.first_report.extend(trial.first_report);
            if start == starts {
                trial.warm_up()?;
                let count = if slow { transitions / SLOW_SHARE } else { transitions };
                run.transitions = trial.transitions(count)?;
                run.after_reclaim = trial.after_reclaim(count.div_ceil(10))?;
                if !slow {
                    run.under_load = trial.under_load(count * LOAD_SHARE, cores)?;
                }
            }
            Ok(())
        })?;
    }
    figures.runs.push(run);
    Ok(())
}

/// Lets the candidates that take part take turns, with each number of routers.
fn fail_overs(
    candidates: &[Candidate],
    all: &mut [Figures],
    counts: &[usize],
    routers: &mut Vec<Router>,
    observer: &Observer,
    runs: usize,
) -> Result<(), Box<dyn Error>> {
    for count in counts {
        for number in routers.len()..*count {
            routers.push(Router::new(number)?);
        }
        let has_static = candidates.iter().any(|one| one.name == bars::STATIC);
        let has = |(one, _): &(&Candidate, &mut Figures)| {
            FailOver::has(one, *count) && !(has_static && one.name == bars::OWN)
        };
        let mut part: Vec<_> = candidates.iter().zip(&mut *all).filter(has).collect();
        part.iter_mut().for_each(|(_, figures)| figures.fail_overs.push(FailOver::default()));
        for run in 1..=runs {
            for (candidate, figures) in &mut part {
                eprintln!("{count} routers fail over, run {run} of {runs}: {}", candidate.name);
                if let Some(fail_over) = figures.fail_overs.last_mut() {
                    fail_over.run(candidate, &routers[..*count], observer)?;
                }
            }
        }
    }
    Ok(())
}

fn foreign_events(
    candidate: &Candidate,
    figures: &mut Figures,
    router: &Router,
    observer: &mut Observer,
    cores: &Cores,
) -> Result<(), Box<dyn Error>> {
    let (count, pace) = if candidate.is_slow() {
        (FOREIGN_EVENTS_SLOW, Duration::from_millis(20))
    } else {
        (FOREIGN_EVENTS, Duration::from_micros(250))
    };
    let mut measure = |candidate: &Candidate, figures: &mut Figures| {
        attempt(candidate, figures, |_| {
            let mut trial = Trial::start(candidate, router, observer, cores)?;
            trial.warm_up()?;
            trial.foreign_events(count, pace)
        })
    };
    figures.foreign = measure(candidate, figures)?;
    if let Kind::Keepwatch { .. } = candidate.kind {
        let kind = Kind::Keepwatch { announces: false };
        figures.foreign_without_announcements =
            Some(measure(&Candidate { kind, ..candidate.clone() }, figures)?);
    }
    Ok(())
}
