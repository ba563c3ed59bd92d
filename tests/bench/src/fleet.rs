//! Many routers at the same time, and the memory that takes.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use lab::rtnl::Rtnl;

use crate::candidate::Candidate;
use crate::descendants::{self, Memory};
use crate::observer::{Observer, Wait, What};
use crate::router::{OTHER, Router};

/// An address that comes and goes on the other interface.
const FOREIGN: &str = "10.1.0.1/32";
/// Transitions of each router between the two measurements.
const LOAD: usize = 4;
/// Without another report for so long, and more for each that is starting, those that are missing
/// will not come.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_EACH: Duration = Duration::from_secs(10);

/// What a number of routers takes.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    pub routers: usize,
    pub idle: Memory,
    pub loaded: Memory,
}

/// Starts one process for each router, all at once, and measures before and after some work.
pub fn measure(
    candidate: &Candidate,
    routers: &[Router],
    observer: &mut Observer,
) -> Result<Fleet, Box<dyn Error>> {
    let result = run(candidate, routers, observer);
    descendants::kill_all();
    result
}

fn run(
    candidate: &Candidate,
    routers: &[Router],
    observer: &mut Observer,
) -> Result<Fleet, Box<dyn Error>> {
    for router in routers {
        router.clear()?;
    }
    observer.idle(Duration::from_millis(1))?;
    for router in routers {
        candidate.command(router).spawn()?;
    }
    await_first(candidate, routers, observer)?;
    descendants::wait_settled();
    let idle = descendants::memory();
    for transition in 0..LOAD {
        for router in routers {
            report(candidate, router, observer, transition % 2 == 0)?;
        }
        observer.idle(candidate.pause() * 2)?;
    }
    descendants::wait_settled();
    let loaded = descendants::memory();
    Ok(Fleet { routers: routers.len(), idle, loaded })
}

/// Waits until every router has reported for the first time.
fn await_first(
    candidate: &Candidate,
    routers: &[Router],
    observer: &mut Observer,
) -> Result<(), Box<dyn Error>> {
    let mut missing: BTreeMap<&str, &Router> =
        routers.iter().map(|router| (router.id.as_str(), router)).collect();
    let patience = PATIENCE + PATIENCE_EACH * u32::try_from(routers.len())?;
    let mut progress = Instant::now();
    while !missing.is_empty() {
        if !candidate.reports_at_start() {
            // It wants an address event, and does not say when it has begun to listen.
            missing.values().for_each(|router| poke(router));
        }
        let until = Instant::now() + Duration::from_secs(2);
        while let Some(seen) = observer.next(until, Wait::Sleep)? {
            if let What::Report { router, .. } = seen.what
                && missing.remove(router.as_str()).is_some()
            {
                progress = Instant::now();
            }
            if missing.is_empty() {
                break;
            }
        }
        if progress.elapsed() > patience {
            return Err(format!("{}: {} do not report", candidate.name, missing.len()).into());
        }
    }
    Ok(())
}

/// An address of no importance comes and goes.
fn poke(router: &Router) {
    router.netns.run(|| {
        let rtnl = Rtnl::new();
        rtnl.add_address(OTHER, FOREIGN);
        rtnl.delete_address(OTHER, FOREIGN);
    });
}

/// One transition, tried again by those that were not listening yet.
fn report(
    candidate: &Candidate,
    router: &Router,
    observer: &mut Observer,
    present: bool,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..10 {
        router.set_vip(present)?;
        let until = Instant::now() + Duration::from_secs(3);
        while let Some(seen) = observer.next(until, Wait::Sleep)? {
            let What::Report { router: from, state } = seen.what else { continue };
            if from == router.id && (state == "primary") == present {
                return Ok(());
            }
        }
        router.set_vip(!present)?;
    }
    Err(format!("{}: a transition of {} was lost", candidate.name, router.id).into())
}
