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
    let mut chunks = Vec::new();
    for path in files_below(dir)? {
        // The daemons that live go on deleting files meanwhile.
        let Some(len) = unless_gone(fs::metadata(&path).map(|found| found.len()))? else { continue };
        if path.components().any(|part| part.as_os_str() == "chunks") && (1..CHUNK_MAX).contains(&len) {
            chunks.push((len, path));
        }
    }
    chunks.sort();
    for (len, path) in chunks.iter().rev().take(CHUNKS) {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let Some(file) = unless_gone(file)? else { continue };
        let mut byte = [0];
        file.read_exact_at(&mut byte, len / 2)?;
        file.write_all_at(&[!byte[0]], len / 2)?;
    }
    Ok(())
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
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
