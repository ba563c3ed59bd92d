//! Actions that the simulated world does not depend on.

use keepwatch::monitor::{
    Action, CommandResult, Failure, HelperKind, HelperNews, HookCall, HookState, Input, Instant,
    LogEvent, Monitor, MonitorConfig, Outcome, Request, State,
};
use keepwatch::wire::rtnl::{Body, Message};

use super::world::config;
use super::world::kernel::link;

const T0: Instant = Instant::ZERO;

fn event(body: Body) -> Input {
    Input::Netlink(Message { body, sequence: 0, port: 0, interrupted: false })
}

#[test]
fn addresses_are_heard_of_on_the_watched_interface_only() {
    let mut monitor = Monitor::new(config());
    let mut filter = |body| {
        let actions = monitor.on(&event(body), T0);
        let filters = |action: &Action| matches!(action, Action::SetAddressFilter(_));
        actions.into_iter().find(filters)
    };
    let new = || Body::NewLink(link(5, "ha"));
    assert_eq!(filter(new()), Some(Action::SetAddressFilter(Some(5))));
    assert_eq!(filter(new()), None, "it is so already");
    assert_eq!(filter(Body::DelLink(link(5, "ha"))), Some(Action::SetAddressFilter(None)));
}

#[test]
fn agent_that_was_away_is_said_to_be_back() {
    let mut monitor = Monitor::new(config());
    monitor.on(&event(Body::NewLink(link(5, "ha"))), T0);
    monitor.on(&event(Body::DelLink(link(5, "ha"))), T0);
    monitor.on(&Input::StateFile(Ok(State::Backup)), T0);
    monitor.on(&Input::Agent(Outcome::Failed(Failure::Refused)), T0);
    let later = Instant::from_secs(1);
    assert!(monitor.on(&Input::Tick, later).contains(&Action::Notify(State::Backup)));
    let said = [LogEvent::Notified(State::Backup), LogEvent::AgentBack { failures: 1 }];
    assert_eq!(monitor.on(&Input::Agent(Outcome::Delivered), later), said.map(Action::Log));
}

#[test]
fn helpers_that_were_killed_are_said_to_be_back() {
    let mut monitor = Monitor::new(config());
    for helper in [HelperKind::Conntrackd, HelperKind::Hook] {
        let said = Action::Log(LogEvent::HelperRestarted { helper, count: 1 });
        let actions = monitor.on(&Input::Helper(helper, HelperNews::Restarted), T0);
        assert!(actions.contains(&said), "{actions:?}");
    }
}

#[test]
fn hook_that_fails_again_is_not_quoted_again() {
    let mut monitor = Monitor::new(MonitorConfig { hook: true, ..config() });
    monitor.on(&event(Body::NewLink(link(5, "ha"))), T0);
    monitor.on(&event(Body::DelLink(link(5, "ha"))), T0);
    let run = Action::Run(Request::Hook(HookCall { state: HookState::Fault, previous: None }));
    assert!(monitor.on(&Input::StateFile(Ok(State::Backup)), T0).contains(&run));
    assert!(monitor.logs_hook_output());
    let failed = Input::Helper(HelperKind::Hook, HelperNews::Ended(CommandResult::Exited(1)));
    monitor.on(&failed, T0);
    assert!(monitor.on(&Input::Tick, Instant::from_secs(1)).contains(&run));
    assert!(!monitor.logs_hook_output());
}
