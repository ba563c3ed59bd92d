//! Every order of a few events: a breadth-first search through all states. In each state the invariants of
//! [`super::world`] hold, and from each, once the faults end, the truth arrives everywhere in time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use keepwatch::errno::Errno;
use keepwatch::monitor::{Answer, CommandResult, Control, Failure, Tables};

use super::world::{Life, Options, Simulation, Step};

/// The number of inputs in a row, unless `ORDER_LENGTH` is set.
const LENGTH: usize = 3;
const THREADS: usize = 2;

/// Options without announcements, claims, conntrackd and hidden mounts.
const PLAIN: u8 = 0b0110;
/// Options with conntrackd.
const SYNCS: u8 = 0b1110;

/// Returns the lives up to the begin of the search.
fn beginnings() -> Vec<Life> {
    const READ: Step = Step::Read(7);
    const ANSWER: Step = Step::AgentReplies(Ok(()));
    let delivered = [READ, READ, READ, ANSWER, ANSWER];
    let beginning = |options, before: &[Step], after: &[Step]| {
        let steps = [&[Step::CreateInterface], before, after].concat();
        Life { options: Options::decode([options, 0]), steps }
    };
    vec![
        beginning(PLAIN, &[], &[]),
        beginning(PLAIN, &[], &delivered),
        beginning(PLAIN, &[Step::AddVip], &delivered),
        beginning(SYNCS, &[], &delivered),
    ]
}

/// Returns the inputs, each of one step or several.
fn inputs() -> Vec<Vec<Step>> {
    // More events than the queue has room for.
    const OVERRUN: [Step; 7] = [Step::WirelessEvent; 7];
    let agent = |listens, is_full| {
        vec![Step::AgentListens { listens, is_full, starts_for: Duration::ZERO }]
    };
    let disk = |works| {
        let (for_metrics, hangs_for_metrics) = (None, Duration::ZERO);
        vec![Step::DiskWorks { works, for_metrics, hangs_for_metrics }]
    };
    vec![
        vec![Step::AddVip],
        vec![Step::RemoveVip],
        vec![Step::MisplaceVip { on_link: None }],
        vec![Step::CreateInterface],
        vec![Step::DeleteInterface],
        OVERRUN.to_vec(),
        vec![Step::MalformedMessage(None)],
        vec![Step::Read(1)],
        vec![Step::Read(7)],
        vec![Step::EndNextAnswer(Answer::Interrupted)],
        vec![Step::EndNextAnswer(Answer::Failed(Errno(16)))],
        vec![Step::SplitNextAnswer],
        vec![Step::AgentReplies(Ok(()))],
        vec![Step::AgentReplies(Err(Failure::ClosedEarly))],
        vec![Step::AgentReplies(Err(Failure::Status(500)))],
        vec![Step::AgentRepliesUnread(Ok(()))],
        agent(false, false),
        agent(true, true),
        agent(true, false),
        vec![Step::CommandEnds(CommandResult::Exited(0))],
        vec![Step::CommandEnds(CommandResult::NotConfigured(Errno::NOT_FOUND))],
        disk(false),
        disk(true),
        vec![Step::Stall(Duration::from_secs(6))],
        vec![Step::Control(Control::Reload)],
        vec![Step::Control(Control::Exit(15))],
        vec![Step::DeleteNamespace { at_once: false }],
    ]
}

/// The way to a state: the number of a beginning, then of each input. The number after the last input's stands for the
/// time to the next deadline.
type Path = Vec<u8>;

struct Search {
    beginnings: Vec<Life>,
    inputs: Vec<Vec<Step>>,
    /// States that are not followed again.
    seen: HashSet<u64>,
}

#[test]
fn every_order_of_events_leads_to_the_truth() {
    let length = std::env::var("ORDER_LENGTH").map_or(LENGTH, |n| n.parse().expect("a number"));
    let mut search = Search { beginnings: beginnings(), inputs: inputs(), seen: HashSet::new() };
    let mut paths: Vec<Path> = (0..).zip(&search.beginnings).map(|(n, _)| vec![n]).collect();
    let (mut states, mut fruitful) = (paths.len(), BTreeSet::new());
    for _ in 0..length {
        let found = search.on_all_threads(&paths, Search::follow);
        paths = found
            .into_iter()
            .filter_map(|(state, path)| search.seen.insert(state).then_some(path))
            .collect();
        states += paths.len();
        fruitful.extend(paths.iter().filter_map(|path| path.last().copied()));
    }
    search.on_all_threads(&paths, Search::end);
    let all_count = fruitful.len() == search.inputs.len() + 1;
    assert!(all_count || length <= LENGTH, "some inputs change nothing: {fruitful:?}");
    println!("{states} states after up to {length} inputs");
}

impl Search {
    /// Runs `work` for a share of the paths on each thread. Returns all results.
    fn on_all_threads<T: Send>(
        &self,
        paths: &[Path],
        work: impl Fn(&Self, &[Path]) -> Vec<T> + Sync,
    ) -> Vec<T> {
        let share = paths.len().div_ceil(THREADS).max(1);
        std::thread::scope(|scope| {
            let shares = paths.chunks(share);
            let threads: Vec<_> = shares.map(|share| scope.spawn(|| work(self, share))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no failure")).collect()
        })
    }

    /// Returns the new states after one more input, except those in which the core has exited.
    fn follow(&self, paths: &[Path]) -> Vec<(u64, Path)> {
        let mut tables = Tables::new();
        let mut found = BTreeMap::new();
        self.end(paths);
        for path in paths {
            for input in (0..).take(self.inputs.len() + 1) {
                let path = [&path[..], &[input]].concat();
                let state = self.go(&path, &mut tables, |simulation| {
                    (!simulation.exited).then(|| fingerprint(simulation))
                });
                if let Some(state) = state.filter(|state| !self.seen.contains(state)) {
                    found.entry(state).or_insert(path);
                }
            }
        }
        found.into_iter().collect()
    }

    /// Ends the faults of each path, and checks that the truth arrives. Returns nothing.
    fn end(&self, paths: &[Path]) -> Vec<()> {
        let mut tables = Tables::new();
        for path in paths {
            self.go(path, &mut tables, |simulation| {
                simulation.finish();
            });
        }
        Vec::new()
    }

    /// Follows a path and calls `on`. A panic prints the steps.
    fn go<T>(&self, path: &Path, tables: &mut Tables, on: impl FnOnce(&mut Simulation) -> T) -> T {
        let (beginning, inputs) = path.split_first().expect("a beginning");
        let mut life = self.beginnings[usize::from(*beginning)].clone();
        let went = catch_unwind(AssertUnwindSafe(|| {
            let mut simulation = Simulation::new(life.options, tables);
            for step in &life.steps {
                simulation.step(*step);
            }
            for input in inputs {
                let deadline = to_the_deadline(&simulation);
                let input = self.inputs.get(usize::from(*input));
                for step in input.map_or(deadline.as_slice(), Vec::as_slice) {
                    life.steps.push(*step);
                    simulation.step(*step);
                }
            }
            on(&mut simulation)
        }));
        went.unwrap_or_else(|_| panic!("{life:?}"))
    }
}

/// Returns the step that lets time pass to the next deadline.
fn to_the_deadline(simulation: &Simulation) -> Option<Step> {
    let deadline = simulation.monitor.deadline()?.max(simulation.now);
    Some(Step::Wait((deadline - simulation.now).into()))
}

/// Returns a number for a state.
fn fingerprint(simulation: &Simulation) -> u64 {
    let mut hash = DefaultHasher::new();
    format!("{simulation:?}").hash(&mut hash);
    hash.finish()
}
