//! Which metadata server may speak for a shard: the terms that a target has heard of, in a small file of the target.
//!
//! It lies on the target, and goes where the disk goes. It has two slots that are written in turn, in place: a power cut
//! leaves one of them whole, and a full disk has room for both, so that deletions can go on there.
//!
//! ```text
//! slot (256 KiB): u64 sequence, u32 length, u32 CRC32C of sequence and record, record (`KeptTerms`)
//! ```

use super::chunks::{TargetDir, lock};
use super::identity::TargetError;
use rustix::fs::{Mode, OFlags, fsync, openat};
use skep_storage::{Done, KeptTerms, Terms, Turn};
use skep_types::codec::{Draw, Example};
use skep_types::formats::Formats;
use skep_types::{Decode, Encode};
use skep_wire::storage::ShardTerm;
use skep_wire::{Refusal, Status};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Its name.
const TERMS_FILE: &str = "skep-target.terms";
/// Bytes of a slot: enough for every shard that there can be.
const SLOT: usize = 256 << 10;
const HEAD: usize = 16;

/// The terms of a target, for all threads that serve it.
#[derive(Default)]
pub(super) struct Gate {
    terms: Mutex<Terms>,
    /// A message was done.
    over: Condvar,
    /// Held while it is written. None: nothing is kept (measurements).
    file: Mutex<Option<TermsFile>>,
}

/// A message of a shard that is carried out.
pub struct Speaking<'a> {
    gate: &'a Gate,
    by: ShardTerm,
}

impl Drop for Speaking<'_> {
    fn drop(&mut self) {
        lock(&self.gate.terms).ended(self.by);
        self.gate.over.notify_all();
    }
}

impl TargetDir {
    /// Goes on with the terms that the target has heard of, and keeps them from now on. To be called before anything is
    /// served.
    pub fn keep_terms(&self) -> Result<(), TargetError> {
        let opened = TermsFile::open(&self.root);
        let failed =
            |what: &str| TargetError(format!("target {}: {TERMS_FILE}: {what}", self.path().display()));
        let (file, kept) = opened.map_err(|e| failed(&e.to_string()))?;
        let Some(kept) = kept else {
            return Err(failed(
                "is damaged; it says which metadata servers may speak for a shard. Put it back from the newest copy. If \
                 there is none: stop all metadata servers, remove the file, start the newest ones again",
            ));
        };
        *lock(&self.terms.terms) = Terms::new(&kept);
        *lock(&self.terms.file) = Some(file);
        Ok(())
    }

    /// Lets a message of a shard in, as soon as its term is on stable storage and nothing of an earlier one is in work;
    /// BUSY when that takes longer than `limit`, OLD_TERM when a later term is known.
    pub fn speak(&self, by: ShardTerm, limit: Duration) -> Result<Speaking<'_>, Done> {
        let gate = &self.terms;
        let until = Instant::now() + limit;
        let mut terms = lock(&gate.terms);
        loop {
            match terms.ask(by).map_err(Done::Refused)? {
                Turn::Now => return Ok(Speaking { gate, by }),
                Turn::Keep => {
                    drop(terms);
                    self.write_terms()?;
                    terms = lock(&gate.terms);
                }
                Turn::Wait => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        let text = format!("work of an earlier term of shard {} is not over", by.shard);
                        return Err(Done::Refused(Refusal::with(Status::BUSY, text)));
                    }
                    let woken = gate.over.wait_timeout(terms, left);
                    terms = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// One write for all that have come by now: whoever waited for the file may find that it has been done.
    fn write_terms(&self) -> Result<(), Done> {
        let mut file = lock(&self.terms.file);
        let Some(news) = lock(&self.terms.terms).to_keep() else { return Ok(()) };
        if let Some(file) = &mut *file {
            let failed = |what, e: io::Error| {
                self.failed(what, None, rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO))
            };
            file.write(&news).map_err(|e| failed("write of skep-target.terms", e))?;
        }
        lock(&self.terms.terms).kept(&news);
        Ok(())
    }
}

