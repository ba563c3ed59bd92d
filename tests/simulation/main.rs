//! The core by itself: promises 1, 2, 4, 6 to 14 and 20, whatever happens. See [`world`] for what is checked.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod by_hand;
mod counting;
mod orders;
mod world;

use std::time::Duration;

use keepwatch::monitor::Control;
use netlink_packet_route::link::LinkFlags;
use proptest::prelude::{ProptestConfig, Strategy, any, prop};
use proptest::test_runner::TestRunner;
use world::choices::CHOICES;
use world::kernel::UP;
use world::lan::{AddressChange, LinkChange};
use world::wire::{Claims, Station};
use world::{Life, Options, Step};

/// 20,000 lives, unless the environment names another number as `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 20_000 };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

/// Or one life: that of which the environment has the script as `LIFE`.
#[test]
fn newest_state_always_arrives() {
    if let Ok(script) = std::env::var("LIFE") {
        of_hex(&script).live();
        return;
    }
    let live = |life: Life| {
        life.live();
        Ok(())
    };
    TestRunner::new(config()).run(&lives(), live).unwrap_or_else(|failure| panic!("{failure}"));
}

fn of_hex(script: &str) -> Life {
    let byte = |n| u8::from_str_radix(&script[n..n + 2], 16).expect("hexadecimal digits");
    Life::decode(&(0..script.len()).step_by(2).map(byte).collect::<Vec<_>>())
}

fn lives() -> impl Strategy<Value = Life> {
    // A kind, and one of it; both shrink towards the plainest. (A `Union` of all kinds takes a hundred times as long.)
    let step = (0..CHOICES.len(), any::<prop::sample::Index>());
    let step = step.prop_map(|(kind, index)| *index.get(&CHOICES[kind]));
    let life = (any::<[u8; 2]>(), prop::collection::vec(step, 0..80));
    life.prop_map(|(bits, steps)| Life { options: Options::decode(bits), steps })
}

#[test]
fn life_is_replayed_as_it_was() {
    for life in [Life::decode(&[1, 2]), Life::decode(&(0..=255).collect::<Vec<_>>())] {
        let replay = life.replay().expect("a life of choices");
        let script = replay.split_once('=').and_then(|(_, rest)| rest.split_once(' '));
        let again = of_hex(script.expect("a script").0);
        assert_eq!(again.steps, life.steps);
        assert_eq!(format!("{again:?}"), format!("{life:?}"));
    }
}

const READ: Step = Step::Read(7);

/// A life too unlikely to be met by chance: an interface that comes back with its index, whether the events of that arrive or are lost.
#[test]
fn claims_are_heard_on_the_interface_that_has_come_back() {
    let by = Station::Other;
    let claim = Claims { by, on_other_interface: false, of_other_address: false };
    for lost in [0, 7] {
        let mut life = Life::decode(&[]);
        life.steps.extend([Step::CreateInterface, Step::AddVip, READ, READ, READ]);
        life.steps.extend(vec![Step::WirelessEvent; lost]);
        life.steps.extend([Step::ReturnInterface { with_vip: true }, READ, READ, READ]);
        life.steps.push(Step::Claim(claim));
        life.live();
    }
}

/// Another: more split brains in a minute than it has lines for.
#[test]
fn split_brains_one_after_another() {
    let by = Station::Other;
    let claim = Claims { by, on_other_interface: false, of_other_address: false };
    let mut life = Life::decode(&[]);
    life.steps.extend([Step::CreateInterface, READ, READ, READ]);
    for _ in 0..9 {
        let confirmation = Step::Wait(Duration::from_secs(1));
        let split_brain = [Step::AddVip, READ, Step::Claim(claim), confirmation];
        life.steps.extend([&[Step::RemoveVip, READ], &split_brain[..]].concat());
    }
    life.live();
}

/// Another: links with the virtual MAC of each instance in turn, which the watched interface has not got.
#[test]
fn virtual_macs_of_other_instances_are_left_to_them() {
    let mut life = Life::decode(&[1 << 5]);
    life.steps.extend([Step::CreateInterface, Step::AddVip, READ, READ]);
    for n in 0..3 {
        let add = AddressChange::of(([10, 0, 0, n].into(), 24));
        let change = Step::ChangeAddress(0, add);
        let virtual_mac = Step::ChangeLink(0, LinkChange::VirtualMac);
        life.steps.extend([virtual_mac, change, READ, Step::Wait(Duration::from_secs(10))]);
    }
    life.live();
}

/// Another: what changes while a dump of any kind is under way is listed as it was, after the event.
#[test]
fn what_has_changed_is_not_what_a_dump_lists_later() {
    let reload = Step::Control(Control::Reload);
    for dumps in 0..5 {
        for (change, states) in [
            (Step::RemoveVip, 2),
            (Step::FailVip, 2),
            (Step::DeleteInterface, 2),
            (Step::RenameInterface, 2),
            (Step::SetFlags(LinkFlags::empty()), 1),
        ] {
            let mut life = Life::decode(&[0, 1]);
            life.steps.extend([Step::CreateInterface, Step::AddVip, READ, READ, READ, reload]);
            let next = [Step::Read(1); 12];
            life.steps.extend(next.iter().take(dumps * 3));
            life.steps.extend([Step::NextDumpLags, READ, change]);
            assert_eq!(life.live(), states, "active, then backup for good");
        }
    }
}

/// Another: the watched link is listed among all as it was, after the event of its carrier.
#[test]
fn cause_is_that_of_the_newest_event() {
    let flap = [Step::SetFlags(LinkFlags::Up), Step::NextDumpLags, READ, Step::SetFlags(UP)];
    for dumps in 0..12 {
        let mut life = Life::decode(&[]);
        life.steps.extend([Step::CreateInterface, Step::AddVip]);
        life.steps.extend([Step::Read(1); 12].iter().take(dumps));
        life.steps.extend(flap);
        life.steps.extend([READ, READ, READ, Step::RemoveVip]);
        life.live();
    }
}

/// Another: a dump lists the watched name where it was, so that the VIP is on some other link for a while.
#[test]
fn keepalived_announces_what_it_puts_on_an_interface_that_seemed_to_be_another() {
    let mut life = Life::decode(&[]);
    let replace = [Step::RenameInterface, Step::CreateInterface, Step::Read(4), Step::AddVip];
    life.steps.extend([Step::CreateInterface, Step::NextDumpLags, Step::Read(2)]);
    life.steps.extend(replace);
    life.live();
}
