//! One record of the log.
//!
//! ```text
//!  0 u32 length    header and bytes, without padding
//!  4 u32 crc32c    of the segment's salt, the length and everything behind this field
//!  8 u64 term      of the shard
//! 16 u64 index     of the shard
//! 24 u8  kind      1 command, 2 terms, 3 state, 5 moves, 6 rows; 4 is kept for changes of a shard's members
//! 25 u8  flags     0; others are for later releases
//! 26 u16 shard
//! 28 u32 durable   low half of the sequence number up to which the log was durable when it was written
//! 32     bytes, then zeros to a multiple of 8
//! ```
//!
//! A record's own sequence number is nowhere: it follows from its place in the segment. What it says of the log's
//! durable end must be read without it, because behind a hole nobody can count.

use skep_types::codec::{Draw, Example};
use skep_types::formats::Formats;
use skep_types::log::{EntryKind, GROUP, Head, Moves, Record, Row};
use skep_types::{Decode, Encode, LogIndex, LogSeq, ShardId, Term};

/// Bytes before a record's own.
pub(super) const HEADER: usize = 32;
/// Most bytes in one record.
pub const PAYLOAD_MAX: usize = 8 << 20;

/// What lies in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record of the log's users, with a sequence number.
    Entry(EntryKind),
    /// The first of every segment, without a sequence number: the heads of all shards before the segment.
    State,
    /// What a later release wrote: its kind and flags.
    Later(u8, u8),
}

const STATE: u8 = 3;

impl Kind {
    fn from_bytes(kind: u8, flags: u8) -> Self {
        match kind {
            _ if flags != 0 => Self::Later(kind, flags),
            1 => Self::Entry(EntryKind::Command),
            2 => Self::Entry(EntryKind::Terms),
            STATE => Self::State,
            5 => Self::Entry(EntryKind::Moves),
            6 => Self::Entry(EntryKind::Rows),
            _ => Self::Later(kind, flags),
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::Entry(kind) => kind as u8,
            Self::State => STATE,
            Self::Later(kind, _) => kind,
        }
    }
}

/// A record in a buffer, checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) kind: Kind,
    pub(super) shard: ShardId,
    pub(super) term: Term,
    pub(super) index: LogIndex,
    /// Entries up to this one were durable when the record was written.
    pub(super) durable: LogSeq,
    pub(super) bytes: &'a [u8],
}

