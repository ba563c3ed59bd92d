//! The channel to the process that runs conntrackd: nothing but the six commands can be asked of it,
//! and an answer means what was answered.

use keepwatch::wire::conntrackd::{answer, answered, ask, asked};

/// Takes what comes over the channel, in either direction.
pub fn holds(bytes: &[u8]) {
    if let Some(command) = asked(bytes) {
        assert_eq!(ask(command), bytes);
        assert!(["-c", "-f", "-R", "-B", "-t", "-n"].map(Ok).contains(&command.flag().to_str()));
    }
    if let Some(end) = answered(bytes) {
        assert_eq!(answer(end), bytes);
    }
}
