//! Deliberate damage that the test must find: a checker that cannot fail proves nothing.

use super::team::SAYS;
use skep_rig::{Cluster, Daemon};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of the log's end that are lost: about one record.
const LOST: u64 = 64;

/// The length from which on chunk files count as sparse.
const CHUNK_MAX: u64 = 32 << 20;

/// How mgmtd calls a log that has less than was on stable storage.
const OLDER_COPY: &str = "the state directory is an older copy: its log ends at";

/// What is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Canary {
    /// The end of the metadata log is lost, as if changes were acknowledged before they were logged.
    Log,
    /// A byte of every chunk file is turned over.
    Chunk,
}

impl Canary {
    /// Does the damage that belongs to a kill of `victim`.
    pub fn after_kill(self, cluster: &Cluster, victim: &Daemon) -> Result<(), String> {
        if self != Self::Log || victim.service != "metad" {
            return Ok(());
        }
        let state = cluster.dir().join("state").join(victim.name());
        let cut = |group: PathBuf| cut_log(&group.join("log")).map_err(no_damage);
        cluster.groups().into_iter().filter(|group| group.starts_with(&state)).try_for_each(cut)
    }

    /// Does the damage that a comparison must find. No load runs then: under load the next write may cover a wrong byte
    /// before anybody reads it.
    pub fn before_comparison(self, cluster: &Cluster) -> Result<(), String> {
        if self != Self::Chunk {
            return Ok(());
        }
        match turn_over(&cluster.dir().join("targets")) {
            Ok(0) => Err(no_damage("there is no chunk file")),
            Ok(_) => Ok(()),
            Err(e) => Err(no_damage(e)),
        }
    }
}

impl Canary {
    /// Does a failure look as if this damage had made it? Whatever else fails is no find.
    pub fn is_told_by(self, failure: &str) -> bool {
        match self {
            // mgmtd may know of more records than are left, and says so before any load process can.
            Self::Log => failure.contains(SAYS) || failure.contains(OLDER_COPY),
            Self::Chunk => failure.contains(SAYS) && failure.starts_with("verify: "),
        }
    }
}

/// How a canary says that it could not do its damage; the test must not take that for a find.
pub const NO_DAMAGE: &str = "the canary cannot do its damage";

fn no_damage(why: impl std::fmt::Display) -> String {
    format!("{NO_DAMAGE}: {why}")
}

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

/// Chunk files get another byte in their middle; gives how many. Sparse ones are left alone, for nobody reads all of their
/// holes. The daemons go on deleting and cutting files meanwhile: those count for nothing.
fn turn_over(dir: &Path) -> io::Result<usize> {
    let mut damaged = 0;
    for path in files_below(dir)? {
        if path.components().any(|part| part.as_os_str() == "chunks") {
            damaged += usize::from(unless_gone(turn_over_one(&path))?);
        }
    }
    Ok(damaged)
}

/// False: it is empty, or sparse.
fn turn_over_one(path: &Path) -> io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let len = file.metadata()?.len();
    if !(1..CHUNK_MAX).contains(&len) {
        return Ok(false);
    }
    let mut byte = [0];
    file.read_exact_at(&mut byte, len / 2)?;
    file.write_all_at(&[!byte[0]], len / 2)?;
    Ok(true)
}

/// A file, or a place in it, that was there a moment ago is not damaged.
fn unless_gone(damaged: io::Result<bool>) -> io::Result<bool> {
    match damaged {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(false),
        damaged => damaged,
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

    /// Goal: every chunk file gets one wrong byte, but for empty and sparse ones, and nothing else does; how many is told.
    #[test]
    fn every_chunk_file_is_damaged() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        let chunks = scratch.path().join("1/chunks/00");
        fs::create_dir_all(&chunks).unwrap();
        let other = scratch.path().join("1/other");
        fs::write(&other, [7; 1_000]).unwrap();
        assert_eq!(turn_over(scratch.path()).unwrap(), 0);
        fs::write(chunks.join("empty"), []).unwrap();
        fs::File::create(chunks.join("sparse")).unwrap().set_len(CHUNK_MAX).unwrap();
        let content = |number: usize| vec![7; 1 + number];
        (0..8).for_each(|number| fs::write(chunks.join(number.to_string()), content(number)).unwrap());
        assert_eq!(turn_over(scratch.path()).unwrap(), 8);
        for number in 0..8 {
            let now = fs::read(chunks.join(number.to_string())).unwrap();
            assert_eq!(now.len(), content(number).len());
            assert_eq!(now.iter().filter(|byte| **byte != 7).count(), 1);
        }
        assert_eq!(fs::read(other).unwrap(), [7; 1_000]);
        assert!(fs::read(chunks.join("sparse")).unwrap().iter().all(|byte| *byte == 0));
    }

    /// Goal: a failure of the test itself, or a hang, is no find; nor is one before the comparison, of a wrong byte.
    #[test]
    fn only_its_damage_is_a_find() {
        let told = |failure: &str| [Canary::Log, Canary::Chunk].map(|canary| canary.is_told_by(failure));
        assert_eq!(told("verify: process 1 says: found | oracle: ..."), [true, true]);
        assert_eq!(told("kills: process 0 says: found ENOENT"), [true, false]);
        assert_eq!(told("the test itself: mnt1 cannot be mounted"), [false, false]);
        assert_eq!(told("verify: no word for 180 s of processes 1"), [false, false]);
        assert_eq!(told("verify: process 3 ended"), [false, false]);
        let refused = format!("kills: skep up: mgmtd refuses this daemon: {OLDER_COPY} record 285");
        assert_eq!(told(&refused), [true, false]);
        assert_eq!(told("verify: process 0 cannot be told anything: Broken pipe"), [false, false]);
        assert_eq!(told("stalls: an operation took 99 s"), [false, false]);
    }

    /// Goal: a file that is deleted or cut under the canary is no failure; another error is.
    #[test]
    fn what_is_gone_counts_for_nothing() {
        let failed = |kind: io::ErrorKind| unless_gone(Err(kind.into()));
        assert!(!failed(io::ErrorKind::NotFound).unwrap());
        assert!(!failed(io::ErrorKind::UnexpectedEof).unwrap());
        assert!(failed(io::ErrorKind::PermissionDenied).is_err());
    }
}
