//! The end: in time, and not before what had to be told has been.

use keepwatch::errno::Errno;
use keepwatch::monitor::{
    Action, Actions, Control, Dump, Duration, ExitReason, Input, Instant, Monitor, NamespaceCheck,
    Outcome, State,
};
use keepwatch::wire::rtnl::{Body, Message};

use super::world::config;
use super::world::kernel::PORT;

const T0: Instant = Instant::ZERO;
const SIGTERM: i32 = 15;
const ASKED: ExitReason = ExitReason::Signal(SIGTERM);
const LINKS_AGAIN: Action = Action::RequestDump { dump: Dump::Links, sequence: 3 };

/// The end of the dump that was requested with this number.
fn done(sequence: u32) -> Input {
    Input::Netlink(Message { body: Body::Done(None), sequence, port: PORT, interrupted: false })
}

/// A monitor that is writing its first state, backup.
fn monitor() -> Monitor<'static> {
    let mut monitor = Monitor::new(config());
    monitor.on(&Input::Tick, T0);
    assert!(monitor.on(&done(1), T0).is_empty(), "there may be more");
    assert_eq!(
        monitor.on(&Input::Tick, T0),
        [Action::RequestDump { dump: Dump::Interface, sequence: 2 }]
    );
    let actions = monitor.on(&done(2), T0);
    assert!(actions.ends_with(&[Action::WriteState(State::Backup)]));
    assert!(monitor.on(&Input::Tick, T0).is_empty(), "there are no addresses to ask for");
    monitor
}

/// The same, once the file has been written or not.
fn telling(written: Result<State, Errno>) -> Monitor<'static> {
    let mut monitor = monitor();
    let actions = monitor.on(&Input::StateFile(written), T0);
    assert!(actions.ends_with(&[Action::Notify(State::Backup)]), "{actions:?}");
    monitor
}

fn exits(actions: &Actions, ending: ExitReason) -> bool {
    actions.contains(&Action::Exit(ending))
}

#[test]
fn to_be_asked_again_is_no_reason_to_stay_for_longer() {
    let mut monitor = telling(Ok(State::Backup));
    for millis in [0, 500, 900] {
        let now = T0 + Duration::from_millis(millis);
        let actions = monitor.on(&Input::Control(Control::Exit(SIGTERM)), now);
        assert!(!exits(&actions, ASKED), "a request is in flight");
        assert!(!exits(&monitor.on(&Input::Tick, now), ASKED));
        assert_eq!(monitor.deadline(), Some(T0 + Duration::from_secs(1)));
    }
    let actions = monitor.on(&Input::Tick, T0 + Duration::from_secs(1));
    assert!(exits(&actions, ASKED));
}

#[test]
fn deleted_namespace_is_not_left_before_the_file_says_backup() {
    let mut monitor = telling(Err(Errno(28)));
    for input in
        [Input::NamespaceGone, Input::Agent(Outcome::Delivered), Input::Agent(Outcome::Closed)]
    {
        assert!(!exits(&monitor.on(&input, T0), ExitReason::NamespaceGone), "{input:?}");
    }
    let retry = monitor.deadline().expect("a time to try the file again");
    let actions = monitor.on(&Input::Tick, retry);
    assert_eq!(actions, [Action::WriteState(State::Backup)]);
    let actions = monitor.on(&Input::StateFile(Ok(State::Backup)), retry);
    assert!(exits(&actions, ExitReason::NamespaceGone));
}

#[test]
fn nor_is_it_stayed_in_for_ever() {
    let mut monitor = telling(Err(Errno(28)));
    monitor.on(&Input::NamespaceGone, T0);
    let actions = monitor.on(&Input::Tick, T0 + Duration::from_secs(5));
    assert!(exits(&actions, ExitReason::NamespaceGone));
}

