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

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn newest_state_always_arrives(script in prop::collection::vec(any::<u8>(), 0..160)) {
        World::live(&script);
    }
}

#[test]
fn nothing_has_to_happen() {
    World::live(&[]);
}
