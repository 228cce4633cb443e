//! A target in memory that can lose what was not synced: for the simulator and the tests.

mod piece;

use crate::changes::Changes;
use crate::name::PieceName;
use crate::seal::Seals;
use crate::standing::{Heard, Mount, Standing, Word};
use crate::store::{ChunkStore, DiskError, PieceStat};
use crate::until::is_by;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use piece::{PAGE, Piece};
use skep_types::{ChunkId, Consistency, Millis, Uuid};
use skep_wire::storage::Clock;

#[derive(Debug)]
pub struct MemoryChunks {
    live: RefCell<BTreeMap<PieceName, Piece>>,
    /// What a power cut leaves.
    synced: RefCell<BTreeMap<PieceName, Piece>>,
    dirty: RefCell<BTreeSet<PieceName>>,
    /// Write-backs that failed and that nobody was told of: the kernel tells once.
    untold: RefCell<BTreeSet<PieceName>>,
    /// Names that a power cut takes with their content: their directory was not synced since they were made.
    nameless: RefCell<BTreeSet<PieceName>>,
    /// Those that the daemon has forgotten of: only with the canary.
    forgotten: RefCell<BTreeSet<PieceName>>,
    standing: Cell<Standing>,
    mounts: Cell<u64>,
    draws: Cell<u64>,
    /// Bytes that may still be written; `None` = no limit.
    room: Cell<Option<u64>>,
    /// Bytes of pages that fit at once; `None` = no limit.
    capacity: Cell<Option<u64>>,
    seals: RefCell<Seals>,
    failing: Cell<bool>,
    /// The daemon was restarted and has synced nothing since: its first sync is of all that there is.
    inherited: Cell<bool>,
    /// At each sync another one of the same pieces runs, which the kernel tells first.
    sync_beside: Cell<bool>,
    faults: Cell<ChunkFaults>,
    changes: Changes,
    /// The run of the daemon, and when it began.
    run: Cell<(u64, Millis)>,
    time: Cell<Millis>,
}

/// Bugs that a simulation must find out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkFaults {
    /// A sync answers without doing anything.
    pub sync_does_nothing: bool,
    /// The life is taken over although the file system was mounted anew.
    pub life_of_the_boot: bool,
    /// A failed write-back of a chunk file that was closed meanwhile is told to nobody.
    pub closes_unsynced: bool,
    /// A restarted daemon does not know which directories of the one before are unsynced.
    pub forgets_names: bool,
    /// A failure is not kept over a restart of the daemon.
    pub forgets_failures: bool,
    /// Sealed chunk files take what comes behind their limit.
    pub ignores_seals: bool,
    /// Writes land however late they come (*lands-late*).
    pub lands_late: bool,
}

const GOOD: Word = Word { consistency: Consistency::Good, failures: 0, decisions: 0 };

impl Default for MemoryChunks {
    fn default() -> Self {
        let standing = Standing::start(None, mount(0), GOOD, draw(0));
        Self {
            live: RefCell::default(),
            synced: RefCell::default(),
            dirty: RefCell::default(),
            untold: RefCell::default(),
            nameless: RefCell::default(),
            forgotten: RefCell::default(),
            standing: Cell::new(standing),
            mounts: Cell::new(0),
            draws: Cell::new(0),
            room: Cell::new(None),
            capacity: Cell::new(None),
            seals: RefCell::default(),
            failing: Cell::new(false),
            inherited: Cell::new(false),
            sync_beside: Cell::new(false),
            faults: Cell::default(),
            changes: Changes::new(draw(0)),
            run: Cell::new((1, Millis(0))),
            time: Cell::default(),
        }
    }
}

fn mount(number: u64) -> Mount {
    Some(Uuid(u128::from(number + 1).to_le_bytes()))
}

