//! Which metadata server may speak for a shard: the terms that a target has heard of, in a small file of the target.
//!
//! It lies on the target, and goes where the disk goes. It has two slots that are written in turn, in place: a power cut
//! leaves one of them whole, and a full disk has room for both. Where it has none (the file was not made in time, or the
//! file system writes nothing in place), deletions go on nevertheless, for they make room.
//!
//! ```text
//! slot (256 KiB): u64 sequence, u32 length, u32 CRC32C of sequence and record, record (`KeptTerms`)
//! ```

use super::chunks::{TargetDir, lock};
use super::identity::TargetError;
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;
use skep_storage::{DiskError, Done, KeptTerms, Terms, Turn};
use skep_types::codec::{Draw, Example};
use skep_types::formats::Formats;
use skep_types::{Decode, Encode};
use skep_wire::storage::ShardTerm;
use skep_wire::{Refusal, Status};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const TERMS_FILE: &str = "skep-target.terms";
/// Bytes of a slot: enough for every shard that there can be.
const SLOT: usize = 256 << 10;
const HEAD: usize = 16;
/// What to do with one that cannot be believed.
const PUT_BACK: &str = "is damaged, or not the file that this server wrote. It says which metadata servers may speak for \
     a shard. Put it back from the newest copy. If there is none: stop all metadata servers, remove the file, start the \
     storage server and then the newest metadata servers again";

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
    /// served. A full disk is no reason to refuse: the file is made when there is room.
    pub fn keep_terms(&self) -> Result<(), TargetError> {
        let opened = TermsFile::open(&self.root);
        let (file, kept) = opened
            .map_err(|what| TargetError(format!("target {}: {TERMS_FILE}: {what}", self.path().display())))?;
        *lock(&self.terms.terms) = Terms::new(&kept);
        *lock(&self.terms.file) = Some(file);
        Ok(())
    }

    /// Lets a message of a shard in, as soon as its term is on stable storage and nothing of an earlier one is in work;
    /// BUSY when that takes longer than `limit`, OLD_TERM when a later term is known. One that makes room
    /// does not need its term on stable storage where there is no room for it.
    pub fn speak(&self, by: ShardTerm, makes_room: bool, limit: Duration) -> Result<Speaking<'_>, Done> {
        let gate = &self.terms;
        let until = Instant::now() + limit;
        let mut unkept = false;
        let mut terms = lock(&gate.terms);
        loop {
            let turn = if unkept { terms.ask_unkept(by) } else { terms.ask(by) };
            match turn.map_err(Done::Refused)? {
                Turn::Now => return Ok(Speaking { gate, by }),
                Turn::Keep => {
                    drop(terms);
                    match self.write_terms() {
                        Err(DiskError::NoSpace) if makes_room => unkept = true,
                        Err(DiskError::NoSpace) => return Err(self.no_room_for(by)),
                        done => done?,
                    }
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
    fn write_terms(&self) -> Result<(), DiskError> {
        let mut file = lock(&self.terms.file);
        let Some(news) = lock(&self.terms.terms).to_keep() else { return Ok(()) };
        if let Some(file) = &mut *file {
            file.write(&news).map_err(|e| self.failed("write of skep-target.terms", None, errno(&e)))?;
        }
        lock(&self.terms.terms).kept(&news);
        Ok(())
    }

    fn no_room_for(&self, by: ShardTerm) -> Done {
        let text = format!(
            "target {}: the disk is full, and {TERMS_FILE} has no room for the new term of shard {}; deletions go on, and \
             so does the rest when they have made room",
            self.path().display(),
            by.shard
        );
        Done::Refused(Refusal::with(Status::errno(skep_types::Errno::ENOSPC), text))
    }
}

fn errno(e: &io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

struct TermsFile {
    target: OwnedFd,
    /// None: there was no room to make it.
    file: Option<File>,
    sequence: u64,
}

impl TermsFile {
    /// Opens, or makes, the file of a target; gives what it keeps, or why that is not known and what to do.
    fn open(target: &OwnedFd) -> Result<(Self, KeptTerms), String> {
        let unread =
            |e: io::Error| format!("cannot be read: {e}; check the disk (see dmesg), then start again");
        let target = target.try_clone().map_err(unread)?;
        let mut this = Self { target, file: None, sequence: 0 };
        let Some((file, bytes)) = this.find().map_err(unread)? else {
            return match this.make() {
                // Whoever brings a term hears of it.
                Err(e) if !is_full(&e) => Err(format!("cannot be made: {e}; check the disk (see dmesg)")),
                _ => Ok((this, KeptTerms::default())),
            };
        };
        if bytes.len() != 2 * SLOT {
            let (found, right) = (file.metadata().map_err(unread)?.len(), 2 * SLOT);
            return Err(format!("has {found} bytes, and must have {right}: it {PUT_BACK}"));
        }
        let newest = bytes.chunks(SLOT).filter_map(read).max_by_key(|(sequence, _)| *sequence);
        // Where one slot was never written, the other one may be torn by the first write: its term did nothing yet.
        let untouched = bytes.chunks(SLOT).any(|slot| slot[..HEAD] == [0; HEAD]);
        let Some((sequence, kept)) = newest.or_else(|| untouched.then(|| (0, KeptTerms::default()))) else {
            return Err(format!("cannot be read in either of its copies: it {PUT_BACK}"));
        };
        (this.file, this.sequence) = (Some(file), sequence);
        Ok((this, kept))
    }

    /// The file and what is in it, one byte too many at most; `None` where it is to be made: it is not there, or it is what
    /// an interrupted making leaves, too short and nothing but zeros.
    fn find(&self) -> io::Result<Option<(File, Vec<u8>)>> {
        let file = match openat(&self.target, TERMS_FILE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            found => File::from(found?),
        };
        let mut bytes = Vec::new();
        (&file).take(2 * SLOT as u64 + 1).read_to_end(&mut bytes)?;
        let unfinished = bytes.len() < 2 * SLOT && bytes.iter().all(|byte| *byte == 0);
        Ok((!unfinished).then_some((file, bytes)))
    }

    /// Zeros are written, so that it has its space.
    fn make(&mut self) -> io::Result<&File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = File::from(openat(&self.target, TERMS_FILE, flags, Mode::from_raw_mode(0o600))?);
        file.write_all_at(&[0; 2 * SLOT], 0)?;
        file.sync_all()?;
        fsync(&self.target)?;
        Ok(self.file.insert(file))
    }

    /// On stable storage when it returns.
    fn write(&mut self, terms: &KeptTerms) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let slot = slot_of(sequence, terms);
        if slot.len() > SLOT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.make()?,
        };
        file.write_all_at(&slot, (sequence % 2) * SLOT as u64)?;
        file.sync_data()?;
        self.sequence = sequence;
        Ok(())
    }
}

