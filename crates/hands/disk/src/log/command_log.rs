//! The owner's side of the log: append, read, truncate, release.

use super::hard_state;
use super::record::{self, EntryKind, PAYLOAD_MAX};
use super::recovery::{self, Recovered};
use super::segment::{self, Header, Segment};
use super::sync::{Shared, Syncer, hold};
use super::{GROUP_MAX, LogError, LogOptions, Record, SEGMENT_MAX, SEGMENT_MIN};
use crate::disk::{DirLock, Disk};
use skep_types::{LogIndex, Term};
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
    /// (first index, term) wherever the term changes.
    terms: Vec<(LogIndex, Term)>,
    last: LogIndex,
    last_term: Term,
    hard_state: Option<Record>,
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
        let mut recovered = image.recovered;
        let parked = hard_state::parked(&*disk, dir, options.cluster).map_err(|e| LogError::failed(&e))?;
        let mut log = Self {
            shared: Arc::new(Shared::new(disk, dir.to_path_buf(), recovered.last)),
            dir: dir.to_path_buf(),
            options,
            segments: image.segments.into(),
            terms: image.terms,
            last: recovered.last,
            last_term: recovered.last_term,
            hard_state: recovered.hard_state.clone(),
            buffer: Vec::new(),
            _lock: lock,
        };
        if let Some(parked) = parked {
            log.hard_state = Some(parked);
            log.unpark()?;
            recovered.hard_state = log.hard_state.clone();
        }
        Ok((log, recovered))
    }

    /// What makes it durable. There may be several; they take turns.
    pub fn syncer(&self) -> Syncer {
        Syncer { shared: self.shared.clone() }
    }

    /// First entry that is still there (last + 1 when there is none).
    pub fn first_index(&self) -> LogIndex {
        self.segments.front().map_or(LogIndex(self.last.0 + 1), |s| s.first)
    }

    /// Last entry.
    pub fn last_index(&self) -> LogIndex {
        self.last
    }

    /// Up to which entry it is durable.
    pub fn durable(&self) -> LogIndex {
        self.shared.durable()
    }

    /// The last hard state.
    pub fn hard_state(&self) -> Option<&Record> {
        self.hard_state.as_ref()
    }

    /// Bytes of all records that are kept.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.end).sum()
    }

    /// Term of an entry; of the entry before the first, too. `None` outside of the log.
    pub fn term_at(&self, index: LogIndex) -> Option<Term> {
        if index > self.last || index.0 + 1 < self.first_index().0 {
            return None;
        }
        let after = self.terms.partition_point(|(from, _)| *from <= index);
        self.terms.get(after.checked_sub(1)?).map(|(_, term)| *term)
    }

    /// Appends a group with one write. Entries continue the log without a gap and their terms
    /// never fall; a hard state carries the index of the entry before it. On an error nothing of
    /// the group was appended.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        let Some(after) = records.last() else { return Ok(()) };
        self.validate(records)?;
        self.shared.check()?;
        self.make_room(records)?;
        let segment = self.segments.back_mut().ok_or_else(closed)?;
        let durable = self.shared.durable();
        self.buffer.clear();
        if segment.end == segment::HEADER as u64
            && let Some(state) = &self.hard_state
        {
            // Restated in every segment: the older ones may be released.
            let restated = Record { index: self.last, ..state.clone() };
            record::encode(&mut self.buffer, segment.salt, &restated, durable);
        }
        let known = segment.offsets.len();
        for record in records {
            if record.kind.is_entry() {
                segment.offsets.push((segment.end + self.buffer.len() as u64) as u32);
            }
            record::encode(&mut self.buffer, segment.salt, record, durable);
        }
        if let Err(e) = segment.file.write_at(&self.buffer, segment.end) {
            segment.offsets.truncate(known);
            return Err(self.take_back(&e));
        }
        segment.end += self.buffer.len() as u64;
        self.shared.appended(segment, after.index);
        self.note(records);
        Ok(())
    }

    fn note(&mut self, records: &[Record]) {
        for record in records {
            if !record.kind.is_entry() {
                self.hard_state = Some(record.clone());
                continue;
            }
            if record.term != self.last_term {
                self.terms.push((record.index, record.term));
            }
            (self.last, self.last_term) = (record.index, record.term);
        }
    }

    fn validate(&self, records: &[Record]) -> Result<(), LogError> {
        let (mut last, mut term) = (self.last, self.last_term);
        let mut bytes = 0;
        for record in records {
            let fits = if record.kind.is_entry() {
                let fits = record.index.0 == last.0 + 1 && record.term >= term;
                (last, term) = (record.index, record.term);
                fits
            } else {
                record.index == last
            };
            if !fits {
                let (term, index) = (record.term, record.index);
                return Err(LogError::Refused(format!(
                    "entry {index} of term {term} does not follow entry {} of term {} (a bug: please report it)",
                    self.last, self.last_term
                )));
            }
            bytes += record::size(record.bytes.len());
            if record.bytes.len() > PAYLOAD_MAX || bytes > GROUP_MAX {
                return Err(LogError::Refused(format!(
                    "a record may have {PAYLOAD_MAX} bytes and a group {GROUP_MAX}; entry {} goes beyond: split it",
                    record.index
                )));
            }
        }
        Ok(())
    }

    /// Starts the next segment when the group does not fit. A group never spans segments.
    fn make_room(&mut self, records: &[Record]) -> Result<(), LogError> {
        let group: usize = records.iter().map(|r| record::size(r.bytes.len())).sum();
        let segment = self.segments.back().ok_or_else(closed)?;
        let empty = segment.end == segment::HEADER as u64;
        if empty || segment.end + group as u64 <= self.options.segment_bytes {
            return Ok(());
        }
        let first = LogIndex(self.last.0 + 1);
        if segment.first == first {
            // It holds hard states only. A second segment cannot start at the same entry, and
            // these few bytes are no reason for one.
            return Ok(());
        }
        let header = Header {
            first,
            previous_term: self.last_term,
            durable: self.shared.durable(),
            cluster: self.options.cluster,
        };
        let state = self.hard_state.as_ref().map_or(0, |s| record::size(s.bytes.len()));
        let room = self.options.segment_bytes.max((segment::HEADER + state + group) as u64);
        let made = Segment::create(&*self.shared.disk, &self.dir, &self.options, header, room);
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
    pub fn read(&self, from: LogIndex, max_bytes: usize) -> Result<Vec<Record>, LogError> {
        let mut records = Vec::new();
        if from < self.first_index() {
            return Err(LogError::Refused(format!(
                "entry {from} was released, the log starts at {}; use a snapshot",
                self.first_index()
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
                let fits = segment.offset(LogIndex(next.0 + 1)) - segment.offset(next) <= left as u64;
                if !records.is_empty() && !fits {
                    break;
                }
                left = left.saturating_sub(segment.read(next, left, &mut records)?);
                next = LogIndex(from.0 + records.len() as u64);
                if next <= segment.last() {
                    break;
                }
            }
            at += 1;
        }
        Ok(records)
    }

    /// Forgets all entries behind `index`, durably. Waits for a running sync.
    pub fn truncate_after(&mut self, index: LogIndex) -> Result<(), LogError> {
        self.shared.check()?;
        if index >= self.last {
            return Ok(());
        }
        if index.0 + 1 < self.first_index().0 {
            let first = self.first_index();
            return Err(LogError::Refused(format!(
                "cannot cut behind entry {index}: the log starts at {first}"
            )));
        }
        let shared = self.shared.clone();
        // The cut may take the last hard state along, and a vote must never be forgotten.
        if let Some(state) = &self.hard_state {
            hard_state::park(&*shared.disk, &self.dir, self.options.cluster, state)
                .map_err(|e| shared.fail(LogError::failed(&e)))?;
        }
        let gate = hold(&shared.gate);
        self.cut(index).map_err(|e| shared.fail(LogError::failed(&e)))?;
        drop(gate);
        self.unpark()
    }

    /// Puts a parked hard state back into the log, durably.
    fn unpark(&mut self) -> Result<(), LogError> {
        let Some(state) = self.hard_state.take() else { return Ok(()) };
        self.append(&[Record { index: self.last, ..state }])?;
        self.syncer().sync()?;
        hard_state::clear(&*self.shared.disk, &self.dir).map_err(|e| self.shared.fail(LogError::failed(&e)))
    }

    fn cut(&mut self, index: LogIndex) -> crate::disk::DiskResult<()> {
        let kept = self.segments.iter().rposition(|s| s.first.0 <= index.0 + 1).unwrap_or(0);
        while self.segments.len() > kept + 1
            && let Some(segment) = self.segments.pop_back()
        {
            // Newest first and each made durable: a crash in here leaves no hole.
            self.shared.disk.remove(&segment.path)?;
            self.shared.disk.sync_dir(&self.dir)?;
        }
        let term = self.term_at(index).unwrap_or_default();
        if let Some(segment) = self.segments.back_mut() {
            let end = segment.offset(LogIndex(index.0 + 1));
            segment.file.truncate(end)?;
            segment.file.sync_data()?;
            segment.offsets.truncate((index.0 + 1 - segment.first.0) as usize);
            segment.end = end;
            let newest = segment.first;
            self.shared.truncated(index, |first| first > newest);
        }
        self.terms.retain(|(from, _)| *from <= index);
        (self.last, self.last_term) = (index, term);
        Ok(())
    }

    /// Gives back the segments whose entries are all before `index` (and durable). The files go
    /// with the next sync. Says how many went.
    pub fn release_before(&mut self, index: LogIndex) -> Result<usize, LogError> {
        self.shared.check()?;
        let durable = self.shared.durable();
        let mut gone = Vec::new();
        while self.segments.len() > 1 && self.segments[0].last() < index && self.segments[0].last() <= durable
        {
            // The hard state must have been restated behind it.
            if self.segments[1].end == segment::HEADER as u64 {
                break;
            }
            gone.extend(self.segments.pop_front().map(|s| s.path));
        }
        let first = self.first_index().0;
        let before = self.terms.partition_point(|(from, _)| from.0 < first);
        self.terms.drain(..before.saturating_sub(1));
        let count = gone.len();
        if count > 0 {
            self.shared.released(gone.into_iter());
        }
        Ok(count)
    }
}

#[cfg(test)]
impl CommandLog {
    pub(super) fn segments_for_tests(&self) -> Vec<LogIndex> {
        self.segments.iter().map(|s| s.first).collect()
    }

    pub(super) fn end_for_tests(&self) -> u64 {
        self.segments.back().unwrap().end
    }
}

fn closed() -> LogError {
    LogError::Refused("the log has no segment (a bug: please report it)".into())
}

impl Record {
    /// A command of a shard.
    pub fn command(term: Term, index: LogIndex, shard: skep_types::ShardId, bytes: Vec<u8>) -> Self {
        Self { term, index, kind: EntryKind::Command, flags: 0, shard, bytes }
    }
}
