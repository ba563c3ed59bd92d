//! The text format of Prometheus, as strictly as keepwatch writes it.

/// A sample: name, labels, value.
pub type Sample = (String, Vec<(String, String)>, u64);

/// Parses the file, strictly: each metric has its help, its type and then its samples; counters are called so; all
/// is complete.
pub fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let (mut samples, mut lines) = (Vec::new(), text.lines().peekable());
    if !text.ends_with('\n') {
        return Err(format!("no end: {text:?}"));
    }
    while let Some(line) = lines.next() {
        let name =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).ok_or(line)?.0;
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        if kind
            .is_none_or(|kind| kind != if name.ends_with("_total") { "counter" } else { "gauge" })
        {
            return Err(format!("{name} is {kind:?}"));
        }
        let before = samples.len();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let rest =
                line.strip_prefix(name).and_then(|rest| rest.strip_prefix('{')).ok_or(line)?;
            let (labels, value) = parse_labels(rest).ok_or(line)?;
            samples.push((name.into(), labels, value.parse().map_err(|_| line)?));
        }
        if samples.len() == before {
            return Err(format!("{name} has no samples"));
        }
    }
    Ok(samples)
}

/// The labels up to the closing brace, and the value behind it.
fn parse_labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        let (name, quoted) = rest.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        let end = loop {
            match chars.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((name.to_string(), value));
        rest = &quoted[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some((labels, rest.strip_prefix("} ")?)),
        }
    }
}
