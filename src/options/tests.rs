use super::*;

/// What the least of command lines and these options make.
fn config(options: &[&str]) -> Result<Box<Config>, UsageError> {
    let least = [
        "--router_id=r1",
        "--conf_dir=/",
        "--monitor_interface=ha0",
        "--monitor_cidr=169.254.0.5/24",
        "--state_path=/run/agent",
        "--pid_file=/run/pid",
    ];
    match parse(least.iter().chain(options).map(OsString::from).collect())? {
        CliAction::Run(config) | CliAction::Check(config) => Ok(config),
        CliAction::Print(text) => panic!("{text}"),
    }
}

#[test]
fn where_the_log_goes() {
    let default = "/neutron-keepalived-state-change.log";
    let cases: [(&[&str], Option<&str>); 7] = [
        (&[], Some(default)),
        (&["--foreground"], None),
        (&["--use-syslog"], None),
        (&["--use-syslog", "--log-file=/var/log/x"], Some("/var/log/x")),
        (&["--foreground", "--log-file=/var/log/x"], Some("/var/log/x")),
        (&["--log-dir=/var/log", "--log-file=x"], Some("/var/log/x")),
        (&["--log-dir=/"], Some(default)),
    ];
    for (options, expected) in cases {
        if cfg!(feature = "defmt") && options.contains(&"--use-syslog") {
            assert!(config(options).is_err());
            continue;
        }
        assert_eq!(config(options).unwrap().log_file, expected.map(PathBuf::from), "{options:?}");
    }
}

#[test]
fn namespace_is_a_name_or_an_absolute_path() {
    let path = |namespace| config(&[namespace]).map(|config| config.namespace);
    assert_eq!(path("--namespace=qrouter-1"), Ok(Some("/run/netns/qrouter-1".into())));
    assert_eq!(path("--namespace=/proc/1/ns/net"), Ok(Some("/proc/1/ns/net".into())));
    for wrong in ["--namespace=a/b", "--namespace=.", "--namespace=..", "--namespace="] {
        assert!(path(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn longest_socket_path_fits_and_one_more_does_not() {
    let path = |len| format!("--state_path=/{}", "d".repeat(len - 1));
    let longest = values::MAX_SOCKET_PATH - values::AGENT_SOCKET.len() - 1;
    assert!(config(&[&path(longest)]).is_ok());
    assert!(config(&[&path(longest + 1)]).is_err());
}

#[test]
fn who_to_be() {
    let identity = |options: &[&str]| {
        let RunAs { user, group } = config(options).map_err(|error| error.0)?.run_as();
        Ok((user.map(Uid::as_raw), group.map(Gid::as_raw)))
    };
    assert_eq!(identity(&[]), Ok((None, None)));
    assert_eq!(identity(&["--user=root"]), Ok((Some(0), Some(0))), "with the group of the user");
    assert_eq!(identity(&["--user=0", "--group=12"]), Ok((Some(0), Some(12))));
    assert_eq!(identity(&["--group=root"]), Ok((None, Some(0))));
    let wrong: [(&[&str], &str); 4] = [
        (
            &["--user=nobody here"],
            "Error parsing option '--user' with value 'nobody here': expected the name",
        ),
        (&["--group=-1"], "Error parsing option '--group' with value '-1'"),
        (&["--user=4294967295"], "Error parsing option '--user' with value '4294967295'"),
        (&["--user=123456789"], "Missing required option --group"),
    ];
    for (options, begin) in wrong {
        let error: Result<(Option<u32>, Option<u32>), String> = identity(options);
        assert!(error.as_ref().is_err_and(|error| error.starts_with(begin)), "{error:?}");
    }
}

#[test]
fn hook_is_run_as_its_own_user_or_as_the_daemons() {
    let identity = |options: &[&str]| {
        let hook = ["--hook=/proc/self/exe"];
        let config = config(&[&hook, options].concat()).map_err(|error| error.0)?;
        let RunAs { user, group } = config.run_hook_as();
        Ok((user.map(Uid::as_raw), group.map(Gid::as_raw)))
    };
    assert_eq!(identity(&[]), Ok((None, None)));
    assert_eq!(identity(&["--user=7", "--group=8"]), Ok((Some(7), Some(8))));
    let own = ["--user=123456789", "--group=8", "--hook-user=root"];
    assert_eq!(identity(&own), Ok((Some(0), Some(0))));
    let unknown = "--hook-user=123456789";
    assert_eq!(identity(&[unknown, "--group=8"]), Ok((Some(123_456_789), Some(8))));
    let error: Result<(Option<u32>, Option<u32>), _> =
        Err("Missing required option --group, as --hook-user has no password entry".to_string());
    assert_eq!(identity(&[unknown]), error);
    let error = config(&["--hook-user=root"]).unwrap_err().0;
    assert_eq!(error, "Missing required option --hook, as --hook-user is given");
}

#[test]
fn renotifications_are_ascending_seconds() {
    let seconds = |option: &[&str]| {
        let times = config(option).map(|config| config.renotify);
        times.map(|times| times.iter().map(Duration::secs).collect::<Vec<_>>())
    };
    assert_eq!(seconds(&[]).unwrap(), [30, 120, 600]);
    assert_eq!(seconds(&["--renotify=0"]).unwrap(), [0; 0]);
    assert_eq!(seconds(&["--renotify=1,2,3,86400"]).unwrap(), [1, 2, 3, 86_400]);
    for wrong in ["", "0,1", "2,1", "1,1", "1,", "-1", "86401", "1,2,3,4,5", "1.5", "1 2"] {
        assert!(seconds(&[&format!("--renotify={wrong}")]).is_err(), "{wrong}");
    }
}

#[test]
fn names_in_errors_are_written_as_users_know_them() {
    let error = |option: &str| config(&[option]).unwrap_err().0;
    assert!(error("--router-id=").contains("'--router_id'"));
    assert_eq!(error("--router.id=r1"), "Unrecognized argument: --router.id=r1");
}

#[test]
fn defaults_are_those_that_help_gives() {
    let least = format!("{:?}", config(&[]).unwrap());
    let mut with_default = 0;
    for flag in flags() {
        let Some((_, default)) = flag.description.rsplit_once("default: ") else { continue };
        // Some are said in words.
        if default.contains(' ') {
            continue;
        }
        let given = config(&[&format!("{}={default}", flag.long)]).unwrap();
        assert_eq!(format!("{given:?}"), least, "{}", flag.long);
        with_default += 1;
    }
    assert_eq!(with_default, 7);
}

#[test]
fn help_lists_every_option_within_80_columns() {
    let help = help::text();
    for flag in flags() {
        assert!(help.contains(&format!("\n  {}", flag.long)), "{help}");
    }
    assert!(help.lines().all(|line| line.len() <= 80), "{help}");
}
