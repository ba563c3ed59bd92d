//! The channel to a helper process: nothing but conntrackd's six commands and the hook's calls can be requested, and
//! an event is decoded as it was encoded.

use keepwatch::wire::helper::{HelperEvent, Request};

/// Takes what comes over the channel, in either direction.
pub fn check(bytes: &[u8]) {
    if let [byte] = *bytes
        && let Some(request) = Request::decode(byte)
    {
        assert_eq!(request.encode(), byte);
        let (word, words) = match request {
            Request::Sync(command) => (command.flag(), &["-c", "-f", "-R", "-B", "-t", "-n"][..]),
            Request::Hook(call) => (call.state.word(), &["MASTER", "BACKUP", "FAULT"][..]),
        };
        assert!(words.contains(&word));
    }
    let event = HelperEvent::decode(bytes);
    if event != HelperEvent::Gone {
        assert_eq!(event.encode(), bytes);
    }
}
