//! What a service manager is told (`sd_notify(3)`): assignments of variables, a line each.

use core::fmt::{Arguments, Write};

use heapless::String;

/// The longest message in bytes; what is longer is cut.
const MAX_LEN: usize = 160;

/// A message to the service manager.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// The daemon is up, or has done what it was asked for after [`Message::Reloading`].
    Ready,
    /// It begins to do what it was asked for at this time, in microseconds of the monotonic clock.
    Reloading(i64),
    /// It begins to end.
    Stopping,
    /// It is alive.
    Alive,
    /// Its state, for people.
    Status(Arguments<'a>),
}

/// Encodes a message.
#[must_use]
pub fn encode(message: &Message<'_>) -> String<MAX_LEN> {
    let mut text = String::new();
    // The longest is that of IPv6 on an interface of fifteen characters.
    let _ = match message {
        Message::Ready => text.write_str("READY=1"),
        Message::Reloading(at) => write!(text, "RELOADING=1\nMONOTONIC_USEC={at}"),
        Message::Stopping => text.write_str("STOPPING=1"),
        Message::Alive => text.write_str("WATCHDOG=1"),
        Message::Status(status) => write!(text, "STATUS={status}"),
    };
    text
}
