//! The chunk files of a target as a [`ChunkStore`].

use super::clock::{RunClock, draw, since_when};
use super::directories::{Changing, Directories, Directory};
use super::extents;
use super::files::{Files, Open};
use super::identity::{AGES_FILE, Identity, Opened, TargetError};
use super::keeper::Keeper;
use super::mount;
use super::seals::SealFiles;
use super::terms::Gate;
use crate::ages::{Ages, NUMBERS};
use rustix::fs::{
    AtFlags, Dir, FallocateFlags, Mode, OFlags, copy_file_range, fallocate, fdatasync, fsync, ftruncate,
    openat, statat, statvfs, syncfs, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};
use skep_storage::{
    Changes, ChunkName, ChunkStore, DiskError, Heard, Mount, PieceName, PieceStat, Standing, Word,
};
use skep_types::{Capacity, ChunkId, ClusterId, Consistency, TargetId, Timestamp, Uuid};
use skep_wire::storage::Clock;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many directories are synced one after the other, for all who wait for it; more by one `syncfs`, which brings to the
/// disk what others stream to it as well, and takes as long as that does (ext4: 45 ms behind 64 MiB, less than 1 ms for a
/// directory).
const DIRECTORIES_SYNCED_SINGLY: usize = 32;

/// One target, open and locked.
pub struct TargetDir {
    opened: Mutex<Opened>,
    path: PathBuf,
    /// Held open from the start: failures of the file system since then are told through it.
    pub(super) root: OwnedFd,
    identity: Mutex<Identity>,
    files: Files,
    seals: SealFiles,
    pub(super) unsynced_directories: Directories,
    mount: Mount,
    /// Is a `syncfs` as good as a sync of each file?
    syncs_as_a_whole: bool,
    /// Nothing is known of what earlier daemons left unsynced on this mount: the first sync is of all.
    inherited: AtomicBool,
    /// Held while all is synced, for the same reason as the lock of an open file.
    syncing_all: Mutex<()>,
    standing: Mutex<Kept>,
    /// Those of the standing, for who reads them with every request.
    life: AtomicU64,
    bad: AtomicBool,
    /// Bytes kept free for the local file system.
    reserve: u64,
    changes: Changes,
    clock: RunClock,
    /// Who may speak for a shard.
    pub(super) terms: Gate,
}

