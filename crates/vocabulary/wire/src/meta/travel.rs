//! `FetchRows` and `AskHistory`: a shard moves from one metadata server to another.

use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::log::Row;
use skep_types::{LogIndex, Term, record};

crate::message! {
    /// Asks the server that had a shard for its rows, in order of their keys.
    FetchRows = 0x022e -> RowsReply {
        /// Rows behind this key; empty: from the first one on.
        pub behind: Bytes,
        /// Term of the newest record of the copy that the asker has; 0 = it has none.
        pub term: Term,
        /// Index of that record.
        pub index: LogIndex,
    }
}

record! {
    /// Some rows of a shard that nobody changes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RowsReply {
        /// Term of the shard's newest record.
        pub term: Term,
        /// Index of it: rows that were told with another head are of another copy.
        pub index: LogIndex,
        /// The rows.
        pub rows: Vec<Row>,
        /// There are more behind the last one.
        pub more: bool,
        /// The asker's copy is an older state of these rows.
        pub holds: bool,
    }
}

crate::message! {
    /// Asks whether the shard, as it is served, goes on from this record: for a server that has an older copy of its rows.
    AskHistory = 0x022f -> AskHistoryReply {
        /// Term of the record.
        pub term: Term,
        /// Its index.
        pub index: LogIndex,
    }
}

record! {
    /// The answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AskHistoryReply {
        /// The record is one of the shard's, on stable storage there, with all before it.
        pub holds: bool,
    }
}
