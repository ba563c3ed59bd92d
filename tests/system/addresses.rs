//! Promise 7: which address events count as the VIP being added or removed.

use keepwatch::monitor::{Answer, Input, Question};
use keepwatch::sys::netlink::QuestionSocket;
use keepwatch::wire::ifname::InterfaceName;
use keepwatch::wire::rtnl::Body;
use lab::daemon::Running;
use lab::files::content;
use lab::namespace::Netns;
use lab::rtnl::{Address, Rtnl};
use netlink_packet_route::address::AddressFlags;

use crate::scripted::{hooked, wait_hook_succeeded};
use crate::world::{VIP, World, add_other_station, set_sysctl, setup};

/// Returns the flags of the VIP in `/proc/net/if_inet6`.
fn vip_flags(addresses: &str) -> AddressFlags {
    let vip = addresses.lines().find(|line| line.starts_with("fd00")).unwrap();
    let flags = u32::from_str_radix(vip.split(' ').nth(4).unwrap(), 16).unwrap();
    AddressFlags::from_bits_retain(flags)
}

/// The agent is notified when the VIP is added. The hook runs when programs can bind to it.
#[apply(trial)]
fn ipv6_with_duplicate_address_detection() {
    let hooked = hooked(setup().with("--monitor_cidr=fd00::5/64"));
    hooked.when("MASTER", "cat /proc/net/if_inet6 >$RECORD/addresses");
    let world = &hooked.world;
    let (keepwatch, agent) = (world.setup.start(), &world.agent);
    agent.wait_acknowledged("backup");
    let events = keepwatch.counter("events");
    let tentative = Address { flags: AddressFlags::empty(), ..Address::new("fd00::5/64") };
    world.rtnl.add("ha0", tentative);
    agent.wait_acknowledged("master");
    // The addition, and the end of duplicate address detection.
    keepwatch.wait_counter("events", events + 2);
    assert_eq!(keepwatch.counter("transitions"), 2);
    wait_hook_succeeded(&keepwatch, "MASTER", 1);
    let addresses = content(&hooked.record.join("addresses"));
    assert!(!vip_flags(&addresses).contains(AddressFlags::Tentative), "{addresses}");
    keepwatch.terminate();
    assert_eq!(agent.arrivals().len(), 2);
}

/// The kernel keeps the address while the interface is down, and starts duplicate address detection again afterwards.
#[apply(trial)]
fn ipv6_that_outlasts_a_down_interface() {
    for flags in [AddressFlags::empty(), AddressFlags::Nodad] {
        let hooked = hooked(setup().with("--monitor_cidr=fd00::5/64"));
        let world = &hooked.world;
        world.setup.expect(&["fd00::5/64 ha0: the interface is down"]);
        set_sysctl("ipv6/conf/ha0/keep_addr_on_down", 1);
        hooked.when("MASTER", "cat /proc/net/if_inet6 >$RECORD/addresses");
        let keepwatch = world.setup.start();
        wait_hook_succeeded(&keepwatch, "BACKUP", 1);
        world.rtnl.add("ha0", Address { flags, ..Address::new("fd00::5/64") });
        wait_hook_succeeded(&keepwatch, "MASTER", 1);
        world.rtnl.down("ha0");
        wait_hook_succeeded(&keepwatch, "FAULT", 1);
        world.rtnl.up("ha0");
        wait_hook_succeeded(&keepwatch, "MASTER", 1);
        let addresses = content(&hooked.record.join("addresses"));
        assert!(!vip_flags(&addresses).contains(AddressFlags::Tentative), "{addresses}");
    }
}

/// The kernel may have an IPv4 address twice, with another peer.
#[apply(trial)]
fn vip_stays_when_its_twin_is_removed() {
    for peer in ["0.0.0.0", "169.254.9.9"] {
        let world = World::new();
        let keepwatch = world.setup.start();
        world.deliver(true);
        let twin = Address { peer: Some(peer.parse().unwrap()), ..Address::new(VIP) };
        let events = keepwatch.counter("events");
        world.rtnl.add("ha0", twin);
        world.rtnl.remove("ha0", twin);
        keepwatch.wait_counter("events", events + 2);
        keepwatch.wait_asleep();
        assert_eq!(world.setup.state(), "master", "{peer}");
    }
}

