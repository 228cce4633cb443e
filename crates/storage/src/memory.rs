//! A target in memory that can lose what was not synced: for the simulator and the tests.

use crate::name::PieceName;
use crate::store::{ChunkStore, DiskError, PieceStat};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use skep_types::ChunkId;

/// Bytes of a page of content.
const PAGE: u64 = 4_096;

/// Sparse content of one piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Piece {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Piece {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % PAGE) as usize;
            let run = rest.len().min(PAGE as usize - inside);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| alloc::vec![0; PAGE as usize]);
            page[inside..inside + run].copy_from_slice(&rest[..run]);
            at += run as u64;
            rest = &rest[run..];
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let inside = (at % PAGE) as usize;
            let run = (len - done).min(PAGE as usize - inside);
            match self.pages.get(&(at / PAGE)) {
                Some(page) => into[done..done + run].copy_from_slice(&page[inside..inside + run]),
                None => into[done..done + run].fill(0),
            }
            done += run;
        }
        len
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let whole: Vec<u64> = self.pages.range(offset / PAGE..=end / PAGE).map(|(page, _)| *page).collect();
        for number in whole {
            let (first, last) = (offset.max(number * PAGE), end.min(number * PAGE + PAGE));
            if first >= last {
                continue;
            }
            if last - first == PAGE {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                page[(first - number * PAGE) as usize..(last - number * PAGE) as usize].fill(0);
            }
        }
    }

    /// Pages side by side from `from` on.
    fn next_data(&self, from: u64) -> Option<(u64, u64)> {
        let (first, _) = self.pages.range(from / PAGE..).next()?;
        let mut end = *first;
        while self.pages.contains_key(&end) {
            end += 1;
        }
        let run = ((first * PAGE).max(from), (end * PAGE).min(self.size));
        (run.0 < run.1).then_some(run)
    }

    fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct MemoryChunks {
    live: RefCell<BTreeMap<PieceName, Piece>>,
    /// What a power cut leaves.
    synced: RefCell<BTreeMap<PieceName, Piece>>,
    dirty: RefCell<BTreeSet<PieceName>>,
    lives: Cell<u64>,
    /// Bytes that may still be written; `None` = no limit.
    room: Cell<Option<u64>>,
    failing: Cell<bool>,
    /// The canary: sync answers without doing anything.
    sync_does_nothing: Cell<bool>,
}

impl MemoryChunks {
    /// Power cut: every unsynced piece falls back to its synced state, or (drawn from `seed`)
    /// keeps its unsynced one, as a disk may have written some of its cache.
    pub fn crash(&mut self, seed: u64) {
        let mut draw = seed | 1;
        for piece in core::mem::take(&mut *self.dirty.borrow_mut()) {
            // xorshift64
            draw ^= draw << 13;
            draw ^= draw >> 7;
            draw ^= draw << 17;
            let mut live = self.live.borrow_mut();
            let mut synced = self.synced.borrow_mut();
            if draw & 1 == 0 {
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
        self.lives.set(self.lives.get() + 1);
    }

    /// Bytes that may still be written; `None` = no limit.
    pub fn set_room(&self, room: Option<u64>) {
        self.room.set(room);
    }

    /// From now on everything fails as a broken disk does.
    pub fn set_failing(&self, failing: bool) {
        self.failing.set(failing);
    }

    /// Switches the canary on: a sync that does nothing, which the simulation must find out.
    pub fn set_sync_does_nothing(&self, on: bool) {
        self.sync_does_nothing.set(on);
    }

    fn check(&self) -> Result<(), DiskError> {
        if self.failing.get() { Err(DiskError::Failed("simulated disk failure".to_string())) } else { Ok(()) }
    }

    fn change(
        &self,
        piece: &PieceName,
        make: bool,
        change: impl FnOnce(&mut Piece),
    ) -> Result<(), DiskError> {
        self.check()?;
        let mut live = self.live.borrow_mut();
        if make {
            live.entry(*piece).or_default();
        }
        if let Some(content) = live.get_mut(piece) {
            change(content);
            self.dirty.borrow_mut().insert(*piece);
        }
        Ok(())
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
        self.change(piece, true, |content| content.write(offset, data))
    }

    fn truncate(&self, piece: &PieceName, size: u64) -> Result<(), DiskError> {
        self.change(piece, false, |content| content.truncate(size))
    }

    fn punch(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError> {
        self.change(piece, false, |content| content.zero(offset, len))
    }

    fn reserve(&self, piece: &PieceName, _offset: u64, len: u64) -> Result<(), DiskError> {
        if self.room.get().is_some_and(|room| room < len) {
            return Err(DiskError::NoSpace);
        }
        self.change(piece, true, |_| {})
    }

    fn next_data(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError> {
        self.check()?;
        Ok(self.live.borrow().get(piece).and_then(|content| content.next_data(from)))
    }

    fn stat(&self, piece: &PieceName) -> Result<Option<PieceStat>, DiskError> {
        self.check()?;
        let stat = |content: &Piece| PieceStat {
            size: content.size,
            blocks: content.pages.len() as u64 * (PAGE / 512),
            mtime_ns: 0,
        };
        Ok(self.live.borrow().get(piece).map(stat))
    }

    fn remove(&self, piece: &PieceName) -> Result<(), DiskError> {
        self.check()?;
        if self.live.borrow_mut().remove(piece).is_some() {
            self.dirty.borrow_mut().insert(*piece);
        }
        Ok(())
    }

    fn sync(&self, pieces: &[PieceName]) -> Result<(), DiskError> {
        self.check()?;
        if self.sync_does_nothing.get() {
            return Ok(());
        }
        for piece in pieces {
            if self.dirty.borrow_mut().remove(piece) {
                match self.live.borrow().get(piece) {
                    Some(content) => self.synced.borrow_mut().insert(*piece, content.clone()),
                    None => self.synced.borrow_mut().remove(piece),
                };
            }
        }
        Ok(())
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

    fn life(&self) -> u64 {
        self.lives.get() + 1
    }
}