/// What the target is worth, and where that is kept.
struct Kept {
    standing: Standing,
    keeper: Option<Keeper>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TargetDir {
    /// Opens the target at `path`. An empty directory is formatted when a uuid for it is given.
    pub fn open(
        path: &Path,
        cluster: ClusterId,
        format: Option<Uuid>,
        reserve: u64,
    ) -> Result<Self, TargetError> {
        let mut opened = Opened::open(path)?;
        opened.require_writable()?;
        let is_new = opened.identity.is_none();
        let identity = opened.check(cluster, format)?;
        let failed = |what: &str, e: Errno| TargetError(format!("target {}: {what}: {e}", path.display()));
        let root =
            rustix::io::fcntl_dupfd_cloexec(&opened.directory, 0).map_err(|e| failed("descriptor", e))?;
        let mount = mount::of(&root);
        let seals = SealFiles::open(&root).map_err(|e| failed("seals/", e))?;
        let word = Word { consistency: Consistency::Good, failures: 0, decisions: 0 };
        let standing = since_when(None, Standing::start(None, mount, word, draw()?));
        Ok(Self {
            opened: Mutex::new(opened),
            path: path.to_owned(),
            syncs_as_a_whole: mount::tells_failures_as_a_whole(&root),
            root,
            identity: Mutex::new(identity),
            files: Files::new(),
            seals,
            unsynced_directories: Directories::default(),
            mount,
            inherited: AtomicBool::new(!is_new),
            syncing_all: Mutex::default(),
            life: AtomicU64::new(standing.life),
            bad: AtomicBool::new(standing.bad),
            standing: Mutex::new(Kept { standing, keeper: None }),
            reserve,
            changes: Changes::new(draw()?),
            clock: RunClock::begin()?,
            terms: Gate::default(),
        })
    }

    /// Goes on with what the daemon before had kept of the target in `directory`, as far as it holds still, and keeps
    /// it there from now on. To be called before anything is served. `word`: what mgmtd holds of it.
    pub fn keep_standing(&self, directory: &Path, word: Word) -> Result<(), TargetError> {
        let (mut keeper, kept) = Keeper::open(directory, self.identity().uuid)?;
        let standing = since_when(kept, Standing::start(kept, self.mount, word, draw()?));
        if kept != Some(standing) {
            keeper.keep(&standing)?;
        }
        self.set_standing(&mut lock(&self.standing), standing);
        lock(&self.standing).keeper = Some(keeper);
        Ok(())
    }

    fn set_standing(&self, kept: &mut Kept, standing: Standing) {
        kept.standing = standing;
        self.life.store(standing.life, SeqCst);
        self.bad.store(standing.bad, SeqCst);
    }

    /// What it is worth.
    pub fn standing(&self) -> Standing {
        lock(&self.standing).standing
    }

    /// Is nothing served, because its disk failed or an administrator said so?
    pub fn is_bad(&self) -> bool {
        self.bad.load(SeqCst)
    }

    /// mgmtd says what it holds of the target. What cannot be kept does not count.
    pub fn hear(&self, word: Word) -> Result<Heard, TargetError> {
        let mut kept = lock(&self.standing);
        let mut standing = kept.standing;
        let heard = standing.hear(word, draw()?);
        standing = since_when(Some(kept.standing), standing);
        if standing == kept.standing {
            return Ok(heard);
        }
        // Bad at once, good not before it is on stable storage.
        self.bad.store(self.is_bad() || standing.bad, SeqCst);
        if let Some(keeper) = &mut kept.keeper {
            keeper.keep(&standing)?;
        }
        self.set_standing(&mut kept, standing);
        Ok(heard)
    }

    /// The disk failed: what was written since the last sync may be lost, and nothing is served any more. Returns when
    /// that is on stable storage, so that a restart of the daemon does not make it undone.
    fn note_failure(&self) -> Result<(), TargetError> {
        let mut kept = lock(&self.standing);
        let mut standing = kept.standing;
        let news = standing.fail(draw().unwrap_or(standing.life.wrapping_add(1)));
        standing = since_when(Some(kept.standing), standing);
        self.set_standing(&mut kept, standing);
        match &mut kept.keeper {
            Some(keeper) if news => keeper.keep(&standing),
            _ => Ok(()),
        }
    }

    /// Keeps at most so many chunk files open (all targets share the descriptors of the process).
    pub fn limit_open_files(&self, most: usize) {
        self.files.limit(most);
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        *lock(&self.identity)
    }

    /// The marks of a start of its server: the one that mgmtd confirmed last and that of this start, which is `fresh`
    /// unless an earlier one was never confirmed.
    pub fn begin_life(&self, fresh: u64) -> Result<(u64, u64), TargetError> {
        let (mut ages, [confirmed, pending, ..]) = self.ages()?;
        let mark = if pending == confirmed { fresh } else { pending };
        ages.write([confirmed, mark, 0, 0, 0]).map_err(|e| self.ages_failed(&e))?;
        Ok((confirmed, mark))
    }

    /// mgmtd knows the start of this mark.
    pub fn confirm_life(&self, mark: u64) -> Result<(), TargetError> {
        let (mut ages, _) = self.ages()?;
        ages.write([mark, mark, 0, 0, 0]).map_err(|e| self.ages_failed(&e))
    }

    fn ages(&self) -> Result<(Ages, [u64; NUMBERS]), TargetError> {
        let ages = Ages::open(&self.path.join(AGES_FILE)).map_err(|e| self.ages_failed(&e))?;
        let numbers = ages.numbers();
        Ok((ages, numbers))
    }

    fn ages_failed(&self, e: &std::io::Error) -> TargetError {
        TargetError(format!("target {}: {AGES_FILE}: {e}", self.path.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the id that mgmtd gave. An id once written is never changed.
    pub fn set_id(&self, target: TargetId) -> Result<(), TargetError> {
        let mut identity = lock(&self.identity);
        if identity.target == target {
            return Ok(());
        }
        if identity.target.0 != 0 {
            let text = format!(
                "target {}: is target {}, mgmtd calls it {target}",
                self.path.display(),
                identity.target
            );
            return Err(TargetError(text));
        }
        let numbered = Identity { target, ..*identity };
        lock(&self.opened).write(numbered)?;
        *identity = numbered;
        Ok(())
    }

    /// Space of the file system below, the reserve taken off.
    pub fn capacity(&self) -> Result<Capacity, DiskError> {
        let info = rustix::fs::fstatvfs(&self.root).or_else(|_| statvfs(&self.path));
        let info = info.map_err(|e| self.failed("statvfs", None, e))?;
        Ok(Capacity {
            bytes: info.f_blocks * info.f_frsize,
            bytes_free: (info.f_bavail * info.f_frsize).saturating_sub(self.reserve),
            inodes: info.f_files,
            inodes_free: info.f_favail,
        })
    }

    /// Sorts a failed system call: full, too large, or broken.
    pub(super) fn failed(&self, what: &str, piece: Option<&PieceName>, e: Errno) -> DiskError {
        match e {
            Errno::NOSPC | Errno::DQUOT => DiskError::NoSpace,
            Errno::FBIG => DiskError::TooLarge,
            Errno::OPNOTSUPP | Errno::NOSYS => DiskError::Unsupported,
            // Nothing is wrong with the disk: this process or machine is at a limit. (EFAULT: memory that a mount shares has no more
            // pages, for its control group has none.)
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::FAULT => DiskError::Busy,
            _ => self.broken(what, piece, e),
        }
    }

    /// Sorts a failed sync. Whatever was answered before is lost then, also when the reason is that there is no room
    /// (a disk that promises more than it has): another sync would not tell of it, so it counts as a failed disk.
    fn sync_failed(&self, what: &str, piece: Option<&PieceName>, e: Errno) -> DiskError {
        match e {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => self.broken(what, piece, e),
            _ => self.failed(what, piece, e),
        }
    }

    fn broken(&self, what: &str, piece: Option<&PieceName>, e: Errno) -> DiskError {
        let place = self.path.join(piece.map(PieceName::path).unwrap_or_default());
        let kept = self.note_failure().err().map(|kept| {
            format!("; that cannot be noted, so do not restart the daemon before mgmtd knows of it: {kept}")
        });
        DiskError::Failed(format!(
            "{what} of {} failed: {e}; check the disk (dmesg, smartctl){}",
            place.display(),
            kept.unwrap_or_default()
        ))
    }

    fn open_piece(&self, piece: &PieceName, make: bool) -> Result<Option<Arc<Open>>, DiskError> {
        if make && piece.piece > 0 {
            self.mark(piece)?;
        }
        let mut found = self.find(piece, false)?;
        if make && found.is_none() {
            let _changing = self.changing(&piece.chunk);
            found = self.find(piece, true)?;
        }
        let Some((file, crowded)) = found else { return Ok(None) };
        if crowded {
            self.make_room(piece)?;
        }
        Ok(Some(file))
    }

    fn changing(&self, chunk: &ChunkId) -> Changing<'_> {
        self.unsynced_directories.changing(Directory::of(chunk))
    }

    fn find(&self, piece: &PieceName, make: bool) -> Result<Option<(Arc<Open>, bool)>, DiskError> {
        let make = make.then_some(&self.unsynced_directories);
        let open = || self.files.open(&self.root, piece, make);
        let found = match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.files.close_idle();
                open()
            }
            found => found,
        };
        let found = match found {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.sync_open_files()?;
                self.files.close_idle();
                open()
            }
            found => found,
        };
        found.map_err(|e| self.failed("open", Some(piece), e))
    }

