//! What happened in a run, line by line: the newest lines for people, a digest of all for the proof
//! that a seed gives the same run again.

use std::collections::VecDeque;
use std::fmt;

/// Lines kept when the whole trace is not asked for.
const KEPT: usize = 120;

#[derive(Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    hash: u64,
    count: u64,
    all: bool,
}

impl Trace {
    /// Keeps all lines, or the newest only.
    pub fn new(all: bool) -> Self {
        Self { lines: VecDeque::new(), hash: 0xcbf2_9ce4_8422_2325, count: 0, all }
    }

    /// Adds a line.
    pub fn line(&mut self, now: u64, what: fmt::Arguments<'_>) {
        let line = format!("{:>5}.{:03} {what}", now / 1000, now % 1000);
        for byte in line.bytes() {
            // FNV-1a
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.count += 1;
        if !self.all && self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Digest of all lines so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Lines so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lines that were kept.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
