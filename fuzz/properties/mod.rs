//! Properties for any bytes, one file for each fuzz target. The test `corpus` checks them, too.

pub mod argv;
pub mod cidr;
pub mod core;
pub mod frames;
pub mod reply;
pub mod request;
pub mod rtnl;
