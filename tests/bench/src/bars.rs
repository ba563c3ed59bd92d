//! What keepwatch has to reach, and whether it does.

use std::fmt::Write as _;

use crate::candidate::Kind;
use crate::fail_over::{self, FailOver};
use crate::figures::{Figures, to_agent, to_file};
use crate::report::{Measured, fail_over, times, together};
use crate::statistics::{Spread, number};

/// keepwatch as built for this machine, by its name.
pub const OWN: &str = "keepwatch";
/// A static build of it.
pub const STATIC: &str = "keepwatch, static";

/// Whom keepwatch is compared with.
struct Others<'a> {
    floor: &'a Figures,
    /// The floor that does the same job.
    same_job: &'a Figures,
    shell: &'a Figures,
}

/// One line for each bar, of each build of keepwatch that it is for.
pub fn rows(measured: &[Measured]) -> String {
    let of = |wanted| measured.iter().find(|(one, _)| one.kind == wanted).map(|(_, f)| *f);
    let floors = [false, true].map(|same_job| of(Kind::Floor { same_job }));
    let ([Some(floor), Some(same_job)], Some(shell)) = (floors, of(Kind::Shell)) else {
        return String::new();
    };
    let others = Others { floor, same_job, shell };
    let mut text = String::new();
    for (build, figures) in measured {
        if matches!(build.kind, Kind::Keepwatch { .. }) {
            speed(&mut text, &build.name, figures, &others);
            together_up_and_down(&mut text, &build.name, figures, floor);
        }
    }
    match measured.iter().find(|(one, _)| one.name == STATIC) {
        Some((_, figures)) => footprint(&mut text, figures),
        None => text += "| memory and size of the static build | | no static build was given | |\n",
    }
    text
}

/// At most so much, or nothing at all, for the median of the runs.
fn at_most(text: &mut String, name: &str, bar: f64, unit: &str, runs: &[f64]) {
    let Some(runs) = Spread::new(runs) else { return };
    let met = if runs.median <= bar { "yes" } else { "no" };
    let _ = writeln!(text, "| {name} | <= {}{unit} | {runs}{unit} | {met} |", number(bar));
}

fn speed(text: &mut String, build: &str, own: &Figures, others: &Others) {
    let Others { floor, same_job, .. } = others;
    let mut bar = |name: &str, bar: f64, runs: &[f64]| {
        at_most(text, &format!("{build}: {name}"), bar, "", runs);
    };
    let slower = |of: &dyn Fn(&Figures) -> Vec<f64>| times(&of(own), &of(floor));
    bar("VIP to agent, median, times the floor", 1.3, &slower(&|f| f.median(to_agent)));
    let name = "VIP to state file, median, times the floor that does the same job";
    bar(name, 1.3, &times(&own.median(to_file), &same_job.median(to_file)));
    bar("under load, p99, times the floor", 1.3, &slower(&Figures::p99_under_load));
    bar("under load, p99.9, times the floor", 1.3, &slower(&Figures::p999_under_load));
    bar("first after reclaim, major faults", 0.0, &own.major_faults());
    let name = "system calls per transition, median";
    bar(name, 16.0, &own.median(|(_, usage)| usage.system_calls));
    if let Some(usage) = own.foreign_without_announcements {
        let name = "context switches by 10,000 foreign address events, announcements off";
        bar(name, 0.0, &[usage.switches]);
    }
    advantage(text, &format!("{build}: VIP to agent"), own, others, |f| f.median(to_agent));
    let cpu = |f: &Figures| f.mean(|usage| usage.cpu);
    advantage(text, &format!("{build}: CPU per transition"), own, others, cpu);
}

/// How many times less than the shell generation, as a share of what the floor reaches in the same run.
fn advantage(
    text: &mut String,
    name: &str,
    own: &Figures,
    Others { floor, shell, .. }: &Others,
    of: impl Fn(&Figures) -> Vec<f64>,
) {
    let [own, floor] = [own, floor].map(|fast| times(&of(shell), &of(fast)));
    let shares = Spread::new(&times(&own, &floor));
    if let (Some(share), Some(own), Some(floor)) = (shares, Spread::new(&own), Spread::new(&floor))
    {
        let met = if share.median >= 0.75 { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| {name}, times less than the shell generation, as a share of the floor's | >= 0.75 | \
             {share}: {own} of {floor} | {met} |",
        );
    }
}

fn together_up_and_down(text: &mut String, build: &str, own: &Figures, floor: &Figures) {
    for routers in fail_over::ROUTERS {
        let mut bar = |name: &str, bar: f64, runs: &[f64]| {
            at_most(text, &format!("{build}: {routers} routers, {name}"), bar, "", runs);
        };
        let of = |figures, what| fail_over(figures, routers, what);
        let slower = |what: fn(&FailOver) -> Vec<f64>| times(&of(own, what), &of(floor, what));
        bar("up, times the floor", 1.3, &slower(|one| one.up.clone()));
        bar("down, times the floor", 1.3, &slower(|one| one.down.clone()));
        bar("never told, %", 0.0, &of(own, FailOver::lost));
        bar("attempts per delivery", 2.0, &of(own, FailOver::attempts));
    }
}

fn footprint(text: &mut String, own: &Figures) {
    let mut bar = |name: &str, bar: f64, measured: f64| {
        at_most(text, &format!("{STATIC}: {name}"), bar, " kB", &[measured]);
    };
    // Alone, it would have its code to itself too.
    let (private, _) = together(&own.fleets, 1, |fleet| fleet.idle.private);
    bar("private memory idle, each of 10", 80.0, private / 10.0);
    bar("RSS idle", 300.0, own.fleets[0].idle.rss as f64);
    let (pss, _) = together(&own.fleets, 2, |fleet| fleet.idle.pss);
    bar("PSS of 250 together", 20_000.0, pss);
    bar("size on disk", 220.0, own.size.own as f64 / 1e3);
}
