//! What must hold for any bytes. One file for each fuzz target; `tests/corpus` uses them too.

pub mod argv;
pub mod cidr;
pub mod core;
pub mod frames;
pub mod reply;
pub mod request;
pub mod rtnl;
