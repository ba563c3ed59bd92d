//! The core as a whole, in a world that does with it whatever the bytes say.

#[path = "../../tests/simulation/world/mod.rs"]
mod world;

/// Takes a script for a life: see [`world::World::live`].
pub fn holds(script: &[u8]) {
    world::World::live(script);
}
