//! Transactions over shards, shard to shard: see `docs/design/transactions.md`.

use super::NewDir;
use crate::Empty;
use alloc::vec::Vec;
use skep_types::{Attr, Ino, ShardId, Term, Timestamp, byte_enum, record, union};

record! {
    /// Names a transaction; ordered by age where the coordinator is the same.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct TxnId {
        /// The coordinator: the shard that decides.
        pub shard: ShardId,
        /// Its term.
        pub term: Term,
        /// Counted in that term, from 1.
        pub counter: u64,
    }
}

record! {
    /// A directory is made whose name is elsewhere.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TxnMakeDir {
        /// The directory that will hold its name.
        pub parent: Ino,
        /// What it is to be like.
        pub new: NewDir,
    }
}

record! {
    /// A directory goes whose name is elsewhere, if it is empty.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TxnRetireDir {
        /// The directory.
        pub ino: Ino,
        /// The one that holds its name.
        pub parent: Ino,
    }
}

union! {
    /// What a participant is to do.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum TxnOp {
        /// See [`TxnMakeDir`].
        MakeDir(TxnMakeDir) = 1,
        /// See [`TxnRetireDir`].
        RetireDir(TxnRetireDir) = 2,
    }
}

record! {
    /// An inode that will be there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TxnMade {
        /// Its number.
        pub ino: Ino,
        /// What it will be like.
        pub attr: Attr,
    }
}

record! {
    /// It will be done if the coordinator says so.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct TxnPromise {
        /// What will be made.
        pub made: Option<TxnMade>,
    }
}

record! {
    /// It cannot be done.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TxnRefused {
        /// The error that the program gets, as a status.
        pub errno: u32,
    }
}

union! {
    /// What a participant says.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Vote {
        /// See [`TxnPromise`].
        Yes(TxnPromise) = 1,
        /// See [`TxnRefused`].
        No(TxnRefused) = 2,
        /// An older transaction is in the way: this one is to give up what it has locked, and to try again.
        Conflict(Empty) = 3,
    }
}

crate::message! {
    /// Asks a participant for its vote. It holds itself ready from then on until it hears of the outcome.
    Prepare = 0x022b -> PrepareReply {
        /// The transaction.
        pub txid: TxnId,
        /// The coordinator's transactions below this one are finished.
        pub floor: TxnId,
        /// When it was first tried: older ones go first.
        pub age: Timestamp,
        /// What the participant is to do.
        pub ops: Vec<TxnOp>,
    }
}

record! {
    /// The vote.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PrepareReply {
        /// See [`Vote`].
        pub vote: Vote,
    }
}

crate::message! {
    /// Tells a participant the outcome.
    Decide = 0x022c -> Empty {
        /// The transaction.
        pub txid: TxnId,
        /// The coordinator's transactions below this one are finished.
        pub floor: TxnId,
        /// It happens; or nothing of it does.
        pub commit: bool,
    }
}

byte_enum! {
    /// How a transaction stands.
    pub enum TxnOutcome {
        /// Nothing is certain yet: ask again.
        Undecided = 1,
        /// It happens.
        Committed = 2,
        /// Nothing of it does.
        Aborted = 3,
    }
}

crate::message! {
    /// Asks the coordinator for the outcome.
    AskOutcome = 0x022d -> AskOutcomeReply {
        /// The transaction.
        pub txid: TxnId,
        /// The participant.
        pub by: ShardId,
    }
}

record! {
    /// The outcome.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AskOutcomeReply {
        /// See [`TxnOutcome`].
        pub outcome: TxnOutcome,
    }
}
