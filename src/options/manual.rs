//! The manual page's options are those of `--help`.
//!
//! `UPDATE_MANUAL=1 cargo test --lib manual` writes them into the page.

use argh::{FlagInfo, FlagInfoKind, Optionality};

use super::{flags, with_underscores};

#[test]
fn manual_page_has_the_options_as_help_has_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/keepwatch.8");
    let page = std::fs::read_to_string(path).unwrap();
    let begin = page.find(".It Fl -help").expect("the first option");
    let end = page.find(".It Fl -config-file").expect("those that are ignored are last");
    let entries: String = flags().iter().map(entry).collect();
    if std::env::var_os("UPDATE_MANUAL").is_some() {
        std::fs::write(path, [&page[..begin], &entries, &page[end..]].concat()).unwrap();
    } else {
        assert!(page[begin..end] == entries, "{path} should have:\n{entries}");
    }
}

/// An option in the language of manual pages, `mdoc(7)`, in which another option's name wants a line of its own.
fn entry(flag: &FlagInfo<'_>) -> String {
    let mut entry = format!(".It Fl {}", &with_underscores(flag.long)[1..]);
    if let FlagInfoKind::Option { arg_name } = flag.kind {
        entry.extend([" Ar ", arg_name]);
    }
    if let Some(short) = flag.short {
        entry.extend([" , Fl ", short.encode_utf8(&mut [0; 4])]);
    }
    let (first, rest) = flag.description.trim().split_at(1);
    let mut in_text = false;
    for word in [&first.to_uppercase(), rest, "."].concat().split_whitespace() {
        if let Some(option) = with_underscores(word).strip_prefix('-') {
            let name = option.trim_end_matches([',', ';', '.', ')']);
            entry.extend(["\n.Fl ", name]);
            option[name.len()..].chars().for_each(|mark| entry.extend([' ', mark]));
        } else {
            entry.extend([if in_text { " " } else { "\n" }, word]);
        }
        in_text = !word.starts_with('-');
    }
    if flag.optionality == Optionality::Required {
        entry.push_str("\nRequired.");
    }
    entry + "\n"
}
