//! Random operations on one file equal a flat byte array, whatever is lost on the way.

use crate::testing::{BOTH, Cluster, Fault, TRUNCATE, block_on, create, mounted, read};
use crate::{Allocate, Opened, WriteHow};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::SetAttr;
use skep_wire::meta::{ChangeAttr, Commit, Grow, Open, Switch, WriteInline};
use skep_wire::storage::{ReadChunk, WriteChunk};
use skep_wire::{Message, Status};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// An offset or length that is often near a border: of a page, of the inline limit, of an extent.
    fn place(&mut self) -> u64 {
        let border = [0, 4096, 8192, 16 << 10, 32 << 10, 64 << 10, 128 << 10][self.below(7) as usize];
        match self.below(3) {
            0 => self.below(200_000),
            _ => (border + self.below(7)).saturating_sub(3),
        }
    }
}

/// A fault that a retry gets over; a switch may also be refused for good.
fn trouble(cluster: &RefCell<Cluster>, rng: &mut Rng) {
    let kinds = [
        WriteInline::KIND,
        Grow::KIND,
        Switch::KIND,
        Commit::KIND,
        ChangeAttr::KIND,
        Open::KIND,
        ReadChunk::KIND,
        WriteChunk::KIND,
    ];
    let faults = [Fault::LoseAnswer, Fault::LoseRequest, Fault::Unreachable, Fault::Refuse(Status::BUSY)];
    let (kind, fault) = (kinds[rng.below(8) as usize], faults[rng.below(4) as usize]);
    cluster.borrow_mut().fail(kind, &[fault]);
}

/// Goal: reads, writes, truncates, punches and re-opens over 1, 2 and 3 targets give what a flat
/// array gives, with lost messages in between.
#[test]
fn a_file_is_a_flat_array_of_bytes() {
    for seed in 1..=60u64 {
        let mut rng = Rng(seed * 0x9e37_79b9);
        let (cluster, lane) = mounted();
        let mut file: Opened = create(&lane, b"a");
        let mut flat: Vec<u8> = Vec::new();
        for step in 0..250 {
            if rng.below(3) == 0 {
                trouble(&cluster, &mut rng);
            }
            let (offset, len) = (rng.place(), rng.place().max(1));
            match rng.below(20) {
                0..8 => {
                    let byte = (seed * 31 + step) as u8;
                    let data = vec![byte; len as usize];
                    let n = block_on(lane.write(file.handle, offset, &data, WriteHow::default()));
                    assert_eq!(n, Ok(data.len()), "seed {seed}, step {step}: {:?}", cluster.borrow().lines);
                    let end = (offset + len) as usize;
                    flat.resize(flat.len().max(end), 0);
                    flat[offset as usize..end].fill(byte);
                }
                8..15 => {
                    let start = (offset as usize).min(flat.len());
                    let end = (offset + len).min(flat.len() as u64) as usize;
                    let expected = &flat[start..end.max(start)];
                    let seen = read(&lane, &file, offset, len as usize);
                    assert!(seen == expected, "seed {seed}, step {step}: read {len} at {offset}");
                }
                15 => {
                    let set = SetAttr { size: Some(offset), ..SetAttr::default() };
                    assert_eq!(block_on(lane.setattr(file.attr.ino, set)).unwrap().size, offset);
                    flat.resize(offset as usize, 0);
                }
                16 => {
                    block_on(lane.fallocate(file.handle, Allocate::Punch, offset, len)).unwrap();
                    let start = (offset as usize).min(flat.len());
                    let end = ((offset + len) as usize).min(flat.len());
                    flat[start..end].fill(0);
                }
                17 => {
                    block_on(lane.flush(file.handle, 0)).unwrap();
                    block_on(lane.release(file.handle));
                    let how = if rng.below(4) == 0 { TRUNCATE } else { BOTH };
                    file = block_on(lane.open(file.attr.ino, how)).unwrap();
                    if how.truncate {
                        flat.clear();
                    }
                }
                18 => block_on(lane.fsync(file.handle)).unwrap(),
                _ => {
                    let seen = block_on(lane.getattr(file.attr.ino)).unwrap().size;
                    assert_eq!(seen, flat.len() as u64, "seed {seed}, step {step}");
                }
            }
        }
        assert!(read(&lane, &file, 0, 600_000) == flat, "seed {seed}: whole content");
    }
}