    /// Too many open files hold unsynced changes: they are synced, so that they may be closed.
    fn make_room(&self, piece: &PieceName) -> Result<(), DiskError> {
        let alone = lock(&self.syncing_all);
        // Perhaps somebody else has done it while this thread waited.
        if self.files.is_crowded(piece) {
            self.sync_files(&alone)?;
            self.files.is_crowded(piece);
        }
        Ok(())
    }

    fn sync_open_files(&self) -> Result<(), DiskError> {
        self.sync_files(&lock(&self.syncing_all))
    }

    /// One `syncfs` where that is as good: thousands of files cost one flush of the disk.
    fn sync_files(&self, _alone: &MutexGuard<'_, ()>) -> Result<(), DiskError> {
        let files = self.files.take_unsynced();
        if self.syncs_as_a_whole {
            return syncfs(&self.root).map_err(|e| self.sync_failed("syncfs", None, e));
        }
        for file in &files {
            file.sync_alone(|file| fdatasync(file).map_err(|e| self.sync_failed("fdatasync", None, e)))?;
        }
        Ok(())
    }

    /// Chunk files that an earlier daemon wrote, and the directories that it made them in, are in no list of this one.
    fn sync_inherited(&self) -> Result<(), DiskError> {
        if !self.inherited.load(SeqCst) {
            return Ok(());
        }
        let _alone = lock(&self.syncing_all);
        if self.inherited.load(SeqCst) {
            syncfs(&self.root).map_err(|e| self.sync_failed("syncfs", None, e))?;
            self.inherited.store(false, SeqCst);
        }
        Ok(())
    }

