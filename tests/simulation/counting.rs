//! The counters that SIGUSR1 shows. They also prove that nothing is done more often than necessary.

use std::net::Ipv6Addr;
use std::time::Duration;

use keepwatch::errno::Errno;
use keepwatch::monitor::{Answer, CommandResult, Control, Counters, Tables};
use netlink_packet_route::link::LinkFlags;

use super::world::kernel::UP;
use super::world::lan::{AddressChange, LinkChange};
use super::world::{Options, Simulation, Step};

const READ: Step = Step::Read(7);
/// More events than the queue has room for.
const OVERRUN: [Step; 7] = [Step::WirelessEvent; 7];
const ANSWER: Step = Step::AgentReplies(Ok(()));
/// Longer than the wait for a retry.
const RETRY: Step = Step::Wait(Duration::from_secs(1));
/// Up to the first report, backup, and its delivery to the agent.
const STARTED: [Step; 7] = [Step::CreateInterface, READ, READ, READ, READ, ANSWER, ANSWER];

/// Returns the counters after these steps, with conntrackd, hook, metrics and announcements.
fn counted(steps: &[&[Step]]) -> Counters {
    let options = Options::decode([0b1000, 0x21]);
    let mut tables = Box::new(Tables::new());
    let mut simulation = Simulation::new(options, &mut tables);
    for step in steps.concat() {
        simulation.step(step);
    }
    simulation.monitor.status().counters
}

fn agent(listens: bool) -> Step {
    Step::AgentListens { listens, is_full: false, starts_for: Duration::ZERO }
}

fn disk(works: bool) -> Step {
    let for_metrics = (!works).then_some(Errno(28));
    Step::DiskWorks { works, for_metrics, hangs_for_metrics: Duration::ZERO }
}

#[test]
fn reports_are_counted() {
    let command = |status| Step::CommandEnds(CommandResult::Exited(status));
    let counters = counted(&[
        &STARTED,
        &[command(1), command(1)],
        &[agent(false), Step::AddVip, READ, agent(true), RETRY, ANSWER, ANSWER, command(0)],
        &[disk(false), Step::RemoveVip, READ, ANSWER, ANSWER],
        &[Step::TouchSpare { removes: true }, Step::AddVip, READ, ANSWER, ANSWER],
        &[disk(true), RETRY],
    ]);
    let Counters { transitions, writes, write_failures, .. } = counters;
    assert_eq!((transitions, writes, write_failures), (4, 4, 1), "an exchange needs no room");
    let Counters { notifications, notification_failures, .. } = counters;
    let failures: u64 = notification_failures.iter().sum();
    assert_eq!((notifications, failures), (4, 1));
    assert_eq!((counters.commands, counters.command_failures), (3, 2));
    assert_eq!(counters.metrics_failures, 2);
}

#[test]
fn hook_runs_are_counted() {
    let ends = |status| Step::HookEnds(CommandResult::Exited(status));
    let counters = counted(&[&STARTED, &[ends(1), RETRY, ends(1), RETRY, RETRY, ends(0)]]);
    assert_eq!((counters.hook_runs, counters.hook_failures), (3, 2));
}

#[test]
fn kernel_messages_are_counted() {
    let counters = counted(&[
        &STARTED,
        &[Step::MalformedMessage(None), READ, READ, READ],
        &[Step::EndNextAnswer(Answer::Failed(Errno(16)))],
        &OVERRUN,
        &[READ, READ, RETRY, READ, READ],
        &[Step::ForeignMessage(8)],
    ]);
    let Counters { overruns, malformed, foreign, dump_failures, .. } = counters;
    assert_eq!((overruns, malformed, foreign, dump_failures), (1, 1, 1, 1));
}

#[test]
fn frames_are_counted() {
    let address = |n| AddressChange::of(([10, 0, 0, n].into(), 24));
    let add = |n| Step::ChangeAddress(0, address(n));
    let rounds = Step::Wait(Duration::from_secs(5));
    let [works, refuses] = [Ok(()), Err(Errno(105))].map(|egress| Step::SetEgress(2, egress));
    let fails = [refuses, add(2), READ, rounds];
    let fails_again = [works, add(3), READ, rounds, refuses, add(4), READ, rounds];
    let begin = [Step::AddVip, READ, add(1), READ, rounds];
    let counters = counted(&[&STARTED, &begin, &fails, &fails_again]);
    assert_eq!((counters.announcements, counters.announcement_failures), (12, 12));
}