/// While another station has the address, it cannot be reached here.
#[apply(trial)]
fn ipv6_that_failed_duplicate_address_detection() {
    let world = World::with(setup().with("--monitor_cidr=fd00::5/64"));
    let other = add_other_station(&world.rtnl, "fd00::5/64");
    let line = "VIP fd00::5/64 failed duplicate address detection";
    let keepwatch = world.setup.start();
    let detected = Address { flags: AddressFlags::empty(), ..Address::new("fd00::5/64") };
    world.rtnl.add("ha0", detected);
    keepwatch.wait_log(line, 1);
    keepwatch.wait_state("backup");
    world.agent.wait_acknowledged("backup");
    keepwatch.terminate();
    // A restarted daemon sees it in a dump.
    std::fs::remove_file(world.setup.log_file()).unwrap();
    let keepwatch = world.setup.start();
    keepwatch.wait_log(line, 1);
    assert_eq!(world.setup.state(), "backup");
    let failed = |keepwatch: &Running<'_>| keepwatch.status().contains("; duplicate address");
    assert!(failed(&keepwatch));
    other.run(|| Rtnl::new().delete_address("ha0-peer", "fd00::5/64"));
    world.rtnl.remove("ha0", detected);
    world.rtnl.add("ha0", detected);
    keepwatch.wait_state("master");
    world.agent.wait_acknowledged("master");
    assert!(!failed(&keepwatch));
}

#[apply(trial)]
fn refresh_is_not_reported() {
    let world = World::new();
    let keepwatch = world.setup.start();
    world.deliver(true);
    let events = keepwatch.counter("events");
    for lifetime in [1000, 2000, 3000] {
        let vip = Address::new(crate::world::VIP);
        world.rtnl.add("ha0", Address { lifetime: Some(lifetime), ..vip });
    }
    world.rtnl.set_mac("ha0", [2, 0, 0, 0, 0, 7]);
    let status = keepwatch.status();
    assert!(status.contains("transitions=2 state_file_writes=2 "), "{status}");
    assert!(keepwatch.counter("events") >= events + 4);
    keepwatch.terminate();
    assert_eq!(world.agent.arrivals().len(), 2);
}

/// One of the first is deleted while a single one is still to be listed, which moves into the place before.
#[apply(trial)]
fn answer_that_lacks_an_address_is_not_complete() {
    let interface = InterfaceName::new(b"ha0").unwrap();
    let begin = |question| {
        let mut questions = QuestionSocket::open().unwrap();
        // From the first part that is received the kernel knows how much room there is.
        for question in [Question::Links, question] {
            while questions.is_open() {
                questions.read_part(|_| {});
            }
            assert_eq!(questions.ask(question, &interface), None);
        }
        questions
    };
    // Reads the parts up to one with addresses, or to the end.
    let read = |questions: &mut QuestionSocket, to_end: bool| {
        let (mut addresses, mut end) = (Vec::new(), None);
        while end.is_none() && (to_end || addresses.is_empty()) {
            end = questions.read_part(|entry| match entry {
                Input::Entry(Body::NewAddress(address)) => addresses.push(address.cidr.to_string()),
                other => panic!("{other:?}"),
            });
        }
        (addresses, end)
    };
    let cidrs: [fn(u8, u8) -> String; 2] = [
        |high, low| format!("10.0.{high}.{low}/32"),
        |high, low| format!("fd00::{high}:{low}/128"),
    ];
    for (cidr, is_alone) in cidrs.into_iter().flat_map(|cidr| [(cidr, true), (cidr, false)]) {
        Netns::new().run(|| {
            let rtnl = Rtnl::new();
            rtnl.add_veth("ha0", "ha1");
            let only = Some(rtnl.ifindex("ha0")).filter(|_| is_alone);
            let question = Question::Addresses { only };
            (0..6).for_each(|high| {
                (1..101).for_each(|low| rtnl.add_address("ha0", &cidr(high, low)));
            });
            let mut questions = begin(question);
            let (first, _) = read(&mut questions, false);
            let (others, _) = read(&mut questions, true);
            others.iter().skip(1).for_each(|other| rtnl.delete_address("ha0", other));
            let mut questions = begin(question);
            if cidr(0, 0).starts_with('f') {
                // There is no IPv4 address.
                assert_eq!(questions.read_part(|_| {}), None);
            }
            // The kernel has prepared the first part, and prepares the next one when that is received.
            rtnl.delete_address("ha0", &first[0]);
            let end = Input::Answered(Answer::Interrupted);
            assert_eq!(read(&mut questions, true), (first, Some(end)), "{question:?}");
        });
    }
}

/// The kernel's answer has many parts, and nothing else wakes the daemon.
#[apply(trial)]
fn many_on_the_watched_interface() {
    let world = World::with(setup().with("--no-announce"));
    for n in 0..2000 {
        world.rtnl.add_address("ha0", &format!("10.0.{}.{}/32", n / 250, n % 250 + 1));
    }
    world.set_vip(true);
    let keepwatch = world.setup.start();
    keepwatch.wait_state("master");
}
