//! Slots: a lane's place on every shard. Sequence numbers outlive the lane, because a slot that is
//! used again by a new lane must go on where the last one ended.

use alloc::collections::{BTreeMap, BTreeSet};
use skep_types::limits::SLOTS_MAX;
use skep_types::{Seq, ShardId, Slot};

/// Position of a slot on every shard.
#[derive(Debug, Default)]
pub struct SlotState {
    seqs: BTreeMap<ShardId, Seq>,
    reservations: u64,
}

impl SlotState {
    /// The sequence number of the next changing request.
    pub fn next_seq(&mut self, shard: ShardId) -> Seq {
        let seq = self.seqs.entry(shard).or_default();
        seq.0 += 1;
        *seq
    }

    /// The number of the next reservation to append.
    pub fn next_reservation(&mut self) -> u64 {
        self.reservations += 1;
        self.reservations
    }
}

/// All slots of a mount.
#[derive(Debug, Default)]
pub struct Slots {
    taken: BTreeSet<u32>,
    parked: BTreeMap<u32, SlotState>,
}

impl Slots {
    /// Gives the lowest free slot; `None` when all are taken.
    pub fn take(&mut self) -> Option<(Slot, SlotState)> {
        let slot = (0..SLOTS_MAX).find(|slot| !self.taken.contains(slot))?;
        self.taken.insert(slot);
        Some((Slot(slot), self.parked.remove(&slot).unwrap_or_default()))
    }

    /// Takes a slot back.
    pub fn give_back(&mut self, slot: Slot, state: SlotState) {
        self.taken.remove(&slot.0);
        self.parked.insert(slot.0, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a slot that is used again goes on with higher sequence numbers; slots are bounded.
    #[test]
    fn a_slot_goes_on_where_it_ended() {
        let mut slots = Slots::default();
        let (slot, mut state) = slots.take().unwrap();
        assert_eq!(state.next_seq(ShardId(1)), Seq(1));
        assert_eq!(state.next_seq(ShardId(2)), Seq(1));
        slots.give_back(slot, state);
        let (again, mut state) = slots.take().unwrap();
        assert_eq!((again, state.next_seq(ShardId(1))), (slot, Seq(2)));
        for _ in 1..SLOTS_MAX {
            assert!(slots.take().is_some());
        }
        assert!(slots.take().is_none());
    }
}
