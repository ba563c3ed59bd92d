//! What keepwatch has to reach, and whether it does.

use std::fmt::Write as _;

use crate::candidate::Kind;
use crate::figures::Figures;
use crate::report::{Measured, number, together};
use crate::statistics::Summary;

/// A static build of keepwatch by its name.
pub const STATIC: &str = "keepwatch, static";

/// One line for each bar, of each build of keepwatch that it is for.
pub fn rows(measured: &[Measured]) -> String {
    let of = |wanted: Kind| measured.iter().find(|(one, _)| one.kind == wanted);
    let (Some((_, floor)), Some((_, shell))) = (of(Kind::Floor), of(Kind::Shell)) else {
        return String::new();
    };
    let mut text = String::new();
    for (build, figures) in measured {
        if matches!(build.kind, Kind::Keepwatch { .. }) {
            speed(&mut text, &build.name, figures, floor, shell);
        }
    }
    match measured.iter().find(|(one, _)| one.name == STATIC) {
        Some((_, figures)) => footprint(&mut text, figures),
        None => text += "| memory and size of the static build | | no static build was given | |\n",
    }
    text
}

fn speed(text: &mut String, build: &str, own: &Figures, floor: &Figures, shell: &Figures) {
    let agent = |figures: &Figures| Summary::of_times(&figures.agent).median;
    let file = |figures: &Figures| Summary::of_times(&figures.file).median;
    let cpu = |figures: &Figures| figures.transitions.cpu / figures.transitions.count;
    let mut bar = |what: &str, bar: &str, measured: f64, met: bool| {
        let met = if met { "yes" } else { "no" };
        let _ = writeln!(text, "| {build}: {what} | {bar} | {} | {met} |", number(measured));
    };
    let times = agent(own) / agent(floor);
    bar("VIP to agent, median, times the floor", "<= 1.3", times, times <= 1.3);
    let faster = agent(shell) / agent(own);
    bar("VIP to agent, times faster than the shell generation", ">= 100", faster, faster >= 100.0);
    let times = file(own) / file(floor);
    bar("VIP to state file, median, times the floor", "<= 1.3", times, times <= 1.3);
    let less = cpu(shell) / cpu(own);
    bar("CPU per transition, times less than the shell generation", ">= 100", less, less >= 100.0);
    if let Some(usage) = own.foreign_without_announcements {
        let what = "context switches by 10,000 foreign address events, announcements off";
        bar(what, "0", usage.switches, usage.switches == 0.0);
    }
    let calls = Summary::new(own.system_calls.clone()).median;
    bar("system calls per transition, median", "<= 16", calls, calls <= 16.0);
}

fn footprint(text: &mut String, own: &Figures) {
    let mut bar = |what: &str, bar: f64, unit: &str, measured: f64| {
        let met = if measured <= bar { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {STATIC}: {what} | <= {} {unit} | {} {unit} | {met} |",
            number(bar),
            number(measured)
        );
    };
    // Alone, it would have its code to itself too.
    let (private, _) = together(&own.fleets, 1, |fleet| fleet.idle.private);
    bar("private memory idle, each of 10", 80.0, "kB", private / 10.0);
    bar("RSS idle", 300.0, "kB", own.fleets[0].idle.rss as f64);
    let (pss, _) = together(&own.fleets, 2, |fleet| fleet.idle.pss);
    bar("PSS of 250 together", 20_000.0, "kB", pss);
    bar("size on disk", 220.0, "kB", own.size.own as f64 / 1e3);
}
