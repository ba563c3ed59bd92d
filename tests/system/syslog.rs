//! Promises 4 and 19: the system's log gets each line, or the number of those that it could not get.

/// Frames cannot go to syslog.
#[cfg(feature = "defmt")]
#[apply(trial)]
fn is_refused() {
    let output = crate::world::setup().with("--use-syslog").run();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.starts_with("keepwatch: --use-syslog: ") && error.lines().count() == 1,
        "{error}"
    );
}

#[cfg(not(feature = "defmt"))]
mod lines {
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::time::Duration;

    use lab::files::{receive, wait_readable};
    use lab::log::in_thread;
    use lab::trial::table;
    use libtest_mimic::Trial;
    use nix::sys::signal::Signal;

    use crate::scripted::hooked;
    use crate::world::{World, set_sysctl, setup};

    const LOST: &str = "lines lost because /dev/log was full or absent: ";

    /// Each replaces `/dev` for its thread, so it has a thread of its own.
    #[apply(trial)]
    fn reach_the_log_daemon() -> Vec<Trial> {
        let tests: [(&str, fn()); 3] = [
            ("restarted_log_daemon", restarted_log_daemon),
            ("full_log_daemon", full_log_daemon),
            ("more_than_is_kept", more_than_is_kept),
        ];
        let in_empty_dev = |test: fn()| {
            in_thread(|| {
                lab::namespace::enter_empty_dev().unwrap();
                // As on OpenWrt.
                set_sysctl("unix/max_dgram_qlen", 10);
                test();
            });
        };
        table(module_path!(), tests, in_empty_dev).collect()
    }

    fn receive_until(log: &UnixDatagram, text: &str) -> Vec<String> {
        let mut lines = vec![receive(log)];
        while !lines.last().unwrap().contains(text) {
            lines.push(receive(log));
        }
        lines
    }

    fn restarted_log_daemon() {
        let report = || {
            let (code, report) = setup().with("--use-syslog").check();
            assert_eq!(code, Some(0), "{report}");
            report
        };
        let lost = "lines are lost while that lasts (--use-syslog)";
        assert!(report().contains(&format!("(ENOENT); {lost}")), "{}", report());
        // A start says so where it can be read.
        let output = setup().with("--use-syslog").with("--namespace=missing").run();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(
            printed.starts_with("keepwatch: /dev/log: ") && printed.contains(lost),
            "{printed}"
        );
        // With a stream socket, as some log daemons have, or with one of a log daemon that has ended.
        let stream = UnixListener::bind("/dev/log").unwrap();
        assert!(report().contains(&format!("(EPROTOTYPE); {lost}")), "{}", report());
        drop(stream);
        assert!(report().contains(&format!("(ECONNREFUSED); {lost}")), "{}", report());
        std::fs::remove_file("/dev/log").unwrap();
        let log = UnixDatagram::bind("/dev/log").unwrap();
        assert!(!report().contains(lost), "{}", report());
        let World { setup, .. } = &World::with(setup().with("--use-syslog"));
        setup.expect(&[LOST]);
        let keepwatch = setup.start();
        let (router, pid) = (&setup.router, keepwatch.pid());
        let message = receive(&log);
        assert!(message.starts_with("<30>"), "daemon.info: {message}");
        let text = format!(" keepwatch[{pid}]: {router}: watched interface ha0 has index ");
        // Behind the 15 bytes of the time.
        assert!(message[4 + 15..].starts_with(&text), "{message}");
        keepwatch.wait_log("Notified agent router", 1);
        // The daemon sends to a restarted log daemon, and what it could not send is counted.
        drop(log);
        keepwatch.signal(Signal::SIGHUP);
        keepwatch.wait_log("Notified agent router", 1);
        let lost = setup.log().lines().skip_while(|line| !line.contains("SIGHUP")).count();
        std::fs::remove_file("/dev/log").unwrap();
        let log = UnixDatagram::bind("/dev/log").unwrap();
        keepwatch.signal(Signal::SIGUSR1);
        assert!(receive(&log).contains("status: state=backup"));
        let lines = receive_until(&log, LOST);
        assert!(lines.last().unwrap().ends_with(&format!("{LOST}{lost}")), "{lost}: {lines:?}");
    }

    /// A log daemon that does not run meanwhile gets the failure first, and then all that the hook has printed.
    fn full_log_daemon() {
        let log = UnixDatagram::bind("/dev/log").unwrap();
        let hooked = hooked(setup().with("--use-syslog"));
        hooked.when("BACKUP", "rm $RECORD/BACKUP; seq 20; exit 2");
        hooked.world.setup.expect(&["hook failed for BACKUP"]);
        let keepwatch = hooked.world.setup.start();
        keepwatch.wait_log(": hook: 20\n", 1);
        let lines = receive_until(&log, ": hook: 20");
        let failed = lines.iter().position(|line| line.contains("hook failed for BACKUP: exit"));
        let printed: Vec<_> =
            lines.iter().filter_map(|line| line.split_once(": hook: ")).map(|(_, n)| n).collect();
        assert!(failed < lines.iter().position(|line| line.contains(": hook: 1")), "{lines:?}");
        assert_eq!(printed, (1..=20).map(|n| n.to_string()).collect::<Vec<_>>());
        // Room alone wakes a daemon that waits for nothing else.
        hooked.when("MASTER", "seq 20");
        hooked.world.deliver(true);
        keepwatch.wait_log(": hook: 20\n", 1);
        receive_until(&log, ": hook: 20");
    }

    /// The first lines are kept, and the others are counted.
    fn more_than_is_kept() {
        let log = UnixDatagram::bind("/dev/log").unwrap();
        let hooked = hooked(setup().with("--use-syslog"));
        hooked.when("BACKUP", "yes $(printf %0240d 0) | head -n 100; exit 2");
        hooked.world.setup.expect(&["hook failed for BACKUP", LOST, "more output discarded"]);
        let keepwatch = hooked.world.setup.start();
        keepwatch.wait_log("more output discarded", 1);
        hooked.when("BACKUP", "");
        keepwatch.wait_log("hook succeeded for BACKUP", 1);
        let lines = receive_until(&log, LOST);
        let printed = lines.iter().filter(|line| line.contains(": hook: 0")).count();
        assert!((30..64).contains(&printed), "{lines:?}");
        let lost = lines.last().and_then(|line| line.split_once(LOST)).unwrap().1;
        let logged = hooked.world.setup.log().lines().filter(|line| !line.contains(LOST)).count();
        assert_eq!(lines.len() - 1 + lost.parse::<usize>().unwrap(), logged);
        // Nothing waits any more.
        assert!(!wait_readable(&log, Duration::ZERO));
        // A daemon that spins never sleeps.
        keepwatch.wait_asleep();
        assert!(keepwatch.sleeps_for().is_none_or(|millis| millis > 0));
    }
}
