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

/// An option in the language of manual pages, `mdoc(7)`.
fn entry(flag: &FlagInfo<'_>) -> String {
    let mut lines = vec![format!(".It Fl {}", &with_underscores(flag.long)[1..])];
    if let FlagInfoKind::Option { arg_name } = flag.kind {
        lines[0].extend([" Ar ", arg_name]);
    }
    if let Some(short) = flag.short {
        lines[0].extend([" , Fl ", short.encode_utf8(&mut [0; 4])]);
    }
    let (first, rest) = flag.description.trim().split_at(1);
    let mut in_text = false;
    for word in [&first.to_uppercase(), rest, "."].concat().split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let name = match bare.strip_prefix('-') {
            Some(_) => Some(format!(".Fl {}", &with_underscores(bare)[1..])),
            None => is_path(bare).then(|| format!(".Pa {bare}")),
        };
        match (name, lines.last_mut()) {
            (Some(mut name), _) => {
                word[bare.len()..].chars().for_each(|mark| name.extend([' ', mark]));
                lines.push(name);
                in_text = false;
            }
            (None, Some(line)) if in_text && line.len() + word.len() < 78 => {
                line.extend([" ", word]);
            }
            (None, _) => {
                lines.push(word.into());
                in_text = true;
            }
        }
    }
    if flag.optionality == Optionality::Required {
        lines.push("Required.".into());
    }
    lines.join("\n") + "\n"
}

fn is_path(word: &str) -> bool {
    // And not a prefix length.
    word.starts_with('/') && word.contains(char::is_alphabetic)
}
