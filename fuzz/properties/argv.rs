//! The command line: it has a configuration or an error of one line, and every spelling of an option has the same
//! meaning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use keepwatch::options::{CliAction, parse};

/// Checks words that end with NUL, as in `/proc/PID/cmdline`.
pub fn check(cmdline: &[u8]) {
    let cmdline = cmdline.strip_suffix(b"\0").unwrap_or(cmdline);
    let words: Vec<OsString> =
        cmdline.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).into()).collect();
    let meaning = match parse(words.clone()) {
        Err(line) => {
            assert!(!line.is_empty() && !line.contains(char::is_control), "not one line: {line:?}");
            return;
        }
        Ok(CliAction::Print(_)) => return,
        Ok(meaning) => format!("{meaning:?}"),
    };
    let words: Vec<String> = words.into_iter().flat_map(OsString::into_string).collect();
    if words.windows(2).any(|pair| takes_value(&pair[0]) && pair[1].starts_with("--")) {
        // That value looks like an option.
        return;
    }
    // A later option replaces an earlier one, except this.
    let adds = words.iter().any(|word| word.replace('_', "-").starts_with("--hook-env"));
    let spellings = [
        respelt(&words, |name| name.replace('-', "_")),
        respelt(&words, |name| name.replace('_', "-")),
        split(&words),
        [&words[..], if adds { &[] } else { &words }].concat(),
    ];
    for spelling in spellings {
        let again = parse(spelling.iter().map(OsString::from).collect());
        assert_eq!(again.map(|again| format!("{again:?}")), Ok(meaning.clone()), "{spelling:?}");
    }
}

/// Whether the next word is the value of this one.
fn takes_value(word: &str) -> bool {
    parse(vec![word.into()]).is_err_and(|line| line.contains("No value given"))
}

/// Returns the words with another spelling of each option.
fn respelt(words: &[String], respell: impl Fn(&str) -> String) -> Vec<String> {
    let respell = |word: &String| match word.strip_prefix("--") {
        None => word.clone(),
        Some(option) => match option.split_once('=') {
            None => format!("--{}", respell(option)),
            Some((name, value)) => format!("--{}={value}", respell(name)),
        },
    };
    words.iter().map(respell).collect()
}

/// Returns the words with each value as a word of its own, unless it looks like an option.
fn split(words: &[String]) -> Vec<String> {
    let split = |word: &String| match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") && !value.starts_with("--") => {
            vec![name.into(), value.into()]
        }
        _ => vec![word.clone()],
    };
    words.iter().flat_map(split).collect()
}
