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
    /// There has to be at least one.
    pub fn new(mut numbers: Vec<f64>) -> Self {
        numbers.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (numbers.len() * percent).div_ceil(100).clamp(1, numbers.len());
            numbers[rank - 1]
        };
        Self { median: at(50), p99: at(99), worst: at(100) }
    }

    /// In milliseconds. There has to be at least one.
    pub fn of_times(times: &[Duration]) -> Self {
        Self::new(times.iter().copied().map(milliseconds).collect())
    }
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
