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
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};
use world::lan::{AddressChange, LinkChange};
use world::wire::{Claims, Station};
use world::{Life, Step};

/// 20,000 lives, unless the environment names another number as `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 20_000 };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn newest_state_always_arrives(life in lives()) {
        life.live();
    }
}

fn lives() -> impl Strategy<Value = Life> {
    let script = (any::<[u8; 2]>(), prop::collection::vec(any::<[u8; 2]>(), 0..80));
    script.prop_map(|([options, more], steps)| {
        Life::decode(&[&[options, Life::MORE_OPTIONS, more], steps.as_flattened()].concat())
    })
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
    let mut life = Life::decode(&[]);
    life.options.has_virtual_mac = true;
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
            let mut life = Life::decode(&[]);
            life.options.has_hook = true;
            life.steps.extend([Step::CreateInterface, Step::AddVip, READ, READ, READ, reload]);
            let next = [Step::Read(1); 12];
            life.steps.extend(next.iter().take(dumps * 3));
            life.steps.extend([Step::NextDumpLags, READ, change]);
            assert_eq!(life.live(), states, "active, then backup for good");
        }
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
