//! The notification: encodes an HTTP/1.1 request, reads the status line of its reply (RFC 9112).

use core::fmt::{self, Write};
use heapless::{String, Vec};

/// The longest router identity in bytes.
pub const MAX_ROUTER_ID_LEN: usize = 64;
/// The longest accepted status line in bytes, without LF.
const MAX_STATUS_LINE_LEN: usize = 256;
/// Enough for the longest request, in bytes.
const MAX_REQUEST_LEN: usize = 256;

/// The identity sent to the agent: 1 to 64 printable ASCII characters other than space, which can break
/// neither a header nor a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterId(String<MAX_ROUTER_ID_LEN>);

/// The text is no [`RouterId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRouterId;

impl core::str::FromStr for RouterId {
    type Err = InvalidRouterId;

    fn from_str(text: &str) -> Result<Self, InvalidRouterId> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidRouterId);
        }
        text.try_into().map(Self).map_err(|_| InvalidRouterId)
    }
}

impl RouterId {
    /// The identity as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An encoded request.
pub type Request = Vec<u8, MAX_REQUEST_LEN>;

/// Encodes the notification that `router` is now in `state`.
///
/// # Errors
/// [`fmt::Error`] if `state` is too long; 96 bytes always fit.
pub fn encode(router: &RouterId, state: &str) -> Result<Request, fmt::Error> {
    let mut request = Request::new();
    write!(
        request,
        "GET / HTTP/1.1\r\n\
         Host: 127.0.0.1\r\n\
         X-Neutron-Router-Id: {router}\r\n\
         X-Neutron-State: {state}\r\n\
         Connection: close\r\n\
         \r\n"
    )?;
    Ok(request)
}

/// What is known of a reply so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The status line has not ended.
    Incomplete,
    /// The status code.
    Status(u16),
    /// It does not start with an HTTP/1 status line.
    Malformed,
}

/// Reads the status line of a reply, in pieces of any size.
///
/// The verdict depends on the bytes up to the first LF alone and does not change any more. Headers and
/// content are ignored: agents differ in them (the newest ends lines with LF, quotes wrongly and leaves out
/// the blank line).
#[derive(Debug, Default)]
pub struct ReplyReader {
    line: Vec<u8, MAX_STATUS_LINE_LEN>,
    verdict: Option<Reply>,
}

impl ReplyReader {
    /// Reads the next bytes. Returns what is known with them.
    pub fn push(&mut self, bytes: &[u8]) -> Reply {
        if let Some(verdict) = self.verdict {
            return verdict;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let line = end.and_then(|end| bytes.get(..end)).unwrap_or(bytes);
        let verdict = match (self.line.extend_from_slice(line), end) {
            (Err(_), _) => Reply::Malformed,
            (Ok(()), None) => return Reply::Incomplete,
            (Ok(()), Some(_)) => parse_status(&self.line).map_or(Reply::Malformed, Reply::Status),
        };
        self.verdict = Some(verdict);
        verdict
    }
}

/// Parses a status line without its LF (RFC 9112 section 4). Returns the status code.
///
/// The space behind the code may be missing together with the reason, as many servers send it.
fn parse_status(line: &[u8]) -> Option<u16> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (start, reason) = line.strip_prefix(b"HTTP/1.")?.split_first_chunk::<5>()?;
    let ([b'0'..=b'9', b' ', code @ ..], [] | [b' ', ..]) = (start, reason) else { return None };
    // `parse` alone would accept "+20".
    let code = core::str::from_utf8(code).ok()?.parse().ok()?;
    (code >= 100).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the newest agent (threaded server) sends it.
    const THREADED: &[u8] = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\n\
        Connection: close\nContent-Location': http://127.0.0.1/";
    /// As older agents (eventlet server) send it.
    const EVENTLET: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=UTF-8\r\n\
        Content-Length: 0\r\nDate: Fri, 20 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n\r\n";

    fn read(reply: &[u8]) -> Reply {
        ReplyReader::default().push(reply)
    }

    #[test]
    fn request_is_exactly_this() {
        let router = "3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11".parse().unwrap();
        let expected: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\
            X-Neutron-Router-Id: 3c2f5c0e-9f0e-4d43-a3b5-0e1f5d8f9b11\r\n\
            X-Neutron-State: primary\r\nConnection: close\r\n\r\n";
        assert_eq!(encode(&router, "primary").unwrap(), expected);
    }

    #[test]
    fn longest_request_fits() {
        let router = "r".repeat(MAX_ROUTER_ID_LEN).parse().unwrap();
        assert!(encode(&router, &"s".repeat(96)).is_ok());
        assert!(encode(&router, &"s".repeat(97)).is_err());
    }

    #[test]
    fn router_id_cannot_break_a_header() {
        for text in ["", "a b", "a\r\nX: y", "a\n", "a\t", "é", "\x7f", &"r".repeat(65)] {
            assert_eq!(text.parse::<RouterId>(), Err(InvalidRouterId), "{text:?}");
        }
        let router: RouterId = "qrouter-1:x/y!".parse().unwrap();
        assert_eq!(
            (router.as_str(), router.to_string()),
            ("qrouter-1:x/y!", router.as_str().into())
        );
    }

    #[test]
    fn both_generations_of_agents_are_understood_however_they_are_cut() {
        for reply in [THREADED, EVENTLET] {
            for cut in 0..reply.len() {
                let mut reader = ReplyReader::default();
                let first = reader.push(&reply[..cut]);
                let line_end = reply.iter().position(|byte| *byte == b'\n').unwrap();
                let expected = if cut > line_end { Reply::Status(200) } else { Reply::Incomplete };
                assert_eq!(first, expected, "cut at {cut}");
                assert_eq!(reader.push(&reply[cut..]), Reply::Status(200), "cut at {cut}");
            }
            let mut reader = ReplyReader::default();
            let verdicts: Vec<Reply, 512> = reply.chunks(1).map(|byte| reader.push(byte)).collect();
            assert_eq!(verdicts.last(), Some(&Reply::Status(200)));
        }
    }

    #[test]
    fn other_status_lines() {
        assert_eq!(read(b"HTTP/1.0 200\n"), Reply::Status(200));
        assert_eq!(read(b"HTTP/1.1 500 Internal Server Error\r\n"), Reply::Status(500));
        assert_eq!(read(b"HTTP/1.1 200 \r\n"), Reply::Status(200));
        assert_eq!(read(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), Reply::Status(100));
    }

    #[test]
    fn junk_is_malformed() {
        let junk: [&[u8]; 12] = [
            b"\n",
            b"\r\n",
            b"HTTP/1.1\n",
            b"HTTP/1.1 20\n",
            b"HTTP/1.1 2000 OK\n",
            b"HTTP/2 200 OK\n",
            b"HTTP/1.x 200 OK\n",
            b"HTTP/1.1  200 OK\n",
            b"HTTP/1.1 +20 OK\n",
            b" HTTP/1.1 200 OK\n",
            b"http/1.1 200 OK\n",
            b"\0\xff\xfe\n",
        ];
        for reply in junk {
            assert_eq!(read(reply), Reply::Malformed, "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn line_without_end_is_malformed_once_too_long() {
        let mut reader = ReplyReader::default();
        assert_eq!(reader.push(&[b'x'; MAX_STATUS_LINE_LEN]), Reply::Incomplete);
        assert_eq!(reader.push(b"x"), Reply::Malformed);
        assert_eq!(reader.push(b"\nHTTP/1.1 200 OK\n"), Reply::Malformed, "a verdict stands");
    }
}
