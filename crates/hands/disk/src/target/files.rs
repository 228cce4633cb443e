//! Open chunk files, kept open between requests.

use super::directories::{Directories, Directory};
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use skep_storage::PieceName;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
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

/// An open chunk file, and what is known of it.
pub(super) struct Open {
    fd: OwnedFd,
    /// What is known of further pieces of its chunk.
    further: AtomicU8,
    /// Holds changes that were not synced through this descriptor. A failed write-back is told to descriptors that are
    /// open, and forgotten with the inode when there is none: so it stays open.
    unsynced: AtomicBool,
    /// Held during a sync: the kernel tells a failure once, and whoever comes second must not return before the first
    /// has noted it.
    syncing: Mutex<()>,
}

/// Not looked yet.
const UNKNOWN: u8 = 0;
/// This piece is all there is.
const ALONE: u8 = 1;
/// There is, or may soon be, a marker of further pieces.
const MARKED: u8 = 2;

impl Open {
    fn new(fd: OwnedFd) -> Self {
        let (further, unsynced) = (AtomicU8::new(UNKNOWN), AtomicBool::new(false));
        Self { fd, further, unsynced, syncing: Mutex::new(()) }
    }

    /// To be called when a change of its content has ended, well or badly, and before the file is let go.
    pub fn changed(&self) {
        self.unsynced.store(true, SeqCst);
    }

    /// Runs `sync` when no other one runs. What changes meanwhile is unsynced again afterwards.
    pub fn sync_alone<T>(&self, sync: impl FnOnce(&Self) -> T) -> T {
        let _alone = lock(&self.syncing);
        self.unsynced.store(false, SeqCst);
        sync(self)
    }

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

    /// Closes all that nobody uses and that were synced: descriptors have run out.
    pub fn close_idle(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.files.retain(|_, slot| !slot.may_close());
            let Shard { files, order } = &mut *shard;
            order.retain(|piece| files.contains_key(piece));
        }
    }

    /// All that hold unsynced changes; from here on they count as synced unless they change again. They stay open as
    /// long as the result is held.
    pub fn take_unsynced(&self) -> Vec<Arc<Open>> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let unsynced = shard.files.values().filter(|slot| slot.file.unsynced.swap(false, SeqCst));
            taken.extend(unsynced.map(|slot| slot.file.clone()));
        }
        taken
    }

    fn shard(&self, piece: &PieceName) -> &Mutex<Shard> {
        let mixed = (piece.chunk.ino.0 ^ u64::from(piece.chunk.stripe)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 59) as usize % SHARDS]
    }

    /// The open file of a piece; opens it when needed. A missing one is made if `make` is there, which hears of the
    /// directories that had to be made as well. The flag: more stay open now than should, because they hold unsynced
    /// changes.
    pub fn open(
        &self,
        root: &OwnedFd,
        piece: &PieceName,
        make: Option<&Directories>,
    ) -> rustix::io::Result<Option<(Arc<Open>, bool)>> {
        loop {
            if let Some(slot) = lock(self.shard(piece)).files.get_mut(piece) {
                slot.used = true;
                return Ok(Some((slot.file.clone(), false)));
            }
            let Some(fd) = open_at(root, piece, make)? else { return Ok(None) };
            if let Some(kept) = self.keep(piece, fd)? {
                return Ok(Some(kept));
            }
        }
    }

    /// Keeps what was opened. `None`: somebody removed it meanwhile.
    fn keep(&self, piece: &PieceName, fd: OwnedFd) -> rustix::io::Result<Option<(Arc<Open>, bool)>> {
        let mut shard = lock(self.shard(piece));
        // Somebody else may have opened it meanwhile: both descriptors are of the same file.
        if let Some(slot) = shard.files.get(piece) {
            return Ok(Some((slot.file.clone(), false)));
        }
        // Whoever writes through the descriptor of a removed file would write for nobody.
        if fstat(&fd)?.st_nlink == 0 {
            return Ok(None);
        }
        let file = Arc::new(Open::new(fd));
        shard.files.insert(*piece, Slot { file: file.clone(), used: false });
        shard.order.push_back(*piece);
        Ok(Some((file, shard.is_crowded(self.most.load(Relaxed) / SHARDS))))
    }

    /// Closes what may be closed among the neighbours of a piece. True: more stay open than should, because they hold
    /// unsynced changes.
    pub fn is_crowded(&self, piece: &PieceName) -> bool {
        lock(self.shard(piece)).is_crowded(self.most.load(Relaxed) / SHARDS)
    }

    /// The open file of a piece, if it is open.
    pub fn known(&self, piece: &PieceName) -> Option<Arc<Open>> {
        lock(self.shard(piece)).files.get(piece).map(|slot| slot.file.clone())
    }

    /// Forgets a piece, after its name was removed: a descriptor that was opened before, and noted after, is found
    /// out by its link count.
    pub fn forget(&self, piece: &PieceName) {
        self.forget_if(piece, |_| true);
    }

    /// `None`: somebody removed it, so that nobody will find what is written to it. Missing, for whoever asks this time,
    /// also when another one was put in its place: that is opened from now on.
    pub fn stat_named(&self, piece: &PieceName, file: &Arc<Open>) -> rustix::io::Result<Option<Stat>> {
        let stat = fstat(file)?;
        if stat.st_nlink == 0 {
            self.forget_if(piece, |slot| Arc::ptr_eq(&slot.file, file));
            return Ok(None);
        }
        Ok(Some(stat))
    }

    fn forget_if(&self, piece: &PieceName, wanted: impl Fn(&Slot) -> bool) {
        let mut shard = lock(self.shard(piece));
        if shard.files.get(piece).is_some_and(wanted) {
            shard.files.remove(piece);
            shard.order.retain(|other| other != piece);
        }
    }
}

