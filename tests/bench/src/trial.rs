//! One candidate at work for one router, and what is measured of it.

use std::error::Error;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use lab::memory::{drop_cached, reclaim};
use lab::rtnl::Rtnl;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::candidate::Candidate;
use crate::counters::{Counters, Usage};
use crate::descendants;
use crate::figures::Transition;
use crate::load::Load;
use crate::observer::{Observer, Wait, What};
use crate::router::{OTHER, Router};
use crate::size;

/// How long anything may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who may run where: ourselves on the last core, who is measured on the others.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    ours: CpuSet,
    theirs: CpuSet,
    all: CpuSet,
}

impl Cores {
    pub fn new() -> nix::Result<Self> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap_or(false)).collect();
        // On a single core both have to share it.
        let split = cores.len().saturating_sub(1).max(1);
        let (mut ours, mut theirs) = (CpuSet::new(), CpuSet::new());
        cores.iter().skip(cores.len().saturating_sub(1)).try_for_each(|core| ours.set(*core))?;
        cores.iter().take(split).try_for_each(|core| theirs.set(*core))?;
        Ok(Self { ours, theirs, all })
    }

    /// From now on.
    pub fn keep_to_ours(&self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.ours)
    }

    /// As before; children that are started then run anywhere too.
    pub fn run_anywhere(&self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.all)
    }

    /// Starts a program, which runs where its parent does at that time. The slow ones may run
    /// anywhere: they are several processes, which can make use of more than one core.
    fn spawn(&self, candidate: &Candidate, router: &Router) -> Result<Child, Box<dyn Error>> {
        let mut command = candidate.command(router);
        let theirs = if candidate.is_slow() { &self.all } else { &self.theirs };
        sched_setaffinity(Pid::from_raw(0), theirs)?;
        let child = command.spawn();
        sched_setaffinity(Pid::from_raw(0), &self.ours)?;
        child.map_err(|error| format!("{}: {error}", candidate.program.display()).into())
    }
}

/// A candidate that runs. Dropping it ends everything that was started.
#[derive(Debug)]
pub struct Trial<'a> {
    candidate: &'a Candidate,
    router: &'a Router,
    observer: &'a mut Observer,
    counters: Counters,
    present: bool,
    wait: Wait,
    /// From before it was started to its first state file.
    pub first_file: Duration,
    /// And to its first report, if it makes one by itself.
    pub first_report: Option<Duration>,
}

/// From the kernel's acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub file: Duration,
    pub agent: Duration,
}

impl<'a> Trial<'a> {
    /// Starts it and waits for its first state.
    pub fn start(
        candidate: &'a Candidate,
        router: &'a Router,
        observer: &'a mut Observer,
        cores: &Cores,
    ) -> Result<Self, Box<dyn Error>> {
        router.clear()?;
        observer.watch(&router.conf_dir)?;
        observer.idle(Duration::from_millis(1))?;
        let began = Instant::now();
        let counters = Counters::new(cores.spawn(candidate, router)?.id())?;
        let mut trial = Self {
            candidate,
            router,
            observer,
            counters,
            present: false,
            wait: if candidate.is_slow() { Wait::Sleep } else { Wait::Spin },
            first_file: Duration::ZERO,
            first_report: None,
        };
        let first = trial.await_both("backup", began, candidate.reports_at_start())?;
        trial.first_file = first.file;
        trial.first_report = candidate.reports_at_start().then_some(first.agent);
        Ok(trial)
    }

    /// Makes it report until it does so without fail. Some listen only a while after their first
    /// report, and say nothing of when.
    pub fn warm_up(&mut self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        let mut reports = 0;
        while reports < 4 {
            self.present = !self.present;
            self.router.set_vip(self.present)?;
            let until = Instant::now() + self.candidate.pause() * 5;
            let mut reported = false;
            while let Some(seen) = self.observer.next(until, Wait::Sleep)? {
                let What::Report { state, .. } = seen.what else { continue };
                if state == word(self.present) {
                    reported = true;
                    break;
                }
            }
            reports = if reported { reports + 1 } else { 0 };
            if Instant::now() > deadline {
                return Err(self.lost("any report"));
            }
            self.observer.idle(self.candidate.pause())?;
        }
        Ok(())
    }

    /// So many transitions, each on its own, once the addresses of the start have been announced.
    pub fn transitions(&mut self, count: usize) -> Result<Vec<Transition>, Box<dyn Error>> {
        self.settle()?;
        let pause = self.candidate.pause();
        (0..count).map(|_| self.counted_transition(pause)).collect()
    }

