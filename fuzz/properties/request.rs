//! The notification: for every legal router identity, another parser finds exactly one request with exactly four
//! headers.

use keepwatch::monitor::{ActiveWord, State};
use keepwatch::wire::http::{RouterId, encode};

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
    let is_legal = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-' | b'\\')
    };
    let legal = (1..=64).contains(&text.len()) && text.as_bytes().iter().all(is_legal);
    assert_eq!(text.parse::<RouterId>().is_ok(), legal, "{text:?}");
    if legal {
        is_one_request(&text, state.word(active));
    }
    let made = bytes.iter().copied().filter(is_legal).take(64).map(char::from);
    let made: String = made.collect();
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
