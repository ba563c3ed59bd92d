//! The results as Markdown.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::bars;
use crate::candidate::Candidate;
use crate::counters::Usage;
use crate::descendants::Memory;
use crate::fail_over::{self, FailOver, ROUTERS_SHELL};
use crate::figures::{Figures, to_agent, to_file};
use crate::fleet::Fleet;
use crate::statistics::{Spread, number};
use crate::{FLEETS, FOREIGN_EVENTS, Options, machine};

/// A candidate and what was measured of it.
pub type Measured<'a> = (&'a Candidate, &'a Figures);

type Field = fn(&Memory) -> u64;

pub fn markdown(options: &Options, load: &str, measured: &[Measured]) -> String {
    let mut text = introduction(options, load);
    text += "\n## One router\n\n";
    text += &heading(measured);
    latencies(&mut text, measured);
    costs(&mut text, measured);
    text += "\n## Routers that fail over together\n\n\
        Their VIPs come, and go, as fast as the kernel takes that, and all tell one agent: Python's threaded \
        server with a backlog of 5, as Neutron has it. Until the last state that arrives, in ms.\n\n";
    text += &fail_overs(measured);
    text += "\n## Memory, in kB\n\nTogether, over all processes of all routers; in parentheses for each router. \
             A page that several processes share counts in PSS by its share, and is not private.\n\n";
    text += &heading(measured);
    for (n, routers) in FLEETS.into_iter().enumerate() {
        memory(&mut text, measured, n, routers);
    }
    text += "\n## Bars\n\n| figure | bar | measured | met |\n| --- | --- | --- | --- |\n";
    text += &bars::rows(measured);
    text
}

/// What matters most, of one build of keepwatch.
pub fn summary(measured: &[Measured]) -> String {
    let has_static = measured.iter().any(|(one, _)| one.name == bars::STATIC);
    let other = |one: &Candidate| has_static && one.name == bars::OWN;
    let measured: Vec<_> = measured.iter().copied().filter(|(one, _)| !other(one)).collect();
    let mut text = heading(&measured);
    row(&mut text, "VIP to the state file, ms", &measured, |f| f.median(to_file));
    row(&mut text, "VIP to the agent, ms", &measured, |f| f.median(to_agent));
    row(&mut text, "p99 while all cores are busy, ms", &measured, Figures::p99_under_load);
    row(&mut text, "first after memory was reclaimed, ms", &measured, Figures::after_reclaim);
    row(&mut text, "CPU time of a change, ms", &measured, |f| f.mean(|usage| usage.cpu));
    row(&mut text, "start to the first report, ms", &measured, |f| {
        f.start(|run| &run.first_report)
    });
    for routers in fail_over::ROUTERS {
        let name = format!("{} routers fail over, ms", number(routers as f64));
        row(&mut text, &name, &measured, |f| fail_over(f, routers, |one| one.up.clone()));
    }
    let name = format!("never told of that, % (shell generation: {ROUTERS_SHELL} routers)");
    row(&mut text, &name, &measured, |f| {
        f.fail_overs.first().map(FailOver::lost).unwrap_or_default()
    });
    row(&mut text, "memory of 250 routers (PSS), MB", &measured, |f| {
        vec![together(&f.fleets, 2, |fleet| fleet.loaded.pss).0 / 1e3]
    });
    text
}

/// Puts the table into a file, between two comments that are there.
pub fn insert(file: &Path, table: &str) -> std::io::Result<()> {
    const MARKS: [&str; 2] = ["<!-- tests/bench/run -->\n", "<!-- end -->\n"];
    let text = fs::read_to_string(file)?;
    let parts = text.split_once(MARKS[0]).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(MARKS[1])?;
        Some((before, after))
    });
    let (before, after) = parts.ok_or_else(|| std::io::Error::other("it has no marks"))?;
    fs::write(file, [before, MARKS[0], table, MARKS[1], after].concat())
}

