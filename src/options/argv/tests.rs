use std::collections::BTreeSet;

use argh::{ArgsInfo, FlagInfoKind};

use super::*;

fn normal(words: &[&str]) -> Result<Vec<String>, UsageError> {
    normalise(words.iter().map(OsString::from).collect())
}

#[test]
fn every_spelling_means_the_same() {
    let expected = normal(&["--router-id", "r1"]).unwrap();
    assert_eq!(expected, ["--router-id", "r1"]);
    let spellings: [&[&str]; 3] =
        [&["--router_id", "r1"], &["--router_id=r1"], &["--router-id=r1"]];
    for words in spellings {
        assert_eq!(normal(words).unwrap(), expected, "{words:?}");
    }
}

#[test]
fn value_is_split_at_the_first_equals_sign_and_keeps_its_underscores() {
    assert_eq!(normal(&["--conf_dir=/a=b_c"]).unwrap(), ["--conf-dir", "/a=b_c"]);
    assert_eq!(normal(&["--user="]).unwrap(), ["--user", ""]);
}

#[test]
fn what_the_original_takes_is_ignored_with_its_value() {
    let words = [
        "--AGENT-root_helper=sudo neutron-rootwrap /etc/neutron/rootwrap.conf",
        "--AGENT-root_helper_daemon",
        "x",
        "--config-file",
        "/a",
        "--config-file=/b",
        "--config_dir",
        "/c",
        "-d",
    ];
    assert_eq!(normal(&words).unwrap(), ["--debug"]);
}

#[test]
fn later_option_replaces_an_earlier_one() {
    assert_eq!(normal(&["--user=a", "--user=b"]).unwrap(), ["--user", "b"]);
    assert_eq!(normal(&["--debug", "--nodebug"]).unwrap(), [""; 0]);
    assert_eq!(normal(&["--nodebug", "-d"]).unwrap(), ["--debug"]);
    assert_eq!(normal(&["--debug", "--no_debug"]).unwrap(), [""; 0]);
    assert_eq!(normal(&["--noenable_conntrackd", "--nouse-syslog"]).unwrap(), [""; 0]);
}

#[test]
fn mistakes_are_named() {
    let cases: [(&[&str], &str); 11] = [
        (&["--frob"], "unknown option \"--frob\": --help lists what there is"),
        (&["stray\n"], "unknown option \"stray\\n\": --help lists what there is"),
        (&["--"], "unknown option \"--\": --help lists what there is"),
        (&["--router_id"], "--router_id: wants a value"),
        (&["--router-id", "--debug"], "--router-id: wants a value"),
        (&["--config-file"], "--config-file: wants a value"),
        (&["--AGENT-a\n"], "--AGENT-a\\n: wants a value"),
        (&["__no_debug"], "unknown option \"__no_debug\": --help lists what there is"),
        (&["__debug"], "unknown option \"__debug\": --help lists what there is"),
        (&["--foreground=1"], "--foreground \"1\": wants no value"),
        (&["--noforeground"], "unknown option \"--noforeground\": --help lists what there is"),
    ];
    for (words, error) in cases {
        assert_eq!(normal(words).unwrap_err().0, error);
    }
}

#[test]
fn what_argh_knows_is_what_is_let_through() {
    let of_argh = Arguments::get_args_info().flags.iter();
    let of_argh = of_argh.map(|flag| (flag.long, !matches!(flag.kind, FlagInfoKind::Switch)));
    let ours = OPTIONS.iter().map(|known| (known.name.replace('_', "-"), known.takes_value));
    assert_eq!(
        ours.collect::<BTreeSet<_>>(),
        of_argh.map(|(name, takes_value)| (name.into(), takes_value)).collect()
    );
}

#[test]
fn manual_page_has_every_option() {
    let manual = include_str!("../../../docs/keepwatch.8");
    for known in &OPTIONS {
        let entry = format!("Fl {}", known.name.strip_prefix('-').unwrap());
        let is_there = manual.lines().any(|line| {
            line.starts_with(".It")
                && line.split(" , ").any(|part| {
                    let part = part.trim_start_matches(".It ");
                    part == entry || part.starts_with(&format!("{entry} "))
                })
        });
        let in_text = manual.contains(&format!(".{entry}\n"));
        assert!(is_there || in_text, "{} is not in the manual page", known.name);
    }
}

#[test]
fn help_shows_the_names_as_the_callers_write_them() {
    let help = read(vec!["--help".into()]).unwrap_err();
    assert_eq!(help.status, Ok(()));
    for known in &OPTIONS {
        let names: Vec<_> = help
            .output
            .split_whitespace()
            .filter(|word| find(word).is_some_and(|found| found.name == known.name))
            .collect();
        assert!(
            !names.is_empty() && names.iter().all(|name| *name == known.name),
            "{}: {}",
            known.name,
            help.output
        );
    }
}
