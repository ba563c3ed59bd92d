use keepwatch::wire::http::{MAX_ROUTER_ID_LEN, Reply, ReplyReader, RouterId, encode};

/// The longest accepted status line in bytes, without LF.
const MAX_STATUS_LINE_LEN: usize = 256;

/// As the newest agent (threaded server) sends it.
const THREADED: &[u8] = b"HTTP/1.1 200 OK\nContent-Type: text/plain; charset=UTF-8\n\
    Connection: close\nContent-Location': http://127.0.0.1/";
/// As older agents (eventlet server) send it.
const EVENTLET: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=UTF-8\r\n\
    Content-Length: 0\r\nDate: Fri, 20 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n\r\n";

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
        assert_eq!(text.parse::<RouterId>(), Err(()), "{text:?}");
    }
    let router: RouterId = "qrouter-1:x/y!".parse().unwrap();
    assert_eq!((router.as_str(), router.to_string()), ("qrouter-1:x/y!", router.as_str().into()));
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
        let verdicts: Vec<Reply> = reply.chunks(1).map(|byte| reader.push(byte)).collect();
        assert_eq!(verdicts.last(), Some(&Reply::Status(200)));
    }
}

#[test]
fn other_status_lines_and_junk() {
    let cases: [(&[u8], Reply); 12] = [
        (b"HTTP/1.0 200\n", Reply::Status(200)),
        (b"HTTP/1.1 500 Internal Server Error\r\n", Reply::Status(500)),
        (b"HTTP/1.1 200 \r\n", Reply::Status(200)),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", Reply::Status(100)),
        (b"\n", Reply::Malformed),
        (b"HTTP/1.1 20\n", Reply::Malformed),
        (b"HTTP/1.1 2000 OK\n", Reply::Malformed),
        (b"HTTP/2 200 OK\n", Reply::Malformed),
        (b"HTTP/1.x 200 OK\n", Reply::Malformed),
        (b"HTTP/1.1  200 OK\n", Reply::Malformed),
        (b"HTTP/1.1 +20 OK\n", Reply::Malformed),
        (b"\0\xff\xfe\n", Reply::Malformed),
    ];
    for (reply, expected) in cases {
        let read = ReplyReader::default().push(reply);
        assert_eq!(read, expected, "{}", reply.escape_ascii());
    }
}

#[test]
fn line_without_end_is_malformed_once_too_long() {
    let mut reader = ReplyReader::default();
    assert_eq!(reader.push(&[b'x'; MAX_STATUS_LINE_LEN]), Reply::Incomplete);
    assert_eq!(reader.push(b"x"), Reply::Malformed);
    assert_eq!(reader.push(b"\nHTTP/1.1 200 OK\n"), Reply::Malformed, "a verdict stands");
}
