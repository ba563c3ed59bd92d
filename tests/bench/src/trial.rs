//! One program that watches one router, and its measurements.

use std::error::Error;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lab::memory::{drop_cached, reclaim};
use lab::namespace::Netns;
use lab::rtnl::Rtnl;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::Options;
use crate::counters::{Counters, Usage};
use crate::descendants;
use crate::load;
use crate::observer::{Observer, Wait, What};

/// The time after which an event counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);

const VIP: &str = "169.254.0.5/24";

/// The cores and namespaces: this process runs on the last core in the router's namespace, the program on the other
/// cores outside.
#[derive(Debug)]
pub struct Cores {
    outside: Netns,
    ours: CpuSet,
    theirs: CpuSet,
    all: CpuSet,
}

impl Cores {
    /// Divides the cores. Call it outside of the router's namespace.
    pub fn new() -> nix::Result<Self> {
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let cores: Vec<usize> =
            (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap_or(false)).collect();
        // Both share a single core.
        let split = cores.len().saturating_sub(1);
        let (mut ours, mut theirs) = (CpuSet::new(), CpuSet::new());
        cores.iter().skip(split).try_for_each(|core| ours.set(*core))?;
        cores.iter().take(split.max(1)).try_for_each(|core| theirs.set(*core))?;
        Ok(Self { outside: Netns::current(), ours, theirs, all })
    }

    /// Keeps this process on its own core.
    pub fn keep_to_ours(&self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.ours)
    }

    /// Starts the program on its cores. A slow one consists of several processes, and may use all cores.
    fn spawn(&self, options: &Options) -> Result<Child, Box<dyn Error>> {
        let (program, arguments) = options.command.split_first().ok_or("no program is named")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        sched_setaffinity(Pid::from_raw(0), if options.slow { &self.all } else { &self.theirs })?;
        let child = self.outside.run(|| command.spawn());
        self.keep_to_ours()?;
        child.map_err(|error| format!("{program}: {error}").into())
    }
}

/// A running program. All descendants are killed on drop.
#[derive(Debug)]
pub struct Trial<'a> {
    options: &'a Options,
    observer: &'a mut Observer,
    counters: Counters,
    rtnl: Rtnl,
    present: bool,
    wait: Wait,
    /// The announcements since the VIP was added.
    frames: Vec<Instant>,
}

impl<'a> Trial<'a> {
    /// Starts it, waits for its first state, and prints the duration.
    pub fn start(
        options: &'a Options,
        observer: &'a mut Observer,
        cores: &Cores,
    ) -> Result<Self, Box<dyn Error>> {
        let conf_dir = options.directory.join("conf");
        let _ = fs::remove_dir_all(&options.directory);
        fs::create_dir_all(&conf_dir)?;
        observer.watch(&conf_dir)?;
        observer.idle(Duration::from_millis(1))?;
        let began = Instant::now();
        let counters = Counters::new(cores.spawn(options)?.id())?;
        let wait = if options.slow { Wait::Sleep } else { Wait::Spin };
        let (rtnl, present) = (Rtnl::new(), false);
        let frames = Vec::new();
        let mut trial = Self { options, observer, counters, rtnl, present, wait, frames };
        let (file, agent) = trial.await_both("backup", began, !options.silent)?;
        print("start", [Some(file), agent, None, None], None);
        Ok(trial)
    }

    /// Moves the VIP until each move is reported. Some programs miss events for a while after their first report.
    pub fn warm_up(&mut self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        let mut reports = 0;
        while reports < 4 {
            let until = self.move_vip() + self.pause() * 5;
            let mut reported = false;
            while let Some(seen) = self.observer.next(until, Wait::Sleep)? {
                if matches!(seen.what, What::Report(state) if state == word(self.present)) {
                    reported = true;
                    break;
                }
            }
            reports = if reported { reports + 1 } else { 0 };
            if Instant::now() > deadline {
                return Err("it does not report".into());
            }
            self.observer.idle(self.pause())?;
        }
        Ok(())
    }

    /// Measures changes, once the first addresses have been announced.
    pub fn changes(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        // Announcements are 2 s apart. Slow programs never rest.
        let quiet = Duration::from_secs(3);
        if self.options.slow {
            self.observer.idle(quiet)?;
        } else {
            self.counters.wait_quiet(quiet)?;
        }
        (0..count).try_for_each(|_| self.change("change", self.pause()))
    }

    /// Measures changes, each after reclaim of the program's memory and cached files.
    pub fn after_reclaim(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..count {
            for pid in descendants::all() {
                reclaim(pid, &fs::canonicalize(format!("/proc/{pid}/exe"))?);
            }
            self.options.needs.iter().for_each(|file| drop_cached(file));
            self.change("reclaimed", self.pause())?;
        }
        Ok(())
    }

