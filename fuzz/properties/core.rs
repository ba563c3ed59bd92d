//! The core in the simulated world, driven by the bytes.

#[path = "../../tests/simulation/world/mod.rs"]
mod world;

use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

use world::Life;

thread_local! {
    static LIFE: RefCell<Option<Life>> = const { RefCell::new(None) };
}

/// Runs the script of a life. A failing one is printed step by step, with the command to replay it.
pub fn check(script: &[u8]) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let next = take_hook();
        set_hook(Box::new(move |info| {
            LIFE.with_borrow(|life| life.iter().for_each(|life| eprint!("{life:?}")));
            next(info);
        }));
    });
    let life = Life::decode(script);
    LIFE.set(Some(life.clone()));
    life.live();
}
