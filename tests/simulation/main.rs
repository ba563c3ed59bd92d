//! The core in a simulated world: promises 1, 2, 4, 6 to 14 and 20. [`world`] has the invariants.

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

use keepwatch::monitor::{Control, Failure};
use netlink_packet_route::link::LinkFlags;
use proptest::prelude::{ProptestConfig, Strategy, any, prop};
use proptest::test_runner::TestRunner;
use world::choices::CHOICES;
use world::kernel::UP;
use world::lan::{AddressChange, LinkChange};
use world::wire::{Claims, Station};
use world::{Life, Options, SIGTERM, Step};

/// Runs 20,000 lives, or the number in `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 20_000 };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

/// Runs random lives, or the one whose script is in the environment variable `LIFE`.
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
    // A kind and a step of it, which both shrink towards the simplest. A `Union` of all kinds takes a hundred times as
    // long.
    let step = (0..CHOICES.len(), any::<prop::sample::Index>());
    let step = step.prop_map(|(kind, index)| *index.get(&CHOICES[kind]));
    let life = (any::<[u8; 2]>(), prop::collection::vec(step, 0..80));
    life.prop_map(|(bits, steps)| Life { options: Options::decode(bits), steps })
}

#[test]
fn script_replays_its_life() {
    for life in [Life::decode(&[1, 2]), Life::decode(&(0..=255).collect::<Vec<_>>())] {
        let replay = life.replay().expect("a life of choices");
        let script = replay.split_once('=').and_then(|(_, rest)| rest.split_once(' '));
        let again = of_hex(script.expect("a script").0);
        assert_eq!(again.steps, life.steps);
        assert_eq!(format!("{again:?}"), format!("{life:?}"));
    }
}

const READ: Step = Step::Read(7);

/// The claim that a life is about, by another station on the watched interface.
const CLAIM: Step =
    Step::Claim(Claims { by: Station::Other, on_other_interface: false, of_other_address: false });

// The following lives are too unlikely to occur by chance.

/// Returns a life with the default options that begins with these steps.
fn life(steps: &[Step]) -> Life {
    Life { options: Options::decode([0; 2]), steps: steps.to_vec() }
}

/// An interface returns with its old index, and the events of that arrive or are lost.
#[test]
fn claims_on_a_returned_interface() {
    for lost in [0, 7] {
        let mut life = life(&[Step::CreateInterface, Step::AddVip, READ, READ, READ]);
        life.steps.extend(vec![Step::WirelessEvent; lost]);
        life.steps.extend([Step::ReturnInterface { with_vip: true }, READ, READ, READ]);
        life.steps.push(CLAIM);
        life.live();
    }
}

/// SIGTERM comes while the daemon waits for the agent before it leaves the pid file to another, after an event.
#[test]
fn signal_after_the_pid_file_is_lost() {
    let mut life = life(&[Step::CreateInterface, Step::AddVip, Step::Read(2)]);
    // The agent takes the request after that, and the file is checked.
    for secs in [6, 5] {
        life.steps.extend([Step::Stall(Duration::from_secs(secs)), Step::Read(1)]);
    }
    life.steps.insert(6, Step::LosePidFile);
    life.steps.extend([Step::Read(1), Step::RemoveVip, Step::Control(Control::Exit(SIGTERM))]);
    life.steps.push(Step::AgentReplies(Err(Failure::ClosedEarly)));
    life.live();
}

/// An address is added while everything is announced again after a claim.
#[test]
fn new_address_after_a_claim() {
    for secs in 0..70 {
        let mut life = life(&[Step::CreateInterface, Step::AddVip, READ, READ, CLAIM]);
        life.steps.push(Step::Wait(Duration::from_secs(secs)));
        life.steps.push(Step::ChangeAddress(0, AddressChange::of(([10, 0, 0, 1].into(), 24))));
        life.live();
    }
}

/// A minute has more split brains than may be logged.
#[test]
fn more_split_brains_than_lines() {
    let mut life = life(&[Step::CreateInterface, READ, READ, READ]);
    for _ in 0..9 {
        let confirmation = Step::Wait(Duration::from_secs(1));
        let split_brain = [Step::AddVip, READ, CLAIM, confirmation];
        life.steps.extend([&[Step::RemoveVip, READ], &split_brain[..]].concat());
    }
    life.live();
}

/// A link gets the virtual MAC of one VRRP instance after another, none of which the watched interface has.
#[test]
fn virtual_macs_of_other_instances() {
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

/// An answer is newer than the events before it, and older than those after it.
#[test]
fn answer_does_not_undo_an_event() {
    let reload = Step::Control(Control::Reload);
    for reads in 0..5 {
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
            life.steps.extend(next.iter().take(reads));
            life.steps.extend([Step::SplitNextAnswer, READ, change]);
            assert_eq!(life.live(), states, "active, then backup to the end");
        }
    }
}

/// An answer shows the carrier before the events that wait.
#[test]
fn cause_is_that_of_the_newest_event() {
    let flap = [
        Step::SetFlags(LinkFlags::Up),
        Step::Control(Control::Reload),
        Step::Read(1),
        Step::SetFlags(UP),
    ];
    for reads in 0..12 {
        let mut life = life(&[Step::CreateInterface, Step::AddVip]);
        life.steps.extend([Step::Read(1); 12].iter().take(reads));
        life.steps.extend(flap);
        life.steps.extend([READ, READ, READ, Step::RemoveVip]);
        life.live();
    }
}
