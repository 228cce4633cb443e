//! What one load process does: histories in its own directory, large files, a mapped file, a shared directory.

use super::brave::Brave;
use super::bulk::Bulk;
use super::crowd::{Crowd, REPEATED};
use super::mapped::Mapped;
use super::worker::Signs;
use skep_model::{At, Call, Fs, Generator, Op, Outcome, Profile, Rng};
use skep_rig::{Driver, compare_tree};
use skep_types::{Errno, Ino, Kind, Timestamp};
use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The oracle's "now" begins here: no history sets a time this late.
const CLOCK: i64 = 1 << 40;
/// Operations that a complaint shows.
const PAST: usize = 400;
/// Of a hundred steps, so many work on large files, on the mapped file, and in the shared directory.
const BULK: u64 = 8;
const MAPPED: u64 = 6;
const CROWD: u64 = 12;
/// The same while mounts are evicted, when there are no histories: what a session holds for a process (locks, files without
/// a name) ends with it, and the oracle knows of no such end.
const EVICTED_BULK: u64 = 35;
const EVICTED_MAPPED: u64 = 30;
/// Mode of the own directory.
const BASE_MODE: u32 = 0o755;

/// One process's files and what they must be.
pub struct Load {
    own: String,
    mounts: Vec<PathBuf>,
    driver: Driver,
    oracle: Fs,
    generator: Generator,
    bulk: Bulk,
    crowd: Crowd,
    mapped: Mapped,
    brave: Brave,
    rng: Rng,
    number: u64,
    evicted: bool,
    past: VecDeque<String>,
    longest: (Duration, String),
}

impl Load {
    /// Makes the directories, on the first mount.
    pub fn new(index: usize, seed: u64, mounts: &[PathBuf]) -> Result<Self, String> {
        let own = format!("own-{index}");
        let base = mounts.first().ok_or("no mount")?.join(&own);
        let driver = Driver::new(&base).map_err(|e| format!("umask, groups: {e}"))?;
        std::fs::create_dir(&base)
            .and_then(|()| std::fs::set_permissions(&base, PermissionsExt::from_mode(BASE_MODE)))
            .map_err(|e| format!("{}: {e}", base.display()))?;
        let oracle = Fs::new(BASE_MODE, 0, 0, Timestamp { secs: CLOCK, nanos: 0 });
        Ok(Self {
            own,
            driver,
            oracle,
            generator: Generator::new(seed, Profile::default()),
            bulk: Bulk::new(seed),
            crowd: Crowd::new(index, seed, mounts)?,
            mapped: Mapped::new(index, seed, mounts)?,
            brave: Brave::new(index, seed, mounts)?,
            mounts: mounts.to_vec(),
            rng: Rng::new(seed ^ 0x5eed),
            number: 0,
            evicted: false,
            past: VecDeque::new(),
            longest: (Duration::ZERO, String::new()),
        })
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.number
    }

    /// The longest operation since this was asked last, and what it was.
    pub fn take_longest(&mut self) -> (Duration, String) {
        core::mem::take(&mut self.longest)
    }

    /// One operation, and what the oracle says to its outcome. `evicted`: sessions may end meanwhile.
    pub fn step(&mut self, evicted: bool) -> Result<(), String> {
        let draw = self.rng.below(100);
        let (bulk, mapped) = if evicted { (EVICTED_BULK, EVICTED_MAPPED) } else { (BULK, MAPPED) };
        self.evicted = evicted;
        self.crowd.evicted = evicted;
        self.mapped.evicted = evicted;
        let begun = Instant::now();
        if draw < bulk {
            let op = possible(self.bulk.next_op());
            self.both(&op)
        } else if draw < bulk + mapped {
            self.number += 1;
            let result = self.mapped.step();
            self.took(begun.elapsed(), || "an operation on the mapped file".to_owned());
            result
        } else if evicted || draw < bulk + mapped + CROWD {
            self.number += 1;
            let result = self.crowd.step();
            self.took(begun.elapsed(), || "an operation in the shared directory".to_owned());
            result
        } else {
            let op = possible(self.generator.next_op());
            if self.is_of_removed_directory(&op) {
                return Ok(());
            }
            self.both(&op)
        }
    }

    /// Of a directory that was removed while it is open, the mount answers for the attributes, and nothing has the extended ones: a
    /// limit that the documentation tells of.
    fn is_of_removed_directory(&self, op: &Op) -> bool {
        let (Op::Setxattr { at: At::Handle(handle), .. }
        | Op::Getxattr { at: At::Handle(handle), .. }
        | Op::Listxattr { at: At::Handle(handle) }
        | Op::Removexattr { at: At::Handle(handle), .. }
        | Op::SetAcl { at: At::Handle(handle), .. }
        | Op::GetAcl { at: At::Handle(handle), .. }
        | Op::RemoveAcl { at: At::Handle(handle), .. }) = op
        else {
            return false;
        };
        let stat = self.oracle.handle(*handle).and_then(|(ino, _)| self.oracle.stat(ino));
        stat.is_ok_and(|stat| stat.kind == Kind::Dir && stat.nlink == 0)
    }

    fn took(&mut self, time: Duration, what: impl FnOnce() -> String) {
        if time > self.longest.0 {
            self.longest = (time, what());
        }
    }