    /// So many transitions, before each of which its memory is reclaimed, and the files that it needs are
    /// dropped from the cache.
    pub fn after_reclaim(&mut self, count: usize) -> Result<Vec<Transition>, Box<dyn Error>> {
        let files = size::files(self.candidate)?;
        let pause = self.candidate.pause();
        let mut one = || {
            for pid in descendants::all() {
                reclaim(pid, &fs::canonicalize(format!("/proc/{pid}/exe"))?);
            }
            files.iter().for_each(|file| drop_cached(file));
            self.counted_transition(pause)
        };
        (0..count).map(|_| one()).collect()
    }

    /// So many transitions while all cores are busy.
    pub fn under_load(
        &mut self,
        count: usize,
        cores: &Cores,
    ) -> Result<Vec<Transition>, Box<dyn Error>> {
        for pid in descendants::all() {
            sched_setaffinity(Pid::from_raw(pid.cast_signed()), &cores.all)?;
        }
        let load = Load::new(&cores.all)?;
        self.wait = Wait::Sleep;
        // They are many.
        let pause = self.candidate.pause() / 2;
        let all = (0..count).map(|_| self.counted_transition(pause)).collect();
        drop(load);
        all
    }

    fn counted_transition(&mut self, pause: Duration) -> Result<Transition, Box<dyn Error>> {
        let before = self.counters.read()?;
        let latency = self.transition()?;
        self.observer.idle(pause)?;
        Ok((latency, self.usage_since(before, 1)?))
    }

    /// Asks it to leave, as an init does, and waits until it has.
    pub fn end(self) {
        descendants::terminate_innermost();
    }

    fn transition(&mut self) -> Result<Latency, Box<dyn Error>> {
        self.present = !self.present;
        let word = word(self.present);
        let acknowledged = self.router.set_vip(self.present)?;
        let latency = self.await_both(word, acknowledged, true)?;
        if self.router.state() != word {
            return Err(self.lost(word));
        }
        Ok(latency)
    }

    /// Waits for the state file and, if there will be one, for the report.
    fn await_both(
        &mut self,
        word: &str,
        since: Instant,
        reports: bool,
    ) -> Result<Latency, Box<dyn Error>> {
        let (mut file, mut agent) = (None, (!reports).then_some(since));
        while file.is_none() || agent.is_none() {
            let seen = self.observer.next(since + PATIENCE, self.wait)?;
            let seen = seen.ok_or_else(|| self.lost(word))?;
            match seen.what {
                What::StateFile => _ = file.get_or_insert(seen.at),
                What::Report { state, .. } if state == word => _ = agent.get_or_insert(seen.at),
                What::Report { .. } => {}
            }
        }
        let after = |at: Option<Instant>| at.unwrap_or(since).saturating_duration_since(since);
        Ok(Latency { file: after(file), agent: after(agent) })
    }

    /// Addresses that come and go on another interface, so slowly that each finds everybody asleep
    /// again.
    pub fn foreign_events(
        &mut self,
        count: usize,
        pace: Duration,
    ) -> Result<Usage, Box<dyn Error>> {
        self.settle()?;
        let before = self.counters.read()?;
        self.router.netns.run(|| {
            let rtnl = Rtnl::new();
            let mut next = Instant::now();
            for event in 0..count {
                while Instant::now() < next {
                    std::hint::spin_loop();
                }
                next += pace;
                let number = event / 2;
                let address = format!("10.1.{}.{}/32", number / 256, number % 256);
                rtnl.set_address(OTHER, &address, event % 2 == 0);
            }
        });
        if self.candidate.is_slow() {
            // It takes one thing after the other: once this is reported, everything before is done.
            self.transition()?;
            return self.usage_since(before, count);
        }
        self.settle()?;
        let usage = self.usage_since(before, count)?;
        // It has to have come through all that sound.
        self.transition()?;
        Ok(usage)
    }

    /// Waits for rest, which the slow ones never come to. Announcements are 2 s apart.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        let time = Duration::from_secs(3);
        if self.candidate.is_slow() {
            self.observer.idle(time)
        } else {
            self.counters.wait_quiet(time)
        }
    }

    fn usage_since(&mut self, before: Usage, count: usize) -> Result<Usage, Box<dyn Error>> {
        let now = self.counters.read()?;
        Ok(Usage {
            cpu: now.cpu - before.cpu,
            switches: now.switches - before.switches,
            system_calls: now.system_calls - before.system_calls,
            major_faults: now.major_faults - before.major_faults,
            count: count as f64,
        })
    }

    fn lost(&self, what: &str) -> Box<dyn Error> {
        let log = lab::files::content(&self.router.log_file());
        let end: Vec<&str> = log.lines().rev().take(1).collect();
        format!("{}: {what} did not arrive; its log, backwards: {end:#?}", self.candidate.name)
            .into()
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        descendants::kill_all();
    }
}

fn word(present: bool) -> &'static str {
    if present { "primary" } else { "backup" }
}
