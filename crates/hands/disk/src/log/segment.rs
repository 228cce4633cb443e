//! One segment: a file `<first sequence number, 20 digits>.log` with a header and records.
//!
//! ```text
//!  0 "SKEPLOG2"
//!  8 u32 format version
//! 12 u32 crc32c of the header with this field zero
//! 16 cluster id, 16 bytes
//! 32 u64 sequence number of the first entry
//! 40 u64 zero
//! 48 u64 entries up to this one were durable when the segment was made
//! 56 u64 zero
//! 64 the state: heads of all shards before the first entry; then entries
//! ```

use super::record::{self, View};
use super::{Head, LogError, LogOptions, Record, SEGMENT_MAX};
use crate::disk::{Disk, DiskFile, OpenMode};
use skep_types::formats::Formats;
use skep_types::{ClusterId, LogSeq};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes before the first record.
pub(super) const HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"SKEPLOG2";
const FORMAT: u32 = 2;
/// How a log of format 1 starts, whose records had one index for all shards.
const MAGIC_1: [u8; 8] = *b"SKEPLOG1";
const SUFFIX: &str = ".log";

/// A segment that is part of the log.
pub(super) struct Segment {
    /// Sequence number of the first entry.
    pub(super) first: LogSeq,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) salt: u32,
    /// Where each entry starts.
    pub(super) offsets: Vec<u32>,
    /// Where the next record goes.
    pub(super) end: u64,
}

impl Segment {
    /// Sequence number of the last entry (that before `first` when there is none).
    pub(super) fn last(&self) -> LogSeq {
        LogSeq(self.first.0 + self.offsets.len() as u64 - 1)
    }

    /// Where the entry starts; the end when it is the next one.
    pub(super) fn offset(&self, seq: LogSeq) -> u64 {
        let at = seq.0.saturating_sub(self.first.0) as usize;
        self.offsets.get(at).map_or(self.end, |offset| u64::from(*offset))
    }

    /// Makes the file and writes its header and state. Not synced: neither it nor its name.
    pub(super) fn create(
        disk: &dyn Disk,
        dir: &Path,
        options: &LogOptions,
        header: Header,
        heads: &[Head],
        group: usize,
    ) -> Result<Self, LogError> {
        let Header { first, durable, .. } = header;
        let path = dir.join(name(first));
        let sort = |e| LogError::sort(&e);
        let file = disk.open(&path, OpenMode::Fresh).map_err(sort)?;
        let salt = salt(options.cluster, first);
        let mut bytes = header.encode().to_vec();
        record::encode_state(&mut bytes, salt, heads, durable);
        let end = bytes.len() as u64;
        let room = options.segment_bytes.max(end + group as u64);
        let made = reserve(&*file, options, room).and_then(|()| file.write_at(&bytes, 0).map_err(sort));
        if let Err(e) = made {
            // Gone for good before the older segment grows on: found again after a crash, it
            // would look like a hole in the log.
            disk.remove(&path).and_then(|()| disk.sync_dir(dir)).map_err(|e| LogError::failed(&e))?;
            return Err(e);
        }
        Ok(Self { first, path, file, salt, offsets: Vec::new(), end })
    }

    /// Reads entries from `from` on: as many as fit into `max_bytes`, at least one.
    pub(super) fn read(
        &self,
        from: LogSeq,
        max_bytes: usize,
        into: &mut Vec<Record>,
    ) -> Result<usize, LogError> {
        let start = self.offset(from);
        let mut until = from;
        while until <= self.last()
            && (until == from || self.offset(LogSeq(until.0 + 1)) - start <= max_bytes as u64)
        {
            until.0 += 1;
        }
        let mut bytes = vec![0; (self.offset(until) - start) as usize];
        let n = self.file.read_at(&mut bytes, start).map_err(|e| LogError::failed(&e))?;
        let (mut at, mut seq) = (0, from);
        while at < n {
            let view = record::decode(&bytes[at..n], self.salt, self.first);
            let Some((size, record)) = view.and_then(|v| Some((v.size(), v.to_record(seq)?))) else {
                let what = format!("the record at byte {} no longer reads as written", start + at as u64);
                return Err(LogError::corrupt(&self.path, what));
            };
            into.push(record);
            at += size;
            seq.0 += 1;
        }
        Ok(n)
    }
}

