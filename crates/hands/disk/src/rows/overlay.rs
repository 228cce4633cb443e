//! Rows in memory that are newer than fjall's.

use skep_rows::Key;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;
use std::sync::Arc;

/// What a row costs beyond its bytes: three places and the heads of two allocations.
const ROW_OVERHEAD: usize = 144;
/// Rows for which there is room at once: more of them, and the table of hashes is made anew.
const ROOM: usize = 50_000;

#[derive(Default)]
struct Row {
    /// Shared with the order.
    key: Arc<[u8]>,
    /// `None` = deleted.
    value: Option<Vec<u8>>,
}

/// Newest state of rows. One row is found by its hash, ranges by the order of keys, which is not asked for a row that is
/// written again: of the rows that a request needs, most are.
pub(super) struct Overlay {
    rows: Vec<Row>,
    /// Where each row is.
    order: BTreeMap<Arc<[u8]>, usize>,
    /// The same, for the first key of each hash.
    by_hash: HashMap<u64, usize, BuildHasherDefault<IsHash>>,
    /// Two keys had one hash: what `by_hash` does not know may be in `order`.
    has_collided: bool,
    pub(super) bytes: usize,
}

fn cost(key: &[u8], value: Option<&Vec<u8>>) -> usize {
    ROW_OVERHEAD + key.len() + value.map_or(0, Vec::len)
}

impl Overlay {
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            order: BTreeMap::new(),
            by_hash: HashMap::with_capacity_and_hasher(ROOM, BuildHasherDefault::default()),
            has_collided: false,
            bytes: 0,
        }
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        match self.by_hash.get(&hash) {
            Some(at) if *self.rows[*at].key == *key => Some(*at),
            None if !self.has_collided => None,
            _ => self.order.get(key).copied(),
        }
    }

    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.find(hash, key).map(|at| &self.rows[at].value)
    }

    pub(super) fn put(&mut self, hash: u64, key: Key, mut value: Option<Vec<u8>>) {
        // It stays for long, in a buffer that was made before its length was known.
        value.iter_mut().for_each(Vec::shrink_to_fit);
        if let Some(at) = self.find(hash, &key) {
            let old = std::mem::replace(&mut self.rows[at].value, value);
            self.bytes += self.rows[at].value.as_ref().map_or(0, Vec::len);
            self.bytes -= old.map_or(0, |old| old.len());
            return;
        }
        self.bytes += cost(&key, value.as_ref());
        let (key, at): (Arc<[u8]>, _) = (key.into(), self.rows.len());
        self.order.insert(key.clone(), at);
        self.has_collided |= *self.by_hash.entry(hash).or_insert(at) != at;
        self.rows.push(Row { key, value });
    }

    /// Takes the first row out.
    pub(super) fn pop_first(&mut self, hash: impl Fn(&[u8]) -> u64) -> Option<(u64, Key, Option<Vec<u8>>)> {
        let (key, at) = self.order.pop_first()?;
        let hash = hash(&key);
        if self.by_hash.get(&hash) == Some(&at) {
            self.by_hash.remove(&hash);
        }
        Some((hash, key.to_vec(), std::mem::take(&mut self.rows[at]).value))
    }

    /// All rows in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Option<Vec<u8>>)> {
        self.order.iter().map(|(key, at)| (&**key, &self.rows[*at].value))
    }

    /// Those with `from <= key < until`.
    pub(super) fn range<'a>(
        &'a self,
        from: &[u8],
        until: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Option<Vec<u8>>)> + use<'a> {
        let range = (Bound::Included(from), Bound::Excluded(until));
        self.order.range::<[u8], _>(range).map(|(key, at)| (&**key, &self.rows[*at].value))
    }
}

/// Of what is a hash already.
#[derive(Default)]
struct IsHash(u64);

impl Hasher for IsHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an overlay says what an ordered map says, also when all keys have one of three hashes, and while its rows
    /// are taken out.
    #[test]
    fn is_a_map_whatever_the_hashes() {
        for hashes in [3, u64::MAX] {
            let hash = |key: &[u8]| key.iter().fold(7, |h: u64, byte| h * 257 + u64::from(*byte)) % hashes;
            let (mut overlay, mut truth) = (Overlay::new(), BTreeMap::new());
            for n in 0..2_000_u32 {
                let key = (n.wrapping_mul(2_654_435_761) >> 16 & 0x1ff).to_be_bytes().to_vec();
                let value = (n % 5 > 0).then(|| vec![n as u8; n as usize % 60]);
                overlay.put(hash(&key), key.clone(), value.clone());
                truth.insert(key, value);
            }
            let bytes = |truth: &BTreeMap<Key, Option<Vec<u8>>>| -> usize {
                truth.iter().map(|(key, value)| cost(key, value.as_ref())).sum()
            };
            assert_eq!(overlay.bytes, bytes(&truth));
            let (from, until) = (100_u32.to_be_bytes(), 200_u32.to_be_bytes());
            let expected =
                truth.range(from.to_vec()..until.to_vec()).map(|(key, value)| (key.as_slice(), value));
            assert!(overlay.range(&from, &until).eq(expected));
            while !truth.is_empty() {
                assert!(overlay.iter().eq(truth.iter().map(|(key, value)| (key.as_slice(), value))));
                for key in (0..0x200_u32).map(u32::to_be_bytes) {
                    assert_eq!(overlay.get(hash(&key), &key), truth.get(key.as_slice()));
                }
                for _ in 0..50 {
                    let popped = overlay.pop_first(hash).map(|(_, key, value)| (key, value));
                    assert_eq!(popped, truth.pop_first());
                }
            }
        }
    }
}