/// Also when the room of a user or project is used up.
fn is_full(e: &io::Error) -> bool {
    [Errno::NOSPC, Errno::DQUOT].contains(&errno(e))
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
            assert_eq!(status(target.speak(by(3, term), false, NOW)), Status(0));
            assert_eq!(status(target.speak(by(SHARDS_MAX - 1, 9), false, NOW)), Status(0), "again and again");
        }
        let target = open(scratch.path()).unwrap();
        assert_eq!(status(target.speak(by(3, 4), false, NOW)), Status::OLD_TERM);
        assert_eq!(status(target.speak(by(SHARDS_MAX - 1, 8), false, NOW)), Status::OLD_TERM);
        assert_eq!(status(target.speak(by(3, 5), false, NOW)), Status(0));
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
            assert_eq!(status(target.speak(by(3, 3), false, NOW)), Status::OLD_TERM, "byte {byte}");
        }
        std::fs::write(&path, vec![0xee; 2 * SLOT]).unwrap();
        assert!(open(scratch.path()).err().unwrap().0.contains("is damaged"));
        for unfinished in [0, 1, SLOT, 2 * SLOT - 1] {
            std::fs::write(&path, vec![0; unfinished]).unwrap();
            let target = open(scratch.path()).unwrap();
            assert_eq!(status(target.speak(by(3, 1), false, NOW)), Status(0), "its making was interrupted");
            assert_eq!(root_len(scratch.path()), 2 * SLOT as u64);
        }
    }

    /// Goal: a file that lost its end, or got a longer one, is not taken for a new one: it would forget who was deposed.
    #[test]
    fn a_file_of_another_length_refuses_the_start() {
        let scratch = tempfile::tempdir().unwrap();
        let target = open(scratch.path()).unwrap();
        assert_eq!(status(target.speak(by(3, 7), false, NOW)), Status(0));
        drop(target);
        let path = scratch.path().join(TERMS_FILE);
        let whole = std::fs::read(&path).unwrap();
        let longer = [&whole[..], &[0]].concat();
        for wrong in [&whole[..2 * SLOT - 1], &whole[..SLOT + HEAD], b"short", &longer, &[0; 2 * SLOT + 1]] {
            std::fs::write(&path, wrong).unwrap();
            let text = open(scratch.path()).err().unwrap().0;
            let says = |part: &str| assert!(text.contains(part), "{text}");
            says(&scratch.path().display().to_string());
            says(&format!("has {} bytes, and must have 524288", wrong.len()));
            says("Put it back from the newest copy");
            assert_eq!(std::fs::read(&path).unwrap(), wrong, "it stays as it was found");
        }
        std::fs::write(&path, &whole).unwrap();
        let target = open(scratch.path()).unwrap();
        assert_eq!(status(target.speak(by(3, 6), false, NOW)), Status::OLD_TERM);
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
            assert_eq!(TermsFile::open(&root).unwrap().1, all);
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
        let old = target.speak(by(1, 1), false, NOW).unwrap_or_else(|done| panic!("{done:?}"));
        assert_eq!(status(target.speak(by(1, 2), false, Duration::from_millis(5))), Status::BUSY);
        assert_eq!(status(target.speak(by(1, 1), false, NOW)), Status::OLD_TERM);
        std::thread::scope(|scope| {
            let later = scope.spawn(|| status(target.speak(by(1, 2), false, Duration::from_secs(60))));
            let others = (2..10).map(|shard| {
                let target = &target;
                scope.spawn(move || status(target.speak(by(shard, 1), false, NOW)))
            });
            for other in others.collect::<Vec<_>>() {
                assert_eq!(other.join().unwrap(), Status(0), "other shards do not wait");
            }
            drop(old);
            assert_eq!(later.join().unwrap(), Status(0));
        });
    }
}
