//! Parses the command lines of Neutron's callers, which `argh` alone does not accept.
//!
//! They write `--router_id=X` or `--router-id X`, turn switches off by `--nodebug`, pass options of other
//! programs, and expect a later value to replace an earlier one.

use std::ffi::OsString;

use argh::{FlagInfo, FlagInfoKind, Optionality};

use super::flags;

pub(super) const PROBE: &str = "--probe";

type Flag = &'static FlagInfo<'static>;

/// An option of the command line.
pub(super) type GivenOption = (Flag, Given);

/// How an option is given.
#[derive(PartialEq, Eq)]
pub(super) enum Given {
    Switch,
    Value(String),
    /// As `--no-NAME`.
    Off,
}

enum ParsedName {
    On(Flag),
    Off(Flag),
    /// An option of the original, ignored with its value.
    Ignored,
}

/// Reads the command line. Returns each option at most once, unless all its values count, in the order in which they were
/// last given. Errors are not escaped.
pub(super) fn read(argv: Vec<OsString>) -> Result<Vec<GivenOption>, String> {
    let mut given: Vec<GivenOption> = Vec::new();
    let mut words = argv.into_iter().map(into_text);
    while let Some(word) = words.next().transpose()? {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (word.as_str(), None),
        };
        let parsed = parse_name(name).ok_or_else(|| format!("Unrecognized argument: {word}"))?;
        let takes_value = match parsed {
            ParsedName::On(flag) => flag.kind != FlagInfoKind::Switch,
            ParsedName::Off(_) => false,
            ParsedName::Ignored => true,
        };
        let value = match (inline, takes_value) {
            (Some(_), false) => return Err(format!("Option takes no value: {word}")),
            // As with getopt_long(3), any next word is the value.
            (None, true) => {
                let value =
                    words.next().ok_or_else(|| format!("No value given for option: {word}"));
                Some(value?.map_err(|error| format!("{word}: {error}"))?)
            }
            (inline, _) => inline,
        };
        let (flag, how) = match parsed {
            // As --no-probe.
            ParsedName::On(flag) if flag.long == PROBE && value.as_deref() == Some("0") => {
                (flag, Given::Off)
            }
            ParsedName::On(flag) => (flag, value.map_or(Given::Switch, Given::Value)),
            ParsedName::Off(flag) => (flag, Given::Off),
            ParsedName::Ignored => continue,
        };
        let is_one_of_many = flag.optionality == Optionality::Repeating && how != Given::Off;
        if !is_one_of_many {
            given.retain(|(other, _)| other.long != flag.long);
        }
        given.push((flag, how));
    }
    Ok(given)
}

fn into_text(word: OsString) -> Result<String, String> {
    word.into_string().map_err(|word| format!("Not UTF-8: {}", word.to_string_lossy()))
}

fn parse_name(name: &str) -> Option<ParsedName> {
    match name {
        "-d" => return parse_name("--debug"),
        "-h" => return parse_name("--help"),
        "-v" | "-V" => return parse_name("--version"),
        _ if !name.starts_with("--") => return None,
        _ => {}
    }
    let name = name.replace('_', "-");
    let find = |name: &str| {
        let name = if name == "--notify" { "--hook" } else { name };
        flags().iter().find(|flag| flag.long == name)
    };
    if let Some(flag) = find(&name) {
        return Some(ParsedName::On(flag));
    }
    if name.starts_with("--AGENT-") || name == "--config-file" || name == "--config-dir" {
        return Some(ParsedName::Ignored);
    }
    // `--announce` switches `--no-announce` off.
    if let Some(flag) = find(&name.replacen("--", "--no-", 1)) {
        return Some(ParsedName::Off(flag));
    }
    let positive = name.strip_prefix("--no")?;
    find(&["--", positive.strip_prefix('-').unwrap_or(positive)].concat())
        .filter(|flag| flag.optionality != Optionality::Required)
        .map(ParsedName::Off)
}
