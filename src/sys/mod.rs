//! The edge to Linux: file descriptors and system calls, no decisions.

pub(crate) mod agent;
pub mod atomic_file;
pub(crate) mod bpf;
pub(crate) mod clock;
pub mod daemonize;
mod errno;
pub(crate) mod files;
pub(crate) mod helper;
pub(crate) mod interface;
pub mod landlock;
pub(crate) mod log_sink;
pub(crate) mod memory;
pub(crate) mod netlink;
pub(crate) mod netns;
pub(crate) mod own_file;
pub(crate) mod packet;
pub(crate) mod passwd;
pub(crate) mod pid_file;
pub mod privileges;
pub mod process;
pub(crate) mod seccomp;
pub mod service_manager;
pub mod signals;
pub(crate) mod stderr;
pub mod trust;
