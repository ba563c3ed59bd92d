//! keepwatch watches whether keepalived has put a virtual IP address (VIP) on an interface.
//!
//! It keeps a one-word state file and tells an agent over HTTP on a Unix socket. It promises that no
//! change is missed, that the newest state arrives at the agent however long that is absent, and that
//! it neither allocates nor wakes up without a reason once it runs.
//!
//! Data goes one way:
//!
//! 1. [`sys`] reads bytes from the kernel and the agent;
//! 2. [`wire`] turns them into values;
//! 3. [`monitor`] decides what is to be done: it is handed an input, and asked for the next action until there is none;
//! 4. [`daemon`], the loop, has [`sys`] execute each, and hands the result in before it asks for the next.
//!
//! [`options`] is the configuration, [`log`] the output for people, [`metrics`] that for Prometheus.

pub mod check;
pub mod daemon;
pub mod errno;
pub mod list;
pub mod log;
pub mod metrics;
pub mod monitor;
pub mod options;
pub mod sys;
pub mod wire;
