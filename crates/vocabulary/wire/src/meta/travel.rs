//! `FetchRows` and `AskTerm`: a shard moves from one metadata server to another.

use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::log::Row;
use skep_types::{LogIndex, Term, record};

crate::message! {
    /// Asks the server that had a shard for its rows, in order of their keys.
    FetchRows = 0x022e -> RowsReply {
        /// Rows behind this key; empty: from the first one on.
        pub behind: Bytes,
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
    }
}

crate::message! {
    /// Asks in which term a shard is served, for a server that has an older copy of its rows.
    AskTerm = 0x022f -> AskTermReply {
    }
}

record! {
    /// The term.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AskTermReply {
        /// On stable storage there, with all before it.
        pub term: Term,
    }
}