/// Events that came before the request are in the queue still.
#[test]
fn queue_is_read_before_it_leaves() {
    let mut monitor = monitor();
    monitor.on(&Input::StateFile(Ok(State::Backup)), T0);
    for outcome in [Outcome::Delivered, Outcome::Closed] {
        monitor.on(&Input::Agent(outcome), T0);
    }
    assert!(!exits(&monitor.on(&Input::Control(Control::Exit(SIGTERM)), T0), ASKED));
    assert_eq!(monitor.deadline(), Some(T0), "to look at once");
    // Some were lost, so it reads everything, for as long as it may stay.
    assert!(!exits(&monitor.on(&Input::Overrun, T0), ASKED));
    let actions = monitor.on(&Input::Tick, T0);
    assert!(actions.contains(&LINKS_AGAIN) && !exits(&actions, ASKED));
    let actions = monitor.on(&done(3), T0);
    assert!(!exits(&actions, ASKED), "the interface is yet to be asked for");
    assert_eq!(
        monitor.on(&Input::Tick, T0),
        [Action::RequestDump { dump: Dump::Interface, sequence: 4 }]
    );
    let actions = monitor.on(&done(4), T0);
    assert!(!exits(&actions, ASKED), "the addresses are yet to come");
    assert!(exits(&monitor.on(&Input::Tick, T0), ASKED));
}

/// The disk kept us for so long that the time is over, and the reply has come meanwhile.
#[test]
fn reply_is_read_before_it_is_given_up() {
    let mut monitor = telling(Ok(State::Backup));
    let late = T0 + Duration::from_secs(6);
    assert_eq!(monitor.on(&Input::Tick, late), [Action::ReadReplies]);
    let actions = monitor.on(&Input::Agent(Outcome::Delivered), late);
    let early = [Action::HangUp, Action::ReadReplies];
    assert!(!actions.iter().any(|action| early.contains(action)), "{actions:?}");
    assert_eq!(monitor.on(&Input::RepliesRead, late), [Action::HangUp], "nothing more came");
    assert_eq!(monitor.status().counters.notification_failures, [0; _]);
}

/// As the one above, for the end of a dump that is in the queue.
#[test]
fn queue_is_read_before_a_dump_is_given_up() {
    let mut monitor = telling(Ok(State::Backup));
    monitor.on(&Input::Control(Control::Reload), T0);
    assert_eq!(monitor.on(&Input::Tick, T0), [LINKS_AGAIN]);
    let late = T0 + Duration::from_secs(6);
    monitor.on(&Input::Overrun, late);
    monitor.on(&done(3), late);
    assert_eq!(monitor.status().counters.dump_failures, 0);
}

/// That the namespace has gone may be told amid the answer to an earlier input, of which the rest would then be
/// carried out as if it were there.
#[test]
fn namespace_is_looked_for_after_all_else() {
    let mut check = config();
    check.check_namespace = NamespaceCheck::Every(Duration::from_secs(10));
    let mut monitor = Monitor::new(check);
    let actions = monitor.on(&Input::Tick, T0);
    assert_eq!(actions.last(), Some(&Action::CheckNamespace));
    let late = T0 + Duration::from_secs(11);
    for answer in [Input::StateFile(Ok(State::Backup)), Input::Agent(Outcome::Closed), done(1)] {
        let actions = monitor.on(&answer, late);
        assert!(!actions.contains(&Action::CheckNamespace), "{answer:?}");
    }
    assert_eq!(monitor.on(&Input::Tick, late).last(), Some(&Action::CheckNamespace));
}

/// The time for the reply begins when the request goes out, however long the file took.
#[test]
fn request_has_all_its_time() {
    let mut monitor = monitor();
    let late = T0 + Duration::from_secs(6);
    assert!(!monitor.on(&Input::Tick, late).contains(&Action::Notify(State::Backup)));
    let actions = monitor.on(&Input::StateFile(Ok(State::Backup)), late);
    assert!(actions.ends_with(&[Action::Notify(State::Backup)]), "{actions:?}");
    assert_eq!(monitor.deadline(), Some(late + Duration::from_secs(5)));
}
