use keepwatch::wire::http::{MAX_ROUTER_ID_LEN, Reply, ReplyReader, RouterId, encode};

#[test]
fn request_has_exactly_these_bytes() {
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
    let long = "r".repeat(65);
    for text in
        ["", "a b", "a\r\nX: y", "a\n", "a\t", "é", "$(a)", "a/b", "a;", "a\"", "\x7f", &long]
    {
        assert!(text.parse::<RouterId>().is_err(), "{text:?}");
    }
    let router: RouterId = "qrouter-1:X_y.0\\x2d".parse().unwrap();
    assert_eq!(
        (router.as_str(), router.to_string()),
        ("qrouter-1:X_y.0\\x2d", router.as_str().into())
    );
}

/// RFC 9110 section 15.2: a final response follows each interim one.
#[test]
fn interim_responses_are_skipped() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n";
    let long = format!("HTTP/1.1 102 Processing\nX: {}\n\n", "x".repeat(1000));
    let of =
        |length: usize| format!("HTTP/1.1 102\n{}\n\nHTTP/1.1 200 OK\n", "x".repeat(length - 2));
    for (reply, expected) in [
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n".into(), Reply::Status(200)),
        (format!("HTTP/1.1 100\n\n{early}{long}HTTP/1.0 200\n"), Reply::Status(200)),
        (format!("{early}HTTP/1.1 500 Error\r\n\r\nHTTP/1.1 200 OK\r\n"), Reply::Status(500)),
        (format!("{early}what\r\n"), Reply::Malformed),
        (early.into(), Reply::Incomplete),
        (long.repeat(5), Reply::Malformed),
        (of(4096), Reply::Status(200)),
        (of(4097), Reply::Malformed),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n".into(), Reply::Status(101)),
        ("HTTP/1.1 099 \r\n".into(), Reply::Malformed),
    ] {
        assert_eq!(ReplyReader::default().push(reply.as_bytes()), expected, "{reply:?}");
    }
}
