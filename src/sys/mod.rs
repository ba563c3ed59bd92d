//! The thin edge to Linux: every file descriptor, every system call, no decision.

pub mod agent;
pub mod atomic_file;
pub mod bpf;
pub mod clock;
pub mod daemonize;
mod errno;
mod files;
pub mod helper;
pub mod interface;
pub mod landlock;
pub mod log_sink;
pub mod memory;
pub mod netlink;
pub mod netns;
pub mod own_file;
pub mod packet;
pub mod passwd;
pub mod pid_file;
pub mod privileges;
pub mod process;
pub mod seccomp;
pub mod service_manager;
pub mod signals;
pub mod stderr;
pub mod trust;
