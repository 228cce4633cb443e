//! Counters.

use super::Group;
use crate::shard::Shard;
use crate::store::Store;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use skep_wire::meta::{Counter, MetaRequest};
use skep_wire::mgmt::{ShardEntry, ShardState};

/// Counted since the start.
#[derive(Debug, Default)]
pub struct Counters {
    by_kind: BTreeMap<&'static str, u64>,
    done: u64,
    refused: u64,
    records: u64,
    old_terms: u64,
    held_back: u64,
    read_ahead: u64,
}

impl Counters {
    /// A request came.
    pub fn asked(&mut self, message: &MetaRequest) {
        *self.by_kind.entry(message.name()).or_default() += 1;
    }

    /// An answer went.
    pub fn answered(&mut self, done: bool) {
        *(if done { &mut self.done } else { &mut self.refused }) += 1;
    }

    /// A record went to the log.
    pub fn logged(&mut self) {
        self.records += 1;
    }

    /// A target refused a message because it has heard of a later term of the shard.
    pub fn deposed(&mut self) {
        self.old_terms += 1;
    }

    /// A request waits for rows from the disk.
    pub fn held_back(&mut self) {
        self.held_back += 1;
    }

    /// So many rows and ranges were read for such requests.
    pub fn read_ahead(&mut self, count: usize) {
        self.read_ahead += count as u64;
    }

    /// All of them, with the given gauges, in name order.
    pub fn list(&self, gauges: &[(&str, u64)]) -> Vec<Counter> {
        let mut counters: BTreeMap<&str, u64> = self.by_kind.iter().map(|(k, v)| (*k, *v)).collect();
        counters.extend([("done", self.done), ("log_records", self.records), ("refused", self.refused)]);
        counters.extend([("old_terms", self.old_terms), ("held_back", self.held_back)]);
        counters.insert("rows_read_ahead", self.read_ahead);
        counters.extend(gauges.iter().copied());
        counters.into_iter().map(|(name, value)| Counter { name: name.to_string(), value }).collect()
    }
}

impl<S: Store> Group<S> {
    /// Shards that the map gives to this group and of which it serves nobody, and will not by itself: their rows are not here
    /// and do not come, or others may have newer ones.
    fn unserved(&self) -> usize {
        let own = self.host.own;
        let is_idle = |seat: &&ShardEntry| {
            let leads = self.shards.get(&seat.shard).is_some_and(Shard::leads);
            seat.is_led_by(own) && seat.state == ShardState::Active && !leads
        };
        self.host.seats.values().filter(is_idle).count() + self.refused().count()
    }

    /// Values of the moment, for `GroupStats`.
    pub(crate) fn gauges(&self) -> Vec<(&'static str, u64)> {
        let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (name, value) in self.shards.values().flat_map(|shard| shard.gauges(self.host.now)) {
            *sums.entry(name).or_default() += value;
        }
        let example =
            self.shards.values().map(|shard| shard.lost_example(self.host.now)).find(|ino| *ino != 0);
        sums.extend([
            ("shards", self.shards.values().filter(|shard| shard.leads()).count() as u64),
            ("unserved_shards", self.unserved() as u64),
            ("open_files", self.host.opens.all() as u64),
            ("sessions", self.host.sessions.living().count() as u64),
            ("errands", self.host.errands.len() as u64),
            ("moves", self.travels.len() as u64),
            ("log_index", self.host.last.0),
            ("lost_chunk_file_of", example.unwrap_or(0)),
        ]);
        sums.extend(self.host.leases.gauges(self.host.now));
        sums.into_iter().collect()
    }
}
