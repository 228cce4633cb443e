//! What is written where nothing is compared: bytes that no storage can pack or find twice.
//!
//! A worker goes round a pool of pseudo-random bytes, so what lies within a mebibyte of each other in a file does not
//! resemble each other (compression finds nothing), and every 512 bytes carry a number that comes once in a run
//! (deduplication finds nothing either, when the pool comes round).

use super::buffer::{ALIGNMENT, Buffer};
use super::fill;
use crate::engine::mix;

/// What is written until the pool comes round, at least. Larger ones than this do not stay in the processor's cache:
/// measured on a mount, writes of one mebibyte from a pool of eight were a tenth slower, which is the generator's time
/// and not the storage's. Smaller ones resemble themselves within a block that storage packs at a time.
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
pub struct Supply {
    /// Transfers side by side, each aligned.
    pool: Buffer,
    /// From one to the next.
    step: usize,
    transfers: usize,
    /// The next one.
    turn: usize,
    key: u64,
    stamps: u64,
}

impl Supply {
    /// A pool for transfers of this size; `key` tells workers apart. None: there is no memory.
    pub fn new(transfer: u64, key: u64) -> Option<Self> {
        let transfers = usize::try_from(POOL.div_ceil(transfer.max(1))).ok()?;
        let transfer = usize::try_from(transfer.max(1)).ok()?;
        // Pages for what is as long as one; no more than twice the bytes for what is shorter.
        let aligned = transfer.checked_next_power_of_two()?.min(ALIGNMENT);
        let step = transfer.checked_next_multiple_of(aligned)?;
        let mut pool = Buffer::new(step.checked_mul(transfers)?)?;
        fill(pool.bytes(), key, 0);
        Some(Self { pool, step, transfers, turn: 0, key: mix(key), stamps: 0 })
    }

    /// The next so many bytes (no more than a transfer).
    #[inline]
    pub fn next(&mut self, length: usize) -> &mut [u8] {
        let at = self.turn * self.step;
        self.turn = (self.turn + 1) % self.transfers;
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
                assert_eq!(bytes.as_ptr() as usize % ALIGNMENT, 0, "O_DIRECT");
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

    /// Goal: wherever in a file one looks, within a mebibyte no 8 bytes come twice: nothing to compress. Also when the
    /// pool comes round, and with records that align with nothing.
    #[test]
    fn nothing_resembles() {
        for transfer in [512, 4096, 47_008, 256 << 10, 1 << 20, 3 << 20] {
            let mut supply = Supply::new(transfer as u64, 3).unwrap();
            let mut file = Vec::new();
            while file.len() < 4 << 20 {
                file.extend_from_slice(supply.next(transfer));
            }
            for from in (0..file.len() - (1 << 20)).step_by(200_000) {
                let mut words: Vec<&[u8]> = file[from..from + (1 << 20)].chunks_exact(8).collect();
                words.sort_unstable();
                assert!(words.windows(2).all(|two| two[0] != two[1]), "transfers of {transfer}, from {from}");
            }
        }
    }
}
