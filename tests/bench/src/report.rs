//! The results as Markdown.

use std::fmt::Write as _;
use std::time::Duration;

use crate::bars;
use crate::candidate::Candidate;
use crate::counters::Usage;
use crate::descendants::Memory;
use crate::figures::Figures;
use crate::fleet::Fleet;
use crate::statistics::Summary;
use crate::{FLEETS, FOREIGN_EVENTS, Options, machine};

/// A candidate and what was measured of it.
pub type Measured<'a> = (&'a Candidate, &'a Figures);

type Latencies = fn(&Figures) -> &Vec<Duration>;
type Field = fn(&Memory) -> u64;

pub fn markdown(options: &Options, load: &str, measured: &[Measured]) -> String {
    let mut text = introduction(options, load);
    text += "\n## One router\n\n";
    text += &heading("", measured);
    latencies(&mut text, measured);
    costs(&mut text, measured);
    text += "\n## Memory, in kB\n\nTogether, over all processes of all routers; in parentheses for each router. \
             A page that several processes share counts in PSS by its share, and is not private.\n\n";
    text += &heading("", measured);
    for (n, routers) in FLEETS.into_iter().enumerate() {
        memory(&mut text, measured, n, routers);
    }
    text += "\n## Bars\n\n| figure | bar | measured | met |\n| --- | --- | --- | --- |\n";
    text += &bars::rows(measured);
    text
}

fn introduction(options: &Options, load: &str) -> String {
    format!(
        "# keepwatch beside what it replaces\n\n\
         Printed by `tests/bench/run` on a {}, with a load average of {load} when it began; \
         [picture](results.svg).\n\n\
         The floor is the least that could do the work (`floor.c`); in parentheses: times the floor. \
         The shell generation is neutron 29.0.0, the Python generation 28.0.2. The candidates took \
         turns in {} rounds, each with {} transitions of a fast one, {} of a slow one, and some \
         starts. State files are in memory. The agent and the clock are one thread, which has the \
         last core for itself and does not sleep while it measures a fast one; the fast ones run on \
         the other cores, the slow ones on all. The clock starts when the kernel has acknowledged \
         the change of the VIP. Between transitions there are 20 ms, or 100 ms for the slow ones. \
         CPU time, context switches and system calls are what the kernel's perf events count over \
         all processes.\n",
        machine::description(),
        options.rounds,
        options.transitions,
        options.transitions / crate::SLOW_SHARE,
    )
}

fn heading(first: &str, measured: &[Measured]) -> String {
    let names: String = measured.iter().map(|(one, _)| format!(" {} |", one.name)).collect();
    format!("| {first} |{names}\n| --- |{}\n", " ---: |".repeat(measured.len()))
}

fn latencies(text: &mut String, measured: &[Measured]) {
    let what: [(&str, Latencies); 2] =
        [("state file", |figures| &figures.file), ("agent", |figures| &figures.agent)];
    for (name, latencies) in what {
        let of = [("median", 0), ("p99", 1), ("worst", 2)];
        for (kind, n) in of {
            let figure = move |figures: &Figures| {
                let summary = Summary::of_times(latencies(figures));
                Some([summary.median, summary.p99, summary.worst][n])
            };
            row(text, &format!("VIP to {name}, {kind}, ms"), measured, figure);
        }
    }
    counts(text, "transitions measured", measured, |figures| figures.file.len());
}

fn costs(text: &mut String, measured: &[Measured]) {
    let each =
        |of: fn(&Usage) -> f64| move |f: &Figures| Some(of(&f.transitions) / f.transitions.count);
    row(text, "CPU time per transition, ms", measured, each(|usage| usage.cpu));
    row(text, "context switches per transition", measured, each(|usage| usage.switches));
    row(text, "system calls per transition, median", measured, |f| {
        Some(Summary::new(f.system_calls.clone()).median)
    });
    let start = |times: &Vec<_>| (!times.is_empty()).then(|| Summary::of_times(times).median);
    row(text, "start to first state file, median, ms", measured, |f| start(&f.first_file));
    row(text, "start to first report, median, ms [^report]", measured, |f| start(&f.first_report));
    let scaled = |usage: &Usage, sum: f64| sum / usage.count * FOREIGN_EVENTS as f64;
    let events = "10,000 foreign address events";
    row(text, &format!("context switches by {events} [^scaled]"), measured, |f| {
        Some(scaled(&f.foreign, f.foreign.switches))
    });
    row(text, "the same with `--no-announce`", measured, |f| {
        f.foreign_without_announcements.map(|usage| scaled(&usage, usage.switches))
    });
    row(text, &format!("system calls by {events} [^scaled]"), measured, |f| {
        Some(scaled(&f.foreign, f.foreign.system_calls))
    });
    row(text, "the same with `--no-announce`", measured, |f| {
        f.foreign_without_announcements.map(|usage| scaled(&usage, usage.system_calls))
    });
    row(text, &format!("CPU time by {events}, ms [^scaled]"), measured, |f| {
        Some(scaled(&f.foreign, f.foreign.cpu))
    });
    row(text, "on disk, kB", measured, |f| Some(f.size.own as f64 / 1e3));
    row(text, "with programs and libraries it needs, kB [^disk]", measured, |f| {
        Some(f.size.needed as f64 / 1e3)
    });
    counts(text, "got stuck, and was started again", measured, |figures| figures.failures);
    let events = measured.iter().find(|(one, _)| one.is_slow());
    let events = events.map_or(0.0, |(_, figures)| figures.foreign.count);
    let _ = write!(
        text,
        "\n[^report]: The shell generation makes none before some address event comes.\n\
         [^scaled]: Of the slow ones, {events} events, scaled up.\n\
         [^disk]: The Python generation without its interpreter.\n"
    );
}

/// A figure of each candidate that has it.
fn row(
    text: &mut String,
    name: &str,
    measured: &[Measured],
    figure: impl Fn(&Figures) -> Option<f64>,
) {
    let floor = measured.first().and_then(|(_, figures)| figure(figures)).unwrap_or_default();
    let _ = write!(text, "| {name} |");
    for (n, (_, figures)) in measured.iter().enumerate() {
        let _ = match figure(figures) {
            None => write!(text, " – |"),
            Some(value) if n == 0 || floor == 0.0 => write!(text, " {} |", number(value)),
            Some(value) => write!(text, " {} ({}) |", number(value), number(value / floor)),
        };
    }
    text.push('\n');
}

/// What is no measurement, and not compared.
fn counts(text: &mut String, name: &str, measured: &[Measured], of: impl Fn(&Figures) -> usize) {
    let cells: String = measured.iter().map(|(_, figures)| format!(" {} |", of(figures))).collect();
    let _ = writeln!(text, "| {name} |{cells}");
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

/// With three digits, or all before the point.
pub fn number(value: f64) -> String {
    let digits = match value {
        _ if value == value.round() || value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ if value >= 1.0 => 2,
        _ => 3,
    };
    let plain = format!("{value:.digits$}");
    let whole = plain.split('.').next().unwrap_or_default().len();
    if whole <= 4 {
        return plain;
    }
    // Groups of three from the right.
    let mut grouped = String::new();
    for (n, digit) in plain.chars().enumerate() {
        if n > 0 && (whole - n) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
