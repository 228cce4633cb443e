//! The hash of row keys, used by the row cache and the overlays alike, computed once per
//! look-up. Seeded by the process: names that users choose are part of some keys.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A seeded hash function, a few nanoseconds per key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyHash {
    seed: u64,
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl KeyHash {
    pub(super) fn new() -> Self {
        Self { seed: RandomState::new().build_hasher().finish() }
    }

    /// Never 0.
    pub(super) fn of(self, key: &[u8]) -> u64 {
        let mut state = self.seed ^ key.len() as u64;
        let mut words = key.chunks_exact(8);
        for word in &mut words {
            let mut raw = [0; 8];
            raw.copy_from_slice(word);
            state = fold(state ^ u64::from_le_bytes(raw), FACTOR);
        }
        let mut raw = [0; 8];
        raw[..words.remainder().len()].copy_from_slice(words.remainder());
        fold(state ^ u64::from_le_bytes(raw), FACTOR ^ self.seed.rotate_left(32) | 1).max(1)
    }
}
