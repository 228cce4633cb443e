//! The row cache: rows as fjall has them, absent ones included, in a bounded number of bytes.
//!
//! A table of sets of [`WAYS`] rows that never grows or rehashes, so no look-up ever pays for a
//! rebuild. Eviction is second-chance: a row that was read since the hand last came by stays.

use skep_rows::Key;

/// Rows per set: their tags fill one cache line.
const WAYS: usize = 8;
/// Rows are assumed to be this large when the table is sized.
const ROW_GUESS: usize = 256;
/// What a row costs beyond its bytes: three allocations and its places in the table.
const ROW_OVERHEAD: usize = 128;

struct Row {
    key: Key,
    value: Option<Vec<u8>>,
    /// Read since the hand came by.
    hot: bool,
}

impl Row {
    fn cost(&self) -> usize {
        ROW_OVERHEAD + self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// See the module.
pub(super) struct Cache {
    /// Key hash per place, 0 = free.
    tags: Vec<u64>,
    rows: Vec<Option<Box<Row>>>,
    bytes: usize,
    capacity: usize,
    hand: usize,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        let sets = (capacity / (ROW_GUESS + ROW_OVERHEAD) / WAYS).max(1).next_power_of_two();
        let places = sets * WAYS;
        let rows = (0..places).map(|_| None).collect();
        Self { tags: vec![0; places], rows, bytes: 0, capacity, hand: 0 }
    }

    fn set(&self, hash: u64) -> std::ops::Range<usize> {
        // The low bits choose a row's place in the overlays.
        let sets = self.tags.len() / WAYS;
        let from = ((hash >> 24) as usize & (sets - 1)) * WAYS;
        from..from + WAYS
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.set(hash).find(|at| {
            self.tags[*at] == hash && self.rows[*at].as_ref().is_some_and(|row| row.key.as_slice() == key)
        })
    }

    /// The row, or that there is none; `None` = not cached.
    pub(super) fn get(&mut self, hash: u64, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let at = self.find(hash, key)?;
        let row = self.rows[at].as_mut()?;
        row.hot = true;
        Some(row.value.clone())
    }

    /// Remembers the row; whatever was known of it before is forgotten in any case.
    pub(super) fn put(&mut self, hash: u64, key: Key, value: Option<Vec<u8>>) {
        let known = self.find(hash, &key);
        if let Some(at) = known {
            self.evict(at);
        }
        let row = Box::new(Row { key, value, hot: false });
        let cost = row.cost();
        if cost > self.capacity / 8 {
            return;
        }
        let at = known.unwrap_or_else(|| self.choose(hash));
        self.evict(at);
        self.tags[at] = hash;
        self.rows[at] = Some(row);
        self.bytes += cost;
        while self.bytes > self.capacity {
            self.sweep(at);
        }
    }

    fn evict(&mut self, at: usize) {
        self.tags[at] = 0;
        if let Some(row) = self.rows[at].take() {
            self.bytes -= row.cost();
        }
    }

    /// A place in the set: a free one, else the first that was not read since the last time.
    fn choose(&mut self, hash: u64) -> usize {
        let set = self.set(hash);
        if let Some(free) = set.clone().find(|at| self.tags[*at] == 0) {
            return free;
        }
        for at in set.clone() {
            match &mut self.rows[at] {
                Some(row) if row.hot => row.hot = false,
                _ => return at,
            }
        }
        set.start + (hash >> 61) as usize
    }

    /// One step of the hand over all places; `spare` is the row just put.
    fn sweep(&mut self, spare: usize) {
        let at = self.hand;
        self.hand = (self.hand + 1) % self.tags.len();
        match &mut self.rows[at] {
            Some(row) if row.hot => row.hot = false,
            Some(_) if at != spare => self.evict(at),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_hash::KeyHash;
    use super::*;
    use std::collections::BTreeMap;

    /// Goal: the cache may forget but never lies, and keeps its bound, whatever the sizes.
    #[test]
    fn never_lies_and_keeps_its_bound() {
        for capacity in [0, 4_000, 50_000] {
            let (hash, mut cache) = (KeyHash::new(), Cache::new(capacity));
            let mut truth = BTreeMap::new();
            let mut hits = 0;
            let mut x = 88172645463325252u64;
            for _ in 0..50_000 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let key = (x % 300).to_le_bytes().to_vec();
                let h = hash.of(&key);
                if x >> 32 & 1 == 0 {
                    let size = x >> 40 & 0x1ff;
                    let value = (size > 20).then(|| vec![x as u8; size as usize * 10]);
                    cache.put(h, key.clone(), value.clone());
                    truth.insert(key, value);
                } else if let Some(found) = cache.get(h, &key) {
                    hits += 1;
                    assert_eq!(Some(&found), truth.get(&key));
                }
                let real: usize = cache.rows.iter().flatten().map(|row| row.cost()).sum();
                assert!(cache.bytes == real && real <= capacity);
            }
            assert_eq!(hits > 0, capacity > 0);
        }
    }
}
