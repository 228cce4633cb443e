//! Opening a log: what is there, what was torn, what is corrupt.
//!
//! A power cut may keep any part of what was not synced, in any order, over several segments. So
//! a hole with valid records behind it proves nothing by itself. What decides is that every
//! record and every segment header says up to which entry the log was durable when it was
//! written: a hole below that mark is corruption, a hole above it is the torn end and is cut.

use super::heads::{Heads, Step};
use super::record::{self, Kind, View};
use super::segment::{self, Header, Segment};
use super::{LogError, LogOptions};
use crate::disk::{Disk, DiskFile, OpenMode};
use skep_types::LogSeq;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What opening found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// First entry that is there (last + 1 when there is none).
    pub first: LogSeq,
    /// Last entry that is there.
    pub last: LogSeq,
    /// Bytes of torn, never durable records that were cut off.
    pub dropped_tail_bytes: u64,
}

/// The log as found, cut to what is valid.
pub(super) struct Image {
    pub(super) segments: Vec<Segment>,
    pub(super) heads: Heads,
    pub(super) recovered: Recovered,
}

struct Found {
    first: LogSeq,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

/// Where the valid log ends although there is more.
struct Break {
    /// The segment it happens in.
    segment: usize,
    /// Where the valid part of that segment ends; `None` = its header or state is bad, or does not fit.
    end: Option<usize>,
}

struct Walk<'a> {
    options: &'a LogOptions,
    found: &'a [Found],
    image: Image,
    /// Is the rest of the last segment zeros?
    clean: bool,
}

/// Reads the log in `dir`, cuts the torn end, makes the rest durable.
pub(super) fn recover(disk: &dyn Disk, dir: &Path, options: &LogOptions) -> Result<Image, LogError> {
    let found = find(disk, dir)?;
    let recovered = Recovered { first: LogSeq(1), last: LogSeq(0), dropped_tail_bytes: 0 };
    let image = Image { segments: Vec::new(), heads: Heads::default(), recovered };
    let mut walk = Walk { options, found: &found, image, clean: true };
    let broken = walk.run()?;
    if let Some(broken) = &broken {
        walk.judge(broken)?;
        walk.cut(disk, dir, broken)?;
    }
    let mut image = walk.image;
    if image.segments.is_empty() {
        image.segments.push(create_first(disk, dir, options)?);
    }
    Ok(image)
}

fn find(disk: &dyn Disk, dir: &Path) -> Result<Vec<Found>, LogError> {
    let fail = |e| LogError::failed(&e);
    let names = disk.list(dir).map_err(fail)?;
    let mut firsts: Vec<_> = names.iter().filter_map(|name| segment::parse_name(name)).collect();
    firsts.sort();
    let mut found = Vec::new();
    for first in firsts {
        let path = dir.join(segment::name(first));
        let file = disk.open(&path, OpenMode::Existing).map_err(fail)?;
        // After a killed process the cache may hold records that are on no disk yet. Whatever is
        // accepted below must be durable, and read from the device, not from a cache that a
        // failed sync left clean.
        file.sync_data().map_err(fail)?;
        file.forget_cache().map_err(fail)?;
        found.push(Found { first, path, file });
    }
    // Likewise the names.
    disk.sync_dir(dir).map_err(fail)?;
    Ok(found)
}

fn create_first(disk: &dyn Disk, dir: &Path, options: &LogOptions) -> Result<Segment, LogError> {
    let header = Header { first: LogSeq(1), durable: LogSeq(0), cluster: options.cluster };
    let segment = Segment::create(disk, dir, options, header, &[], 0)?;
    segment.file.sync_data().map_err(|e| LogError::failed(&e))?;
    disk.sync_dir(dir).map_err(|e| LogError::failed(&e))?;
    Ok(segment)
}