    /// Measures announcements, and in every second turn the removal of the VIP amid them.
    pub fn announcements(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        if count > 0 {
            self.observer.watch_frames("lan0-peer");
        }
        for turn in 0..2 * count {
            let is_amid = turn % 2 == 1;
            self.frames.clear();
            let up = self.move_vip();
            let (file, agent) = self.await_both("primary", up, true)?;
            // A request and a reply for each address.
            self.await_frames(if is_amid { 1 } else { 2 * self.options.addresses })?;
            let [first, last] = [self.frames.first(), self.frames.last()].map(|at| Some(*at? - up));
            let down = self.move_vip();
            let (file_amid, agent_amid) = self.await_both("backup", down, true)?;
            if is_amid {
                print("amid", [Some(file_amid), agent_amid, None, None], None);
            } else {
                print("announced", [Some(file), agent, first, last], None);
            }
            self.observer.idle(self.pause())?;
        }
        Ok(())
    }

    /// Measures changes while all cores are busy.
    pub fn under_load(&mut self, count: usize, cores: &Cores) -> Result<(), Box<dyn Error>> {
        if count == 0 {
            return Ok(());
        }
        for pid in descendants::all() {
            sched_setaffinity(Pid::from_raw(pid.cast_signed()), &cores.all)?;
        }
        load::begin(&cores.all)?;
        self.wait = Wait::Sleep;
        (0..count).try_for_each(|_| self.change("loaded", self.pause() / 2))
    }

    /// Adds or removes the VIP. Returns the time of the kernel's acknowledgement.
    fn move_vip(&mut self) -> Instant {
        self.present = !self.present;
        self.rtnl.set_address("ha0", VIP, self.present);
        Instant::now()
    }

    /// Changes the VIP, and prints the measurements.
    fn change(&mut self, phase: &str, pause: Duration) -> Result<(), Box<dyn Error>> {
        let before = self.counters.read()?;
        let acknowledged = self.move_vip();
        let word = word(self.present);
        let (file, agent) = self.await_both(word, acknowledged, true)?;
        let state = fs::read_to_string(self.options.directory.join("conf/state"))?;
        if state != word {
            return Err(format!("the state file holds {state}, not {word}").into());
        }
        self.observer.idle(pause)?;
        let now = self.counters.read()?;
        let usage = std::array::from_fn(|n| now[n] - before[n]);
        print(phase, [Some(file), agent, None, None], Some(usage));
        Ok(())
    }

    /// Waits for the state file and, if `reports`, for the report. Returns their latencies.
    fn await_both(
        &mut self,
        word: &str,
        since: Instant,
        reports: bool,
    ) -> Result<(Duration, Option<Duration>), Box<dyn Error>> {
        let (mut file, mut agent) = (None, None);
        loop {
            match (file, agent) {
                (Some(file), Some(_)) => return Ok((file, agent)),
                (Some(file), None) if !reports => return Ok((file, None)),
                _ => {}
            }
            let seen = self.observer.next(since + PATIENCE, self.wait)?;
            let seen = seen.ok_or_else(|| format!("{word} did not arrive"))?;
            let after = seen.at.saturating_duration_since(since);
            match seen.what {
                What::StateFile => _ = file.get_or_insert(after),
                What::Report(state) if state == word => _ = agent.get_or_insert(after),
                What::Report(_) => {}
                What::Frame => self.frames.push(seen.at),
            }
        }
    }

    /// Waits until this number of frames has been seen since the VIP's change.
    fn await_frames(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        while self.frames.len() < count {
            let seen = self.observer.next(Instant::now() + PATIENCE, self.wait)?;
            let seen = seen.ok_or("announcements did not arrive")?;
            if let What::Frame = seen.what {
                self.frames.push(seen.at);
            }
        }
        Ok(())
    }

    /// Returns the pause between changes. A slow program still works for a while after its report.
    fn pause(&self) -> Duration {
        Duration::from_millis(if self.options.slow { 100 } else { 20 })
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        descendants::kill_all();
        if self.present {
            self.move_vip();
        }
    }
}

/// Prints the times of state file, agent, first and last announcement.
fn print(phase: &str, times: [Option<Duration>; 4], usage: Option<Usage>) {
    let milliseconds = |time: Duration| format!("{:.4}", time.as_secs_f64() * 1e3);
    let times = times.map(|time| time.map_or_else(String::new, milliseconds));
    let usage = usage.map_or([const { String::new() }; 4], |[cpu, rest @ ..]| {
        let [switches, system_calls, major_faults] = rest.map(|count| count.to_string());
        [format!("{cpu:.4}"), switches, system_calls, major_faults]
    });
    println!("{phase},{},{}", times.join(","), usage.join(","));
}

fn word(present: bool) -> &'static str {
    if present { "primary" } else { "backup" }
}
