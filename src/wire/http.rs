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

impl core::str::FromStr for RouterId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(());
        }
        text.try_into().map(Self).map_err(drop)
    }
}

impl RouterId {
    /// The identity as text.
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
    /// Reads the next bytes. Returns what is known then.
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
