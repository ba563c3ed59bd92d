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

#[test]
fn nothing_has_to_happen() {
    World::live(&[]);
}
