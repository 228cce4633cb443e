//! Chunk files of which something is lost, as programs have met them.

use crate::limits::{LOST_FOR_MS, LOST_LOOK_MS, LOST_LOOKS, LOST_TOLD_MAX};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{ChunkId, Ino, Millis, TargetId};

#[derive(Debug, Clone, Copy)]
struct Loss {
    /// When it was met last.
    met: Millis,
    /// When housekeeping is to look at it again.
    due: Millis,
}

/// Those that are known, as far as the log has named them.
#[derive(Debug, Default)]
pub struct Losses {
    known: BTreeMap<ChunkId, Loss>,
    /// Targets that did not answer, and until when they are not asked again.
    silent: BTreeMap<TargetId, Millis>,
}

impl Losses {
    /// A program has met one. Says whether that is news.
    pub(crate) fn met(&mut self, chunk: ChunkId, now: Millis) -> bool {
        self.forget(now);
        if let Some(loss) = self.known.get_mut(&chunk) {
            loss.met = now;
            return false;
        }
        let room = self.known.len() < LOST_TOLD_MAX;
        if room {
            self.known.insert(chunk, Loss { met: now, due: now.plus(LOST_LOOK_MS) });
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
        self.known.retain(|_, loss| now.since(loss.met) < LOST_FOR_MS);
    }

    /// What is lost of the file was given up.
    pub(crate) fn given_up(&mut self, ino: Ino) {
        self.known.retain(|chunk, _| chunk.ino != ino);
    }

    /// All of the file was looked at, so that its targets answer, and only `lost` are. Housekeeping looks at the others.
    /// `true`: there are some.
    pub(crate) fn looked_at(&mut self, ino: Ino, lost: impl Fn(&ChunkId) -> bool) -> bool {
        self.silent.clear();
        let others = self.known.iter_mut().filter(|(chunk, _)| chunk.ino == ino && !lost(chunk));
        others.map(|(_, loss)| loss.due = Millis(0)).count() > 0
    }

    /// A server forgot what it was told of them. `true`: there are some.
    pub(crate) fn tell_again(&mut self) -> bool {
        self.known.values_mut().for_each(|loss| loss.due = Millis(0));
        !self.known.is_empty()
    }

    /// Some of those that are to be looked at now: who waits longest comes first.
    pub(crate) fn due(&self, now: Millis) -> Vec<ChunkId> {
        let mut due: Vec<_> = self
            .known
            .iter()
            .filter(|(_, loss)| loss.due <= now)
            .map(|(chunk, loss)| (loss.due, *chunk))
            .collect();
        due.sort_unstable();
        due.into_iter().take(LOST_LOOKS).map(|(_, chunk)| chunk).collect()
    }

    /// Not asked again before?
    pub(crate) fn silent_until(&self, target: TargetId, now: Millis) -> Option<Millis> {
        self.silent.get(&target).copied().filter(|until| *until > now)
    }

    /// They did not answer.
    pub(crate) fn silent(&mut self, targets: impl IntoIterator<Item = TargetId>, until: Millis) {
        self.silent.extend(targets.into_iter().map(|target| (target, until)));
    }

    /// One was looked at. It may have been given up meanwhile.
    pub(crate) fn settle(&mut self, chunk: ChunkId, seen: Seen, now: Millis) {
        match seen {
            Seen::Whole => drop(self.known.remove(&chunk)),
            Seen::Lost => {
                let again = Loss { met: now, due: now.plus(LOST_LOOK_MS) };
                self.known.entry(chunk).and_modify(|loss| *loss = again);
            }
            Seen::Nothing { again } => {
                self.known.entry(chunk).and_modify(|loss| loss.due = again);
            }
        }
    }
}

/// What a look at a chunk file found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Something of it is lost.
    Lost,
    /// Put back, given up, or deleted with its file.
    Whole,
    /// A server is away, or the target was removed.
    Nothing {
        /// When to look again.
        again: Millis,
    },
}
