//! The core as a whole, in a world that does with it whatever the bytes say.

#[path = "../../tests/simulation/world/mod.rs"]
mod world;

use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

use world::Life;

thread_local! {
    static LIFE: RefCell<Option<Life>> = const { RefCell::new(None) };
}

/// Takes the script of a life. One that fails is printed step by step, with how to replay it.
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
