//! Chunk files of which something is lost, as programs have met them.

use crate::limits::{LOST_FOR_MS, LOST_LOOK_MS, LOST_LOOKS, LOST_TOLD_MAX};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ChunkId, Ino, Millis, NodeId};

/// Those that are known, and those of them that housekeeping is to look at again.
#[derive(Debug, Default)]
pub struct Losses {
    /// As far as the log has named them, and when they were met last.
    known: BTreeMap<ChunkId, Millis>,
    /// When they are to be looked at again; `None`: now.
    next: Option<Millis>,
    /// Still to be looked at.
    waiting: BTreeSet<ChunkId>,
    /// Servers that did not answer since then: they are not asked for more.
    silent: BTreeSet<NodeId>,
}

impl Losses {
    /// A program has met one. Says whether that is news.
    pub(crate) fn met(&mut self, chunk: ChunkId, now: Millis) -> bool {
        self.forget(now);
        if let Some(met) = self.known.get_mut(&chunk) {
            *met = now;
            return false;
        }
        let room = self.known.len() < LOST_TOLD_MAX;
        if room {
            self.next.get_or_insert(now.plus(LOST_LOOK_MS));
            self.known.insert(chunk, now);
        }
        room
    }

    /// Is something of it lost?
    pub fn has(&self, chunk: &ChunkId) -> bool {
        self.known.contains_key(chunk)
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// None is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What no program has met for long may have been put back.
    pub fn forget(&mut self, now: Millis) {
        self.known.retain(|_, met| now.since(*met) < LOST_FOR_MS);
    }

    /// What is lost of the file was given up.
    pub(crate) fn given_up(&mut self, ino: Ino) {
        self.known.retain(|chunk, _| chunk.ino != ino);
    }

    /// All of the file was looked at, so that its servers answer, and only `lost` are. Housekeeping looks at the others.
    /// `true`: there are some.
    pub(crate) fn looked_at(&mut self, ino: Ino, lost: impl Fn(&ChunkId) -> bool) -> bool {
        self.silent.clear();
        self.waiting.extend(self.known.keys().filter(|chunk| chunk.ino == ino && !lost(chunk)));
        !self.waiting.is_empty()
    }

    /// A server forgot what it was told of them. `true`: there are some.
    pub(crate) fn tell_again(&mut self) -> bool {
        self.next = None;
        !self.known.is_empty()
    }

    /// Some of those that are to be looked at now.
    pub(crate) fn take_due(&mut self, now: Millis) -> Vec<ChunkId> {
        if self.known.is_empty() {
            self.waiting.clear();
            return Vec::new();
        }
        if self.next.is_none_or(|next| next <= now) {
            self.next = Some(now.plus(LOST_LOOK_MS));
            self.silent.clear();
            self.waiting = self.known.keys().copied().collect();
        }
        let chunks: Vec<ChunkId> = self.waiting.iter().take(LOST_LOOKS).copied().collect();
        self.waiting.retain(|chunk| !chunks.contains(chunk));
        chunks
    }

    /// Is it to be asked?
    pub(crate) fn is_silent(&self, node: NodeId) -> bool {
        self.silent.contains(&node)
    }

    /// It did not answer. `soon`: when to look again, if that is before the next look.
    pub(crate) fn silent(&mut self, node: NodeId, soon: Option<Millis>) {
        self.silent.insert(node);
        self.next = self.next.map(|next| soon.map_or(next, |soon| next.min(soon)));
    }

    /// One was looked at.
    pub(crate) fn settle(&mut self, chunk: ChunkId, seen: Seen, now: Millis) {
        match seen {
            // It may have been given up meanwhile.
            Seen::Lost => self.known.get_mut(&chunk).into_iter().for_each(|met| *met = now),
            Seen::Whole => drop(self.known.remove(&chunk)),
            Seen::Nothing => {}
        }
    }

    /// These were not looked at: the next round does.
    pub(crate) fn put_back(&mut self, chunks: impl IntoIterator<Item = ChunkId>) {
        self.waiting.extend(chunks);
    }
}

/// What a look at a chunk file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Something of it is lost.
    Lost,
    /// Put back, given up, or deleted with its file.
    Whole,
    /// Its target is away, or was removed: the next look may tell.
    Nothing,
}
