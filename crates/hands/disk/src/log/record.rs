//! One record of the log.
//!
//! ```text
//!  0 u32 length    header and bytes, without padding
//!  4 u32 crc32c    of the segment's salt, the length and everything behind this field
//!  8 u64 term
//! 16 u64 index
//! 24 u8  kind      1 command, 2 term start, 3 hard state, 4 membership
//! 25 u8  flags
//! 26 u16 shard
//! 28 u32 undurable entries before this one that were not known durable when it was written
//! 32     bytes, then zeros to a multiple of 8
//! ```

use skep_types::{LogIndex, ShardId, Term};

/// Bytes before a record's own.
pub(super) const HEADER: usize = 32;
/// Most bytes in one record.
pub const PAYLOAD_MAX: usize = 8 << 20;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// A command of a shard.
    Command = 1,
    /// A term begins; changes nothing.
    TermStart = 2,
    /// Raft's hard state. No entry: it carries the last entry's index and takes none itself.
    HardState = 3,
    /// A change of the replica set.
    Membership = 4,
}

impl EntryKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Command,
            2 => Self::TermStart,
            3 => Self::HardState,
            4 => Self::Membership,
            _ => return None,
        })
    }

    /// Does it take an index of its own?
    pub fn is_entry(self) -> bool {
        self != Self::HardState
    }
}

/// A record as appended and as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Term of the leader that made it.
    pub term: Term,
    /// Its position.
    pub index: LogIndex,
    /// What it is.
    pub kind: EntryKind,
    /// For the shard's use.
    pub flags: u8,
    /// Which shard it belongs to.
    pub shard: ShardId,
    /// The command.
    pub bytes: Vec<u8>,
}

/// A record in a buffer, checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) term: Term,
    pub(super) index: LogIndex,
    pub(super) kind: EntryKind,
    pub(super) flags: u8,
    pub(super) shard: ShardId,
    /// Entries up to this one were durable when the record was written.
    pub(super) durable: LogIndex,
    pub(super) bytes: &'a [u8],
}

impl View<'_> {
    pub(super) fn to_record(self) -> Record {
        let Self { term, index, kind, flags, shard, .. } = self;
        Record { term, index, kind, flags, shard, bytes: self.bytes.to_vec() }
    }

    /// Bytes it takes in the segment.
    pub(super) fn size(&self) -> usize {
        size(self.bytes.len())
    }
}

/// Bytes a record with `payload` bytes takes in a segment.
pub(super) fn size(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(8)
}

fn checksum(salt: u32, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt, &record[..4]), &record[8..])
}

/// Appends a record to a buffer. Its payload is at most [`PAYLOAD_MAX`].
pub(super) fn encode(out: &mut Vec<u8>, salt: u32, record: &Record, durable: LogIndex) {
    let start = out.len();
    let undurable = u32::try_from(record.index.0.saturating_sub(durable.0)).unwrap_or(u32::MAX);
    let mut head = [0; HEADER];
    head[..4].copy_from_slice(&((HEADER + record.bytes.len()) as u32).to_le_bytes());
    head[8..16].copy_from_slice(&record.term.0.to_le_bytes());
    head[16..24].copy_from_slice(&record.index.0.to_le_bytes());
    head[24] = record.kind as u8;
    head[25] = record.flags;
    head[26..28].copy_from_slice(&record.shard.0.to_le_bytes());
    head[28..].copy_from_slice(&undurable.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(&record.bytes);
    let crc = checksum(salt, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + size(record.bytes.len()), 0);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The record at the start of `bytes`, if a whole valid one is there.
pub(super) fn decode(bytes: &[u8], salt: u32) -> Option<View<'_>> {
    if bytes.len() < HEADER {
        return None;
    }
    let length = u32_at(bytes, 0) as usize;
    if !(HEADER..=HEADER + PAYLOAD_MAX).contains(&length) || length > bytes.len() {
        return None;
    }
    let kind = EntryKind::from_byte(bytes[24])?;
    let bytes = &bytes[..length];
    if checksum(salt, bytes) != u32_at(bytes, 4) {
        return None;
    }
    let index = u64_at(bytes, 16);
    let undurable = u32_at(bytes, 28);
    let durable = if undurable == u32::MAX { 0 } else { index.saturating_sub(u64::from(undurable)) };
    Some(View {
        term: Term(u64_at(bytes, 8)),
        index: LogIndex(index),
        kind,
        flags: bytes[25],
        shard: ShardId(u32_at(bytes, 24).checked_shr(16).unwrap_or(0) as u16),
        durable: LogIndex(durable),
        bytes: &bytes[HEADER..],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: Vec<u8>) -> Record {
        let (term, index) = (Term(7), LogIndex(1 << 40));
        Record { term, index, kind: EntryKind::Command, flags: 3, shard: ShardId(0x7fff), bytes }
    }

    /// Goal: a record reads back whole, with what was durable; every changed bit is noticed.
    #[test]
    fn round_trip_and_every_bit_counts() {
        let record = record((0..45).collect());
        let mut out = Vec::new();
        encode(&mut out, 9, &record, LogIndex((1 << 40) - 5));
        assert_eq!(out.len(), 80);
        let view = decode(&out, 9).unwrap();
        assert_eq!(view.to_record(), record);
        assert_eq!(view.durable, LogIndex((1 << 40) - 5));
        assert!(decode(&out, 8).is_none(), "a record of another segment was accepted");
        for bit in 0..77 * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, 9).is_none(), "bit {bit}");
        }
    }

    /// Goal: random and truncated bytes never panic the decoder (fuzz smoke).
    #[test]
    fn garbage_never_panics() {
        let mut out = Vec::new();
        encode(&mut out, 1, &record(vec![5; 100]), LogIndex(0));
        for n in 0..HEADER + 100 {
            assert!(decode(&out[..n], 1).is_none());
        }
        let mut x = 0x1234_5678_9abc_def1u64;
        for _ in 0..20_000 {
            let mut bytes = [0u8; 96];
            for byte in &mut bytes {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                *byte = x as u8;
            }
            let length = u32::from(bytes[0]);
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[24] %= 5;
            assert!(decode(&bytes, 1).is_none());
        }
    }
}
