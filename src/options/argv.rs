//! The command line as Neutron's callers write it, brought to the one form that `argh` reads.
//!
//! They write `--router_id=X` or `--router-id X`, turn switches off by `--nodebug`, pass options that
//! mean nothing here, and expect a later value to replace an earlier one.

use std::ffi::OsString;

use argh::{FlagInfo, FlagInfoKind};

use super::flags;

/// Options of the original that are accepted with their value and ignored.
const IGNORED: [&str; 2] = ["--config-file", "--config-dir"];
/// What else is ignored begins like this.
const IGNORED_PREFIX: &str = "--AGENT-";

type Flag = &'static FlagInfo<'static>;

/// How a name on the command line is interpreted.
#[derive(Clone, Copy)]
enum ParsedName {
    Option(Flag),
    Switch(Flag),
    SwitchOff(Flag),
    /// An option that is ignored together with its value.
    Ignored,
}

/// Brings the command line to `--name value` with dashes, each option at most once.
///
/// # Errors
/// One sentence, in which values from outside are not escaped.
pub(super) fn normalise(argv: Vec<OsString>) -> Result<Vec<String>, String> {
    let mut given: Vec<(Flag, Option<String>)> = Vec::new();
    let mut words = argv.into_iter().map(into_text);
    while let Some(word) = words.next().transpose()? {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (word.as_str(), None),
        };
        let parsed = parse_name(name).ok_or_else(|| error("Unrecognized argument", &word))?;
        let value = match (parsed, inline) {
            (ParsedName::Switch(_) | ParsedName::SwitchOff(_), None) => None,
            (ParsedName::Switch(_) | ParsedName::SwitchOff(_), Some(_)) => {
                return Err(error("Option takes no value", &word));
            }
            (_, Some(value)) => Some(value),
            (_, None) => {
                let value = words.next().transpose()?;
                // An option in the place of a value means that the value was forgotten.
                let value = value.filter(|value| !value.starts_with("--"));
                Some(value.ok_or_else(|| error("No value given for option", &word))?)
            }
        };
        let (ParsedName::Option(flag) | ParsedName::Switch(flag) | ParsedName::SwitchOff(flag)) =
            parsed
        else {
            continue;
        };
        given.retain(|(other, _)| other.long != flag.long);
        if !matches!(parsed, ParsedName::SwitchOff(_)) {
            given.push((flag, value));
        }
    }
    let mut words = Vec::new();
    for (flag, value) in given {
        words.push(flag.long.to_string());
        words.extend(value);
    }
    Ok(words)
}

fn into_text(word: OsString) -> Result<String, String> {
    word.into_string().map_err(|word| error("Not UTF-8", &word.to_string_lossy()))
}

#[inline(never)]
fn error(problem: &str, word: &str) -> String {
    format!("{problem}: {word}")
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
    let find = |name: &str| flags().iter().find(|flag| flag.long == name);
    if let Some(flag) = find(&name) {
        return Some(match flag.kind {
            FlagInfoKind::Option { .. } => ParsedName::Option(flag),
            FlagInfoKind::Switch => ParsedName::Switch(flag),
        });
    }
    if name.starts_with(IGNORED_PREFIX) || IGNORED.contains(&name.as_str()) {
        return Some(ParsedName::Ignored);
    }
    let positive = name.strip_prefix("--no")?;
    find(&["--", positive.strip_prefix('-').unwrap_or(positive)].concat())
        .filter(|flag| flag.kind == FlagInfoKind::Switch)
        .map(ParsedName::SwitchOff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(words: &[&str]) -> Result<Vec<String>, String> {
        normalise(words.iter().map(OsString::from).collect())
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
            (&["--frob"], "Unrecognized argument: --frob"),
            (&["stray"], "Unrecognized argument: stray"),
            (&["--"], "Unrecognized argument: --"),
            (&["--router_id"], "No value given for option: --router_id"),
            (&["--router-id", "--debug"], "No value given for option: --router-id"),
            (&["--config-file"], "No value given for option: --config-file"),
            (&["__no_debug"], "Unrecognized argument: __no_debug"),
            (&["__debug"], "Unrecognized argument: __debug"),
            (&["--foreground=1"], "Option takes no value: --foreground=1"),
            (&["--nodebug=1"], "Option takes no value: --nodebug=1"),
            (&["--nouser"], "Unrecognized argument: --nouser"),
        ];
        for (words, error) in cases {
            assert_eq!(normal(words).unwrap_err(), error);
        }
    }
}