/// Numbers that look random (splitmix64).
fn draw(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl MemoryChunks {
    /// The file system below goes back to what was synced: a power cut of the machine, or of its disks alone. Every
    /// unsynced piece falls back to its synced state, or (drawn from `seed`) keeps its unsynced one, as a disk may
    /// have written some of its cache.
    pub fn crash(&mut self, seed: u64) {
        let mut draw = seed | 1;
        let mut next = || {
            // xorshift64
            draw ^= draw << 13;
            draw ^= draw >> 7;
            draw ^= draw << 17;
            draw
        };
        for piece in core::mem::take(&mut *self.dirty.borrow_mut()) {
            let mut live = self.live.borrow_mut();
            let mut synced = self.synced.borrow_mut();
            if next() & 1 == 0 {
                match live.get(&piece) {
                    Some(content) => synced.insert(piece, content.clone()),
                    None => synced.remove(&piece),
                };
            } else {
                match synced.get(&piece) {
                    Some(content) => live.insert(piece, content.clone()),
                    None => live.remove(&piece),
                };
            }
        }
        for piece in core::mem::take(&mut *self.nameless.borrow_mut()) {
            if next() & 1 == 0 {
                self.live.borrow_mut().remove(&piece);
                self.synced.borrow_mut().remove(&piece);
            }
        }
        self.untold.borrow_mut().clear();
        if !self.faults.get().life_of_the_boot {
            self.mounts.set(self.mounts.get() + 1);
        }
        self.restart(None);
    }

    /// The daemon ends and starts again: the kernel keeps what was written. `word`: what mgmtd answers to the
    /// registration, if it is known.
    pub fn restart(&self, word: Option<Word>) {
        let faults = self.faults.get();
        let mut kept = self.standing.get();
        let word = word.unwrap_or(Word {
            consistency: kept.consistency(),
            failures: kept.failures,
            decisions: kept.decisions,
        });
        if faults.forgets_failures && kept.bad {
            kept = Standing { bad: false, failures: kept.failures.saturating_sub(1), ..kept };
        }
        self.standing.set(Standing::start(Some(kept), mount(self.mounts.get()), word, self.draw()));
        self.changes.begin(self.draw());
        self.run.set((self.run.get().0 + 1, self.time.get()));
        self.inherited.set(!faults.forgets_names);
        if faults.forgets_names {
            self.forgotten.borrow_mut().extend(self.nameless.borrow().iter());
        }
    }

    /// What the kernel has in memory could not be written: from now on `which` pieces are as they were synced last, and
    /// the next sync of each is told. False: there was nothing to lose.
    pub fn lose_unsynced(&self, which: impl Fn(&PieceName) -> bool) -> bool {
        let lost: Vec<PieceName> = self.dirty.borrow().iter().filter(|piece| which(piece)).copied().collect();
        for piece in &lost {
            self.dirty.borrow_mut().remove(piece);
            match self.synced.borrow().get(piece) {
                Some(content) => self.live.borrow_mut().insert(*piece, content.clone()),
                // The name is there, the bytes are not.
                None => self.live.borrow_mut().insert(*piece, Piece::default()),
            };
            if !self.faults.get().closes_unsynced {
                self.untold.borrow_mut().insert(*piece);
            }
        }
        !lost.is_empty()
    }

    /// What the target is worth.
    pub fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// mgmtd's word on it.
    pub fn hear(&self, word: Word) -> Heard {
        let mut standing = self.standing.get();
        let heard = standing.hear(word, self.draw());
        self.standing.set(standing);
        heard
    }

    /// An administrator who has heard of every failure says that it is good.
    pub fn repair(&self) {
        let Standing { failures, decisions, .. } = self.standing.get();
        self.hear(Word { consistency: Consistency::Good, failures, decisions: decisions + 1 });
    }

    /// The time by which its clock goes.
    pub fn set_time(&self, now: Millis) {
        self.time.set(now);
    }

    /// Bytes that may still be written; `None` = no limit.
    pub fn set_room(&self, room: Option<u64>) {
        self.room.set(room);
    }

    /// Bytes of pages that fit at once; `None` = no limit.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.capacity.set(capacity);
    }

    /// Bytes that its pages take, those that are reserved as well.
    pub fn used(&self) -> u64 {
        self.live.borrow().values().map(|piece| piece.taken() * PAGE).sum()
    }

    /// Every sealed chunk file with its limit.
    pub fn seals(&self) -> Vec<(ChunkId, u64)> {
        self.seals.borrow().iter().map(|(chunk, limit)| (*chunk, *limit)).collect()
    }

    /// How much of a write fits: a file system takes what it can before it says that it is full.
    fn fits(&self, piece: &PieceName, offset: u64, len: u64) -> u64 {
        let Some(capacity) = self.capacity.get() else { return len };
        let mut left = capacity.saturating_sub(self.used()) / PAGE;
        let live = self.live.borrow();
        let has = |page: u64| live.get(piece).is_some_and(|content| content.has(page));
        for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
            if !has(page) {
                if left == 0 {
                    return (page * PAGE).saturating_sub(offset);
                }
                left -= 1;
            }
        }
        len
    }

    /// From now on everything fails as a broken disk does.
    pub fn set_failing(&self, failing: bool) {
        self.failing.set(failing);
    }

    /// From now on somebody else syncs the same pieces at the same time, and is told of failures.
    pub fn set_sync_beside(&self, beside: bool) {
        self.sync_beside.set(beside);
    }

    /// Switches canaries on.
    pub fn set_faults(&self, faults: ChunkFaults) {
        self.faults.set(faults);
    }

    fn draw(&self) -> u64 {
        self.draws.set(self.draws.get() + 1);
        draw(self.draws.get())
    }

    fn failed(&self, what: &str) -> DiskError {
        let mut standing = self.standing.get();
        standing.fail(self.draw());
        self.standing.set(standing);
        DiskError::Failed(what.to_string())
    }

    fn check(&self) -> Result<(), DiskError> {
        if self.failing.get() { Err(self.failed("simulated disk failure")) } else { Ok(()) }
    }

    /// What `syncfs` does: all of it. False: the kernel tells of a write-back that failed.
    fn sync_all(&self) -> bool {
        let mut all = self.dirty.borrow().clone();
        all.extend(self.untold.borrow().iter());
        self.nameless.borrow_mut().clear();
        all.iter().filter(|piece| !self.sync_piece(piece)).count() == 0
    }

    /// False: the kernel tells of a write-back that failed.
    fn sync_piece(&self, piece: &PieceName) -> bool {
        if self.dirty.borrow_mut().remove(piece) {
            match self.live.borrow().get(piece) {
                Some(content) => self.synced.borrow_mut().insert(*piece, content.clone()),
                None => self.synced.borrow_mut().remove(piece),
            };
        }
        !self.untold.borrow_mut().remove(piece)
    }

    fn change(
        &self,
        piece: &PieceName,
        make: bool,
        change: impl FnOnce(&mut Piece),
    ) -> Result<(), DiskError> {
        self.check()?;
        let mut live = self.live.borrow_mut();
        if make && !live.contains_key(piece) {
            live.insert(*piece, Piece::default());
            self.nameless.borrow_mut().insert(*piece);
        }
        if let Some(content) = live.get_mut(piece) {
            change(content);
            self.dirty.borrow_mut().insert(*piece);
        }
        Ok(())
    }
}

