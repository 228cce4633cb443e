//! Strays: parts of writes that failed, beyond the ends of their files.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Inode, Shared, Stray, copies};
use alloc::vec::Vec;
use skep_types::{Encode, Errno, Ino, Piece, TargetId};
use skep_wire::meta::{AttrReply, GetAttr};
use skep_wire::storage::PunchChunk;
use skep_wire::{Message, Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// What was written behind a failed piece, or may have been by it, must not show when the file grows
    /// later: punched now, or by housekeeping when the program gave up.
    ///
    /// Only the shard knows where that is and whether others write, whose bytes would be punched with it.
    pub(crate) async fn forget_strays(&self, ino: Ino, strays: Vec<Stray>) {
        let mut left = Vec::new();
        for stray in strays {
            // Beside no other change than the one that failed.
            if self.port.cancelled() || !matches!(self.take_back(ino, &stray, 1).await, Ok(true)) {
                left.push(stray);
            }
        }
        if left.is_empty() {
            return;
        }
        for stray in left {
            if !self.shared.with(|s| s.strays.keep(ino, stray)) {
                self.stray_stays(ino, &stray, "too many wait for that");
            }
        }
        self.port.work_waits();
    }

    /// Punches a stray, unless it is of the file by now or may be another mount's. `false`: later, for something is being
    /// changed now, by more than `own` operations of this mount or by others.
    ///
    /// The target is looked at first, the shard then, and the target punches only what nobody has changed since: however
    /// long the punch is on its way, it takes nobody's bytes.
    async fn take_back(&self, ino: Ino, stray: &Stray, own: u16) -> Result<bool, Refusal> {
        if self.shared.with(|s| s.inodes.get(ino).is_some_and(|inode| inode.changing > own)) {
            return Ok(false);
        }
        match self.punch_stray(ino, stray, own).await {
            // Of a generation that is gone, or behind a cut: so is the stray.
            Err(refusal) if matches!(refusal.status, Status::STALE_GENERATION | Status::STALE_LAYOUT) => {
                Ok(true)
            }
            Err(refusal) if refusal.status.as_errno() == Some(Errno::EAGAIN) => Ok(false),
            result => result,
        }
    }

    async fn punch_stray(&self, ino: Ino, stray: &Stray, own: u16) -> Result<bool, Refusal> {
        let Stray { target, chunk, .. } = *stray;
        let unchanged = Some(self.look_once(target, chunk).await?.changes.ok_or(Status::MALFORMED)?);
        let AttrReply { attr, live } = self.once(self.asking(ino.shard(), &GetAttr { ino })).await?.read()?;
        let (size, busy, others) = self.shared.with(|s| {
            let size = s.inodes.merge(attr).size;
            let inode = s.inodes.get(ino);
            // What this mount has under way may have landed before the target was looked at, and is not marked yet.
            let busy = inode.is_some_and(|inode| inode.changing > own);
            (size, busy, live.is_some() || inode.is_some_and(Inode::end_is_open))
        });
        if busy {
            return Ok(false);
        }
        // What stands behind the end may be theirs, and stays: a part of a write that failed.
        let stray = beyond(*stray, size).filter(|_| !others);
        let Some(Stray { local_offset: offset, len, .. }) = stray else { return Ok(true) };
        let message = PunchChunk { target, chunk, offset, len, unchanged };
        let job = Job::new(To::Target(target), PunchChunk::KIND, message.to_bytes(), false);
        self.once(job).await.map(|_| true)
    }

    /// Strays of writes that were given up, some of them each time: housekeeping has other things to do.
    pub(crate) async fn punch_strays(&self) {
        for (ino, stray) in self.shared.with(|s| s.strays.take()) {
            match self.take_back(ino, &stray, 0).await {
                Ok(true) => {}
                Ok(false) if self.shared.with(|s| s.strays.keep(ino, stray)) => {}
                Ok(false) => self.stray_stays(ino, &stray, "too many wait for that"),
                Err(refusal) => {
                    self.stray_stays(ino, &stray, &alloc::format!("target {}: {refusal}", stray.target))
                }
            }
        }
    }

    fn stray_stays(&self, ino: Ino, stray: &Stray, why: &str) {
        self.port.log(format_args!(
            "inode {ino}: {} bytes at {} of a write that failed could not be taken back ({why}); they may show if the \
             file grows over them",
            stray.len, stray.file_offset
        ));
    }
}

/// A piece on every target that a change of it went to.
pub(super) fn everywhere(piece: &Piece) -> impl Iterator<Item = Stray> + '_ {
    copies::to_change(&piece.stripe).iter().map(|target| on(piece, *target))
}

/// A piece on one target.
pub(super) fn on(piece: &Piece, target: TargetId) -> Stray {
    let Piece { chunk, local_offset, file_offset, len, .. } = *piece;
    Stray { target, chunk, local_offset, file_offset, len }
}

/// The part of a stray that lies beyond `size`.
fn beyond(mut stray: Stray, size: u64) -> Option<Stray> {
    let within = size.saturating_sub(stray.file_offset);
    stray.file_offset += within;
    stray.local_offset += within;
    stray.len = stray.len.checked_sub(within).filter(|len| *len > 0)?;
    Some(stray)
}
