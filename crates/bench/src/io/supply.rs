//! What is written where nothing is compared: bytes that no storage can pack or find twice.
//!
//! A worker goes round a pool of pseudo-random bytes, so what lies near each other in a file does not resemble
//! each other (compression finds nothing), and every 512 bytes carry a number that comes once in a run
//! (deduplication finds nothing either, when the pool comes round).

use super::buffer::{ALIGNMENT, Buffer};
use super::fill;
use crate::engine::mix;

/// Pool of a worker at least. Larger ones than this do not stay in the processor's cache: measured on a mount,
/// writes of one mebibyte from a pool of eight were a tenth slower, which is the generator's time and not the
/// storage's. Smaller ones resemble themselves within a block that storage packs at a time.
const POOL: u64 = 1 << 20;
/// Every so many bytes carry a number of their own: the smallest block that storage compares.
const STAMPED: usize = 512;

/// Writes a number that comes once over every 512 bytes; `next` counts them.
#[inline]
fn stamp(bytes: &mut [u8], key: u64, next: &mut u64) {
    for block in bytes.chunks_mut(STAMPED) {
        // One to one in the counter, so that no two are equal.
        let number = mix(key.wrapping_add(*next)).to_le_bytes();
        let length = block.len().min(number.len());
        block[..length].copy_from_slice(&number[..length]);
        *next += 1;
    }
}

/// A worker's bytes to write.
pub(crate) struct Supply {
    pool: Buffer,
    size: usize,
    at: usize,
    laps: usize,
    key: u64,
    stamps: u64,
}

impl Supply {
    /// A pool for transfers of this size; `key` tells workers apart. None: there is no memory.
    pub fn new(transfer: u64, key: u64) -> Option<Self> {
        let size = usize::try_from(transfer.max(POOL)).ok()?;
        let mut pool = Buffer::new(size)?;
        fill(pool.bytes(), key, 0);
        Some(Self { pool, size, at: 0, laps: 0, key: mix(key), stamps: 0 })
    }

    /// The next so many bytes (no more than a transfer).
    #[inline]
    pub fn next(&mut self, length: usize) -> &mut [u8] {
        if self.at + length > self.size {
            self.laps += 1;
            // Every lap begins elsewhere, so that transfers are cut differently each time.
            let room = (self.size - length) / ALIGNMENT + 1;
            self.at = self.laps % room * ALIGNMENT;
        }
        let at = self.at;
        self.at = (at + length).next_multiple_of(ALIGNMENT);
        let bytes = &mut self.pool.bytes()[at..at + length];
        stamp(bytes, self.key, &mut self.stamps);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Goal: over several rounds of the pool no block of 512 bytes comes twice, whatever the transfer size, and
    /// transfers stay aligned for O_DIRECT.
    #[test]
    fn nothing_comes_twice() {
        for transfer in [4096, 1 << 20, 3 << 20, 9 << 20, 47_008] {
            let mut supply = Supply::new(transfer as u64, 7).unwrap();
            let (mut seen, mut blocks, mut moved) = (BTreeSet::new(), 0, 0);
            while moved < 20 << 20 {
                let bytes = supply.next(transfer);
                assert_eq!(bytes.as_ptr() as usize % ALIGNMENT, 0);
                for block in bytes.chunks_exact(STAMPED) {
                    seen.insert(block[..8].to_vec());
                    blocks += 1;
                }
                moved += transfer;
            }
            assert_eq!(seen.len(), blocks, "{transfer}");
        }
        let (mut a, mut b) = (Supply::new(512, 1).unwrap(), Supply::new(512, 2).unwrap());
        assert_ne!(a.next(512), b.next(512), "two workers write different bytes");
    }

    /// Goal: within a megabyte of small transfers no 64 bytes resemble others: nothing to compress.
    #[test]
    fn nothing_resembles() {
        let mut supply = Supply::new(4096, 3).unwrap();
        let mut seen = BTreeSet::new();
        for _ in 0..256 {
            let bytes = supply.next(4096).to_vec();
            assert!(bytes.chunks_exact(8).all(|word| seen.insert(word.to_vec())));
        }
    }
}