struct TermsFile {
    file: File,
    sequence: u64,
}

impl TermsFile {
    /// Opens, or makes, the file of a target. What was kept is `None` when it cannot be read.
    fn open(target: &OwnedFd) -> io::Result<(Self, Option<KeptTerms>)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = File::from(openat(target, TERMS_FILE, flags, Mode::from_raw_mode(0o600))?);
        let mut slots = vec![0; 2 * SLOT];
        if file.metadata()?.len() == slots.len() as u64 {
            file.read_exact_at(&mut slots, 0)?;
        } else {
            // New, or its making was interrupted: nothing was ever kept. Zeros are written so that it has its space.
            file.write_all_at(&slots, 0)?;
            file.sync_all()?;
            fsync(target)?;
        }
        let newest = slots.chunks(SLOT).filter_map(read).max_by_key(|(sequence, _)| *sequence);
        // Where one slot was never written, the other one may be torn by the first write: its term did nothing yet.
        let untouched = slots.chunks(SLOT).any(|slot| slot[..HEAD] == [0; HEAD]);
        let sequence = newest.as_ref().map_or(0, |(sequence, _)| *sequence);
        let kept = newest.map(|(_, kept)| kept).or_else(|| untouched.then(KeptTerms::default));
        Ok((Self { file, sequence }, kept))
    }

    /// On stable storage when it returns.
    fn write(&mut self, terms: &KeptTerms) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let slot = slot_of(sequence, terms);
        if slot.len() > SLOT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all_at(&slot, (sequence % 2) * SLOT as u64)?;
        self.file.sync_data()?;
        self.sequence = sequence;
        Ok(())
    }
}

fn slot_of(sequence: u64, terms: &KeptTerms) -> Vec<u8> {
    let record = terms.to_bytes();
    let mut slot = Vec::with_capacity(HEAD + record.len());
    slot.extend(sequence.to_le_bytes());
    slot.extend((record.len() as u32).to_le_bytes());
    slot.extend(checksum(sequence, &record).to_le_bytes());
    slot.extend(record);
    slot
}

/// See [`crate::formats`].
pub(super) fn formats(formats: &mut Formats) {
    formats.bytes("target.terms", &slot_of(7, &KeptTerms::example(Draw::FULL)), again);
}

fn again(slot: &[u8]) -> Option<Vec<u8>> {
    read(&super::mended(slot, checksum)?).map(|(sequence, terms)| slot_of(sequence, &terms))
}

fn checksum(sequence: u64, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), record)
}

