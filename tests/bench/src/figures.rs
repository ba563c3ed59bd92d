//! Everything that is measured of one candidate.

use std::time::Duration;

use crate::counters::Usage;
use crate::fail_over::FailOver;
use crate::fleet::Fleet;
use crate::size::Size;
use crate::statistics::{median, milliseconds, quantile};
use crate::trial::Latency;

/// A transition and what it took.
pub type Transition = (Latency, Usage);

/// What one turn of a candidate showed.
#[derive(Debug, Default)]
pub struct Run {
    /// From the start to the first state file, and to the first report.
    pub first_file: Vec<Duration>,
    pub first_report: Vec<Duration>,
    pub transitions: Vec<Transition>,
    /// Each the first after memory was reclaimed.
    pub after_reclaim: Vec<Transition>,
    /// While all cores are busy. None of the slow ones.
    pub under_load: Vec<Transition>,
}

#[derive(Debug, Default)]
pub struct Figures {
    pub runs: Vec<Run>,
    /// Addresses of other interfaces.
    pub foreign: Usage,
    pub foreign_without_announcements: Option<Usage>,
    /// How often it got stuck and was started again.
    pub failures: usize,
    /// By the number of routers.
    pub fleets: Vec<Fleet>,
    pub fail_overs: Vec<FailOver>,
    pub size: Size,
}

/// In milliseconds, from the kernel's acknowledgement.
pub fn to_file((latency, _): &Transition) -> f64 {
    milliseconds(latency.file)
}

/// In milliseconds, from the kernel's acknowledgement.
pub fn to_agent((latency, _): &Transition) -> f64 {
    milliseconds(latency.agent)
}

/// One number of each run, or none.
impl Figures {
    /// Of all transitions.
    pub fn transitions(&self) -> impl Iterator<Item = &Transition> {
        self.runs.iter().flat_map(|run| &run.transitions)
    }

    /// The median of one figure of a transition.
    pub fn median(&self, of: impl Fn(&Transition) -> f64) -> Vec<f64> {
        self.each(|run| &run.transitions, |all| median(all.iter().map(&of).collect()))
    }

    /// What 99 of 100 do not exceed.
    pub fn p99(&self, of: impl Fn(&Transition) -> f64) -> Vec<f64> {
        self.each(|run| &run.transitions, |all| quantile(all.iter().map(&of).collect(), 990))
    }

    /// The mean of one figure of a transition.
    pub fn mean(&self, of: impl Fn(&Usage) -> f64) -> Vec<f64> {
        self.each(|run| &run.transitions, |all| mean(all, &of))
    }

    /// From the VIP to the agent after reclaim, in milliseconds, median.
    pub fn after_reclaim(&self) -> Vec<f64> {
        self.each(|run| &run.after_reclaim, |all| median(all.iter().map(to_agent).collect()))
    }

    /// Of each transition after reclaim, mean.
    pub fn major_faults(&self) -> Vec<f64> {
        self.each(|run| &run.after_reclaim, |all| mean(all, |usage| usage.major_faults))
    }

    /// From the VIP to the agent while all cores are busy, in milliseconds.
    pub fn p99_under_load(&self) -> Vec<f64> {
        self.each(|run| &run.under_load, |all| quantile(all.iter().map(to_agent).collect(), 990))
    }

    /// The same of all runs together, as there are too few transitions in one.
    pub fn p999_under_load(&self) -> Vec<f64> {
        let all: Vec<_> = self.runs.iter().flat_map(|run| &run.under_load).map(to_agent).collect();
        if all.is_empty() { all } else { vec![quantile(all, 999)] }
    }

    /// The median of the times from the start, in milliseconds.
    pub fn start(&self, of: impl Fn(&Run) -> &Vec<Duration>) -> Vec<f64> {
        self.each(of, |all| median(all.iter().copied().map(milliseconds).collect()))
    }

    fn each<T>(&self, of: impl Fn(&Run) -> &Vec<T>, figure: impl Fn(&Vec<T>) -> f64) -> Vec<f64> {
        self.runs.iter().map(of).filter(|all| !all.is_empty()).map(figure).collect()
    }
}

fn mean(transitions: &[Transition], of: impl Fn(&Usage) -> f64) -> f64 {
    transitions.iter().map(|(_, usage)| of(usage)).sum::<f64>() / transitions.len() as f64
}
