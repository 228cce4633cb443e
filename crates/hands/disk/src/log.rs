//! The command log: every change of the shards that share it, in order, on stable storage before anything depends
//! on it. The format byte by byte, the invariants and every crash point: `docs/design/log.md`.
//!
//! One owner thread appends ([`CommandLog`]), one thread makes it durable ([`SyncThread`] around
//! a [`Syncer`]), anybody may wait for a durable end ([`SyncHandle`]).

mod command_log;
mod heads;
mod record;
mod recovery;
mod segment;
mod sync;
mod sync_thread;

pub use command_log::CommandLog;
pub use record::PAYLOAD_MAX;
pub use recovery::Recovered;
pub use skep_types::log::{EntryKind, Head, Moves, Record};
pub use sync::Syncer;
pub use sync_thread::{INTERVAL_DEFAULT, Notify, SyncHandle, SyncPolicy, SyncThread};

use crate::disk::DiskError;
use skep_types::ClusterId;
use std::fmt;
use std::path::Path;

/// See [`crate::formats`].
pub(crate) fn formats(formats: &mut skep_types::formats::Formats) {
    record::formats(formats);
    segment::formats(formats);
}

/// Default size of a segment.
pub const SEGMENT_DEFAULT: u64 = 64 << 20;
/// Smallest segment that may be configured.
pub const SEGMENT_MIN: u64 = 4 << 10;
/// Largest segment that may be configured (offsets within one are kept in 32 bits).
pub const SEGMENT_MAX: u64 = 1 << 30;
/// Most bytes of one group of records.
pub const GROUP_MAX: usize = 64 << 20;

/// How to open a log.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Whose log it is. One of another cluster is refused.
    pub cluster: ClusterId,
    /// Size at which the next segment is started.
    pub segment_bytes: u64,
    /// Reserve a segment's room when it is started: a full disk is then met at that point, not
    /// in the middle of a group, and syncs need not journal a new length.
    pub preallocate: bool,
}

impl LogOptions {
    /// The defaults, for `cluster`.
    pub fn new(cluster: ClusterId) -> Self {
        Self { cluster, segment_bytes: SEGMENT_DEFAULT, preallocate: true }
    }
}

/// Why the log refused. Each text says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogError {
    /// No room. Nothing was appended, the log goes on.
    Full(String),
    /// The disk failed. Nothing can be trusted any more: every later append and sync fails.
    Failed(String),
    /// What is on the disk is not what was written, and it is not the unsynced end.
    Corrupt(String),
    /// It is another cluster's log, or of another release.
    Foreign(String),
    /// The caller broke the rules (a gap, a record too large).
    Refused(String),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(text) => write!(f, "command log: no room: {text}"),
            Self::Failed(text) => write!(f, "command log failed: {text}"),
            Self::Corrupt(text) => write!(f, "command log is corrupt: {text}"),
            Self::Foreign(text) => write!(f, "command log: {text}"),
            Self::Refused(text) => write!(f, "command log: {text}"),
        }
    }
}

impl std::error::Error for LogError {}

impl LogError {
    pub(crate) fn failed(error: &DiskError) -> Self {
        Self::Failed(format!(
            "{error}; what was not yet durable may be lost: check the disk (dmesg, smartctl), then restart \
             the daemon, which reads back what the disk holds"
        ))
    }

    pub(crate) fn full(error: &DiskError) -> Self {
        Self::Full(format!("{error}; free some space on this file system or enlarge it"))
    }

    /// Sorts an error of the disk.
    pub(crate) fn sort(error: &DiskError) -> Self {
        if error.is_full() { Self::full(error) } else { Self::failed(error) }
    }

    pub(crate) fn corrupt(path: &Path, what: impl fmt::Display) -> Self {
        Self::Corrupt(format!(
            "{}: {what}. The damaged part was durable, so going on would lose acknowledged changes. Copy the \
             log directory aside, check the disk, then restore this server from a replica or a backup",
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests;
