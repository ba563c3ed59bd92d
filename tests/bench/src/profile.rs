//! keepwatch under a program that looks into it: see `tests/bench/profile`.

use std::error::Error;
use std::fs;

use crate::candidate::Candidate;
use crate::descendants;
use crate::observer::Observer;
use crate::router::Router;
use crate::trial::{Cores, Trial};

/// Makes so many transitions under that program, prints where the pages are, and ends in peace.
pub fn run(
    own: Candidate,
    under: &str,
    router: &Router,
    observer: &mut Observer,
    cores: &Cores,
    transitions: usize,
) -> Result<(), Box<dyn Error>> {
    let under: Vec<String> = under.split_whitespace().map(String::from).collect();
    let alone = under.is_empty();
    let candidate = Candidate { under, ..own };
    let mut trial = Trial::start(&candidate, router, observer, cores)?;
    trial.warm_up()?;
    trial.transitions(transitions)?;
    if alone {
        print!("{}", pages(*descendants::all().last().ok_or("it runs")?)?);
    }
    trial.end();
    Ok(())
}

/// A line for each mapping that has pages: how many kB there are, and how many of them are dirty.
fn pages(pid: u32) -> Result<String, Box<dyn Error>> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let mut text = format!("{:>6} {:>6}  {}\n", "kB", "dirty", "mapping");
    let (mut name, mut rss) = (String::new(), 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Rss:") => rss = words.next().unwrap_or("0").parse()?,
            Some("Private_Dirty:") if rss > 0 => {
                let dirty = words.next().unwrap_or("0");
                text += &format!("{rss:>6} {dirty:>6}  {name}\n");
            }
            // An address range begins a mapping; its mode and its name matter.
            Some(word) if !word.ends_with(':') => {
                let mode = words.next().unwrap_or_default();
                let file = words.nth(3).unwrap_or("anonymous");
                name = format!("{mode} {}", file.rsplit('/').next().unwrap_or(file));
            }
            _ => {}
        }
    }
    Ok(text)
}
