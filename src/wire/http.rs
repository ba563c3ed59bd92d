//! The notification: encodes an HTTP/1.1 request, reads the status line of its reply (RFC 9112).

use core::fmt::{self, Write};
use heapless::{String, Vec};

/// The longest router identity in bytes.
pub const MAX_ROUTER_ID_LEN: usize = 64;
/// The longest accepted status line in bytes, without LF.
const MAX_STATUS_LINE_LEN: usize = 256;
/// The longest headers of interim responses in bytes, so that an agent cannot keep the daemon reading.
const MAX_INTERIM_LEN: usize = 4096;
/// Enough for the longest request, in bytes.
const MAX_REQUEST_LEN: usize = 256;

/// The identity sent to the agent: 1 to 64 ASCII letters, digits, `.`, `_`, `:` and `-`, which break neither a header nor a
/// log line, and run nothing in a shell to which somebody gives a log line; and `\`, which systemd writes into the names of
/// instances (`systemd-escape(1)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterId(String<MAX_ROUTER_ID_LEN>);

impl core::str::FromStr for RouterId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let may_have = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-\\".contains(&byte);
        let is_legal = !text.is_empty() && text.bytes().all(may_have);
        let id = is_legal.then(|| text.try_into().ok()).flatten().map(Self);
        id.ok_or("expected 1 to 64 ASCII letters, digits, dots, underscores, colons, hyphens and backslashes")
    }
}

impl RouterId {
    /// Returns the identity as text.
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

/// A reply, as far as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The status line has not ended.
    Incomplete,
    /// The status code.
    Status(u16),
    /// It does not start with an HTTP/1 status line.
    Malformed,
}

/// Reads the status line of a reply, in pieces of any size, and skips interim responses before it (RFC 9110 section
/// 15.2), such as `100` and `103`.
///
/// Headers and content are ignored: agents differ in them (the newest ends lines with LF, quotes wrongly and
/// omits the blank line).
#[derive(Debug, Default)]
pub struct ReplyReader {
    /// The current line.
    line: Vec<u8, MAX_STATUS_LINE_LEN>,
    /// The current line is a header of an interim response.
    is_interim: bool,
    /// The number of bytes in such headers.
    skipped: usize,
}

impl ReplyReader {
    /// Reads the next bytes. Call it until the reply is no longer incomplete.
    pub fn push(&mut self, bytes: &[u8]) -> Reply {
        for byte in bytes {
            self.skipped += usize::from(self.is_interim);
            if self.skipped > MAX_INTERIM_LEN {
                return Reply::Malformed;
            }
            if *byte != b'\n' {
                // A long header need not fit: only an empty line matters.
                if self.line.push(*byte).is_err() && !self.is_interim {
                    return Reply::Malformed;
                }
                continue;
            }
            if self.is_interim {
                self.is_interim = !matches!(self.line.as_slice(), b"" | b"\r");
            } else {
                match parse_status(&self.line) {
                    None => return Reply::Malformed,
                    // 101 is final: the request asks for no other protocol.
                    Some(100 | 102..=199) => self.is_interim = true,
                    Some(code) => return Reply::Status(code),
                }
            }
            self.line.clear();
        }
        Reply::Incomplete
    }
}

/// Parses a status line without its LF (RFC 9112 section 4). Returns the status code.
///
/// Many servers omit the space behind the code together with the reason.
fn parse_status(line: &[u8]) -> Option<u16> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (start, reason) = line.strip_prefix(b"HTTP/1.")?.split_first_chunk::<5>()?;
    let ([b'0'..=b'9', b' ', code @ ..], [] | [b' ', ..]) = (start, reason) else { return None };
    // `parse` alone would accept "+20".
    let code = core::str::from_utf8(code).ok()?.parse().ok()?;
    (code >= 100).then_some(code)
}
