//! Everything that is measured of one candidate.

use std::time::Duration;

use crate::counters::Usage;
use crate::fleet::Fleet;
use crate::size::Size;

#[derive(Debug, Default)]
pub struct Figures {
    /// From the kernel's acknowledgement to the state file, and to the agent.
    pub file: Vec<Duration>,
    pub agent: Vec<Duration>,
    /// From the start to the first state file, and to the first report.
    pub first_file: Vec<Duration>,
    pub first_report: Vec<Duration>,
    /// All transitions together, and the system calls of each.
    pub transitions: Usage,
    pub system_calls: Vec<f64>,
    /// Addresses of other interfaces.
    pub foreign: Usage,
    pub foreign_without_announcements: Option<Usage>,
    /// How often it got stuck and was started again.
    pub failures: usize,
    /// By the number of routers.
    pub fleets: Vec<Fleet>,
    pub size: Size,
}
