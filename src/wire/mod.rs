//! Bytes in, values out, and back: one file per format.
//!
//! Nothing here touches a file descriptor. Every parser is total: whatever the bytes, it answers
//! with a value or an error, and it never reads outside them.

pub mod cidr;
pub mod http;
pub mod ifname;
pub mod rtnl;
