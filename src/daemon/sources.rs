//! The descriptors that the poll reports on.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::event_loop::Daemon;
use crate::errno::Errno;
use crate::helper::Helper;
use crate::log;
use crate::sys::netns::NamespaceWatch;
use crate::sys::packet::PacketSocket;

pub(super) const ROUTE: usize = 0;
pub(super) const SIGNALS: usize = 1;
pub(super) const PACKETS: usize = 2;
/// Names of network namespaces are mounts.
pub(super) const MOUNTS: usize = 3;
pub(super) const CONNTRACKD: usize = 4;
pub(super) const HOOK: usize = 5;
pub(super) const AGENT: usize = 6;
/// Needs no handling: the log is written before the next wait.
pub(super) const LOG: usize = 7;
pub(super) const CLOCK: usize = 8;
pub(crate) const SOURCES: usize = CLOCK + 1;

impl Daemon<'_> {
    /// Registers the sources that are open at the start.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        self.watch(self.route.fd().as_raw_fd(), ROUTE, Some(Interest::READABLE))?;
        self.watch(self.signals.as_raw_fd(), SIGNALS, Some(Interest::READABLE))?;
        self.watch(self.clock.as_fd().as_raw_fd(), CLOCK, Some(Interest::READABLE))?;
        let conntrackd = self.conntrackd.as_ref().map(Helper::fd).zip(Some(CONNTRACKD));
        let hook = self.hook.as_ref().map(Helper::fd).zip(Some(HOOK));
        for (fd, source) in conntrackd.into_iter().chain(hook) {
            self.watch(fd, source, Some(Interest::READABLE))?;
        }
        Ok(())
    }

    /// Registers a source, or without an `interest` deregisters it.
    fn watch(&self, fd: RawFd, source: usize, interest: Option<Interest>) -> io::Result<()> {
        let (registry, mut fd) = (self.poll.registry(), SourceFd(&fd));
        match interest {
            Some(interest) => registry.register(&mut fd, Token(source), interest),
            None => registry.deregister(&mut fd),
        }
    }

    /// Writes the log. Watches the log daemon's socket as long as that has no room.
    pub(super) fn flush_log(&mut self) {
        let full = log::flush();
        if full != self.full_log
            && let Some(fd) = full.or(self.full_log)
        {
            // On failure, the lines wait for the next event.
            let _ = self.watch(fd, LOG, full.map(|_| Interest::WRITABLE));
            self.full_log = full;
        }
    }

    /// Registers for the next mount or unmount only: one check of the namespace covers all that follow.
    pub(super) fn watch_mounts(&self) -> Result<(), Errno> {
        let Some(fd) = self.namespace.as_ref().and_then(NamespaceWatch::fd) else { return Ok(()) };
        self.watch_anew(fd, MOUNTS, Interest::PRIORITY)
    }

    pub(super) fn unwatch_mounts(&self) {
        if let Some(fd) = self.namespace.as_ref().and_then(NamespaceWatch::fd) {
            // On failure, further mounts only cause wake-ups.
            let _ = self.watch(fd, MOUNTS, None);
        }
    }

    /// Registers or deregisters the packet socket. Registering also reports frames already received.
    pub(super) fn set_reads_frames(&mut self, reads_frames: bool) -> Result<(), Errno> {
        self.reads_frames = reads_frames;
        let Some(fd) = self.packets.as_ref().map(PacketSocket::fd) else { return Ok(()) };
        if reads_frames {
            return self.watch_anew(fd, PACKETS, Interest::READABLE);
        }
        // On failure, frames only cause wake-ups.
        let _ = self.watch(fd, PACKETS, None);
        Ok(())
    }

    /// Registers a source that may be registered already.
    fn watch_anew(&self, fd: RawFd, source: usize, interest: Interest) -> Result<(), Errno> {
        match self.watch(fd, source, Some(interest)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            watched => Ok(watched?),
        }
    }
}
