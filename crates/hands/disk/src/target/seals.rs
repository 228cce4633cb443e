//! The sealed chunk files of a target: empty files in `seals/`, whose names say all, and the same in memory.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use skep_storage::{SealName, Seals};
use skep_types::ChunkId;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Their directory.
pub const SEALS: &str = "seals";

pub struct SealFiles {
    directory: OwnedFd,
    known: RwLock<Seals>,
    /// Nearly always false: then nobody has to take the lock.
    any: AtomicBool,
}

impl SealFiles {
    /// Makes the directory of a new target.
    pub fn make(target: &OwnedFd) -> rustix::io::Result<()> {
        match mkdirat(target, SEALS, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => fsync(target),
            Err(e) => Err(e),
        }
    }

    /// Reads those of a target. A limit only falls: of several for one chunk file, left by a crash, the lowest counts.
    pub fn open(target: &OwnedFd) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(target, SEALS, flags, Mode::empty())?;
        let mut known = Seals::default();
        for entry in Dir::read_from(&directory)? {
            if let Some(name) = entry?.file_name().to_str().ok().and_then(SealName::parse) {
                known.seal(name.chunk, name.limit);
            }
        }
        let any = AtomicBool::new(known.iter().next().is_some());
        Ok(Self { directory, known: RwLock::new(known), any })
    }

    /// From which offset on the chunk file takes nothing.
    pub fn limit(&self, chunk: &ChunkId) -> Option<u64> {
        if !self.any.load(Acquire) {
            return None;
        }
        self.known.read().unwrap_or_else(PoisonError::into_inner).limit(chunk)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Seals> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals a chunk file, durably. What is in force already is not made weaker by a failure.
    pub fn seal(&self, chunk: ChunkId, limit: u64) -> rustix::io::Result<()> {
        let mut known = self.write();
        let old = known.limit(&chunk);
        let name = SealName { chunk, limit }.file_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        drop(openat(&self.directory, name.as_str(), flags, Mode::from_raw_mode(0o600))?);
        // Refused from here on: a failed sync may have made it durable all the same.
        known.seal(chunk, limit);
        self.any.store(true, Release);
        fsync(&self.directory)?;
        if let Some(old) = old.filter(|old| *old != limit) {
            // Should it come back with a power cut, the lower one counts.
            self.remove(SealName { chunk, limit: old })?;
        }
        Ok(())
    }

    /// Forgets deleted chunk files, durably.
    pub fn forget(&self, chunks: &[ChunkId]) -> rustix::io::Result<()> {
        if !self.any.load(Acquire) {
            return Ok(());
        }
        let mut known = self.write();
        let mut removed = false;
        for chunk in chunks {
            if let Some(limit) = known.limit(chunk) {
                self.remove(SealName { chunk: *chunk, limit })?;
                known.forget(chunk);
                removed = true;
            }
        }
        if removed { fsync(&self.directory) } else { Ok(()) }
    }

    fn remove(&self, name: SealName) -> rustix::io::Result<()> {
        match unlinkat(&self.directory, name.file_name().as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{Generation, Ino};
    use std::fs;

    fn chunk(ino: u64) -> ChunkId {
        ChunkId { ino: Ino(ino), generation: Generation(2), extent: 1, stripe: 3 }
    }

    /// Goal: seals are there after a restart, the lowest of each chunk file, until it is deleted; strangers' files mean
    /// nothing.
    #[test]
    fn seals_survive_restarts() {
        let scratch = tempfile::tempdir().unwrap();
        let target = || OwnedFd::from(fs::File::open(scratch.path()).unwrap());
        assert!(SealFiles::open(&target()).is_err(), "no directory");
        SealFiles::make(&target()).unwrap();
        let open = || SealFiles::open(&target()).unwrap();
        let seals = open();
        assert_eq!(seals.limit(&chunk(1)), None);
        seals.forget(&[chunk(1)]).unwrap();
        seals.seal(chunk(1), 900).unwrap();
        seals.seal(chunk(1), 500).unwrap();
        seals.seal(chunk(2), 0).unwrap();
        let names = || fs::read_dir(scratch.path().join(SEALS)).unwrap().count();
        assert_eq!(names(), 2);
        let old = SealName { chunk: chunk(1), limit: 900 }.file_name();
        for name in [old.as_str(), "lost+found", "x"] {
            fs::write(scratch.path().join(SEALS).join(name), b"").unwrap();
        }
        let seals = open();
        assert_eq!((seals.limit(&chunk(1)), seals.limit(&chunk(2))), (Some(500), Some(0)));
        fs::remove_file(scratch.path().join(SEALS).join(old)).unwrap();
        seals.forget(&[chunk(1), chunk(3)]).unwrap();
        let seals = open();
        assert_eq!((seals.limit(&chunk(1)), seals.limit(&chunk(2))), (None, Some(0)));
    }
}
