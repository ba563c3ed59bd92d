//! What is told of many measurements.

use std::time::Duration;

/// The middle one, the one that 99 of 100 do not exceed, and the worst.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub median: f64,
    pub p99: f64,
    pub worst: f64,
}

impl Summary {
    /// In milliseconds. There has to be at least one.
    pub fn new(latencies: &[Duration]) -> Self {
        let mut sorted = latencies.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len());
            milliseconds(sorted[rank - 1])
        };
        Self { median: at(50), p99: at(99), worst: at(100) }
    }
}

/// The middle one. There has to be at least one.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
