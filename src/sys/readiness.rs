//! Telling whoever started the daemon that it is up, and a service manager how it fares.

use std::os::fd::{AsFd, OwnedFd};

use super::process::{print_error, write_all};
use super::service_manager::ServiceManager;
use crate::wire::sd_notify::Message;

/// What the daemon writes into the pipe to its parent once it is up. Anything else is an error message.
pub(super) const UP: &str = "up";

/// Who waits for readiness.
#[derive(Debug)]
pub enum ReadinessNotifier {
    /// The process that forked the daemon, at the other end of this pipe.
    Parent(OwnedFd),
    /// A service manager, which hears of more than readiness.
    Manager(ServiceManager),
    /// Nobody, or nobody any more.
    Nobody,
}

impl ReadinessNotifier {
    /// The service manager that the environment names, or nobody.
    ///
    /// # Errors
    /// The variable and what is wrong with it, in one line.
    pub fn from_environment() -> Result<Self, String> {
        Ok(ServiceManager::from_environment()?.map_or(Self::Nobody, Self::Manager))
    }

    /// The service manager, if there is one.
    #[must_use]
    pub fn manager(&self) -> Option<&ServiceManager> {
        match self {
            Self::Manager(manager) => Some(manager),
            Self::Parent(_) | Self::Nobody => None,
        }
    }

    /// Tells that the daemon is up, or a service manager that it is done with what it was asked for.
    pub fn ready(&mut self) {
        match self {
            Self::Parent(pipe) => {
                // A starter that has gone meanwhile misses nothing.
                write_all(pipe.as_fd(), UP);
                *self = Self::Nobody;
            }
            Self::Manager(manager) => manager.send(&Message::Ready),
            Self::Nobody => {}
        }
    }

    /// Tells why the daemon does not come up: the parent, which prints it, or standard error.
    pub fn failed(&mut self, error: &str) {
        match self {
            Self::Parent(pipe) => write_all(pipe.as_fd(), error),
            Self::Manager(_) | Self::Nobody => print_error(error),
        }
    }
}