/// An answer lists an address before the event of its deletion is read.
#[test]
fn address_is_announced_as_it_is_now() {
    let change = Step::ChangeAddress(0, AddressChange::of(([10, 0, 0, 1].into(), 24)));
    let carrier = Step::ChangeLink(0, LinkChange::Carrier);
    let rounds = Step::Wait(Duration::from_secs(10));
    let pause = Step::Stall(Duration::from_millis(90));
    let lags = [carrier, carrier, pause, Step::Read(2)];
    let up_again = [&[Step::AddVip, READ, change, READ, rounds], &lags[..]].concat();
    assert_eq!(counted(&[&STARTED, &up_again, &[READ, rounds]]).announcements, 12);
    assert_eq!(counted(&[&STARTED, &up_again, &[change, READ, rounds]]).announcements, 6);
    let detection = Step::ChangeAddress(
        0,
        AddressChange::of((Ipv6Addr::from_bits(0xfd00 << 112 | 1).into(), 64)),
    );
    let begins = [Step::AddVip, READ, detection, READ];
    let ends = [detection, READ, rounds];
    assert_eq!(counted(&[&STARTED, &begins, &lags, &ends]).announcements, 3);
}

/// Only unknown facts are listed.
#[test]
fn dumps_are_few() {
    let at_the_start = counted(&[&STARTED]);
    assert_eq!((at_the_start.dumps, at_the_start.events), (3, 2), "interface, its addresses, all");
    let of_a_link = Step::LinkWirelessEvent(0);
    let known = counted(&[&STARTED, &[of_a_link, Step::WirelessEvent, READ, RETRY]]);
    assert_eq!((known.dumps, known.events), (3, 4), "the interface is known");
    let flags = [LinkFlags::Up, UP].map(Step::SetFlags);
    assert_eq!(
        counted(&[&STARTED, &flags, &[READ, RETRY]]).dumps,
        3,
        "keepalived announces on the watched interface"
    );
    let gone = counted(&[&STARTED, &[Step::AddVip, READ, READ, Step::RemoveVip, READ, RETRY]]);
    assert_eq!(gone.dumps, 5, "a new active router lists all links and addresses, once");
    let term = [Step::AddVip, READ, READ, Step::RemoveVip, READ, RETRY];
    assert_eq!(counted(&[&STARTED, &term, &term]).dumps, 6, "later it knows the links");
    let unread = [Step::MalformedMessage(Some(99)), READ];
    assert_eq!(counted(&[&STARTED, &term, &unread, &term]).dumps, 7, "perhaps a link's");
    let carrier = Step::ChangeLink(0, LinkChange::Carrier);
    let flap = [Step::AddVip, READ, READ, carrier, carrier, carrier, carrier, READ, RETRY, READ];
    assert_eq!(counted(&[&STARTED, &flap]).dumps, 6, "a link that has come up is listed once");
    let lost = counted(&[&STARTED, &[Step::DeleteInterface, READ, RETRY]]);
    assert_eq!(lost.dumps, 3, "an event suffices");
    let overrun = counted(&[&STARTED, &OVERRUN, &[READ, READ, READ, READ, RETRY, READ]]);
    assert_eq!(overrun.dumps, 6, "interface, its addresses, all");
}

#[test]
fn reload_does_everything_again() {
    let reload = [Step::Control(Control::Reload), READ, READ, READ, READ, ANSWER, ANSWER];
    let Counters { dumps, writes, notifications, transitions, .. } = counted(&[&STARTED, &reload]);
    assert_eq!(
        (dumps, writes, notifications, transitions),
        (5, 2, 2, 1),
        "all addresses come later"
    );
}

#[test]
fn unsent_request_is_retried_soon() {
    let fails = Step::EndNextAnswer(Answer::Failed(Errno(16)));
    let steps = [Step::CreateInterface, fails, READ];
    let failed = counted(&[&steps]);
    assert_eq!((failed.dumps, failed.dump_failures), (1, 1), "all others wait");
    assert_eq!(counted(&[&steps, &[READ, RETRY, READ]]).dumps, 4);
}
