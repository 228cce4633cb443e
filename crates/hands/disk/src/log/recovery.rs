//! Opening a log: what is there, what was torn, what is corrupt.
//!
//! A power cut may keep any part of what was not synced, in any order, over several segments. So
//! a hole with valid records behind it proves nothing by itself. What decides is that every
//! record and every segment header says up to which entry the log was durable when it was
//! written: a hole below that mark is corruption, a hole above it is the torn end and is cut.

use super::record::{self, EntryKind};
use super::segment::{self, Header, Segment};
use super::{LogError, LogOptions, Record};
use crate::disk::{Disk, DiskFile, OpenMode};
use skep_types::{LogIndex, Term};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What opening found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// First entry that is there (last + 1 when there is none).
    pub first: LogIndex,
    /// Last entry that is there.
    pub last: LogIndex,
    /// Its term.
    pub last_term: Term,
    /// Bytes of torn, never durable records that were cut off.
    pub dropped_tail_bytes: u64,
    /// The last hard state.
    pub hard_state: Option<Record>,
}

/// The log as found, cut to what is valid.
pub(super) struct Image {
    pub(super) segments: Vec<Segment>,
    /// (first index, term) wherever the term changes; the first stands for the entry before.
    pub(super) terms: Vec<(LogIndex, Term)>,
    pub(super) recovered: Recovered,
}

struct Found {
    first: LogIndex,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

/// Where the valid log ends although there is more.
struct Break {
    /// The segment it happens in.
    segment: usize,
    /// Where the valid part of that segment ends; `None` = its header is bad, or it does not fit.
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
    let mut walk = Walk { options, found: &found, image: empty(options), clean: true };
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

fn empty(options: &LogOptions) -> Image {
    let (last, last_term) = options.base;
    let first = LogIndex(last.0 + 1);
    let recovered = Recovered { first, last, last_term, dropped_tail_bytes: 0, hard_state: None };
    Image { segments: Vec::new(), terms: vec![(last, last_term)], recovered }
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
    let (base, previous_term) = options.base;
    let first = LogIndex(base.0 + 1);
    let header = Header { first, previous_term, durable: base, cluster: options.cluster };
    let segment = Segment::create(disk, dir, options, header, options.segment_bytes)?;
    segment.file.sync_data().map_err(|e| LogError::failed(&e))?;
    disk.sync_dir(dir).map_err(|e| LogError::failed(&e))?;
    Ok(segment)
}

impl Walk<'_> {
    fn next(&self) -> LogIndex {
        LogIndex(self.image.recovered.last.0 + 1)
    }

    fn run(&mut self) -> Result<Option<Break>, LogError> {
        let mut unfinished = None;
        for at in 0..self.found.len() {
            let found = &self.found[at];
            let bytes = segment::load(&*found.file, &found.path)?;
            let header = Header::decode(&bytes, &found.path, self.options.cluster, found.first)?;
            let fits = header.filter(|h| {
                let recovered = &self.image.recovered;
                at == 0 || (h.first == self.next() && h.previous_term == recovered.last_term)
            });
            let Some(header) = fits else {
                return Ok(Some(unfinished.unwrap_or(Break { segment: at, end: None })));
            };
            if at == 0 {
                let last = LogIndex(header.first.0.saturating_sub(1));
                self.image.terms = vec![(last, header.previous_term)];
                let recovered = &mut self.image.recovered;
                (recovered.first, recovered.last) = (header.first, last);
                recovered.last_term = header.previous_term;
            }
            let end = self.read_records(found, header, &bytes);
            let rest = bytes[end..].iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
            self.clean = rest == 0;
            unfinished = Some(Break { segment: at, end: Some(end) });
        }
        Ok(unfinished.filter(|_| !self.clean))
    }

    /// Takes the valid records of one segment; says where they end.
    fn read_records(&mut self, found: &Found, header: Header, bytes: &[u8]) -> usize {
        let salt = segment::salt(header.cluster, header.first);
        let mut end = segment::HEADER;
        let mut offsets = Vec::new();
        while let Some(view) = bytes.get(end..).and_then(|rest| record::decode(rest, salt)) {
            let next = self.next();
            let recovered = &mut self.image.recovered;
            if view.kind == EntryKind::HardState {
                if view.index != recovered.last {
                    break;
                }
                recovered.hard_state = Some(view.to_record());
            } else {
                if view.index != next || view.term < recovered.last_term {
                    break;
                }
                if view.term != recovered.last_term {
                    self.image.terms.push((view.index, view.term));
                }
                (recovered.last, recovered.last_term) = (view.index, view.term);
                offsets.push(end as u32);
            }
            end += view.size();
        }
        let (path, file) = (found.path.clone(), found.file.clone());
        self.image.segments.push(Segment { first: header.first, path, file, salt, offsets, end: end as u64 });
        // The padding of the last record may be beyond the end of the file.
        end.min(bytes.len())
    }

    /// Is what is missing at the break only the end that was never durable?
    fn judge(&self, broken: &Break) -> Result<(), LogError> {
        let next = if broken.end.is_some() { self.next() } else { self.found[broken.segment].first };
        let mut claim = (LogIndex(0), broken.segment);
        for (at, found) in self.found.iter().enumerate().skip(broken.segment) {
            let bytes = segment::load(&*found.file, &found.path)?;
            let salt = segment::salt(self.options.cluster, found.first);
            let header = Header::decode(&bytes, &found.path, self.options.cluster, found.first)?;
            let from =
                if at == broken.segment { broken.end.unwrap_or(segment::HEADER) } else { segment::HEADER };
            let said = header.filter(|_| at > broken.segment).map_or(LogIndex(0), |h| h.durable);
            claim = claim.max((said.max(segment::highest_claim(&bytes, salt, from)), at));
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
        // Without its header nothing says what came before the log's first segment, unless it is
        // the very first one, which was then never acknowledged to exist.
        if broken.segment == 0 && broken.end.is_none() && next.0 != self.options.base.0.0 + 1 {
            return Err(LogError::corrupt(path, "its header is damaged"));
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
