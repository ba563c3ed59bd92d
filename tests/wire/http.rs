use keepwatch::wire::http::{MAX_ROUTER_ID_LEN, RouterId, encode};

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