/// Reserves room, where the file system can.
fn reserve(file: &dyn DiskFile, options: &LogOptions, room: u64) -> Result<(), LogError> {
    if !options.preallocate {
        return Ok(());
    }
    match file.allocate(room) {
        Err(e) if !e.is_unsupported() => Err(LogError::sort(&e)),
        _ => Ok(()),
    }
}

/// Ties a record to its segment, so that stale bytes of another never look valid in it.
pub(super) fn salt(cluster: ClusterId, first: LogSeq) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cluster.0), &first.0.to_le_bytes())
}

/// File name of the segment that starts at `first`.
pub(super) fn name(first: LogSeq) -> String {
    format!("{:020}{SUFFIX}", first.0)
}

/// First sequence number by file name; `None` for other files.
pub(super) fn parse_name(name: &str) -> Option<LogSeq> {
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok().map(LogSeq))
        .flatten()
}

/// Start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) first: LogSeq,
    pub(super) durable: LogSeq,
    pub(super) cluster: ClusterId,
}

/// See [`crate::formats`].
pub(super) fn formats(formats: &mut Formats) {
    let mut cluster = ClusterId::default();
    cluster.0.fill(3);
    let header = Header { first: LogSeq(7), durable: LogSeq(5), cluster };
    formats.bytes("log.segment", &header.encode(), |bytes| {
        let mut bytes: [u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        bytes[12..16].fill(0);
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        let first = LogSeq(u64::from_le_bytes(bytes[32..40].try_into().ok()?));
        let mut cluster = ClusterId::default();
        cluster.0.copy_from_slice(&bytes[16..32]);
        Some(Header::decode(&bytes, Path::new("segment"), cluster, first).ok()??.encode().to_vec())
    });
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.0);
        out[32..40].copy_from_slice(&self.first.0.to_le_bytes());
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
        first: LogSeq,
    ) -> Result<Option<Self>, LogError> {
        // Whether it is torn or not: nothing in it is for this release to judge, least of all to cut.
        if bytes.starts_with(&MAGIC_1) {
            return Err(foreign_format(path, 1));
        }
        let Some(bytes) = bytes.get(..HEADER) else { return Ok(None) };
        let u64_at = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let mut zeroed = [0; HEADER];
        zeroed.copy_from_slice(bytes);
        zeroed[12..16].fill(0);
        if bytes[..8] != MAGIC || crc32c::crc32c(&zeroed).to_le_bytes() != bytes[12..16] {
            return Ok(None);
        }
        let format = u64_at(8) as u32;
        if format != FORMAT {
            return Err(foreign_format(path, format));
        }
        let mut id = ClusterId::default();
        id.0.copy_from_slice(&bytes[16..32]);
        if id != cluster {
            return Err(LogError::Foreign(format!(
                "{} belongs to cluster {id}, not to {cluster}; point the daemon at its own directory",
                path.display()
            )));
        }
        let header = Self { first: LogSeq(u64_at(32)), durable: LogSeq(u64_at(48)), cluster };
        if header.first != first {
            return Err(LogError::corrupt(
                path,
                format_args!("starts at {}, not as its name says", header.first),
            ));
        }
        Ok(Some(header))
    }
}

fn foreign_format(path: &Path, format: u32) -> LogError {
    LogError::Foreign(format!(
        "{} has format {format}, this release reads format {FORMAT}; start the release that wrote it, or give this \
         daemon an empty directory",
        path.display()
    ))
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

/// The highest sequence number that any valid record from `from` on claims to have been durable.
pub(super) fn highest_claim(bytes: &[u8], salt: u32, first: LogSeq, from: usize) -> LogSeq {
    let mut claim = LogSeq(0);
    let mut at = from.next_multiple_of(8);
    while at < bytes.len() {
        match record::decode(&bytes[at..], salt, first) {
            Some(view @ View { durable, .. }) => {
                claim = claim.max(durable);
                at += view.size();
            }
            None => at += 8,
        }
    }
    claim
}
