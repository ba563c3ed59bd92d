//! The agent's reply: the verdict is the same however the bytes are cut, it stands once it is given,
//! and it is never 200 without a status line that says so.

use keepwatch::wire::http::{Reply, ReplyReader};

/// Takes pieces as an agent wrote them, each behind a byte that tells its length.
pub fn check(mut pieces: &[u8]) {
    let (mut reply, mut reader, mut in_pieces) = (Vec::new(), ReplyReader::default(), Vec::new());
    while let Some((length, rest)) = pieces.split_first() {
        let (piece, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        in_pieces.push(reader.push(piece));
        reply.extend_from_slice(piece);
        pieces = rest;
    }
    stands(&in_pieces);
    let whole = ReplyReader::default().push(&reply);
    assert_eq!(in_pieces.last().copied().unwrap_or(Reply::Incomplete), whole);
    let mut reader = ReplyReader::default();
    let in_bytes: Vec<Reply> = reply.iter().map(|byte| reader.push(&[*byte])).collect();
    stands(&in_bytes);
    assert_eq!(in_bytes.last().copied().unwrap_or(Reply::Incomplete), whole);
    is_what_it_says(&reply, whole);
}

fn stands(verdicts: &[Reply]) {
    let decided = verdicts.iter().position(|verdict| *verdict != Reply::Incomplete);
    let decided = decided.map_or(&[][..], |decided| &verdicts[decided..]);
    assert!(decided.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:?}");
}

/// RFC 9112 section 4, with a lone LF (section 2.2) and without the space behind the code.
fn is_what_it_says(reply: &[u8], verdict: Reply) {
    let end = reply.iter().position(|byte| *byte == b'\n');
    let line = &reply[..end.unwrap_or(reply.len())];
    let text = str::from_utf8(line).unwrap_or_default();
    let words: Vec<&str> = text.strip_suffix('\r').unwrap_or(text).split(' ').collect();
    match verdict {
        Reply::Incomplete => assert!(end.is_none() && line.len() <= 256),
        Reply::Status(code) => {
            assert!(end.is_some() && line.len() <= 256 && (100..1000).contains(&code));
            assert!(line.starts_with(format!("HTTP/1.{} {code}", char::from(line[7])).as_bytes()));
            assert!(line[7].is_ascii_digit() && matches!(line.get(12), None | Some(b' ' | b'\r')));
        }
        Reply::Malformed => {
            let proper = end.is_some()
                && line.len() <= 256
                && matches!(words[0], "HTTP/1.0" | "HTTP/1.1")
                && words.get(1).is_some_and(|code| code.len() == 3)
                && words[1].parse::<u16>().is_ok_and(|code| (100..1000).contains(&code));
            assert!(!proper, "{text:?}");
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut theirs = httparse::Response::new(&mut headers);
    let understood = theirs.parse(reply).is_ok_and(|status| status.is_complete());
    // It skips empty lines at the beginning, and knows no longest line.
    if understood && reply.starts_with(b"HTTP") && line.len() <= 256 && theirs.code >= Some(100) {
        assert_eq!(Some(verdict), theirs.code.map(Reply::Status));
    }
}
