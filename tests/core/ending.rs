//! The end: in time, and not before what had to be told has been.

use keepwatch::core::{
    Action, Actions, DumpEnd, Duration, Ending, Input, Instant, Monitor, Outcome, Renotify,
    Request, State, Watch,
};
use keepwatch::errno::Errno;
use keepwatch::wire::ifname::InterfaceName;

const T0: Instant = Instant::ZERO;

/// A monitor that is telling the agent of its first state, backup.
fn monitor() -> Monitor<'static> {
    let mut monitor = Monitor::new(Watch {
        interface: InterfaceName::new(b"ha0").expect("a legal name"),
        vip: "169.254.0.5/24".parse().expect("an address"),
        seed: 1,
        announce: None,
        detect_split_brain: false,
        renotify: Renotify::new(),
        sync_conntrack: false,
        check_namespace: None,
    });
    monitor.on(&Input::QueueEmpty, T0);
    let actions = monitor.on(&Input::DumpEnded(DumpEnd::Complete), T0);
    assert!(actions.ends_with(&[Action::WriteState(State::Backup), Action::Notify(State::Backup)]));
    assert!(monitor.on(&Input::QueueEmpty, T0).is_empty(), "there are no addresses to ask for");
    monitor
}

fn exits(actions: &Actions, ending: Ending) -> bool {
    actions.contains(&Action::Exit(ending))
}

#[test]
fn to_be_asked_again_is_no_reason_to_stay_for_longer() {
    let mut monitor = monitor();
    monitor.on(&Input::StateFile(Ok(State::Backup)), T0);
    for millis in [0, 500, 900] {
        let now = T0 + Duration::from_millis(millis);
        let actions = monitor.on(&Input::Request(Request::Leave), now);
        assert!(!exits(&actions, Ending::Asked), "a request is in flight");
        assert_eq!(monitor.deadline(), Some(T0 + Duration::from_secs(1)));
    }
    let actions = monitor.on(&Input::QueueEmpty, T0 + Duration::from_secs(1));
    assert!(exits(&actions, Ending::Asked));
}

#[test]
fn deleted_namespace_is_not_left_before_the_file_says_backup() {
    let mut monitor = monitor();
    monitor.on(&Input::StateFile(Err(Errno(28))), T0);
    for input in
        [Input::NamespaceGone, Input::Agent(Outcome::Delivered), Input::Agent(Outcome::Closed)]
    {
        assert!(!exits(&monitor.on(&input, T0), Ending::NamespaceGone), "{input:?}");
    }
    let retry = monitor.deadline().expect("a time to try the file again");
    let actions = monitor.on(&Input::QueueEmpty, retry);
    assert_eq!(actions, [Action::WriteState(State::Backup)]);
    let actions = monitor.on(&Input::StateFile(Ok(State::Backup)), retry);
    assert!(exits(&actions, Ending::NamespaceGone));
}

#[test]
fn nor_is_it_stayed_in_for_ever() {
    let mut monitor = monitor();
    monitor.on(&Input::StateFile(Err(Errno(28))), T0);
    monitor.on(&Input::NamespaceGone, T0);
    let actions = monitor.on(&Input::QueueEmpty, T0 + Duration::from_secs(5));
    assert!(exits(&actions, Ending::NamespaceGone));
}
