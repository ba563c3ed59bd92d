//! Many numbers, made few.

use std::fmt;
use std::time::Duration;

/// The number that so many of a thousand do not exceed. There has to be at least one.
pub fn quantile(mut numbers: Vec<f64>, thousandths: usize) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let rank = (numbers.len() * thousandths).div_ceil(1000).clamp(1, numbers.len());
    numbers[rank - 1]
}

/// There has to be at least one.
pub fn median(numbers: Vec<f64>) -> f64 {
    quantile(numbers, 500)
}

/// What several runs showed: the one in the middle, the least and the most.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// None of no runs.
    pub fn new(runs: &[f64]) -> Option<Self> {
        let least = runs.iter().copied().min_by(f64::total_cmp)?;
        let most = runs.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: median(runs.to_vec()), least, most })
    }
}

/// The range only where there is one to be seen.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, least, most] = [self.median, self.least, self.most].map(number);
        if least == most { f.write_str(&median) } else { write!(f, "{median} ({least}–{most})") }
    }
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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
