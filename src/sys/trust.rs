//! Whom a path can be trusted to: whoever may write to a file, or to a directory above it, says what it is.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

/// Whether nobody but root, or who this process is, can put anything else in the place of what is at this
/// absolute path, or change it.
pub fn is_safe(path: &Path) -> bool {
    // By the names that are written, and, where those are symlinks, by what they stand for.
    chain_is_safe(path) && fs::canonicalize(path).is_ok_and(|path| chain_is_safe(&path))
}

fn chain_is_safe(path: &Path) -> bool {
    let looked: Option<Vec<Metadata>> =
        path.ancestors().map(|path| fs::symlink_metadata(path).ok()).collect();
    let Some((file, above)) = looked.as_deref().and_then(<[Metadata]>::split_first) else {
        return false;
    };
    // In a user namespace without the host's root this is whoever owns all that is not one's own.
    let owner = above.last().unwrap_or(file).uid();
    let is_ours = |metadata: &Metadata| [0, geteuid().as_raw(), owner].contains(&metadata.uid());
    let is_closed = |metadata: &Metadata| metadata.is_symlink() || !is_open(metadata);
    // In a sticky directory everybody may put new files, but not replace others'.
    let is_sticky = |metadata: &Metadata| metadata.mode() & 0o1000 != 0;
    is_ours(file)
        && is_closed(file)
        && above.iter().all(|above| is_ours(above) && (is_closed(above) || is_sticky(above)))
}

/// Whether others than the owner may write there. Whoever is in root's group is root's man.
fn is_open(metadata: &Metadata) -> bool {
    metadata.mode() & 0o002 != 0 || (metadata.mode() & 0o020 != 0 && metadata.gid() != 0)
}
