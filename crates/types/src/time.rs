//! Two kinds of time: what files carry, and what timers count.

use crate::codec::{Buffer, Decode, DecodeError, Encode, Reader};

/// Milliseconds of a monotonic clock. The hands pass it in; rules never ask for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

impl Millis {
    /// This moment plus `ms`.
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment (0 when it is not earlier).
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Wall-clock time of a file, nanoseconds kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

// Written flat (no record length): every inode row holds four of them.
impl Encode for Timestamp {
    fn encode(&self, out: &mut Buffer) {
        self.secs.encode(out);
        self.nanos.encode(out);
    }
}

impl Decode for Timestamp {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (secs, nanos) = (i64::decode(r)?, u32::decode(r)?);
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::Invalid("nanoseconds"));
        }
        Ok(Self { secs, nanos })
    }
}