fn introduction(options: &Options, load: &str) -> String {
    format!(
        "# keepwatch beside what it replaces\n\n\
         Printed by `tests/bench/run` on a {}, with a load average of {load} when it began; \
         [picture](results.svg).\n\n\
         The floor is the least that could do the work (`floor.c`). The second floor does the same job as \
         keepwatch: it takes the state file by its absolute path, waits in a poll, and writes a log line. \
         The shell generation is neutron 29.0.0, the Python generation 28.0.2.\n\n\
         Runs in which the candidates took turns: {}, each with {} transitions of a fast one, {} of a slow one, and \
         some starts. A figure is the median of the runs, in parentheses the least and the most of them; \
         behind × how many times the floor's in the same run. State files are in memory. \
         The agent and the clock are one thread, which has the last core for itself and does not sleep while \
         it measures a fast one; the fast ones run on the other cores, the slow ones on all. The clock starts \
         when the kernel has acknowledged the change of the VIP. Between transitions there are 20 ms, or \
         100 ms for the slow ones. CPU time, context switches, system calls and major faults are what the \
         kernel's perf events count over all processes.\n",
        machine::description(),
        options.runs,
        options.transitions,
        options.transitions / crate::SLOW_SHARE,
    )
}

fn heading(measured: &[Measured]) -> String {
    let names: String = measured.iter().map(|(one, _)| format!(" {} |", one.name)).collect();
    format!("| |{names}\n| --- |{}\n", " ---: |".repeat(measured.len()))
}

fn latencies(text: &mut String, measured: &[Measured]) {
    row(text, "VIP to state file, median, ms", measured, |f| f.median(to_file));
    row(text, "VIP to state file, p99, ms", measured, |f| f.p99(to_file));
    row(text, "VIP to agent, median, ms", measured, |f| f.median(to_agent));
    row(text, "VIP to agent, p99, ms", measured, |f| f.p99(to_agent));
    row(text, "under load: p99, ms [^load]", measured, Figures::p99_under_load);
    row(text, "under load: p99.9 of all runs, ms", measured, Figures::p999_under_load);
    row(text, "first after reclaim: median, ms [^reclaim]", measured, Figures::after_reclaim);
    row(text, "first after reclaim: major faults, mean", measured, Figures::major_faults);
}

fn costs(text: &mut String, measured: &[Measured]) {
    row(text, "CPU time per transition, ms", measured, |f| f.mean(|usage| usage.cpu));
    row(text, "context switches per transition", measured, |f| f.mean(|usage| usage.switches));
    row(text, "system calls per transition, median", measured, |f| {
        f.median(|(_, usage)| usage.system_calls)
    });
    row(text, "start to first state file, median, ms", measured, |f| {
        f.start(|run| &run.first_file)
    });
    row(text, "start to first report, median, ms [^report]", measured, |f| {
        f.start(|run| &run.first_report)
    });
    foreign(text, measured, "context switches by 10,000 foreign address events", |all| {
        all.switches
    });
    foreign(text, measured, "system calls by 10,000 foreign address events", |all| {
        all.system_calls
    });
    foreign(text, measured, "CPU time by 10,000 foreign address events, ms", |all| all.cpu);
    row(text, "on disk, kB", measured, |f| vec![f.size.own as f64 / 1e3]);
    row(text, "with programs and libraries it needs, kB [^disk]", measured, |f| {
        vec![f.size.needed as f64 / 1e3]
    });
    row(text, "got stuck, and was started again", measured, |f| vec![f.failures as f64]);
    let events = measured.iter().find(|(one, _)| one.is_slow());
    let events = events.map_or(0.0, |(_, figures)| figures.foreign.count);
    let _ = write!(
        text,
        "\n[^load]: VIP to agent with two busy loops on each core, which do not keep the agent from running.\n\
         [^reclaim]: VIP to agent after the kernel was told to take back the memory of all its processes \
         (`MADV_PAGEOUT`), and to drop the programs and libraries that it runs from the cache; there is no \
         swap space. Not of the Python generation's files.\n\
         [^report]: The shell generation makes none before some address event comes.\n\
         [^scaled]: Of the slow ones, {events} events, scaled up.\n\
         [^disk]: The Python generation without its interpreter.\n"
    );
}

fn foreign(text: &mut String, measured: &[Measured], name: &str, of: impl Fn(&Usage) -> f64) {
    let scaled = |usage: &Usage| of(usage) / usage.count * FOREIGN_EVENTS as f64;
    row(text, &format!("{name} [^scaled]"), measured, |f| vec![scaled(&f.foreign)]);
    row(text, "the same with `--no-announce`", measured, |f| {
        f.foreign_without_announcements.iter().map(scaled).collect()
    });
}

