//! Command lines of the hook. keepalived's notify scripts are split into words in the same way. No shell interprets them.

use std::ffi::OsString;
use std::fs;
use std::iter::Peekable;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::values::{denied, expected, path};
use crate::helper::{HookCommand, PATH};
use crate::start::program::{can_run, try_to_run};

/// Reads the command line of `--hook`.
pub(super) fn notify(text: &str) -> Result<HookCommand, String> {
    Ok(HookCommand { is_notify: true, ..of_state(text)? })
}

/// Reads the command line of a single state.
pub(super) fn of_state(text: &str) -> Result<HookCommand, String> {
    let words = expected(split(text), "a command line without NUL whose quotes are closed")?;
    let mut words = words.into_iter().map(OsString::from_vec);
    let name = words.next().unwrap_or_default();
    let name = expected(name.to_str(), "a program whose path is UTF-8")?;
    let here = path(name);
    let exists = here.as_ref().is_ok_and(|path| path.metadata().is_ok());
    let program = if exists { here } else { find(name).map_or(here, Ok) }?;
    let examined = match fs::metadata(&program) {
        Err(error) => Err(denied(error)),
        Ok(found) if !found.is_file() => Err("not a regular file".into()),
        Ok(found) if found.mode() & 0o111 == 0 => Err("not executable".into()),
        Ok(_) => try_to_run(&program).map_err(denied),
    };
    examined.map_err(|reason| {
        // The value need not show which word is the program.
        let program = if name == text { String::new() } else { format!("{name}: ") };
        format!("expected an existing program that may be run: {program}{reason}")
    })?;
    Ok(HookCommand { program, arguments: words.collect(), is_notify: false })
}

/// Searches for a program without a directory in the usual directories, as keepalived does.
fn find(name: &str) -> Option<PathBuf> {
    let mut files = std::env::split_paths(PATH).map(|directory| directory.join(name));
    files.find(|file| !name.contains('/') && can_run(file))
}

/// Splits a line at white space outside of quotes. A backslash makes the next character part of a word, or begins an
/// escape sequence, in both kinds of quotes as well. `None`: a quote or a sequence has no end, or a word has a NUL.
fn split(line: &str) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut rest = line.bytes().peekable();
    while let Some(byte) = rest.next() {
        let is_space = byte.is_ascii_whitespace() || byte == 0x0b;
        match byte {
            b'\\' => word.get_or_insert_default().push(unescape(&mut rest)?),
            _ if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if is_space && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    let is_whole = quote.is_none() && words.iter().all(|word| !word.contains(&0));
    is_whole.then_some(words)
}

/// Reads the rest of an escape sequence, as `alloc_strvec_quoted_escaped` in keepalived's `parser.c` does.
fn unescape(rest: &mut Peekable<impl Iterator<Item = u8>>) -> Option<u8> {
    let first = rest.next()?;
    Some(match (first, rest.peek()) {
        (b'x', Some(next)) if next.is_ascii_hexdigit() => number(0, 16, usize::MAX, rest),
        (b'0'..=b'7', _) => number(first - b'0', 8, 2, rest),
        (b'c', Some(_)) => rest.next()? & 0x1f,
        (b'a', _) => 0x07,
        (b'b', _) => 0x08,
        (b'E', _) => 0x1b,
        (b'f', _) => 0x0c,
        (b'n', _) => b'\n',
        (b'r', _) => b'\r',
        (b't', _) => b'\t',
        (b'v', _) => 0x0b,
        (other, _) => other,
    })
}

/// Appends at most this many digits to a number.
fn number(
    mut number: u8,
    radix: u8,
    most: usize,
    rest: &mut Peekable<impl Iterator<Item = u8>>,
) -> u8 {
    let digit = |byte: &u8| u8::try_from(char::from(*byte).to_digit(radix.into())?).ok();
    for _ in 0..most {
        let Some(digit) = rest.peek().and_then(digit) else { break };
        rest.next();
        number = number.wrapping_mul(radix).wrapping_add(digit);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// keepalived gets the like in `tests/interop/scripts/quoted-arguments`.
    #[test]
    fn words_are_those_of_keepalived() {
        for (line, words) in [
            ("/a", Some(&["/a"][..])),
            (" /a \t MASTER  now ", Some(&["/a", "MASTER", "now"])),
            (
                "/a 'two words' \"three 'more' words\"",
                Some(&["/a", "two words", "three 'more' words"]),
            ),
            ("/a b'c d'e\"f g\"", Some(&["/a", "bc def g"])),
            (r#"/a \" \' '\'' "\"" \\ a\ b"#, Some(&["/a", "\"", "'", "'", "\"", "\\", "a b"])),
            (r"/a \x41 \x041 \101 \1019 \e\E", Some(&["/a", "A", "A", "A", "A9", "e\x1b"])),
            (
                r"/a \t\n\v\f\r\a\b \cA $HOME *",
                Some(&["/a", "\t\n\x0b\x0c\r\x07\x08", "\x01", "$HOME", "*"]),
            ),
            ("/a '' b", Some(&["/a", "", "b"])),
            ("", Some(&[])),
            ("/a 'b", None),
            ("/a \"b'", None),
            ("/a \\", None),
            (r"/a \0", None),
        ] {
            let split = split(line).map(|words| {
                let text = |word| String::from_utf8(word).unwrap();
                words.into_iter().map(text).collect::<Vec<_>>()
            });
            let expected = words.map(|words| words.iter().map(|word| (*word).into()).collect());
            assert_eq!(split, expected, "{line}");
        }
    }
}
