//! The picture: how long it takes, and how much memory.

use crate::FLEETS;
use crate::figures::{Transition, to_agent, to_file};
use crate::report::{Measured, together};
use crate::statistics::{median, number};
use crate::svg::{Point, Scale, Svg};

/// For the candidates in their order; they differ also for eyes that see fewer colours.
const COLOURS: [&str; 6] = ["#7a7a7a", "#b0b0b0", "#0072b2", "#56b4e9", "#d55e00", "#009e73"];
const WIDTH: f64 = 1080.0;
/// Of one distribution.
const BAND: f64 = 46.0;
const GRID: &str = "stroke=\"#dddddd\"";
const SMALL: &str = "font-size=\"11\" fill=\"#555555\"";
const TITLE: &str = "font-size=\"15\" font-weight=\"600\"";
/// Bars of a distribution in one decade.
const BINS: f64 = 16.0;

pub fn draw(measured: &[Measured]) -> String {
    let bottom = 50.0 + BAND * 2.0 * measured.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 50.0);
    distributions(&mut svg, measured, bottom);
    memory(&mut svg, measured, bottom);
    svg.finish()
}

fn distributions(svg: &mut Svg, measured: &[Measured], bottom: f64) {
    let scale = Scale { values: (0.01, 200.0), positions: (150.0, 580.0) };
    svg.text((10.0, 24.0), "start", TITLE, "From the VIP's change to the state file and the agent");
    for value in scale.decades() {
        let x = scale.at(value);
        svg.line((x, 40.0), (x, bottom), GRID);
        svg.text((x, bottom + 16.0), "middle", SMALL, &format!("{value} ms"));
    }
    let mut base = 40.0;
    for ((candidate, figures), colour) in measured.iter().zip(COLOURS) {
        svg.text((10.0, base + BAND), "start", &format!("fill=\"{colour}\""), &candidate.name);
        let state_file: fn(&Transition) -> f64 = to_file;
        for (what, of, opacity) in [("state file", state_file, 0.45), ("agent", to_agent, 0.9)] {
            let latencies: Vec<_> = figures.transitions().map(of).collect();
            base += BAND;
            let style = format!("fill=\"{colour}\" fill-opacity=\"{opacity}\"");
            svg.polygon(&silhouette(&latencies, &scale, base), &style);
            let median = median(latencies);
            let label = format!("{what} {} ms", number(median));
            // Where there is room.
            let left = scale.at(median) > 400.0;
            let (shift, anchor) = if left { (-24.0, "end") } else { (24.0, "start") };
            svg.text((scale.at(median) + shift, base - 16.0), anchor, SMALL, &label);
        }
        svg.line((10.0, base + 3.0), (590.0, base + 3.0), GRID);
    }
}

/// How often each latency occurs, as a hill that stands on a line.
fn silhouette(latencies: &[f64], scale: &Scale, base: f64) -> Vec<Point> {
    let bin = |time: &f64| {
        let value = time.clamp(scale.values.0, scale.values.1);
        ((value / scale.values.0).log10() * BINS) as usize
    };
    let mut counts = vec![0_usize; bin(&f64::MAX) + 1];
    latencies.iter().for_each(|time| counts[bin(time)] += 1);
    let most = counts.iter().max().copied().unwrap_or(1) as f64;
    let edge = |n: usize| scale.at(scale.values.0 * 10_f64.powf(n as f64 / BINS));
    let mut points = vec![(edge(0), base)];
    for (n, count) in counts.iter().enumerate() {
        // What is there at all can be seen, be it one in a thousand.
        let height = if *count == 0 { 0.0 } else { 1.5 + (BAND - 14.0) * *count as f64 / most };
        points.extend([(edge(n), base - height), (edge(n + 1), base - height)]);
    }
    points.push((scale.positions.1, base));
    points
}

fn memory(svg: &mut Svg, measured: &[Measured], bottom: f64) {
    let down = Scale { values: (50.0, 100e6), positions: (bottom, 40.0) };
    let right = Scale { values: (1.0, 250.0), positions: (660.0, 850.0) };
    svg.text((610.0, 24.0), "start", TITLE, "Memory (PSS) by the number of routers");
    for value in down.decades() {
        let y = down.at(value);
        svg.line((right.positions.0, y), (right.positions.1, y), GRID);
        svg.text((right.positions.0 - 8.0, y + 4.0), "end", SMALL, &bytes(value));
    }
    for routers in FLEETS {
        let at = (right.at(routers as f64), bottom + 16.0);
        svg.text(at, "middle", SMALL, &routers.to_string());
    }
    let mut labels = Vec::new();
    for ((candidate, figures), colour) in measured.iter().zip(&COLOURS) {
        let all: Vec<(Point, f64, bool)> = (0..FLEETS.len())
            .map(|n| {
                let (pss, real) = together(&figures.fleets, n, |fleet| fleet.loaded.pss);
                let at = (right.at(FLEETS[n] as f64), down.at(pss));
                (at, pss, real == FLEETS[n])
            })
            .collect();
        for pair in all.windows(2) {
            let dashes = if pair[1].2 { "" } else { " stroke-dasharray=\"5 4\"" };
            let style = format!("stroke=\"{colour}\" stroke-width=\"2\"{dashes}");
            svg.line(pair[0].0, pair[1].0, &style);
        }
        for (at, _, real) in &all {
            let fill = if *real { colour } else { "#ffffff" };
            svg.circle(
                *at,
                4.0,
                &format!("fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\""),
            );
        }
        if let Some(((x, y), pss, real)) = all.last() {
            let about = if *real { "" } else { "≈ " };
            let label = format!("{} {about}{}", candidate.name, bytes(*pss));
            labels.push(((x + 9.0, y + 4.0), label, *colour));
        }
    }
    // From the top down, none over the one before.
    labels.sort_by(|((_, one), ..), ((_, other), ..)| one.total_cmp(other));
    let mut free = 0.0_f64;
    for ((x, y), label, colour) in labels {
        let y = y.max(free);
        svg.text((x, y), "start", &format!("fill=\"{colour}\" font-size=\"12\""), &label);
        free = y + 14.0;
    }
    svg.text((610.0, bottom + 36.0), "start", SMALL, "after load; dashed: extrapolated");
}

/// Of a number of kB.
fn bytes(kilobytes: f64) -> String {
    match kilobytes {
        ..1e3 => format!("{} kB", number(kilobytes)),
        1e3..1e6 => format!("{} MB", number(kilobytes / 1e3)),
        _ => format!("{} GB", number(kilobytes / 1e6)),
    }
}