    /// Makes sure that the marker of further pieces exists, durably, before such a piece does: a
    /// piece without marker would never be found again.
    fn mark(&self, piece: &PieceName) -> Result<(), DiskError> {
        if self.is_marked(&piece.chunk)? {
            return Ok(());
        }
        // The first piece's open makes the directories.
        if let Some(first) = self.open_piece(&PieceName::first(piece.chunk), true)? {
            first.will_be_marked();
        }
        let changing = self.changing(&piece.chunk);
        let name = ChunkName(piece.chunk);
        let path = format!("{}/{}", name.directory_path(), name.marker());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let made = openat(&self.root, path.as_str(), flags, Mode::from_raw_mode(0o600));
        made.map_err(|e| self.failed("marker", Some(piece), e))?;
        // It may have been closed and opened again meanwhile.
        if let Some(first) = self.files.known(&PieceName::first(piece.chunk)) {
            first.will_be_marked();
        }
        drop(changing);
        self.sync_directories([Directory::of(&piece.chunk)])
    }

    /// Looked up by name once for each open chunk file: every read and write asks.
    fn is_marked(&self, chunk: &ChunkId) -> Result<bool, DiskError> {
        let first = self.files.known(&PieceName::first(*chunk));
        if first.as_ref().is_some_and(|first| first.is_alone()) {
            return Ok(false);
        }
        let marked = self.looks_marked(chunk)?;
        if let Some(first) = first.filter(|_| !marked) {
            first.found_alone();
        }
        Ok(marked)
    }

