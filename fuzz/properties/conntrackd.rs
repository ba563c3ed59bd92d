//! The channel to a process that runs programs: nothing but conntrackd's six commands and the hook can be
//! requested, and a message is decoded as it was encoded. No name that it takes from a configuration leads out of the
//! directory.

use keepwatch::wire::helper::{
    Request, decode_message, decode_request, encode_message, encode_request, sockets,
};

/// Takes what comes over the channel, in either direction.
pub fn check(bytes: &[u8]) {
    if let Some((request, number)) = decode_request(bytes) {
        assert_eq!(encode_request(request, number), bytes);
        let (word, words) = match request {
            Request::Sync(command) => (command.flag(), &["-c", "-f", "-R", "-B", "-t", "-n"][..]),
            Request::Hook(call) => (call.state.word(), &["MASTER", "BACKUP", "FAULT"][..]),
        };
        assert!(words.iter().any(|known| word.to_str() == Ok(*known)));
    }
    if let Some(message) = decode_message(bytes) {
        assert_eq!(encode_message(&message), bytes);
    }
    for name in sockets(bytes, b"/d") {
        assert!(!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..");
    }
}
