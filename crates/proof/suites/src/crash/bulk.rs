//! Large files beside the histories: chunks on all targets, growth, appends, cuts, reserved space and holes.

use skep_model::{At, Fill, Handle, Op, OpenHow, Path, Rng};

/// Handles of large files; those of histories are lower.
const HANDLES: [Handle; 3] = [Handle(100), Handle(101), Handle(102)];
/// Names of large files, as indices of `skep_model::NAMES`: they meet with those of the histories.
const FILES: [u8; 3] = [5, 6, 7];
/// Writes and reads lie between these lengths.
const TRANSFER_MIN: u64 = 64 << 10;
const TRANSFER_MAX: u64 = 8 << 20;
/// Highest size.
const SIZE_MAX: u64 = 24 << 20;

/// Makes operations on large files. It keeps track of what it opened, so that handles get used.
pub struct Bulk {
    rng: Rng,
    made: u32,
    open: [bool; HANDLES.len()],
}

/// Handles from this one on append.
const APPENDS_FROM: usize = 2;

impl Bulk {
    /// Its own sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed ^ 0xb01d), made: 1 << 24, open: [false; HANDLES.len()] }
    }

    /// Somebody closed all handles.
    pub fn closed(&mut self) {
        self.open = [false; HANDLES.len()];
    }

    /// The next operation. Opening may fail (the name may be a directory by now); what is done with
    /// the handle afterwards then fails in the oracle, too.
    pub fn next_op(&mut self) -> Op {
        self.made += 1;
        let slot = self.rng.below(HANDLES.len() as u64) as usize;
        let (handle, draw) = (HANDLES[slot], self.rng.below(100));
        if !self.open[slot] || draw < 5 {
            self.open[slot] = !self.open[slot];
            return if self.open[slot] { self.open(slot) } else { Op::Close { handle } };
        }
        let offset = self.rng.below(SIZE_MAX);
        // Mostly short transfers: the machine is shared.
        let longest = self.rng.pick(&[1 << 20, 1 << 20, 2 << 20, TRANSFER_MAX]);
        let len = TRANSFER_MIN + self.rng.below(longest - TRANSFER_MIN);
        let len = len.min(SIZE_MAX - offset);
        let kill = self.rng.percent(20);
        match draw {
            5..45 => Op::Write { handle, offset, fill: Fill { tag: self.made, len: len as u32 }, kill },
            45..65 => Op::Read { handle, offset, len: len as u32 },
            65..80 => Op::Truncate { at: At::Handle(handle), size: self.rng.below(SIZE_MAX), kill },
            80..83 => Op::Truncate { at: At::Handle(handle), size: 0, kill },
            83..88 => Op::Punch { handle, offset, len: len.max(1), kill },
            88..92 => Op::Zero { handle, offset, len: len.max(1), keep_size: kill, kill },
            92..96 => Op::Allocate { handle, offset, len: len.max(1), keep_size: kill, kill },
            _ => Op::Fsync { handle },
        }
    }

    fn open(&mut self, slot: usize) -> Op {
        let how = OpenHow {
            read: true,
            write: true,
            append: slot >= APPENDS_FROM,
            truncate: self.rng.percent(10),
            create: true,
            exclusive: false,
        };
        let path = Path::new(&[FILES[slot]]);
        Op::Open { path, handle: HANDLES[slot], how, mode: 0o644, kill: false }
    }
}
