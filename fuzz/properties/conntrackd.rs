//! The channel to the process that runs conntrackd: nothing but the six commands can be asked of it,
//! and a message means what was told. No name that it takes from a configuration leads out of the
//! directory.

use keepwatch::wire::helper::{ask, asked, sockets, tell, told};

/// Takes what comes over the channel, in either direction.
pub fn holds(bytes: &[u8]) {
    if let Some((command, number)) = asked(bytes) {
        assert_eq!(ask(command, number), bytes);
        assert!(["-c", "-f", "-R", "-B", "-t", "-n"].map(Ok).contains(&command.flag().to_str()));
    }
    if let Some(message) = told(bytes) {
        assert_eq!(tell(&message), bytes);
    }
    for name in sockets(bytes, b"/d") {
        assert!(!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..");
    }
}
