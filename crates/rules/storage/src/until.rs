//! Until when a write counts: what a mount had kept for a moment must not land behind what others were let do without it
//! (`docs/design/gathering.md`, section 4).

use crate::execute::Done;
use crate::store::ChunkStore;
use alloc::boxed::Box;
use alloc::format;
use skep_wire::storage::Clock;
use skep_wire::{Refusal, Status};

/// Is it no later than that? Another run of the daemon began its clock anew, nobody knows when by the clock before: what was
/// meant for that counts no more.
pub fn is_by(now: &Clock, until: &Clock) -> bool {
    now.run == until.run && now.ms <= until.ms
}

/// Refuses what comes later than it counts. To be asked in front of the first byte, behind all that a write waits for.
pub(crate) fn require_in_time(store: &impl ChunkStore, until: Option<Clock>) -> Result<(), Done> {
    let Some(until) = until.filter(|until| !store.counts(until)) else { return Ok(()) };
    let now = store.clock();
    let text = match now.run == until.run {
        true => format!("the write came {} ms later than it counts", now.ms.saturating_sub(until.ms)),
        false => "the write was meant for another run of the storage daemon".into(),
    };
    Err(Done::Refused(Refusal { clock: Some(Box::new(now)), ..Refusal::with(Status::TOO_LATE, text) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryChunks, write_chunk};
    use skep_types::{ChunkId, Generation, Ino, Millis, TargetId};
    use skep_wire::storage::{Owner, WriteChunk};

    const CHUNK: ChunkId = ChunkId { ino: Ino(5), generation: Generation(1), extent: 0, stripe: 0 };

    fn write(until: Option<Clock>, later: Option<bool>) -> WriteChunk {
        let (target, owner) = (TargetId(101), Owner::default());
        WriteChunk {
            target,
            chunk: CHUNK,
            offset: 0,
            owner,
            floor: 0,
            sync: false,
            uncut: None,
            later,
            until,
        }
    }

    /// Goal: a write that says until when it counts lands until then, and not a millisecond later; one of another run of the
    /// daemon never; one that says nothing always. A refusal leaves nothing behind, and says what the clock shows.
    #[test]
    fn late_writes_are_refused() {
        let store = MemoryChunks::default();
        store.set_time(Millis(1_000));
        let Clock { run, ms } = store.clock();
        let cases = [
            (Some(Clock { run, ms: ms + 1 }), true),
            (Some(Clock { run, ms }), true),
            (Some(Clock { run, ms: ms - 1 }), false),
            (Some(Clock { run, ms: 0 }), false),
            (Some(Clock { run: run + 1, ms: u64::MAX }), false),
            (Some(Clock::default()), false),
            (None, true),
        ];
        for (number, (until, lands)) in cases.into_iter().enumerate() {
            let before = store.changes().of(&CHUNK);
            match write_chunk(&store, &write(until, None), &[number as u8; 4]) {
                Ok(_) => assert!(lands, "{until:?}"),
                Err(Done::Refused(refusal)) => {
                    assert_eq!(
                        (refusal.status, refusal.clock),
                        (Status::TOO_LATE, Some(Box::new(store.clock())))
                    );
                    assert!(!lands && store.changes().of(&CHUNK) == before, "{until:?}");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// Goal: who says that he brings more is told the clock, which goes on, and begins anew with each run of the daemon.
    #[test]
    fn the_clock_is_told() {
        let store = MemoryChunks::default();
        let told = |later| write_chunk(&store, &write(None, later), b"1234").unwrap().clock;
        store.set_time(Millis(70));
        let first = told(Some(true)).unwrap();
        assert_eq!((first.ms, told(None), told(Some(false))), (70, None, None));
        store.set_time(Millis(95));
        assert_eq!(told(Some(true)), Some(Clock { ms: 95, ..first }));
        store.restart(None);
        let next = told(Some(true)).unwrap();
        assert!(next.run != first.run && next.run != 0 && first.run != 0 && next.ms == 0, "{next:?}");
    }
}
