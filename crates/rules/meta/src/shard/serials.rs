//! Inode serials: taken from blocks whose reservation is durable, so that no number is ever given
//! out twice, whatever a power cut takes.

use crate::fail::{Fail, Need};
use crate::limit::{SERIAL_BLOCK, SERIAL_LOW};
use skep_types::{Errno, Ino, LogIndex, ShardId};
use skep_wire::{Refusal, Status};

/// Serials of one shard.
#[derive(Debug, Clone, Copy)]
pub struct Serials {
    next: u64,
    end: u64,
    /// End of what is reserved, and the log record that says so.
    spare: Option<(u64, LogIndex)>,
}

impl Serials {
    /// After a start: what was reserved earlier and perhaps not used is skipped.
    pub fn new(reserved: u64) -> Self {
        Self { next: reserved, end: reserved, spare: None }
    }

    /// The end of the block to reserve, when it is time to.
    pub fn wants(&self) -> Option<u64> {
        if self.spare.is_some() || self.end - self.next > SERIAL_LOW {
            return None;
        }
        let end = self.end.saturating_add(SERIAL_BLOCK).min(Ino::SERIAL_MAX);
        (end > self.end).then_some(end)
    }

    /// A block up to `end` is reserved by log record `index`.
    pub fn reserved(&mut self, end: u64, index: LogIndex) {
        self.spare = Some((end, index));
    }

    /// The next number.
    pub fn take(&mut self, shard: ShardId, durable: LogIndex) -> Result<Ino, Fail> {
        if self.next == self.end {
            match self.spare {
                Some((end, index)) if durable >= index => (self.end, self.spare) = (end, None),
                Some((_, index)) => return Err(Fail::Wait(Need::Durable(index))),
                None => {
                    return Err(Refusal::with(
                        Status::errno(Errno::ENOSPC),
                        alloc::format!("shard {shard} has no inode number left"),
                    )
                    .into());
                }
            }
        }
        let serial = self.next;
        self.next += 1;
        Ok(Ino::new(shard, serial))
    }
}