impl MemoryChunks {
    /// Little is gained by it: a byte for each page.
    fn give_back(&self, pages: usize) {
        self.room.set(self.room.get().map(|room| room + pages as u64));
    }
}

impl ChunkStore for MemoryChunks {
    fn read(&self, piece: &PieceName, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.check()?;
        Ok(self.live.borrow().get(piece).map_or(0, |content| content.read(offset, into)))
    }

    fn write(&self, piece: &PieceName, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        if let Some(room) = self.room.get() {
            let left = room.checked_sub(data.len() as u64).ok_or(DiskError::NoSpace)?;
            self.room.set(Some(left));
        }
        let fits = self.fits(piece, offset, data.len() as u64) as usize;
        if fits > 0 || data.is_empty() {
            self.change(piece, true, |content| content.write(offset, &data[..fits]))?;
        }
        if fits < data.len() { Err(DiskError::NoSpace) } else { Ok(()) }
    }

    fn truncate(&self, piece: &PieceName, size: u64) -> Result<(), DiskError> {
        self.change(piece, false, |content| {
            let pages = content.written();
            content.truncate(size);
            self.give_back(pages - content.written());
        })
    }

    fn punch(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError> {
        self.change(piece, false, |content| content.zero(offset, len))
    }

    fn reserve(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError> {
        let name = u64::from(!self.live.borrow().contains_key(piece));
        if self.room.get().is_some_and(|room| room < len.max(name)) {
            return Err(DiskError::NoSpace);
        }
        if let Some(capacity) = self.capacity.get() {
            let new = Piece::default();
            let missing = self.live.borrow().get(piece).unwrap_or(&new).missing(offset, len);
            if missing > capacity.saturating_sub(self.used()) / PAGE {
                return Err(DiskError::NoSpace);
            }
        }
        self.change(piece, true, |content| content.reserve(offset, len))
    }

    fn next_data(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError> {
        self.check()?;
        Ok(self.live.borrow().get(piece).and_then(|content| content.next_data(from)))
    }

    fn next_allocated(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError> {
        self.check()?;
        Ok(self.live.borrow().get(piece).and_then(|content| content.next_allocated(from)))
    }

    fn stat(&self, piece: &PieceName) -> Result<Option<PieceStat>, DiskError> {
        self.check()?;
        let stat = |content: &Piece| PieceStat {
            size: content.size,
            blocks: content.taken() * (PAGE / 512),
            mtime_ns: 0,
        };
        Ok(self.live.borrow().get(piece).map(stat))
    }

    fn remove(&self, piece: &PieceName) -> Result<(), DiskError> {
        self.check()?;
        if let Some(content) = self.live.borrow_mut().remove(piece) {
            self.give_back(content.written());
            self.dirty.borrow_mut().insert(*piece);
        }
        Ok(())
    }

    fn sync(&self, pieces: &[PieceName]) -> Result<(), DiskError> {
        self.check()?;
        if self.faults.get().sync_does_nothing {
            return Ok(());
        }
        if self.inherited.replace(false) && !self.sync_all() {
            return Err(self.failed("simulated write-back failure"));
        }
        let fine = pieces.iter().filter(|piece| !self.sync_piece(piece)).count() == 0;
        let forgotten = self.forgotten.borrow();
        self.nameless.borrow_mut().retain(|piece| !pieces.contains(piece) || forgotten.contains(piece));
        match fine {
            true => Ok(()),
            false if self.sync_beside.get() => {
                let _ = self.failed("simulated write-back failure");
                Ok(())
            }
            false => Err(self.failed("simulated write-back failure")),
        }
    }

    fn further_pieces(&self, chunk: &ChunkId) -> Result<Vec<u32>, DiskError> {
        self.check()?;
        let range = PieceName { chunk: *chunk, piece: 1 }..=PieceName { chunk: *chunk, piece: u32::MAX };
        Ok(self.live.borrow().range(range).map(|(piece, _)| piece.piece).collect())
    }

    fn list(&self, after: Option<ChunkId>, max: usize) -> Result<Vec<ChunkId>, DiskError> {
        self.check()?;
        let mut chunks: Vec<ChunkId> = Vec::new();
        for piece in self.live.borrow().keys() {
            let wanted = after.is_none_or(|after| piece.chunk > after) && chunks.last() != Some(&piece.chunk);
            if wanted && chunks.len() < max {
                chunks.push(piece.chunk);
            }
        }
        Ok(chunks)
    }

    fn limit(&self, chunk: &ChunkId) -> Option<u64> {
        if self.faults.get().ignores_seals { None } else { self.seals.borrow().limit(chunk) }
    }

    fn seal(&self, chunk: &ChunkId, limit: u64) -> Result<(), DiskError> {
        self.check()?;
        self.seals.borrow_mut().seal(*chunk, limit);
        Ok(())
    }

    fn unseal(&self, chunks: &[ChunkId]) -> Result<(), DiskError> {
        self.check()?;
        let mut seals = self.seals.borrow_mut();
        chunks.iter().for_each(|chunk| {
            seals.forget(chunk);
        });
        Ok(())
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }

    fn life(&self) -> u64 {
        self.standing.get().life
    }

    fn clock(&self) -> Clock {
        let (run, began) = self.run.get();
        Clock { run, ms: self.time.get().since(began) }
    }

    fn counts(&self, until: &Clock) -> bool {
        self.faults.get().lands_late || is_by(&self.clock(), until)
    }
}
