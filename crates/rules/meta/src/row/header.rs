//! The header of a shard, and the terms of the server's log.

use skep_types::{LogIndex, NamesKey, NodeId, ShardId, Term, record};

/// Version of the row format that this release writes and reads.
pub const FORMAT: u16 = 1;

record! {
    /// What cookies of a shard's directories are made with.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Keys {
        /// The cluster's, that of routes.
        pub names: NamesKey,
        /// The shard's own, never told to a client.
        pub secret: NamesKey,
    }
}

record! {
    /// All rows of a shard were told to another server, which serves it from then on if mgmtd says so; or to this one, which
    /// has not served them yet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Given {
        /// Epoch of the shard's place in the map by which they were.
        pub epoch: u64,
        /// The server.
        pub to: NodeId,
    }
}

record! {
    /// One per shard.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Header {
        /// Version of the row format.
        pub format: u16,
        pub shard: ShardId,
        /// Keys of cookies.
        pub keys: Keys,
        /// Serials below this are reserved; those from here on were never given out.
        pub serials_end: u64,
        /// Number of the next deletion or trim.
        pub next_id: u64,
        /// Names in its directories whose inodes are on other shards. While there are none, a path that leaves the shard
        /// upwards does not come back.
        pub away: u64,
        /// Epoch of the shard's place in the map.
        pub epoch: u64,
        /// Semantic version of commands that may be logged.
        pub level: u16,
        /// Times that an older copy of the shard was put back. Generations begin with it.
        pub era: u16,
    } tags {
        /// Since this era began not everybody has told what is open: these rows, an older copy, do not say of whom to wait.
        1 => pub era_untold: Option<bool>,
        /// It was given away, if mgmtd says so; or has come, and was not served yet.
        2 => pub given: Option<Given>,
    }
}

impl Header {
    /// See the field.
    pub fn is_era_untold(&self) -> bool {
        self.era_untold == Some(true)
    }
}

record! {
    /// A term of the log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TermStart {
        pub term: Term,
        /// Its first record.
        pub index: LogIndex,
    }
}

record! {
    /// The newest terms of the log, oldest first.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Terms {
        /// In order.
        pub starts: alloc::vec::Vec<TermStart>,
    }
}

impl Terms {
    /// Term of the record at `index`; `None` when it is older than the list.
    pub fn at(&self, index: LogIndex) -> Option<Term> {
        self.starts.iter().rev().find(|start| start.index <= index).map(|start| start.term)
    }

    /// The newest term.
    pub fn last(&self) -> Term {
        self.starts.last().map_or(Term(0), |start| start.term)
    }

    /// A new term begins.
    pub fn push(&mut self, term: Term, index: LogIndex) {
        if self.starts.len() >= crate::limit::TERMS_MAX {
            self.starts.remove(0);
        }
        self.starts.push(TermStart { term, index });
    }
}