    /// Carries an operation out in the file system and in the oracle.
    fn both(&mut self, op: &Op) -> Result<(), String> {
        self.number += 1;
        let number = self.number;
        let begun = Instant::now();
        let mut found = self.driver.apply(op);
        for _ in 0..REPEATED {
            if self.evicted && in_doubt(op, &found) {
                found = self.again(op);
            }
        }
        let took = begun.elapsed();
        self.took(took, || format!("{op:?}"));
        let now = Timestamp { secs: CLOCK + number as i64, nanos: 0 };
        let expected = self.oracle.apply(op, Call { now, ino: Ino(number + 1), uid: 0, gid: 0 });
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(format!("{number}: {op:?} -> {expected:?} ({} ms)", took.as_millis()));
        if expected.accepts(&found) {
            return Ok(());
        }
        let past: Vec<&str> = self.past.iter().map(String::as_str).collect();
        Err(format!(
            "{}: found {found:?}, the oracle says {expected:?}{}, after\n{}",
            self.driver.base().display(),
            first_difference(&found, &expected),
            past.join("\n")
        ))
    }

    /// Repeats what was perhaps done in part: all that works beside evictions may be done twice, but a write that appends,
    /// and a close: the descriptor is gone, and the next comparison says whether anything else is.
    fn again(&mut self, op: &Op) -> Outcome {
        if let Op::Close { .. } = op {
            return Outcome::Done;
        }
        if let Op::Write { handle, .. } = op {
            let at = At::Handle(*handle);
            let call = Call { now: Timestamp { secs: CLOCK, nanos: 0 }, ino: Ino(0), uid: 0, gid: 0 };
            if let Outcome::Stat(before) = self.oracle.apply(&Op::Stat { at }, call) {
                let cut = self.driver.apply(&Op::Truncate { at, size: before.size, kill: false });
                if cut == Outcome::Failed(Errno::EIO) {
                    return cut;
                }
            }
        }
        self.driver.apply(op)
    }

    /// Closes everything and compares all there is through every mount.
    pub fn verify(&mut self) -> Result<(), String> {
        for handle in self.driver.open_handles() {
            self.both(&Op::Close { handle })?;
        }
        self.bulk.closed();
        self.oracle.check().map_err(|e| format!("the oracle itself is wrong: {e}"))?;
        let mut signs = Signs::default();
        let mounts = self.mounts.clone();
        for mount in &mounts {
            let base = mount.join(&self.own);
            if let Err(difference) = compare_tree(&base, &self.oracle, CLOCK, &mut |path| signs.at(path)) {
                let past: Vec<&str> = self.past.iter().map(String::as_str).collect();
                return Err(format!(
                    "found | oracle: {difference}, after {} operations, the last\n{}",
                    self.number,
                    past.join("\n")
                ));
            }
            self.crowd.verify(mount, &mut signs)?;
            self.brave.verify(mount, &mut signs)?;
        }
        self.mapped.verify(&mounts)
    }

    /// Writes and fsyncs until the mount is gone.
    pub fn brave(&mut self, gone: &AtomicBool) -> Result<usize, String> {
        // A mapping of a mount that is gone could never be synced.
        self.mapped.close().map_err(|e| format!("the mapped file: {e}"))?;
        self.brave.run(gone)
    }

    /// Takes everything away.
    pub fn remove(&mut self) -> Result<(), String> {
        self.crowd.remove()?;
        self.mapped.remove()?;
        self.brave.remove()?;
        remove_tree(self.driver.base())
    }
}

/// Was it perhaps done, or in part? Of a write that the kernel cuts into several, the first ones were.
fn in_doubt(op: &Op, found: &Outcome) -> bool {
    match (op, found) {
        (_, Outcome::Failed(errno)) => *errno == Errno::EIO,
        (Op::Write { fill, .. }, Outcome::Written(len)) => *len < fill.len as usize,
        _ => false,
    }
}

/// What FUSE can carry of an operation: nothing in a `fallocate` or `copy_file_range` request tells the file system whether
/// the caller may keep suid and sgid (the kernel leaves clearing them to it).
fn possible(op: Op) -> Op {
    match op {
        Op::Punch { handle, offset, len, .. } => Op::Punch { handle, offset, len, kill: false },
        Op::Allocate { handle, offset, len, keep_size, .. } => {
            Op::Allocate { handle, offset, len, keep_size, kill: false }
        }
        Op::Zero { handle, offset, len, keep_size, .. } => {
            Op::Zero { handle, offset, len, keep_size, kill: false }
        }
        Op::Copy { from, from_offset, to, offset, len, .. } => {
            Op::Copy { from, from_offset, to, offset, len, kill: false }
        }
        op => op,
    }
}

/// Removes a directory with all that is below it.
pub fn remove_tree(path: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(path).map_err(|e| format!("rm -r {}: {e}", path.display()))
}

/// Where two contents part.
fn first_difference(found: &Outcome, expected: &Outcome) -> String {
    let (Outcome::Bytes(found), Outcome::Bytes(expected)) = (found, expected) else { return String::new() };
    let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
    let wrong = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let part =
        |bytes: &[u8]| bytes[at.min(bytes.len())..(at + 8).min(bytes.len())].escape_ascii().to_string();
    format!(
        " (first difference at byte {at} of {} and {}: {} | {}; {wrong} bytes differ)",
        found.len(),
        expected.len(),
        part(found),
        part(expected)
    )
}
