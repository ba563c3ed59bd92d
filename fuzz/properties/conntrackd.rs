//! The channel to the process that runs conntrackd: nothing but the six commands can be requested,
//! and a message is decoded as it was encoded. No name that it takes from a configuration leads out of the
//! directory.

use keepwatch::wire::helper::{
    decode_message, decode_request, encode_message, encode_request, sockets,
};

/// Takes what comes over the channel, in either direction.
pub fn check(bytes: &[u8]) {
    if let Some((command, number)) = decode_request(bytes) {
        assert_eq!(encode_request(command, number), bytes);
        assert!(["-c", "-f", "-R", "-B", "-t", "-n"].map(Ok).contains(&command.flag().to_str()));
    }
    if let Some(message) = decode_message(bytes) {
        assert_eq!(encode_message(&message), bytes);
    }
    for name in sockets(bytes, b"/d") {
        assert!(!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..");
    }
}
