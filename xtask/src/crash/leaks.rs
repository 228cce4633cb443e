//! After everything was removed, nothing may be left: no name, no chunk file, no inode.

use skep_rig::{Cluster, until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time until the last chunk is gone: a killed mount's session must end first.
const LIMIT: Duration = Duration::from_secs(120);
/// Leftovers that a complaint names.
const SHOWN: usize = 5;

/// Waits until nothing is left.
pub fn check(cluster: &Cluster, points: &[PathBuf]) -> Result<(), String> {
    for point in points {
        let mut left = std::fs::read_dir(point).map_err(|e| format!("{}: {e}", point.display()))?;
        if let Some(Ok(entry)) = left.next() {
            return Err(format!("{} is still there", entry.path().display()));
        }
    }
    until("no chunk file is left on any target", LIMIT, || {
        let left = chunk_files(&cluster.dir());
        let shown: Vec<String> = left.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{} files: {}", left.len(), shown.join(", "))) }
    })
}

/// Every file below a directory called `chunks`.
fn chunk_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(dir.to_owned(), false)];
    while let Some((dir, inside)) = open.pop() {
        // A directory may go away between its listing and its visit.
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push((entry.path(), inside || entry.file_name() == "chunks"));
            } else if inside {
                found.push(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a chunk file that is left behind is seen, a target's other files are not.
    #[test]
    fn leftovers_are_found() {
        let scratch = skep_rig::Scratch::new(None).expect("a directory");
        let chunks = scratch.path().join("target-1/chunks/a/b");
        std::fs::create_dir_all(&chunks).expect("directories");
        std::fs::write(scratch.path().join("target-1/skep-target.toml"), "").expect("a file");
        assert_eq!(chunk_files(scratch.path()), Vec::<PathBuf>::new());
        std::fs::write(chunks.join("1.0.0.0.0"), "").expect("a file");
        assert_eq!(chunk_files(scratch.path()), [chunks.join("1.0.0.0.0")]);
    }
}
