//! The owner's side of the log: append, read, release.

use super::heads::{Heads, Step};
use super::record::{self, PAYLOAD_MAX};
use super::recovery::{self, Recovered};
use super::segment::{Header, Segment};
use super::sync::{Shared, Syncer};
use super::{EntryKind, GROUP_MAX, Head, LogError, LogOptions, Record, SEGMENT_MAX, SEGMENT_MIN};
use crate::disk::{DirLock, Disk};
use skep_types::{LogSeq, ShardId};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The log. Belongs to one thread.
pub struct CommandLog {
    shared: Arc<Shared>,
    dir: PathBuf,
    options: LogOptions,
    /// Oldest first, never empty: the last is appended to.
    segments: VecDeque<Segment>,
    last: LogSeq,
    heads: Heads,
    buffer: Vec<u8>,
    _lock: Box<dyn DirLock>,
}

impl CommandLog {
    /// Opens the log in `dir`, or makes it. All that is found and valid is durable afterwards.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> Result<(Self, Recovered), LogError> {
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&options.segment_bytes) {
            return Err(LogError::Refused(format!(
                "segments of {} bytes; choose between {SEGMENT_MIN} and {SEGMENT_MAX}",
                options.segment_bytes
            )));
        }
        let sort = |e| LogError::sort(&e);
        disk.create_dir(dir).map_err(sort)?;
        let lock = disk.lock_dir(dir).map_err(sort)?;
        let image = recovery::recover(&*disk, dir, &options)?;
        let recovered = image.recovered;
        let log = Self {
            shared: Arc::new(Shared::new(disk, dir.to_path_buf(), recovered.last)),
            dir: dir.to_path_buf(),
            options,
            segments: image.segments.into(),
            last: recovered.last,
            heads: image.heads,
            buffer: Vec::new(),
            _lock: lock,
        };
        Ok((log, recovered))
    }

    /// What makes it durable. There may be several; they take turns.
    pub fn syncer(&self) -> Syncer {
        Syncer { shared: self.shared.clone() }
    }

    /// First entry that is still there (last + 1 when there is none).
    pub fn first_seq(&self) -> LogSeq {
        self.segments.front().map_or(LogSeq(self.last.0 + 1), |s| s.first)
    }

    /// Last entry.
    pub fn last_seq(&self) -> LogSeq {
        self.last
    }

    /// Up to which entry it is durable.
    pub fn durable(&self) -> LogSeq {
        self.shared.durable()
    }

    /// How far the records of a shard go, those of released segments included; `None` = it has none.
    pub fn head(&self, shard: ShardId) -> Option<Head> {
        self.heads.of(shard)
    }

    /// The heads of all shards, in their order.
    pub fn heads(&self) -> Vec<Head> {
        self.heads.list()
    }

    /// Bytes of all records that are kept.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.end).sum()
    }

    /// Appends a group with one write. Entries continue the log without a gap, and each shard's own records
    /// without a gap and without a falling term; but one of a higher term may take the place of an older one, and of all
    /// behind it ([`CommandLog::in_force`]). On an error nothing of the group was appended.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        let Some(after) = records.last() else { return Ok(()) };
        self.shared.check()?;
        let written = self.validate(records).and_then(|()| self.write(records));
        match written {
            Ok(()) => self.heads.commit(),
            Err(e) => {
                self.heads.forget();
                return Err(e);
            }
        }
        self.last = after.seq;
        Ok(())
    }

    fn write(&mut self, records: &[Record]) -> Result<(), LogError> {
        self.make_room(records)?;
        let segment = self.segments.back_mut().ok_or_else(closed)?;
        let durable = self.shared.durable();
        self.buffer.clear();
        let known = segment.offsets.len();
        for record in records {
            segment.offsets.push((segment.end + self.buffer.len() as u64) as u32);
            record::encode(&mut self.buffer, segment.salt, record, durable);
        }
        if let Err(e) = segment.file.write_at(&self.buffer, segment.end) {
            segment.offsets.truncate(known);
            return Err(self.take_back(&e));
        }
        segment.end += self.buffer.len() as u64;
        self.shared.appended(segment, segment.last());
        Ok(())
    }

    fn validate(&mut self, records: &[Record]) -> Result<(), LogError> {
        let mut last = self.last;
        let mut bytes = 0;
        for record in records {
            let of = Head { shard: record.shard, term: record.term, index: record.index };
            if record.seq.0 != last.0 + 1
                || !matches!(self.heads.stage(record.seq, record.kind, of, &record.bytes), Step::Taken)
            {
                return Err(LogError::Refused(self.heads.refusal(record, last)));
            }
            last = record.seq;
            bytes += record::size(record.bytes.len());
            if record.bytes.len() > PAYLOAD_MAX || bytes > GROUP_MAX {
                return Err(LogError::Refused(format!(
                    "a record may have {PAYLOAD_MAX} bytes and a group {GROUP_MAX}; entry {last} goes beyond: split it"
                )));
            }
        }
        Ok(())
    }

    /// Starts the next segment when the group does not fit. A group never spans segments.
    fn make_room(&mut self, records: &[Record]) -> Result<(), LogError> {
        let group: usize = records.iter().map(|r| record::size(r.bytes.len())).sum();
        let segment = self.segments.back().ok_or_else(closed)?;
        if segment.offsets.is_empty() || segment.end + group as u64 <= self.options.segment_bytes {
            return Ok(());
        }
        let (first, durable) = (LogSeq(self.last.0 + 1), self.shared.durable());
        let header = Header { first, durable, cluster: self.options.cluster };
        let heads = self.heads.list();
        let made = Segment::create(&*self.shared.disk, &self.dir, &self.options, header, &heads, group);
        let made = made.map_err(|e| if matches!(e, LogError::Full(_)) { e } else { self.shared.fail(e) })?;
        self.shared.made(&made);
        self.segments.push_back(made);
        Ok(())
    }

    /// After a failed write: takes the group's bytes away when only room was missing, else gives up.
    fn take_back(&mut self, error: &crate::disk::DiskError) -> LogError {
        if !error.is_full() {
            return self.shared.fail(LogError::failed(error));
        }
        let Some(segment) = self.segments.back() else { return closed() };
        // Durably: records of a refused group must not come back behind later ones.
        match segment.file.truncate(segment.end).and_then(|()| segment.file.sync_data()) {
            Ok(()) => LogError::full(error),
            Err(e) => self.shared.fail(LogError::failed(&e)),
        }
    }

    /// Entries from `from` on, at least one when there is one, as many as fit into `max_bytes`.
    pub fn read(&self, from: LogSeq, max_bytes: usize) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        if from < self.first_seq() {
            return Err(LogError::Refused(format!(
                "entry {from} was released, the log starts at {}; use a snapshot",
                self.first_seq()
            )));
        }
        let mut at = self.segments.partition_point(|s| s.first <= from).saturating_sub(1);
        let (mut next, mut left) = (from, max_bytes);
        while let Some(segment) = self.segments.get(at)
            && next <= self.last
            && (records.is_empty() || left > 0)
        {
            if next <= segment.last() {
                // A segment's first record comes whatever its size: only at the very beginning.
                let fits = segment.offset(LogSeq(next.0 + 1)) - segment.offset(next) <= left as u64;
                if !records.is_empty() && !fits {
                    break;
                }
                left = left.saturating_sub(segment.read(next, left, &mut records)?);
                next = LogSeq(from.0 + records.len() as u64);
                if next <= segment.last() {
                    break;
                }
            }
            at += 1;
        }
        Ok(records)
    }

    /// What of an entry counts: others may have taken the place of it, or of the heads in it. Of a command that does not count
    /// a record is left that says nothing.
    pub fn in_force(&self, record: Record) -> Record {
        let Record { seq, shard, term, index, kind, .. } = record;
        match kind {
            EntryKind::Command if self.heads.counts(seq, &Head { shard, term, index }) => record,
            EntryKind::Command => Record::terms(seq, &[]),
            EntryKind::Terms => {
                let mut heads = record.heads().unwrap_or_default();
                heads.retain(|head| self.heads.counts(seq, head));
                Record::terms(seq, &heads)
            }
            EntryKind::Moves | EntryKind::Rows => record,
        }
    }

    /// Gives back the segments whose entries are all before `seq` (and durable), whatever shards they are of. The
    /// files go with the next sync. Says how many went.
    pub fn release_before(&mut self, seq: LogSeq) -> Result<usize, LogError> {
        self.shared.check()?;
        let durable = self.shared.durable();
        let mut gone = Vec::new();
        while self.segments.len() > 1 && self.segments[0].last() < seq && self.segments[0].last() <= durable {
            gone.extend(self.segments.pop_front().map(|s| s.path));
        }
        let count = gone.len();
        if count > 0 {
            self.shared.released(gone.into_iter());
            self.heads.release(self.first_seq());
        }
        Ok(count)
    }
}

#[cfg(test)]
impl CommandLog {
    pub(super) fn segments_for_tests(&self) -> Vec<LogSeq> {
        self.segments.iter().map(|s| s.first).collect()
    }

    pub(super) fn end_for_tests(&self) -> u64 {
        self.segments.back().unwrap().end
    }

    /// Where each entry of the segment starts, and the end of the last.
    pub(super) fn offsets_for_tests(&self, segment: usize) -> Vec<u64> {
        let segment = &self.segments[segment];
        segment.offsets.iter().map(|at| u64::from(*at)).chain([segment.end]).collect()
    }
}

fn closed() -> LogError {
    LogError::Refused("the log has no segment (a bug: please report it)".into())
}
