//! The notification: for every legal router identity, another parser finds exactly one request with exactly four
//! headers.

use keepwatch::monitor::{ActiveWord, State};
use keepwatch::wire::http::{RouterId, encode};

/// What a router identity may have.
const LEGAL: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-\\";

const WORDS: [(State, ActiveWord); 3] = [
    (State::Active, ActiveWord::Master),
    (State::Active, ActiveWord::Primary),
    (State::Backup, ActiveWord::Master),
];

/// Checks an identity, and a legal one made from it.
pub fn check(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let (state, active) = WORDS[usize::from(*choice) % WORDS.len()];
    let text = String::from_utf8_lossy(bytes);
    let legal = (1..=64).contains(&text.len()) && text.bytes().all(|byte| LEGAL.contains(&byte));
    assert_eq!(text.parse::<RouterId>().is_ok(), legal, "{text:?}");
    if legal {
        is_one_request(&text, state.word(active));
    }
    let made = bytes.iter().take(64).map(|byte| LEGAL[usize::from(*byte) % LEGAL.len()]);
    let made: String = made.map(char::from).collect();
    if !made.is_empty() {
        is_one_request(&made, state.word(active));
    }
}

fn is_one_request(router: &str, word: &str) {
    let identity: RouterId = router.parse().expect("a legal identity");
    let bytes = encode(&identity, word).expect("room for the longest identity");
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(&bytes).expect("a well-formed request");
    assert_eq!(parsed, httparse::Status::Complete(bytes.len()), "one request and nothing else");
    assert_eq!((request.method, request.path, request.version), (Some("GET"), Some("/"), Some(1)));
    let headers: Vec<_> = request.headers.iter().map(|h| (h.name, h.value)).collect();
    let expected = [
        ("Host", "127.0.0.1"),
        ("X-Neutron-Router-Id", router),
        ("X-Neutron-State", word),
        ("Connection", "close"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name, value.as_bytes())));
}
