use keepwatch::wire::ifname::InterfaceName;

#[test]
fn accepts_names_that_the_kernel_accepts() {
    for name in ["lo", "ha-0123456789ab", "eth0.5@x", "..."] {
        assert_eq!(InterfaceName::new(name.as_bytes()).unwrap().to_string(), name);
    }
    let name = InterfaceName::new(b"e\x01\xff").unwrap();
    assert_eq!(
        (name.to_string(), format!("{name:?}")),
        ("e\\x01\\xff".into(), "e\\x01\\xff".into())
    );
}

#[test]
fn is_padded_with_zeros() {
    let name = InterfaceName::new(b"eth0").unwrap();
    assert_eq!((name.as_bytes(), name.padded()), (&b"eth0"[..], b"eth0\0\0\0\0\0\0\0\0\0\0\0\0"));
}

#[test]
fn refuses_names_that_the_kernel_refuses() {
    for name in ["", ".", "..", "a/b", "a b", "a\tb", "a:b", "a\0", "0123456789abcdef"] {
        assert_eq!(InterfaceName::new(name.as_bytes()), None, "{name:?}");
    }
}