    fn looks_marked(&self, chunk: &ChunkId) -> Result<bool, DiskError> {
        let name = ChunkName(*chunk);
        let path = format!("{}/{}", name.directory_path(), name.marker());
        match statat(&self.root, path.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.failed("stat", Some(&PieceName::first(*chunk)), e)),
        }
    }

    /// Syncs those of `wanted` that hold unsynced changes, and those of the levels above them.
    fn sync_directories(&self, wanted: impl IntoIterator<Item = Directory>) -> Result<(), DiskError> {
        self.unsynced_directories.sync(wanted, |due| {
            if due.len() > DIRECTORIES_SYNCED_SINGLY {
                let _alone = lock(&self.syncing_all);
                return syncfs(&self.root).map_err(|e| self.sync_failed("syncfs", None, e));
            }
            due.iter()
                .try_for_each(|directory| self.sync_directory(&directory.to_string()))
                .map_err(|e| self.sync_failed("fsync of a directory", None, e))
        })
    }

    fn sync_directory(&self, path: &str) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || openat(&self.root, path, flags, Mode::empty());
        let opened = match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.files.close_idle();
                open()
            }
            opened => opened,
        };
        match opened {
            Ok(directory) => fsync(directory),
            // Nothing was ever made in it.
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn list_directory(&self, path: &str) -> Result<Vec<String>, DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat(&self.root, path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(e) => return Err(self.failed("open of a directory", None, e)),
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(|e| self.failed("listing", None, e))? {
            let entry = entry.map_err(|e| self.failed("listing", None, e))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }
}

/// A file whose content is being changed: it is unsynced when that has ended, well or badly.
struct Writing(Arc<Open>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.changed();
    }
}