/// A figure of each candidate, as it was in each run.
fn row(
    text: &mut String,
    name: &str,
    measured: &[Measured],
    figure: impl Fn(&Figures) -> Vec<f64>,
) {
    let floor = measured.first().map(|(_, figures)| figure(figures)).unwrap_or_default();
    let _ = write!(text, "| {name} |");
    for (n, (_, figures)) in measured.iter().enumerate() {
        let runs = figure(figures);
        let _ = match (Spread::new(&runs), Spread::new(&times(&runs, &floor))) {
            (None, _) => write!(text, " – |"),
            (Some(own), Some(times)) if n > 0 => write!(text, " {own}<br>×{times} |"),
            (Some(own), _) => write!(text, " {own} |"),
        };
    }
    text.push('\n');
}

/// How many times the other, in each run. None of nothing.
pub fn times(runs: &[f64], other: &[f64]) -> Vec<f64> {
    let pairs = runs.iter().zip(other).filter(|(_, other)| **other != 0.0);
    pairs.map(|(one, other)| one / other).collect()
}

/// One figure of so many routers that fail over together.
pub fn fail_over(
    figures: &Figures,
    routers: usize,
    of: impl Fn(&FailOver) -> Vec<f64>,
) -> Vec<f64> {
    figures.fail_overs.iter().find(|one| one.routers == routers).map(of).unwrap_or_default()
}

pub fn fail_overs(measured: &[Measured]) -> String {
    let of = |(_, figures): &&Measured| !figures.fail_overs.is_empty();
    let measured: Vec<_> = measured.iter().filter(of).copied().collect();
    let mut text = heading(&measured);
    let mut all: Vec<_> =
        measured.iter().flat_map(|(_, f)| &f.fail_overs).map(|one| one.routers).collect();
    all.sort_unstable();
    all.dedup();
    for routers in all {
        let mut add = |name: &str, of: fn(&FailOver) -> Vec<f64>| {
            let name = format!("{} routers: {name}", number(routers as f64));
            row(&mut text, &name, &measured, |f| fail_over(f, routers, of));
        };
        add("up", |one| one.up.clone());
        add("down", |one| one.down.clone());
        add("never told, %", FailOver::lost);
        add("attempts per delivery", FailOver::attempts);
        add("CPU time per delivery, ms", |one| one.cpu.clone());
    }
    text
}

fn memory(text: &mut String, measured: &[Measured], n: usize, routers: usize) {
    let rows: [(&str, Field, bool); 6] = [
        ("processes", |memory| memory.processes, false),
        ("RSS", |memory| memory.rss, false),
        ("PSS", |memory| memory.pss, false),
        ("private", |memory| memory.private, false),
        ("PSS after load", |memory| memory.pss, true),
        ("private after load", |memory| memory.private, true),
    ];
    for (name, field, loaded) in rows {
        let plural = if routers == 1 { "" } else { "s" };
        let _ = write!(text, "| {routers} router{plural}: {name} |");
        for (_, figures) in measured {
            let state = |fleet: &Fleet| if loaded { fleet.loaded } else { fleet.idle };
            let (value, real) = together(&figures.fleets, n, |fleet| field(&state(fleet)));
            let about = if real == routers { "" } else { "≈ " };
            let _ = write!(text, " {about}{} ({})", number(value), number(value / routers as f64));
            let _ = match real == routers {
                true => write!(text, " |"),
                false => write!(text, ", extrapolated from {real} |"),
            };
        }
        text.push('\n');
    }
}

/// The value for the nth number of routers, and of how many it really is: where there was no room
/// for all, it goes on in a straight line.
pub fn together(fleets: &[Fleet], n: usize, field: impl Fn(&Fleet) -> u64) -> (f64, usize) {
    let (one, most) = (&fleets[0], &fleets[n]);
    let (first, last) = (field(one) as f64, field(most) as f64);
    let missing = FLEETS[n] - most.routers;
    let each = match most.routers {
        1 => first,
        routers => (last - first) / (routers - 1) as f64,
    };
    (last + each * missing as f64, most.routers)
}
