//! Checks the fuzz targets' properties for the inputs in `fuzz/corpus`, or in the directory of `CORPUS`.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../../fuzz/properties/mod.rs"]
mod properties;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use keepwatch::wire::ClaimKind;
use keepwatch::wire::rtnl::{Body, Messages};

/// Returns the names and contents of the files in a target's corpus.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");
    let directory = std::env::var_os("CORPUS").unwrap_or(directory.into());
    let files = std::fs::read_dir(PathBuf::from(directory).join(target)).expect(target);
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        let file = file.expect("a readable directory");
        let name = file.file_name().into_string().expect("a name in UTF-8");
        (name, std::fs::read(file.path()).expect("a readable file"))
    };
    let corpus: Vec<_> = files.map(read).collect();
    assert!(!corpus.is_empty(), "the corpus of {target} is empty");
    corpus
}

fn replay(target: &str, check: fn(&[u8])) {
    for (name, bytes) in corpus(target) {
        let result = catch_unwind(AssertUnwindSafe(|| check(&bytes)));
        assert!(result.is_ok(), "fuzz/corpus/{target}/{name}");
    }
}

macro_rules! replay {
    ($($target:ident)*) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target), properties::$target::check);
        }
    )*};
}

replay!(argv cidr core frames reply request rtnl);

/// Returns the recorded inputs. Those of the fuzzer have a hash as name.
fn recorded(target: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    let is_hash = |name: &str| name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit());
    corpus(target).into_iter().filter(move |(name, _)| !is_hash(name))
}

#[test]
fn recorded_netlink_messages_are_understood() {
    let mut bodies = [0; 6];
    for (name, datagram) in recorded("rtnl") {
        for message in Messages::new(&datagram) {
            let message = message.unwrap_or_else(|_| panic!("{name}"));
            let kind = match message.body {
                Body::NewAddress(_) => 0,
                Body::DelAddress(_) => 1,
                Body::NewLink(_) => 2,
                Body::DelLink(_) => 3,
                Body::Ipv6Forwarding { .. } => 4,
                Body::Done(_) | Body::Other => 5,
            };
            bodies[kind] += 1;
        }
    }
    assert!(bodies.iter().all(|count| *count > 0), "{bodies:?}");
}

#[test]
fn recorded_frames_are_claims_or_not() {
    for (name, frame) in recorded("frames") {
        // ARP requests and replies, and neighbour advertisements
        let claims = ["arp-1", "arp-2", "icmpv6-136"].iter().any(|kind| name.starts_with(kind));
        let parsed = keepwatch::wire::parse_claim(&frame);
        let is_claim = parsed.is_some_and(|claim| claim.kind != ClaimKind::Probe);
        assert_eq!(is_claim, claims, "{name}");
    }
}
