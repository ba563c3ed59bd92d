//! The core by itself: whatever happens, the newest state arrives.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bounds;
mod ending;
mod world;

use proptest::prelude::{ProptestConfig, any, prop, proptest};
use world::World;

/// 20,000 lives, unless the environment names another number as `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 20_000 };
    ProptestConfig { cases, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn newest_state_always_arrives(script in prop::collection::vec(any::<u8>(), 0..160)) {
        World::live(&script);
    }
}

/// A life too unlikely to be met by chance: sixteen addresses behind a queue that does not move.
#[test]
fn stuck_queue_takes_its_share_and_no_more() {
    let (create_interface, add_vip, read, stuck) = ([4, 0], [0, 0], [8, 7], [19, 133]);
    let mut script = vec![64];
    script.extend([create_interface, add_vip, read, stuck].concat());
    for n in 0..8 {
        let (with_prefix_24, with_prefix_32) = ([6, n], [6, 16 | n]);
        script.extend([with_prefix_24, with_prefix_32, read].concat());
    }
    let forty_seconds = [10, 200];
    script.extend(forty_seconds);
    World::live(&script);
}

#[test]
fn nothing_has_to_happen() {
    World::live(&[]);
}
