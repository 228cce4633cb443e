//! Records of a log that several shards share.

use crate::codec::{Buffer, Bytes, Decode, DecodeError, Encode};
use crate::{LogIndex, LogSeq, ShardId, Term, record};
use alloc::vec::Vec;

/// Records that concern all shards of a log carry this instead of a shard, which no shard can have.
pub const GROUP: ShardId = ShardId(u16::MAX - 1);

record! {
    /// How far the records of a shard go.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Head {
        /// The shard.
        pub shard: ShardId,
        /// Term of its newest record.
        pub term: Term,
        /// Index of its newest record.
        pub index: LogIndex,
    }
}

record! {
    /// Shards that came into a log, or left it.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Moves {
        /// Each goes on behind this head, whatever this log knew of it.
        pub came: Vec<Head>,
        /// These are not of this log any more.
        pub gone: Vec<ShardId>,
    }
}

record! {
    /// A row of a shard.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Row {
        /// Its key.
        pub key: Bytes,
        /// What it holds; `None`: there is no such row.
        pub value: Option<Bytes>,
    }
}

/// What a record is. The numbers are part of the log's format; 4 is kept for changes of a shard's members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// A command of a shard.
    Command = 1,
    /// Shards begin new terms: the bytes are the list of their heads.
    Terms = 2,
    /// Shards were imported or dropped: the bytes are [`Moves`].
    Moves = 5,
    /// Rows of shards on their way into the log or out of it, which no command makes: the bytes are a list of [`Row`].
    Rows = 6,
}

/// A record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place among the records of all shards.
    pub seq: LogSeq,
    /// Whose it is; [`GROUP`]: of all that it names.
    pub shard: ShardId,
    /// Term of the shard.
    pub term: Term,
    /// Its place among the records of its shard.
    pub index: LogIndex,
    /// What it is.
    pub kind: EntryKind,
    /// The command.
    pub bytes: Vec<u8>,
}

impl Record {
    /// A command of the shard that it becomes the head of.
    pub fn command(seq: LogSeq, head: Head, bytes: Vec<u8>) -> Self {
        let Head { shard, term, index } = head;
        Self { seq, shard, term, index, kind: EntryKind::Command, bytes }
    }

    /// These shards begin new terms.
    pub fn terms(seq: LogSeq, heads: &[Head]) -> Self {
        let mut bytes = Buffer::new();
        heads.to_vec().encode(&mut bytes);
        Self { seq, shard: GROUP, term: Term(0), index: LogIndex(0), kind: EntryKind::Terms, bytes }
    }

    /// Shards come into the log, or leave it.
    pub fn moves(seq: LogSeq, moves: &Moves) -> Self {
        Self { kind: EntryKind::Moves, bytes: moves.to_bytes(), ..Self::terms(seq, &[]) }
    }

    /// Rows come, or go, as they are.
    pub fn rows(seq: LogSeq, rows: &[Row]) -> Self {
        let mut bytes = Buffer::new();
        rows.to_vec().encode(&mut bytes);
        Self { kind: EntryKind::Rows, bytes, ..Self::terms(seq, &[]) }
    }

    /// The shards that it is of, as it leaves them; without those that are gone.
    pub fn heads(&self) -> Result<Vec<Head>, DecodeError> {
        match self.kind {
            EntryKind::Command => {
                Ok(alloc::vec![Head { shard: self.shard, term: self.term, index: self.index }])
            }
            EntryKind::Terms => Vec::from_bytes(&self.bytes),
            EntryKind::Moves => Moves::from_bytes(&self.bytes).map(|moves| moves.came),
            EntryKind::Rows => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a record of terms gives back the heads that it was made of, and rubbish is refused.
    #[test]
    fn heads_come_back() {
        let heads = [1, 2].map(|n| Head { shard: ShardId(n), term: Term(7), index: LogIndex(u64::from(n)) });
        let record = Record::terms(LogSeq(5), &heads);
        assert_eq!((record.shard, record.heads().unwrap()), (GROUP, heads.to_vec()));
        assert!(Record { bytes: alloc::vec![9], ..record }.heads().is_err());
        let moves = Moves { came: heads.to_vec(), gone: alloc::vec![ShardId(9)] };
        let moved = Record::moves(LogSeq(6), &moves);
        assert_eq!((moved.shard, moved.heads().unwrap()), (GROUP, heads.to_vec()));
        assert_eq!(Moves::from_bytes(&moved.bytes), Ok(moves));
        let rows = [
            Row { key: Bytes(alloc::vec![1]), value: Some(Bytes(alloc::vec![2])) },
            Row { key: Bytes(alloc::vec![3]), value: None },
        ];
        let came = Record::rows(LogSeq(6), &rows);
        assert_eq!((came.heads(), Vec::<Row>::from_bytes(&came.bytes)), (Ok(Vec::new()), Ok(rows.to_vec())));
        let command = Record::command(LogSeq(6), heads[1], Vec::new());
        assert_eq!(command.heads().unwrap(), [heads[1]]);
    }
}
