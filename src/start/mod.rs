//! What runs once, before the loop: it may allocate, open any file and be root. [`crate::sys`] may not.

mod confine;
pub mod daemonize;
pub(crate) mod files;
pub mod landlock;
mod memory;
pub(crate) mod netns;
pub(crate) mod passwd;
mod pid_file;
pub mod privileges;
pub mod process;
pub(crate) mod program;
mod seccomp;
pub mod service_manager;
mod setup;
pub mod trust;
mod warnings;

pub use setup::StartError;
pub(crate) use setup::named;
pub use warnings::check_log;
