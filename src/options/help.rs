//! The text of `--help`.

use argh::{ArgsInfo, FlagInfo, FlagInfoKind, Optionality};

use super::{Config, flags};

/// The width of a terminal in columns.
const WIDTH: usize = 80;

pub(super) fn text() -> String {
    let mut usage = String::from("Usage: keepwatch");
    for flag in flags().iter().filter(|flag| flag.optionality == Optionality::Required) {
        usage.extend([" ", &synopsis(flag)]);
    }
    usage.push_str(" (--pid-file FILE | --foreground) [options]");
    let mut text = String::new();
    wrap(&mut text, "", &usage);
    text.push('\n');
    wrap(&mut text, "", Config::get_args_info().description);
    text.push_str(
        "\nNames may be written with _ or -, values as --name=VALUE or --name VALUE.\n\n",
    );
    for flag in flags() {
        text.extend(["  ", &synopsis(flag), "\n"]);
        wrap(&mut text, "      ", flag.description);
    }
    text
}

/// Returns an option's names and argument, such as `--log-file FILE`.
fn synopsis(flag: &FlagInfo<'_>) -> String {
    let mut synopsis = String::from(flag.long);
    if let FlagInfoKind::Option { arg_name } = flag.kind {
        synopsis.extend([" ", arg_name]);
    }
    if let Some(short) = flag.short {
        synopsis.push_str(", -");
        synopsis.push(short);
    }
    synopsis
}

fn wrap(text: &mut String, indent: &str, paragraph: &str) {
    let mut line = String::from(indent);
    for word in paragraph.split_whitespace() {
        if line.len() + 1 + word.len() >= WIDTH {
            text.extend([&line, "\n"]);
            line = indent.into();
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.extend([&line, "\n"]);
}