impl Slot {
    /// Nobody uses it at the moment (copies are made under the lock of its shard), and nothing in it is unsynced.
    fn may_close(&self) -> bool {
        Arc::strong_count(&self.file) == 1 && !self.file.unsynced.load(SeqCst)
    }
}

impl Shard {
    fn is_crowded(&mut self, most: usize) -> bool {
        self.evict(most);
        self.files.len() > most && self.files.values().any(|slot| slot.file.unsynced.load(SeqCst))
    }

    fn evict(&mut self, most: usize) {
        // Everybody gets a second chance, and a third look is of no use.
        for _ in 0..2 * self.order.len() {
            if self.files.len() <= most {
                return;
            }
            let Some(oldest) = self.order.pop_front() else { return };
            match self.files.get_mut(&oldest) {
                Some(slot) if slot.used || !slot.may_close() => {
                    slot.used = false;
                    self.order.push_back(oldest);
                }
                _ => {
                    self.files.remove(&oldest);
                }
            }
        }
    }
}

fn open_at(
    root: &OwnedFd,
    piece: &PieceName,
    make: Option<&Directories>,
) -> rustix::io::Result<Option<OwnedFd>> {
    let path = piece.path();
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |flags| openat(root, path.as_str(), flags, Mode::from_raw_mode(0o600)).map(Some);
    let Some(directories) = make else {
        return match open(flags) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened,
        };
    };
    match open(flags | OFlags::CREATE) {
        Err(Errno::NOENT) => {
            Directory::of(&piece.chunk).make(root, directories)?;
            open(flags | OFlags::CREATE)
        }
        opened => opened,
    }
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
            files.open(&root, &PieceName::first(chunk), Some(&Directories::default())).unwrap().unwrap();
        }
        let open: usize = files.shards.iter().map(|shard| lock(shard).files.len()).sum();
        assert!((OPEN_FILES_MAX / 2..=OPEN_FILES_MAX).contains(&open), "{open} files are open");
        std::fs::remove_dir_all(&path).unwrap();
    }

    fn scratch() -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let root = OwnedFd::from(std::fs::File::open(directory.path()).unwrap());
        (directory, root)
    }

    fn piece(ino: u64) -> PieceName {
        PieceName::first(ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 })
    }

    /// Goal: a descriptor of a removed file is never found again. Method: the steps of an opener and of a remover in the
    /// one order that matters: opened, name removed, forgotten, and only then kept.
    #[test]
    fn removed_files_are_not_kept_open() {
        let (directory, root) = scratch();
        let files = Files::new();
        files.open(&root, &piece(1), Some(&Directories::default())).unwrap().unwrap();
        files.forget(&piece(1));
        let opened = open_at(&root, &piece(1), None).unwrap().unwrap();
        std::fs::remove_file(directory.path().join(piece(1).path())).unwrap();
        files.forget(&piece(1));
        assert!(
            files.keep(&piece(1), opened).unwrap().is_none(),
            "a write would go to a file without a name"
        );
        assert!(files.known(&piece(1)).is_none());
        assert!(files.open(&root, &piece(1), None).unwrap().is_none());
        // Made anew it is another file, and found.
        files.open(&root, &piece(1), Some(&Directories::default())).unwrap().unwrap();
        assert!(files.known(&piece(1)).is_some());
    }

    /// Goal: what is unsynced stays open over any crowd and any shortage, and says that there is one; once synced it
    /// is closed like everything else.
    #[test]
    fn unsynced_files_stay_open() {
        let (_directory, root) = scratch();
        let files = Files::new();
        files.limit(SHARDS);
        files.open(&root, &piece(1), Some(&Directories::default())).unwrap().unwrap().0.changed();
        let mut crowded = 0;
        for ino in 2..500 {
            crowded +=
                u32::from(files.open(&root, &piece(ino), Some(&Directories::default())).unwrap().unwrap().1);
        }
        assert!(crowded > 0, "nobody is told that room has to be made");
        files.close_idle();
        assert!(files.known(&piece(1)).is_some());
        let taken = files.take_unsynced();
        assert_eq!(taken.len(), 1);
        files.close_idle();
        assert!(files.known(&piece(1)).is_some(), "not before its sync has ended");
        drop(taken);
        files.close_idle();
        assert!(files.known(&piece(1)).is_none());
    }
}