impl ChunkStore for TargetDir {
    fn read(&self, piece: &PieceName, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let Some(file) = self.open_piece(piece, false)? else { return Ok(0) };
        let mut done = 0;
        while done < into.len() {
            match pread(&file, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed("read", Some(piece), e)),
            }
        }
        Ok(done)
    }

    fn write(&self, piece: &PieceName, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        let file =
            self.open_piece(piece, true)?.ok_or_else(|| self.failed("open", Some(piece), Errno::NOENT))?;
        let mut done = 0;
        let file = Writing(file);
        while done < data.len() {
            match pwrite(&file.0, &data[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed("write", Some(piece), Errno::IO)),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed("write", Some(piece), e)),
            }
        }
        Ok(())
    }

    fn truncate(&self, piece: &PieceName, size: u64) -> Result<(), DiskError> {
        let Some(file) = self.open_piece(piece, false)? else { return Ok(()) };
        let file = Writing(file);
        ftruncate(&file.0, size).map_err(|e| self.failed("truncate", Some(piece), e))
    }

    fn punch(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError> {
        let Some(file) = self.open_piece(piece, false)? else { return Ok(()) };
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let file = Writing(file);
        fallocate(&file.0, flags, offset, len).map_err(|e| self.failed("punch", Some(piece), e))
    }

    fn reserve(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError> {
        let file =
            self.open_piece(piece, true)?.ok_or_else(|| self.failed("open", Some(piece), Errno::NOENT))?;
        if len == 0 {
            return Ok(());
        }
        let file = Writing(file);
        fallocate(&file.0, FallocateFlags::KEEP_SIZE, offset, len)
            .map_err(|e| self.failed("fallocate", Some(piece), e))
    }

    fn next_data(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError> {
        let Some(file) = self.open_piece(piece, false)? else { return Ok(None) };
        extents::next_data(&file, from).map_err(|e| self.failed("seek", Some(piece), e))
    }

    fn next_allocated(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError> {
        let Some(file) = self.open_piece(piece, false)? else { return Ok(None) };
        extents::next_allocated(&file, from).map_err(|e| self.failed("list of extents", Some(piece), e))
    }

    fn copy(&self, copy: (&PieceName, u64), from: &Self, source: (&PieceName, u64), len: u64) -> u64 {
        let Ok(Some(source_file)) = from.open_piece(source.0, false) else { return 0 };
        let Ok(Some(copy_file)) = self.open_piece(copy.0, true) else { return 0 };
        let (mut source_at, mut copy_at) = (source.1, copy.1);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // Shares blocks where the local file system can (xfs, btrfs), copies inside the kernel elsewhere; not
        // between two file systems.
        let copy_file = Writing(copy_file);
        copy_file_range(source_file, Some(&mut source_at), &copy_file.0, Some(&mut copy_at), len)
            .map_or(0, |done| done as u64)
    }

    fn stat(&self, piece: &PieceName) -> Result<Option<PieceStat>, DiskError> {
        let Some(file) = self.open_piece(piece, false)? else { return Ok(None) };
        let stat = self.files.stat_named(piece, &file).map_err(|e| self.failed("stat", Some(piece), e))?;
        Ok(stat.map(|stat| PieceStat {
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            mtime_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
        }))
    }

    fn has_lost_its_name(&self, piece: &PieceName) -> Result<bool, DiskError> {
        let Some(file) = self.files.known(piece) else { return Ok(false) };
        let stat = self.files.stat_named(piece, &file).map_err(|e| self.failed("stat", Some(piece), e))?;
        Ok(stat.is_none())
    }

    fn remove(&self, piece: &PieceName) -> Result<(), DiskError> {
        let _changing = self.changing(&piece.chunk);
        let remove = |path: &str| match unlinkat(&self.root, path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(self.failed("remove", Some(piece), e)),
        };
        remove(&piece.path())?;
        self.files.forget(piece);
        // Pieces are removed from the last to the first, so the marker goes with the first.
        if piece.piece == 0 {
            let name = ChunkName(piece.chunk);
            remove(&format!("{}/{}", name.directory_path(), name.marker()))?;
        }
        Ok(())
    }

    fn sync(&self, pieces: &[PieceName]) -> Result<(), DiskError> {
        self.sync_inherited()?;
        for piece in pieces {
            if let Some(file) = self.open_piece(piece, false)? {
                let sync =
                    |file: &Open| fdatasync(file).map_err(|e| self.sync_failed("fdatasync", Some(piece), e));
                file.sync_alone(sync)?;
            }
        }
        self.sync_directories(pieces.iter().map(|piece| Directory::of(&piece.chunk)))
    }

    fn further_pieces(&self, chunk: &ChunkId) -> Result<Vec<u32>, DiskError> {
        if !self.is_marked(chunk)? {
            return Ok(Vec::new());
        }
        let names = self.list_directory(&ChunkName(*chunk).directory_path())?;
        let ours =
            names.iter().filter_map(|name| PieceName::parse(name)).filter(|piece| piece.chunk == *chunk);
        let mut pieces: Vec<u32> = ours.map(|piece| piece.piece).filter(|piece| *piece > 0).collect();
        pieces.sort_unstable();
        Ok(pieces)
    }

    fn list(&self, after: Option<ChunkId>, max: usize) -> Result<Vec<ChunkId>, DiskError> {
        // In order over all directories: keep the `max` lowest. Only repair tools ask for this.
        let mut lowest = BTreeSet::new();
        for a in self.list_directory("chunks")? {
            for b in self.list_directory(&format!("chunks/{a}"))? {
                if b == "." || b == ".." || a == "." || a == ".." {
                    continue;
                }
                for name in self.list_directory(&format!("chunks/{a}/{b}"))? {
                    let Some(piece) = PieceName::parse(&name) else { continue };
                    if after.is_none_or(|after| piece.chunk > after) {
                        lowest.insert(piece.chunk);
                        if lowest.len() > max {
                            lowest.pop_last();
                        }
                    }
                }
            }
        }
        Ok(lowest.into_iter().collect())
    }

    fn limit(&self, chunk: &ChunkId) -> Option<u64> {
        self.seals.limit(chunk)
    }

    fn seal(&self, chunk: &ChunkId, limit: u64) -> Result<(), DiskError> {
        self.seals.seal(*chunk, limit).map_err(|e| self.failed("seal", None, e))
    }

    fn unseal(&self, chunks: &[ChunkId]) -> Result<(), DiskError> {
        self.seals.forget(chunks).map_err(|e| self.failed("removal of seals", None, e))
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }

    fn life(&self) -> u64 {
        self.life.load(SeqCst)
    }

    fn clock(&self) -> Clock {
        self.clock.shows()
    }

    fn life_since(&self) -> Option<Timestamp> {
        lock(&self.standing).standing.since
    }
}
