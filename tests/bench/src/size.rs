//! What is on the disk.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::candidate::{Candidate, Kind};

/// Bytes of a file, or of everything in a directory.
fn of(path: &Path) -> Result<u64, Box<dyn Error>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        sum += of(&entry?.path())?;
    }
    Ok(sum)
}

/// Programs, and the libraries that they are linked to.
fn with_libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Box<dyn Error>> {
    let mut files = BTreeSet::new();
    for program in programs {
        // Of a static program, or of a script, it prints nothing that begins with a slash.
        let output = Command::new("ldd").arg(program).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        files.extend(text.split_whitespace().filter(|word| word.starts_with('/')).map(canonical));
        files.insert(canonical(program));
    }
    Ok(files)
}

fn canonical(path: impl AsRef<Path>) -> PathBuf {
    fs::canonicalize(path.as_ref()).unwrap_or_else(|_| path.as_ref().into())
}

/// On the disk, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    pub own: u64,
    /// And what it cannot do without: programs that it runs, and libraries.
    pub needed: u64,
}

/// What the shell generation runs.
const SHELL_RUNS: [&str; 12] =
    ["sh", "awk", "curl", "cut", "date", "grep", "ip", "mkfifo", "ps", "rm", "sleep", "tr"];

/// The programs that a candidate runs, and their libraries. Of the Python generation, none.
pub fn files(candidate: &Candidate) -> Result<BTreeSet<PathBuf>, Box<dyn Error>> {
    match candidate.kind {
        Kind::Floor { .. } | Kind::Keepwatch { .. } => with_libraries(&candidate.installed),
        Kind::Shell => {
            let programs = SHELL_RUNS.iter().map(|name| in_path(name));
            let mut files = with_libraries(&programs.collect::<Result<Vec<_>, _>>()?)?;
            files.extend(candidate.installed.iter().cloned());
            Ok(files)
        }
        Kind::Python => Ok(BTreeSet::new()),
    }
}

/// Of a candidate. The Python generation's interpreter is not counted.
pub fn of_candidate(candidate: &Candidate) -> Result<Size, Box<dyn Error>> {
    let own = candidate.installed.iter().map(|path| of(path)).sum::<Result<u64, _>>()?;
    let files = files(candidate)?;
    let needed = files.iter().map(|file| of(file)).sum::<Result<u64, _>>()?;
    Ok(Size { own, needed: if files.is_empty() { own } else { needed } })
}

fn in_path(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.exists());
    found.ok_or_else(|| format!("{name} is not installed").into())
}
