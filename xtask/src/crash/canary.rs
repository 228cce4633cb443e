//! Deliberate damage that the test must find: a checker that cannot fail proves nothing.

use skep_rig::{Cluster, Daemon};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of the log's end that are lost: about one record.
const LOST: u64 = 64;

/// Chunk files that are damaged at once, and the length from which on they count as sparse.
const CHUNKS: usize = 4;
const CHUNK_MAX: u64 = 32 << 20;

/// What is damaged, after the daemon that owns it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Canary {
    /// The end of the metadata log is lost, as if changes were acknowledged before they were logged.
    Log,
    /// A byte of some chunk files is turned over.
    Chunk,
}

impl Canary {
    /// The service whose death is followed by the damage.
    fn service(self) -> &'static str {
        match self {
            Self::Log => "metad",
            Self::Chunk => "storaged",
        }
    }

    /// Does the damage when `victim` was the owner.
    pub fn strike(self, cluster: &Cluster, victim: &Daemon) -> Result<(), String> {
        if victim.service != self.service() {
            return Ok(());
        }
        let damaged = match self {
            Self::Log => cut_log(&cluster.dir().join("state/metad-1/log")),
            Self::Chunk => turn_over(&cluster.dir().join("targets")),
        };
        damaged.map_err(|e| format!("{NO_DAMAGE}: {e}"))
    }
}

/// How a canary says that it could not do its damage; the test must not take that for a find.
pub const NO_DAMAGE: &str = "the canary cannot do its damage";

/// The newest segment loses the end of what was written to it.
fn cut_log(dir: &Path) -> io::Result<()> {
    let mut segments = files_below(dir)?;
    segments.sort();
    // Segments are made ahead with zeros: the last byte that is none is the end.
    for path in segments.iter().rev() {
        let content = fs::read(path)?;
        if let Some(last) = content.iter().rposition(|byte| *byte != 0) {
            let file = OpenOptions::new().write(true).open(path)?;
            return file.set_len((last as u64 + 1).saturating_sub(LOST));
        }
    }
    Ok(())
}

/// Large chunk files get another byte in their middle: several, for some belong to deleted files. Sparse
/// ones are left alone, for nobody reads all of their holes.
fn turn_over(dir: &Path) -> io::Result<()> {
    damage(&large_chunks(dir)?).map(drop)
}

/// Chunk files and their lengths, the largest first.
fn large_chunks(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut chunks = Vec::new();
    for path in files_below(dir)? {
        // The daemons that live go on deleting files meanwhile.
        let Some(len) = unless_gone(fs::metadata(&path).map(|found| found.len()))? else { continue };
        if path.components().any(|part| part.as_os_str() == "chunks") && (1..CHUNK_MAX).contains(&len) {
            chunks.push((len, path));
        }
    }
    chunks.sort();
    chunks.reverse();
    Ok(chunks)
}

/// Damages the first [`CHUNKS`] of them; gives how many it were. Those that were deleted or cut meanwhile count for
/// nothing: the next ones take their places, so that there is damage to be found.
fn damage(chunks: &[(u64, PathBuf)]) -> io::Result<usize> {
    let mut damaged = 0;
    for (len, path) in chunks {
        if damaged == CHUNKS {
            break;
        }
        let file = OpenOptions::new().read(true).write(true).open(path);
        let Some(file) = unless_gone(file)? else { continue };
        let mut byte = [0];
        if unless_gone(file.read_exact_at(&mut byte, len / 2))?.is_some() {
            file.write_all_at(&[!byte[0]], len / 2)?;
            damaged += 1;
        }
    }
    Ok(damaged)
}

/// None of a file, or of a place in it, that was there a moment ago.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(None),
        result => result.map(Some),
    }
}

fn files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: files that are deleted or cut after they were chosen are no failure, and as many others are damaged in
    /// their place, in one byte each; with none left nothing is, which the caller then does not find.
    #[test]
    fn others_are_chosen() {
        const FILES: u64 = 8;
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let chunks = scratch.path().join("1/chunks");
        fs::create_dir_all(&chunks).unwrap();
        let content = |number: u64| vec![7; 100 + number as usize];
        let path = |number: u64| chunks.join(number.to_string());
        (0..FILES).for_each(|number| fs::write(path(number), content(number)).unwrap());
        fs::write(scratch.path().join("1/large"), [7; 1_000]).unwrap();
        let found = large_chunks(scratch.path()).unwrap();
        let expected: Vec<PathBuf> = (0..FILES).rev().map(path).collect();
        assert_eq!(found.iter().map(|(_, path)| path.clone()).collect::<Vec<_>>(), expected);
        fs::remove_file(path(7)).unwrap();
        OpenOptions::new().write(true).open(path(6)).unwrap().set_len(0).unwrap();
        OpenOptions::new().write(true).open(path(4)).unwrap().set_len(10).unwrap();
        assert_eq!(damage(&found).unwrap(), CHUNKS);
        let wrong = |number: u64| {
            let now = fs::read(path(number)).unwrap();
            assert_eq!(now.len(), content(number).len());
            now.iter().filter(|byte| **byte != 7).count()
        };
        assert_eq!([5, 3, 2, 1, 0].map(wrong), [1, 1, 1, 1, 0]);
        assert_eq!([6, 4].map(|number| fs::read(path(number)).unwrap().len()), [0, 10]);
        (0..FILES).for_each(|number| drop(fs::remove_file(path(number))));
        assert_eq!(damage(&found).unwrap(), 0);
    }
}
