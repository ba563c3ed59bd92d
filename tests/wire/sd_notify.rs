//! What a service manager is told, as `sd_notify(3)` has it.

use keepwatch::wire::sd_notify::{Message, encode};

#[test]
fn messages_are_assignments() {
    assert_eq!(encode(&Message::Ready), "READY=1");
    assert_eq!(encode(&Message::Reloading(12_345_678)), "RELOADING=1\nMONOTONIC_USEC=12345678");
    assert_eq!(encode(&Message::Stopping), "STOPPING=1");
    assert_eq!(encode(&Message::Alive), "WATCHDOG=1");
    assert_eq!(
        encode(&Message::Status(format_args!("backup on {}", "ha0"))),
        "STATUS=backup on ha0"
    );
}

#[test]
fn longest_status_is_whole() {
    let vip = "fd00:1234:1234:1234:1234:1234:1234:1234/128";
    let status = format!("backup: {vip} is absent; waiting for interface abcdefghijklmno");
    assert_eq!(
        encode(&Message::Status(format_args!("{status}"))),
        format!("STATUS={status}").as_str()
    );
}