impl View<'_> {
    /// The entry at this place; `None` when it is none.
    pub(super) fn to_record(self, seq: LogSeq) -> Option<Record> {
        let Kind::Entry(kind) = self.kind else { return None };
        let Self { shard, term, index, .. } = self;
        Some(Record { seq, shard, term, index, kind, bytes: self.bytes.to_vec() })
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

/// Appends an entry to a buffer. Its payload is at most [`PAYLOAD_MAX`].
pub(super) fn encode(out: &mut Vec<u8>, salt: u32, record: &Record, durable: LogSeq) {
    let head = Head { shard: record.shard, term: record.term, index: record.index };
    frame(out, salt, Kind::Entry(record.kind), head, durable, |out| out.extend_from_slice(&record.bytes));
}

/// Appends a segment's first record: the heads of all shards before it.
pub(super) fn encode_state(out: &mut Vec<u8>, salt: u32, heads: &[Head], durable: LogSeq) {
    let nobody = Head { shard: GROUP, term: Term(0), index: LogIndex(0) };
    frame(out, salt, Kind::State, nobody, durable, |out| heads.to_vec().encode(out));
}

/// As a later release might: of another kind, with other flags.
#[cfg(test)]
pub(super) fn encode_as(out: &mut Vec<u8>, salt: u32, record: &Record, (kind, flags): (u8, u8)) {
    let start = out.len();
    encode(out, salt, record, LogSeq(0));
    out[start + 24..start + 26].copy_from_slice(&[kind, flags]);
    let length = u32_at(out, start) as usize;
    let crc = checksum(salt, &out[start..start + length]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

fn frame(
    out: &mut Vec<u8>,
    salt: u32,
    kind: Kind,
    of: Head,
    durable: LogSeq,
    payload: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let mut head = [0; HEADER];
    head[8..16].copy_from_slice(&of.term.0.to_le_bytes());
    head[16..24].copy_from_slice(&of.index.0.to_le_bytes());
    head[24] = kind.to_byte();
    head[26..28].copy_from_slice(&of.shard.0.to_le_bytes());
    head[28..].copy_from_slice(&(durable.0 as u32).to_le_bytes());
    out.extend_from_slice(&head);
    payload(out);
    let length = out.len() - start;
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    let crc = checksum(salt, &out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + length.next_multiple_of(8), 0);
}

/// The whole number near `first`, of which `low` is the low half: nobody writes 2^31 entries without a sync.
fn near(first: LogSeq, low: u32) -> LogSeq {
    let ahead = low.wrapping_sub(first.0 as u32) as i32;
    LogSeq(first.0.saturating_add_signed(i64::from(ahead)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The record at the start of `bytes`, if a whole valid one is there. `first` is the segment's.
pub(super) fn decode(bytes: &[u8], salt: u32, first: LogSeq) -> Option<View<'_>> {
    if bytes.len() < HEADER {
        return None;
    }
    let length = u32_at(bytes, 0) as usize;
    if !(HEADER..=HEADER + PAYLOAD_MAX).contains(&length) || length > bytes.len() {
        return None;
    }
    let bytes = &bytes[..length];
    if checksum(salt, bytes) != u32_at(bytes, 4) {
        return None;
    }
    Some(View {
        kind: Kind::from_bytes(bytes[24], bytes[25]),
        shard: ShardId((u32_at(bytes, 24) >> 16) as u16),
        term: Term(u64_at(bytes, 8)),
        index: LogIndex(u64_at(bytes, 16)),
        durable: near(first, u32_at(bytes, 28)),
        bytes: &bytes[HEADER..],
    })
}

/// See [`crate::formats`].
pub(super) fn formats(formats: &mut Formats) {
    let mut bytes = Vec::new();
    let head = Head { shard: ShardId(3), term: Term(2), index: LogIndex(9) };
    encode(&mut bytes, 0, &Record::command(LogSeq(1), head, b"a command".to_vec()), LogSeq(1));
    formats.bytes("log.entry", &bytes, again);
    let moves = Moves { came: vec![head], gone: vec![ShardId(5)] };
    let rows = [Row::example(Draw::FULL), Row::example(Draw::BARE)];
    for (name, record) in [
        ("log.terms", Record::terms(LogSeq(2), &[head])),
        ("log.moves", Record::moves(LogSeq(3), &moves)),
        ("log.rows", Record::rows(LogSeq(4), &rows)),
    ] {
        bytes.clear();
        encode(&mut bytes, 0, &record, LogSeq(1));
        formats.bytes(name, &bytes, again);
    }
    formats.record::<Moves>("log.Moves");
    formats.record::<Row>("log.Row");
    formats.record::<Head>("log.Head");
    bytes.clear();
    encode_state(&mut bytes, 0, &[head, head], LogSeq(1));
    formats.bytes("log.state", &bytes, again);
}

fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let length = u32_at(bytes.get(..HEADER)?, 0) as usize;
    let crc = checksum(0, bytes.get(..length.max(HEADER))?);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    let view = decode(&bytes, 0, LogSeq(1))?;
    let mut out = Vec::new();
    match (view.kind, view.to_record(LogSeq(1))) {
        (Kind::Entry(_), Some(record)) => encode(&mut out, 0, &record, view.durable),
        (Kind::State, _) => encode_state(&mut out, 0, &Vec::from_bytes(view.bytes).ok()?, view.durable),
        _ => return None,
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: LogSeq = LogSeq(1 << 40);

    fn record(bytes: Vec<u8>) -> Record {
        let head = Head { shard: ShardId(0x7fff), term: Term(7), index: LogIndex(1 << 41) };
        Record::command(LogSeq((1 << 40) + 3), head, bytes)
    }

    /// Goal: a record reads back whole; every changed bit is noticed, and so is the wrong segment.
    #[test]
    fn round_trip_and_every_bit_counts() {
        let record = record((0..45).collect());
        let mut out = Vec::new();
        encode(&mut out, 9, &record, LogSeq((1 << 40) - 5));
        assert_eq!(out.len(), 80);
        let view = decode(&out, 9, FIRST).unwrap();
        assert_eq!(view.to_record(record.seq), Some(record));
        assert!(decode(&out, 8, FIRST).is_none(), "a record of another segment was accepted");
        for bit in 0..77 * 8 {
            let mut bad = out.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, 9, FIRST).is_none(), "bit {bit}");
        }
    }

    /// Goal: the durable end is known from its low half, below, at and above the segment's start, also where the
    /// low half turns over.
    #[test]
    fn durable_is_found_from_its_low_half() {
        let far = i64::from(i32::MAX);
        for first in [1, 77, (1 << 32) - 1, 1 << 32, (1 << 40) + 5, u64::MAX - (1 << 33)] {
            for ahead in [-far, -70_000, -5, -1, 0, 1, 90, far] {
                let Some(durable) = first.checked_add_signed(ahead) else { continue };
                let mut out = Vec::new();
                encode(&mut out, 9, &record(vec![1]), LogSeq(durable));
                assert_eq!(decode(&out, 9, LogSeq(first)).unwrap().durable, LogSeq(durable));
            }
        }
    }

    /// Goal: the state of 64 shards takes at most 4 KiB, and is no entry.
    #[test]
    fn a_state_is_small() {
        let head = |n| Head { shard: ShardId(n), term: Term(u64::MAX), index: LogIndex(u64::MAX) };
        let heads: Vec<_> = (0..64).map(head).collect();
        let mut out = Vec::new();
        encode_state(&mut out, 9, &heads, LogSeq(3));
        assert!(out.len() <= 4 << 10, "{} bytes", out.len());
        let view = decode(&out, 9, LogSeq(4)).unwrap();
        assert_eq!((view.kind, view.shard, view.to_record(LogSeq(4))), (Kind::State, GROUP, None));
        assert_eq!(Vec::from_bytes(view.bytes), Ok(heads));
    }

    /// Goal: random and truncated bytes never panic the decoder (fuzz smoke).
    #[test]
    fn garbage_never_panics() {
        let mut out = Vec::new();
        encode(&mut out, 1, &record(vec![5; 100]), LogSeq(0));
        for n in 0..HEADER + 100 {
            assert!(decode(&out[..n], 1, FIRST).is_none());
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
            bytes[24] %= 8;
            assert!(decode(&bytes, 1, FIRST).is_none());
        }
    }
}
