use keepwatch::wire::cidr::Cidr;

#[test]
fn keeps_host_bits_and_prints_what_it_read() {
    for text in ["169.254.0.5/24", "10.0.0.1/32", "fe80::1/64", "2001:db8::5/128", "0.0.0.0/0"] {
        assert_eq!(text.parse::<Cidr>().unwrap().to_string(), text);
    }
}

#[test]
fn prefix_is_part_of_the_address() {
    assert_eq!("10.0.0.1".parse(), "10.0.0.1/32".parse::<Cidr>());
    assert_eq!("2001:db8::1".parse(), "2001:db8::1/128".parse::<Cidr>());
    assert_ne!("10.0.0.1/24".parse::<Cidr>(), "10.0.0.1/32".parse::<Cidr>());
}

#[test]
fn refuses_everything_else() {
    let prefixes = ["10.0.0.1/", "10.0.0.1/33", "10.0.0.1/-1", "10.0.0.1/+8", "10.0.0.1/08"];
    let others = ["", "/", "/24", "10.0.0.1/8/8", "10.0.0.1/256", "::1/129", " 10.0.0.1/8"];
    let addresses = ["10.0.0.1/8 ", "10.0.0/8", "fe80::1%eth0/64", "example.org/8", "10.0.0.1\n/8"];
    for text in [&prefixes[..], &others, &addresses].concat() {
        assert_eq!(text.parse::<Cidr>(), Err(()), "{text:?}");
    }
}
