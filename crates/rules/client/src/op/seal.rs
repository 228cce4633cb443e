//! A target is full, or refuses an old layout: the file goes on elsewhere (`docs/design/seal.md`).

use crate::lane::Lane;
use crate::limits::{BACKOFF_MAX_MS, BACKOFF_MIN_MS, LEFT_OPEN_MS};
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::{ChunkId, Errno, Ino, Layout, Piece, TargetId};
use skep_wire::meta::SealExtent;
use skep_wire::{Refusal, Status};

/// A part of a chunk file that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub target: TargetId,
    pub chunk: ChunkId,
    pub offset: u64,
    pub len: u64,
}

/// A request to a target was refused, and where that was.
#[derive(Debug, Clone)]
pub(crate) struct Stuck {
    pub refusal: Refusal,
    pub place: Option<Place>,
}

impl From<Refusal> for Stuck {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, place: None }
    }
}

impl From<Errno> for Stuck {
    fn from(errno: Errno) -> Self {
        Refusal::from(errno).into()
    }
}

impl Place {
    /// A piece on the target that was asked for it.
    pub fn of(piece: &Piece, target: TargetId) -> Self {
        let Piece { chunk, local_offset: offset, len, .. } = *piece;
        Self { target, chunk, offset, len }
    }

    /// What came of it.
    pub fn stuck(self, refusal: Refusal) -> Stuck {
        Stuck { refusal, place: Some(self) }
    }
}

/// Is it refused for a reason that a newer layout mends?
pub(crate) fn may_move(refusal: &Refusal) -> bool {
    refusal.status == Status::STALE_LAYOUT || is_full(refusal)
}

fn is_full(refusal: &Refusal) -> bool {
    refusal.status == Status::errno(Errno::ENOSPC)
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Asks for a layout that has another place for what is stuck, and waits until there is one. `layout`: as it was
    /// known. Err: there is none, or it is stuck for another reason.
    pub(crate) async fn go_on_elsewhere(
        &self,
        ino: Ino,
        layout: &Layout,
        stuck: Stuck,
    ) -> Result<(), Refusal> {
        let Stuck { refusal, place } = stuck;
        let Some(place) = place.filter(|_| may_move(&refusal)) else { return Err(refusal) };
        let Place { target, chunk, offset, len } = place;
        let end = offset.saturating_add(len);
        let full = is_full(&refusal).then_some(target);
        if full.is_some() {
            self.shared.with(|s| s.space_asked = None);
        }
        let room = if full.is_some() { len } else { 0 };
        let message = SealExtent { ino, generation: layout.generation, chunk, end, room, full };
        let (known, started, mut backoff) = (cut(layout, &chunk), self.port.now(), BACKOFF_MIN_MS);
        loop {
            match self.ask(ino.shard(), &message).await {
                Ok(_) => {}
                Err(newer) if newer.status == Status::STALE_GENERATION => {}
                Err(other) => return Err(other),
            }
            let newer = cut(&self.fetch_layout(ino).await?.layout, &chunk);
            // Below the cut the place stays. It is tried once more when the seal is new: what reaches behind the place may have
            // come after the refusal, and the target have room again.
            let stays = full.is_some() && newer >= end && newer == known;
            let is_closed = newer != OPEN || known != OPEN;
            if is_closed && !stays {
                return Ok(());
            }
            if is_closed && !self.ends_in_front(&place).await? {
                // A hole in front of the end of the chunk file.
                return Err(refusal);
            }
            // The shard did not reach the target, or that could not seal: so it says nothing of a hole.
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
            if self.port.now().since(started) >= LEFT_OPEN_MS {
                return Err(refusal);
            }
            self.port.pause(backoff).await;
            backoff = (backoff + backoff / 2).min(BACKOFF_MAX_MS);
        }
    }

    /// Does the chunk file end in front of the end of that place? The cut is from when it was sealed last, and it may be
    /// shorter by now: its target knows, whether the shard reaches that or not.
    async fn ends_in_front(&self, place: &Place) -> Result<bool, Refusal> {
        let found = self.stat_targets(&[(place.chunk, place.target)]).await?;
        // Of a generation that is gone the shard says so.
        Ok(found.first().is_none_or(|(_, stat, _)| stat.size < place.offset.saturating_add(place.len)))
    }
}

/// Nothing of the stripe belongs to a later extent.
const OPEN: u64 = u64::MAX;

/// From where on the chunk's stripe belongs to a later extent; 0: it is of none.
fn cut(layout: &Layout, chunk: &ChunkId) -> u64 {
    layout.extent_of(chunk).map_or(0, |extent| extent.cut(usize::from(chunk.stripe)))
}
