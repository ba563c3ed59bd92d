//! keepwatch watches whether keepalived has put a virtual IP address (VIP) on an interface.
//!
//! It keeps a one-word state file and tells an agent over HTTP on a Unix socket. It promises that no
//! change is missed, that the newest state arrives at the agent however long that is absent, and that
//! it neither allocates nor wakes up without a reason once it runs.
//!
//! [`wire`] turns bytes into values, [`core`] decides what is to be done about them.

pub mod core;
pub mod errno;
pub mod wire;
