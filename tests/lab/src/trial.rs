//! Tests as trials of `libtest_mimic`, whose `main` is ours, so that it can enter namespaces first.

use std::thread;

use libtest_mimic::{Arguments, Trial};

use crate::log::take_unexpected;
use crate::namespace::{Netns, enter};

/// Trials that [`run`] finds.
pub struct Found(pub fn() -> Vec<Trial>);

inventory::collect!(Found);

/// `#[apply(trial)]` makes a function a trial in a network namespace of its own, or a list of trials if it returns
/// them.
#[macro_export]
macro_rules! trial {
    ($(#[$attribute:meta])* fn $name:ident() $body:block) => {
        $(#[$attribute])* fn $name() $body
        $crate::inventory::submit!($crate::trial::Found(|| {
            vec![$crate::trial::trial(concat!(module_path!(), "::", stringify!($name)), $name)]
        }));
    };
    ($(#[$attribute:meta])* fn $name:ident() -> $trials:ty $body:block) => {
        $(#[$attribute])* fn $name() -> $trials $body
        $crate::inventory::submit!($crate::trial::Found($name));
    };
}

/// `#[apply(trial_with_other_users)]` makes a trial that is ignored in a user namespace, which has no other users and no root.
#[macro_export]
macro_rules! trial_with_other_users {
    ($(#[$attribute:meta])* fn $name:ident() $body:block) => {
        $(#[$attribute])* fn $name() $body
        $crate::inventory::submit!($crate::trial::Found(|| {
            let trial =
                $crate::trial::trial(concat!(module_path!(), "::", stringify!($name)), $name);
            vec![trial.with_ignored_flag(!$crate::users::has_others())]
        }));
    };
}

/// Creates a trial, whose name is without that of the test program.
pub fn trial(name: &str, test: impl FnOnce() + Send + 'static) -> Trial {
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    Trial::test(name, move || {
        Netns::new().enter();
        take_unexpected();
        test();
        match take_unexpected() {
            lines if lines.is_empty() => Ok(()),
            lines => Err(format!("unexpected in the log; see `Setup::expect`:\n{lines}").into()),
        }
    })
}

/// Creates a trial for each row of a table, which begins with its name.
pub fn table<T: Send + 'static, const N: usize>(
    module: &str,
    rows: [(&str, T); N],
    test: fn(T),
) -> impl Iterator<Item = Trial> {
    rows.map(|(name, row)| trial(&format!("{module}::{name}"), move || test(row))).into_iter()
}

/// The number of parallel trials on each processor, as they mostly wait.
const TRIALS_PER_PROCESSOR: usize = 4;

/// Runs the trials that the command line selects, in namespaces of their own, and exits.
pub fn run() -> ! {
    let mut arguments = Arguments::from_args();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(TRIALS_PER_PROCESSOR * processors);
    enter().expect("namespaces, which need root or unprivileged user namespaces");
    let mut trials: Vec<_> =
        inventory::iter::<Found>.into_iter().flat_map(|Found(trials)| trials()).collect();
    // The linker's order is arbitrary.
    trials.sort_by(|one, other| one.name().cmp(other.name()));
    libtest_mimic::run(&arguments, trials).exit()
}
