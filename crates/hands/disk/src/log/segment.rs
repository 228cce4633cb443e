//! One segment: a file `<first index, 20 digits>.log` with a header and records.
//!
//! ```text
//!  0 "SKEPLOG1"
//!  8 u32 format version
//! 12 u32 crc32c of the header with this field zero
//! 16 cluster id, 16 bytes
//! 32 u64 index of the first entry
//! 40 u64 term of the entry before it
//! 48 u64 entries up to this one were durable when the segment was made
//! 56 u64 zero
//! 64 records
//! ```

use super::record::{self, View};
use super::{LogError, LogOptions, Record, SEGMENT_MAX};
use crate::disk::{Disk, DiskFile, OpenMode};
use skep_types::{ClusterId, LogIndex, Term};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes before the first record.
pub(super) const HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"SKEPLOG1";
const FORMAT: u32 = 1;
const SUFFIX: &str = ".log";

/// A segment that is part of the log.
pub(super) struct Segment {
    /// Index of the first entry.
    pub(super) first: LogIndex,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) salt: u32,
    /// Where each entry starts.
    pub(super) offsets: Vec<u32>,
    /// Where the next record goes.
    pub(super) end: u64,
}

impl Segment {
    /// Index of the last entry (that before `first` when there is none).
    pub(super) fn last(&self) -> LogIndex {
        LogIndex(self.first.0 + self.offsets.len() as u64 - 1)
    }

    /// Where the entry starts; the end when it is the next one.
    pub(super) fn offset(&self, index: LogIndex) -> u64 {
        let at = index.0.saturating_sub(self.first.0) as usize;
        self.offsets.get(at).map_or(self.end, |offset| u64::from(*offset))
    }

    /// Makes the file and writes its header. Not synced: neither it nor its name.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        options: &LogOptions,
        header: Header,
        room: u64,
    ) -> Result<Self, LogError> {
        let path = dir.join(name(header.first));
        let sort = |e| LogError::sort(&e);
        let file = disk.open(&path, OpenMode::Fresh).map_err(sort)?;
        let salt = salt(options.cluster, header.first);
        let bytes = header.encode();
        let made =
            reserve(&*file, options, room).and_then(|()| file.write_at(&bytes, 0).map_err(sort)).map(|()| {
                Self {
                    first: header.first,
                    path: path.clone(),
                    file,
                    salt,
                    offsets: Vec::new(),
                    end: HEADER as u64,
                }
            });
        if made.is_err() {
            // Gone for good before the older segment grows on: found again after a crash, it
            // would look like a hole in the log.
            disk.remove(&path).and_then(|()| disk.sync_dir(dir)).map_err(|e| LogError::failed(&e))?;
        }
        made
    }

    /// Reads entries from `from` on: as many as fit into `max_bytes`, at least one.
    pub(super) fn read(
        &self,
        from: LogIndex,
        max_bytes: usize,
        into: &mut Vec<Record>,
    ) -> Result<usize, LogError> {
        let start = self.offset(from);
        let mut until = from;
        while until <= self.last()
            && (until == from || self.offset(LogIndex(until.0 + 1)) - start <= max_bytes as u64)
        {
            until.0 += 1;
        }
        let mut bytes = vec![0; (self.offset(until) - start) as usize];
        let n = self.file.read_at(&mut bytes, start).map_err(|e| LogError::failed(&e))?;
        let mut at = 0;
        while at < n {
            let Some(view) = record::decode(&bytes[at..n], self.salt) else {
                let what = format!("the record at byte {} no longer reads as written", start + at as u64);
                return Err(LogError::corrupt(&self.path, what));
            };
            if view.kind.is_entry() {
                into.push(view.to_record());
            }
            at += view.size();
        }
        Ok(n)
    }
}

/// Reserves room, where the file system can.
pub(super) fn reserve(file: &dyn DiskFile, options: &LogOptions, room: u64) -> Result<(), LogError> {
    if !options.preallocate {
        return Ok(());
    }
    match file.allocate(room) {
        Err(e) if !e.is_unsupported() => Err(LogError::sort(&e)),
        _ => Ok(()),
    }
}

/// Ties a record to its segment, so that stale bytes of another never look valid in it.
pub(super) fn salt(cluster: ClusterId, first: LogIndex) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cluster.0), &first.0.to_le_bytes())
}

/// File name of the segment that starts at `first`.
pub(super) fn name(first: LogIndex) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// First index by file name; `None` for other files.
pub(super) fn parse_name(name: &str) -> Option<LogIndex> {
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok().map(LogIndex))
        .flatten()
}

/// Start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) first: LogIndex,
    pub(super) previous_term: Term,
    pub(super) durable: LogIndex,
    pub(super) cluster: ClusterId,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.0);
        out[32..40].copy_from_slice(&self.first.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.previous_term.0.to_le_bytes());
        out[48..56].copy_from_slice(&self.durable.0.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header; `None` when it was torn; an error when it is whole and not ours.
    pub(super) fn decode(
        bytes: &[u8],
        path: &Path,
        cluster: ClusterId,
        first: LogIndex,
    ) -> Result<Option<Self>, LogError> {
        let Some(bytes) = bytes.get(..HEADER) else { return Ok(None) };
        let u64_at = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let mut zeroed = [0; HEADER];
        zeroed.copy_from_slice(bytes);
        zeroed[12..16].fill(0);
        if bytes[..8] != MAGIC || crc32c::crc32c(&zeroed).to_le_bytes() != bytes[12..16] {
            return Ok(None);
        }
        let format = u64_at(8) as u32;
        let place = path.display();
        if format != FORMAT {
            return Err(LogError::Foreign(format!(
                "{place} has format {format}, this release reads {FORMAT}; use the release that wrote it"
            )));
        }
        let mut id = ClusterId::default();
        id.0.copy_from_slice(&bytes[16..32]);
        if id != cluster {
            return Err(LogError::Foreign(format!(
                "{place} belongs to cluster {id}, not to {cluster}; point the daemon at its own directory"
            )));
        }
        let header = Self {
            first: LogIndex(u64_at(32)),
            previous_term: Term(u64_at(40)),
            durable: LogIndex(u64_at(48)),
            cluster,
        };
        if header.first != first {
            return Err(LogError::corrupt(
                path,
                format_args!("starts at {}, not as its name says", header.first),
            ));
        }
        Ok(Some(header))
    }
}

/// A segment file's whole contents.
pub(super) fn load(file: &dyn DiskFile, path: &Path) -> Result<Vec<u8>, LogError> {
    let fail = |e| LogError::failed(&e);
    let len = file.len().map_err(fail)?;
    // A group may make a segment longer than configured, never longer than this.
    if len > SEGMENT_MAX + super::GROUP_MAX as u64 {
        return Err(LogError::corrupt(path, format_args!("has {len} bytes, more than any segment can have")));
    }
    let mut bytes = vec![0; len as usize];
    let n = file.read_at(&mut bytes, 0).map_err(fail)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The highest index that any valid record from `from` on claims to have been durable.
pub(super) fn highest_claim(bytes: &[u8], salt: u32, from: usize) -> LogIndex {
    let mut claim = LogIndex(0);
    let mut at = from.next_multiple_of(8);
    while at < bytes.len() {
        match record::decode(&bytes[at..], salt) {
            Some(View { durable, bytes, .. }) => {
                claim = claim.max(durable);
                at += record::size(bytes.len());
            }
            None => at += 8,
        }
    }
    claim
}
