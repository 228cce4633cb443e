//! Rows in memory that are newer than fjall's.

use skep_rows::Key;
use std::collections::BTreeMap;

/// What a row costs beyond its bytes: its place in the tree and two allocations.
const ROW_OVERHEAD: usize = 96;
/// Bits of the filter: about eight per row of a full overlay of usual rows; stays in the CPU's
/// second-level cache.
const FILTER_BITS: usize = 1 << 20;

/// Newest state of rows; `None` = deleted.
pub(super) struct Overlay {
    pub(super) rows: BTreeMap<Key, Option<Vec<u8>>>,
    pub(super) bytes: usize,
    /// One bit per key hash: most look-ups of rows that are not here end at it.
    filter: Box<[u64]>,
}

fn cost(key: &[u8], value: Option<&Vec<u8>>) -> usize {
    ROW_OVERHEAD + key.len() + value.map_or(0, Vec::len)
}

fn bit(hash: u64) -> (usize, u64) {
    let bit = hash as usize % FILTER_BITS;
    (bit / 64, 1 << (bit % 64))
}

impl Overlay {
    pub(super) fn new() -> Self {
        Self { rows: BTreeMap::new(), bytes: 0, filter: vec![0; FILTER_BITS / 64].into_boxed_slice() }
    }

    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        let (word, mask) = bit(hash);
        if self.filter[word] & mask == 0 { None } else { self.rows.get(key) }
    }

    pub(super) fn put(&mut self, hash: u64, key: Key, value: Option<Vec<u8>>) {
        let (word, mask) = bit(hash);
        self.filter[word] |= mask;
        self.bytes += cost(&key, value.as_ref());
        let key_cost = cost(&key, None);
        if let Some(old) = self.rows.insert(key, value) {
            self.bytes -= key_cost + old.map_or(0, |v| v.len());
        }
    }
}
