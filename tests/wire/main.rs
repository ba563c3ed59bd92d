//! The formats of `src/wire`, by examples.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod arp;
mod http;
mod ifname;
mod ndisc;
mod rtnl;

/// Asserts that two frames or messages are equal. A failure shows them in hexadecimal by `fields`, which are names with
/// lengths in bytes.
#[track_caller]
fn assert_fields(mut actual: &[u8], mut expected: &[u8], fields: &str) {
    if actual == expected {
        return;
    }
    let take = |bytes: &mut &[u8], length: usize| {
        let (field, rest) = bytes.split_at(length.min(bytes.len()));
        *bytes = rest;
        field.iter().fold(String::new(), |text, byte| format!("{text} {byte:02x}"))
    };
    let mut table = String::from("unexpected frame or message\n");
    for field in fields.split_whitespace().chain(["rest:65536"]) {
        let (name, length) = field.split_once(':').unwrap();
        let length = length.parse().unwrap();
        let (actual, expected) = (take(&mut actual, length), take(&mut expected, length));
        let equal = actual == expected;
        let differs = if equal { String::new() } else { format!("  instead of{expected}") };
        table = format!("{table}{name:>20}:{actual}{differs}\n");
    }
    panic!("{table}");
}
