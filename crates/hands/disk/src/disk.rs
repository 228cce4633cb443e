//! The narrow boundary below everything that must survive a power cut.
//!
//! Log and targets do their I/O through [`Disk`] and [`DiskFile`] only, so that the same code runs
//! on a real file system ([`RealDisk`]) and on one that forgets what was not synced
//! (`FaultDisk`, with the feature `testing`).

#[cfg(any(test, feature = "testing"))]
mod fault;
mod real;

#[cfg(any(test, feature = "testing"))]
pub use fault::{CrashMode, FaultDisk};
pub use real::RealDisk;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An operation the disk refused: what was being done, where, and the system's reason.
#[derive(Debug)]
pub struct DiskError {
    /// What was being done ("write", "fdatasync" ...).
    pub doing: &'static str,
    /// To which file or directory.
    pub path: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

impl DiskError {
    /// Wraps the system's reason.
    pub fn new(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { doing, path: path.to_path_buf(), source: source.into() }
    }

    /// Is there no room (disk full or over quota)? Then nothing is broken, and it may pass.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Does the file system not know this operation?
    pub fn is_unsupported(&self) -> bool {
        let unknown = [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::NOSYS].map(|e| e.raw_os_error());
        self.source.raw_os_error().is_some_and(|code| unknown.contains(&code))
    }

    /// Is there no such file?
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.doing, self.path.display(), self.source)
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Result of an operation on a disk.
pub type DiskResult<T> = Result<T, DiskError>;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// It exists; for reading and writing.
    Existing,
    /// Made new; an older one of that name is emptied.
    Fresh,
}

/// Held for as long as nobody else may use a directory.
pub trait DirLock: Send + Sync {}

/// Files and directories. Nothing is durable before it was synced: contents by
/// [`DiskFile::sync_data`], names by [`Disk::sync_dir`].
pub trait Disk: Send + Sync {
    /// Makes a directory and its parents, durably. An existing one is fine.
    fn create_dir(&self, dir: &Path) -> DiskResult<()>;
    /// Takes the directory for this process alone; fails at once when another holds it.
    fn lock_dir(&self, dir: &Path) -> DiskResult<Box<dyn DirLock>>;
    fn open(&self, path: &Path, mode: OpenMode) -> DiskResult<Arc<dyn DiskFile>>;
    /// Names in a directory, in no order.
    fn list(&self, dir: &Path) -> DiskResult<Vec<String>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> DiskResult<()>;
    /// Takes a file's name away.
    fn remove(&self, path: &Path) -> DiskResult<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> DiskResult<()>;
}

/// An open file. May be synced by one thread while another writes.
pub trait DiskFile: Send + Sync {
    /// Reads at `offset` until `buf` is full or the file ends; says how much it read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> DiskResult<usize>;
    /// Writes all of `buf` at `offset`. After an error some of it may be there.
    fn write_at(&self, buf: &[u8], offset: u64) -> DiskResult<()>;
    /// Makes contents and length durable.
    fn sync_data(&self) -> DiskResult<()>;
    /// Cuts or extends (with zeros).
    fn truncate(&self, len: u64) -> DiskResult<()>;
    /// Reserves room up to `len` and extends the file to it (with zeros).
    fn allocate(&self, len: u64) -> DiskResult<()>;
    /// Length in bytes.
    fn len(&self) -> DiskResult<u64>;
    fn is_empty(&self) -> DiskResult<bool> {
        Ok(self.len()? == 0)
    }
    /// Drops clean cached pages, so that the next read shows what the device holds. (Linux marks
    /// pages clean after a failed fsync: the cache then shows data that is on no disk.)
    fn forget_cache(&self) -> DiskResult<()>;
}
