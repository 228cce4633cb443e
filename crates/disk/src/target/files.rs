//! Open chunk files, kept open between requests.

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use skep_storage::{ChunkName, PieceName};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Chunk files that one target keeps open at most. Each costs a descriptor and a few hundred
/// bytes of kernel memory.
pub const OPEN_FILES_MAX: usize = 4_096;
/// Locks that the open files are spread over; none is held during I/O.
const SHARDS: usize = 32;

#[derive(Default)]
struct Shard {
    files: HashMap<PieceName, Slot>,
    /// Second chance: the oldest goes unless it was used since it was last looked at.
    order: VecDeque<PieceName>,
}

struct Slot {
    file: Arc<Open>,
    used: bool,
}

/// An open chunk file, and what is known of further pieces of its chunk.
pub(super) struct Open {
    fd: OwnedFd,
    further: AtomicU8,
}

/// Not looked yet.
const UNKNOWN: u8 = 0;
/// This piece is all there is.
const ALONE: u8 = 1;
/// There is, or may soon be, a marker of further pieces.
const MARKED: u8 = 2;

impl Open {
    /// Is it known that there is no further piece?
    pub fn is_alone(&self) -> bool {
        self.further.load(SeqCst) == ALONE
    }

    /// No marker was found, after this file was opened. Does not count once one is being made.
    pub fn found_alone(&self) {
        let _ = self.further.compare_exchange(UNKNOWN, ALONE, SeqCst, SeqCst);
    }

    /// To be called before the marker is made.
    pub fn will_be_marked(&self) {
        self.further.store(MARKED, SeqCst);
    }
}

impl AsFd for Open {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The open files of one target.
pub(super) struct Files {
    shards: Vec<Mutex<Shard>>,
    most: AtomicUsize,
}

/// A thread that panicked ends the process, so a poisoned lock holds sound data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            most: AtomicUsize::new(OPEN_FILES_MAX),
        }
    }

    /// Keeps at most so many open.
    pub fn limit(&self, most: usize) {
        self.most.store(most.clamp(SHARDS, OPEN_FILES_MAX), Relaxed);
    }

    /// Closes all that nobody uses at the moment: descriptors have run out.
    fn close_all(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.files.clear();
            shard.order.clear();
        }
    }

    fn shard(&self, piece: &PieceName) -> &Mutex<Shard> {
        let mixed = (piece.chunk.ino.0 ^ u64::from(piece.chunk.stripe)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 59) as usize % SHARDS]
    }

    /// The open file of a piece; opens it when needed. Without `make`, a missing one is `None`.
    /// The flag says whether the file may have been made just now.
    pub fn open(
        &self,
        root: &OwnedFd,
        piece: &PieceName,
        make: bool,
    ) -> rustix::io::Result<Option<(Arc<Open>, bool)>> {
        if let Some(slot) = lock(self.shard(piece)).files.get_mut(piece) {
            slot.used = true;
            return Ok(Some((slot.file.clone(), false)));
        }
        let found = match open_at(root, piece, false) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.close_all();
                open_at(root, piece, false)?
            }
            found => found?,
        };
        let (file, made) = match found {
            Some(file) => (file, false),
            None if !make => return Ok(None),
            None => match open_at(root, piece, true)? {
                Some(file) => (file, true),
                None => return Err(Errno::NOENT),
            },
        };
        let mut shard = lock(self.shard(piece));
        // Somebody else may have opened it meanwhile: both descriptors are of the same file.
        if let Some(slot) = shard.files.get(piece) {
            return Ok(Some((slot.file.clone(), made)));
        }
        let file = Arc::new(Open { fd: file, further: AtomicU8::new(UNKNOWN) });
        shard.files.insert(*piece, Slot { file: file.clone(), used: false });
        shard.order.push_back(*piece);
        shard.evict(self.most.load(Relaxed) / SHARDS);
        Ok(Some((file, made)))
    }

    /// The open file of a piece, if it is open.
    pub fn known(&self, piece: &PieceName) -> Option<Arc<Open>> {
        lock(self.shard(piece)).files.get(piece).map(|slot| slot.file.clone())
    }

    /// Forgets a piece that is being removed.
    pub fn forget(&self, piece: &PieceName) {
        let mut shard = lock(self.shard(piece));
        if shard.files.remove(piece).is_some() {
            shard.order.retain(|other| other != piece);
        }
    }
}

impl Shard {
    fn evict(&mut self, most: usize) {
        while self.files.len() > most {
            let Some(oldest) = self.order.pop_front() else { return };
            match self.files.get_mut(&oldest) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.order.push_back(oldest);
                }
                // Requests that use it at the moment hold their own reference.
                _ => {
                    self.files.remove(&oldest);
                }
            }
        }
    }
}

fn open_at(root: &OwnedFd, piece: &PieceName, make: bool) -> rustix::io::Result<Option<OwnedFd>> {
    let path = piece.path();
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if make {
        flags |= OFlags::CREATE;
    }
    match openat(root, path.as_str(), flags, Mode::from_raw_mode(0o600)) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) if make => {
            make_directories(root, piece)?;
            openat(root, path.as_str(), flags, Mode::from_raw_mode(0o600)).map(Some)
        }
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

fn make_directories(root: &OwnedFd, piece: &PieceName) -> rustix::io::Result<()> {
    let (a, b) = ChunkName(piece.chunk).directory();
    for path in ["chunks".to_owned(), format!("chunks/{a:02x}"), format!("chunks/{a:02x}/{b:02x}")] {
        match mkdirat(root, path.as_str(), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{ChunkId, Generation, Ino};

    /// Goal: however many chunk files are used, no more than the limit stay open.
    #[test]
    fn open_files_are_bounded() {
        let path = std::env::temp_dir().join(format!("skep-files-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let root = OwnedFd::from(std::fs::File::open(&path).unwrap());
        let files = Files::new();
        for ino in 0..OPEN_FILES_MAX as u64 + 500 {
            let chunk = ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 };
            files.open(&root, &PieceName::first(chunk), true).unwrap().unwrap();
        }
        let open: usize = files.shards.iter().map(|shard| lock(shard).files.len()).sum();
        assert!((OPEN_FILES_MAX / 2..=OPEN_FILES_MAX).contains(&open), "{open} files are open");
        std::fs::remove_dir_all(&path).unwrap();
    }
}