fn read(slot: &[u8]) -> Option<(u64, KeptTerms)> {
    let sequence = u64::from_le_bytes(slot.get(..8)?.try_into().ok()?);
    let len = u32::from_le_bytes(slot.get(8..12)?.try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(slot.get(12..16)?.try_into().ok()?);
    let record = slot.get(HEAD..HEAD.checked_add(len)?)?;
    (sequence > 0 && checksum(sequence, record) == crc).then_some(())?;
    KeptTerms::from_bytes(record).ok().map(|kept| (sequence, kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::limits::SHARDS_MAX;
    use skep_types::{ShardId, Term, Uuid};
    use std::path::Path;

    const NOW: Duration = Duration::ZERO;

    fn by(shard: u16, term: u64) -> ShardTerm {
        ShardTerm { shard: ShardId(shard), term: Term(term) }
    }

    fn open(path: &Path) -> Result<TargetDir, TargetError> {
        let target = TargetDir::open(path, Uuid([1; 16]), Some(Uuid([2; 16])), 0)?;
        target.keep_terms().map(|()| target)
    }

    fn status(done: Result<Speaking<'_>, Done>) -> Status {
        match done {
            Err(Done::Refused(refusal)) => refusal.status,
            Err(other) => panic!("{other:?}"),
            Ok(_) => Status(0),
        }
    }

    /// Goal: whoever was deposed stays so over restarts of the daemon, for each shard; a torn write takes back no term
    /// that has done something; a file that cannot be read is not taken for an empty one.
    #[test]
    fn terms_survive_restarts() {
        let scratch = tempfile::tempdir().unwrap();
        for term in 1..=5 {
            let target = open(scratch.path()).unwrap();
            assert_eq!(status(target.speak(by(3, term), NOW)), Status(0));
            assert_eq!(status(target.speak(by(SHARDS_MAX - 1, 9), NOW)), Status(0), "again and again");
        }
        let target = open(scratch.path()).unwrap();
        assert_eq!(status(target.speak(by(3, 4), NOW)), Status::OLD_TERM);
        assert_eq!(status(target.speak(by(SHARDS_MAX - 1, 8), NOW)), Status::OLD_TERM);
        assert_eq!(status(target.speak(by(3, 5), NOW)), Status(0));
        drop(target);
        let path = scratch.path().join(TERMS_FILE);
        let whole = std::fs::read(&path).unwrap();
        let newest = whole.chunks(SLOT).map(|slot| read(slot).unwrap().0).max().unwrap();
        let at = (newest % 2) as usize * SLOT;
        for byte in [0, 9, 13, HEAD, HEAD + 20] {
            let mut torn = whole.clone();
            torn[at + byte] ^= 0xff;
            std::fs::write(&path, &torn).unwrap();
            let target = open(scratch.path()).unwrap();
            assert_eq!(status(target.speak(by(3, 3), NOW)), Status::OLD_TERM, "byte {byte}");
        }
        std::fs::write(&path, vec![0xee; 2 * SLOT]).unwrap();
        assert!(open(scratch.path()).err().unwrap().0.contains("is damaged"));
        std::fs::write(&path, b"short").unwrap();
        let target = open(scratch.path()).unwrap();
        assert_eq!(status(target.speak(by(3, 1), NOW)), Status(0), "its making was interrupted");
    }

    /// Goal: the terms of all shards that there can be have room, in both slots.
    #[test]
    fn all_shards_have_room() {
        let scratch = tempfile::tempdir().unwrap();
        drop(open(scratch.path()).unwrap());
        let root = File::open(scratch.path()).unwrap().into();
        for term in 1..=2 {
            let all = KeptTerms { terms: (0..SHARDS_MAX).map(|shard| by(shard, u64::MAX - term)).collect() };
            TermsFile::open(&root).unwrap().0.write(&all).unwrap();
            assert_eq!(TermsFile::open(&root).unwrap().1, Some(all));
        }
        assert_eq!(root_len(scratch.path()), 2 * SLOT as u64);
    }

    fn root_len(path: &Path) -> u64 {
        std::fs::metadata(path.join(TERMS_FILE)).unwrap().len()
    }

    /// Goal: a later term waits for what an earlier one has in work, and not for ever; the earlier one gets nothing in
    /// meanwhile. Many threads that begin terms at once all get in.
    #[test]
    fn a_later_term_waits_for_work() {
        let scratch = tempfile::tempdir().unwrap();
        let target = open(scratch.path()).unwrap();
        let old = target.speak(by(1, 1), NOW).unwrap_or_else(|done| panic!("{done:?}"));
        assert_eq!(status(target.speak(by(1, 2), Duration::from_millis(5))), Status::BUSY);
        assert_eq!(status(target.speak(by(1, 1), NOW)), Status::OLD_TERM);
        std::thread::scope(|scope| {
            let later = scope.spawn(|| status(target.speak(by(1, 2), Duration::from_secs(60))));
            let others = (2..10).map(|shard| {
                let target = &target;
                scope.spawn(move || status(target.speak(by(shard, 1), NOW)))
            });
            for other in others.collect::<Vec<_>>() {
                assert_eq!(other.join().unwrap(), Status(0), "other shards do not wait");
            }
            drop(old);
            assert_eq!(later.join().unwrap(), Status(0));
        });
    }
}