impl Walk<'_> {
    fn next(&self) -> LogSeq {
        LogSeq(self.image.recovered.last.0 + 1)
    }

    fn run(&mut self) -> Result<Option<Break>, LogError> {
        let mut unfinished = None;
        for at in 0..self.found.len() {
            let found = &self.found[at];
            let bytes = segment::load(&*found.file, &found.path)?;
            let header = Header::decode(&bytes, &found.path, self.options.cluster, found.first)?;
            let begun = match header {
                Some(header) => self.begin(at, header, &bytes)?,
                None => None,
            };
            let Some(begun) = begun else {
                return Ok(Some(unfinished.unwrap_or(Break { segment: at, end: None })));
            };
            let end = self.read_records(begun, &bytes)?;
            let rest = bytes[end..].iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            self.clean = rest == 0;
            unfinished = Some(Break { segment: at, end: Some(end) });
        }
        Ok(unfinished.filter(|_| !self.clean))
    }

    /// The segment without its entries; `None` when header or state are not what must come next.
    fn begin(&mut self, at: usize, header: Header, bytes: &[u8]) -> Result<Option<Segment>, LogError> {
        let Header { first, cluster, .. } = header;
        let salt = segment::salt(cluster, first);
        let state = bytes.get(segment::HEADER..).and_then(|rest| record::decode(rest, salt, first));
        let (path, file) = (self.found[at].path.clone(), self.found[at].file.clone());
        let state = match state {
            Some(state) if state.kind == Kind::State => state,
            Some(View { kind: kind @ Kind::Later(..), .. }) => {
                return Err(later(&path, segment::HEADER, kind));
            }
            _ => return Ok(None),
        };
        let Some(heads) = Heads::from_state(state.bytes) else {
            return Err(rubbish(&path, segment::HEADER));
        };
        if at == 0 {
            // Nothing older is left to compare them with.
            if first == LogSeq(0) || (first == LogSeq(1) && !heads.is(&Heads::default())) {
                return Ok(None);
            }
            let recovered = &mut self.image.recovered;
            (recovered.first, recovered.last) = (first, LogSeq(first.0 - 1));
            self.image.heads = heads;
        } else if first != self.next() || !heads.is(&self.image.heads) {
            return Ok(None);
        }
        let end = (segment::HEADER + state.size()) as u64;
        Ok(Some(Segment { first, path, file, salt, offsets: Vec::new(), end }))
    }

    /// Takes the valid records of one segment; says where they end.
    fn read_records(&mut self, mut segment: Segment, bytes: &[u8]) -> Result<usize, LogError> {
        let mut end = segment.end as usize;
        let next = |end| record::decode(bytes.get(end..)?, segment.salt, segment.first);
        while let Some(view) = next(end) {
            match self.image.heads.take(self.next(), &view) {
                Step::Taken => {}
                Step::Strange => return Err(strange(&segment.path, end, &view)),
                Step::Rubbish => return Err(rubbish(&segment.path, end)),
                Step::Later => return Err(later(&segment.path, end, view.kind)),
            }
            segment.offsets.push(end as u32);
            end += View::size(&view);
            self.image.recovered.last.0 += 1;
        }
        segment.end = end as u64;
        self.image.segments.push(segment);
        // The padding of the last record may be beyond the end of the file.
        Ok(end.min(bytes.len()))
    }

    /// Is what is missing at the break only the end that was never durable?
    fn judge(&self, broken: &Break) -> Result<(), LogError> {
        let next = if broken.end.is_some() { self.next() } else { self.found[broken.segment].first };
        let mut claim = (LogSeq(0), broken.segment);
        for (at, found) in self.found.iter().enumerate().skip(broken.segment) {
            let bytes = segment::load(&*found.file, &found.path)?;
            let salt = segment::salt(self.options.cluster, found.first);
            let header = Header::decode(&bytes, &found.path, self.options.cluster, found.first)?;
            let from =
                if at == broken.segment { broken.end.unwrap_or(segment::HEADER) } else { segment::HEADER };
            let said = header.filter(|_| at > broken.segment).map_or(LogSeq(0), |h| h.durable);
            claim = claim.max((said.max(segment::highest_claim(&bytes, salt, found.first, from)), at));
        }
        let path = &self.found[broken.segment].path;
        if claim.0 >= next {
            return Err(LogError::corrupt(
                path,
                format_args!(
                    "entry {next} (at byte {}) is missing or damaged, yet {} says that entries up to {} were durable",
                    broken.end.unwrap_or(0),
                    self.found[claim.1].path.display(),
                    claim.0
                ),
            ));
        }
        // Without its header and state nothing says what came before the log's first segment, unless it is
        // the very first one, which was then never acknowledged to exist.
        if broken.segment == 0 && broken.end.is_none() && next != LogSeq(1) {
            return Err(LogError::corrupt(path, "its header or the state behind it is damaged"));
        }
        Ok(())
    }

    /// Removes everything behind the break, durably, so that it can never come back to life.
    fn cut(&mut self, disk: &dyn Disk, dir: &Path, broken: &Break) -> Result<(), LogError> {
        let fail = |e| LogError::failed(&e);
        let keep = if broken.end.is_some() { broken.segment + 1 } else { broken.segment };
        let mut dropped = 0;
        for found in self.found[keep..].iter().rev() {
            let bytes = segment::load(&*found.file, &found.path)?;
            dropped += bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1) as u64;
            // Newest first and each made durable: a crash in here leaves no hole.
            disk.remove(&found.path).map_err(fail)?;
            disk.sync_dir(dir).map_err(fail)?;
        }
        if let (Some(end), Some(last)) = (broken.end, self.image.segments.last())
            && !self.clean
        {
            let bytes = segment::load(&*last.file, &last.path)?;
            dropped +=
                bytes[end.min(bytes.len())..].iter().rposition(|b| *b != 0).map_or(0, |n| n + 1) as u64;
            last.file.truncate(last.end).map_err(fail)?;
            last.file.sync_data().map_err(fail)?;
        }
        self.image.recovered.dropped_tail_bytes = dropped;
        Ok(())
    }
}

/// As [`rubbish`]: no power cut leaves a hole in the count of a shard's records and what was written behind it.
fn strange(path: &Path, at: usize, view: &View<'_>) -> LogError {
    let View { shard, term, index, .. } = view;
    LogError::corrupt(
        path,
        format_args!(
            "the record at byte {at} is whole, but does not follow those before it (record {index} of term {term} of \
             shard {shard}); are these the segments of one server?"
        ),
    )
}

/// Not cut off as a torn end is: it may have been acknowledged.
fn later(path: &Path, at: usize, kind: Kind) -> LogError {
    LogError::Corrupt(format!(
        "{}: the record at byte {at} is of a kind that this release does not know ({kind:?}): a later release wrote \
         it; start that one. Nothing was changed",
        path.display()
    ))
}

/// No power cut makes such bytes: their checksum holds, so they were written like this.
fn rubbish(path: &Path, at: usize) -> LogError {
    LogError::corrupt(path, format_args!("the record at byte {at} is whole, but its list of shards is not"))
}
