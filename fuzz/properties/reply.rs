//! The agent's reply: the verdict does not depend on how the bytes are split, and 200 needs such a status line.

use keepwatch::wire::http::{Reply, ReplyReader};

/// Checks the pieces of an agent's writes, each after a byte with its length.
pub fn check(mut pieces: &[u8]) {
    let (mut reply, mut in_pieces) = (Vec::new(), Vec::new());
    while let Some((length, rest)) = pieces.split_first() {
        let (piece, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        in_pieces.push(piece);
        reply.extend_from_slice(piece);
        pieces = rest;
    }
    let whole = ReplyReader::default().push(&reply);
    assert_eq!(verdict(in_pieces), whole);
    assert_eq!(verdict(reply.chunks(1)), whole);
    if let Some(last) = skip_interim(&reply) {
        assert_verdict(last, whole);
    } else {
        assert!(matches!(whole, Reply::Incomplete | Reply::Malformed));
    }
}

/// Returns the bytes after interim responses (RFC 9110 section 15.2), or none if these are incomplete or too long.
fn skip_interim(mut reply: &[u8]) -> Option<&[u8]> {
    let mut headers = 0;
    while let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', b'1', tens, ones, end, ..] =
        reply
        && [minor, tens, ones].iter().all(|digit| digit.is_ascii_digit())
        && (*tens, *ones) != (b'0', b'1')
        && b" \r\n".contains(end)
        && let Some(line) = reply.iter().position(|byte| *byte == b'\n').filter(|end| *end <= 256)
        && (*end != b'\r' || line == 13)
    {
        let lines = reply[line + 1..].split_inclusive(|byte| *byte == b'\n');
        let before = lines.take_while(|line| ![&b"\n"[..], b"\r\n"].contains(line));
        let skipped: usize = before.map(<[u8]>::len).sum();
        let empty = reply[line + 1 + skipped..].iter().position(|byte| *byte == b'\n')?;
        reply = &reply[line + 1 + skipped + empty + 1..];
        headers += skipped + empty + 1;
        if headers > 4096 {
            return None;
        }
    }
    Some(reply)
}

/// Reads pieces until one has a verdict.
fn verdict<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Reply {
    let mut reader = ReplyReader::default();
    let mut verdicts = pieces.into_iter().map(|piece| reader.push(piece));
    verdicts.find(|verdict| *verdict != Reply::Incomplete).unwrap_or(Reply::Incomplete)
}

/// Asserts a verdict by RFC 9112 section 4. A lone LF (section 2.2) and a code without the space after it are accepted.
fn assert_verdict(reply: &[u8], verdict: Reply) {
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
    // httparse skips empty lines at the beginning, and has no limit for a line.
    if understood && reply.starts_with(b"HTTP") && line.len() <= 256 && theirs.code >= Some(100) {
        assert_eq!(Some(verdict), theirs.code.map(Reply::Status));
    }
}
