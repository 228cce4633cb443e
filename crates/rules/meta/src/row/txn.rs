//! Transactions over shards: the decision of the coordinator, what a participant has promised, and how far others are.

use alloc::vec::Vec;
use skep_types::{Ino, ShardId, Timestamp, record, union};
use skep_wire::meta::{NewDir, TxnId, TxnRetireDir};

record! {
    /// The coordinator has decided: it happens. Goes when every participant has confirmed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Decision {
        /// Who must hear of it.
        pub participants: Vec<ShardId>,
    }
}

record! {
    /// A directory is made as promised.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RedoMakeDir {
        pub ino: Ino,
        /// The directory that will hold its name.
        pub parent: Ino,
        /// What it is like.
        pub new: NewDir,
        /// Its times.
        pub at: Timestamp,
    }
}

union! {
    /// One thing that was promised.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Redo {
        /// See [`RedoMakeDir`].
        MakeDir(RedoMakeDir) = 1,
        /// See [`TxnRetireDir`].
        RetireDir(TxnRetireDir) = 2,
    }
}

impl Redo {
    /// The inode that is locked until the outcome is known.
    pub fn ino(&self) -> Ino {
        match self {
            Self::MakeDir(redo) => redo.ino,
            Self::RetireDir(redo) => redo.ino,
        }
    }
}

record! {
    /// What a participant has promised.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Prepared {
        /// When the transaction was first tried.
        pub age: Timestamp,
        /// To be done when it is committed; `None`: it was. The row stays until the floor has passed it, so that what
        /// comes again is not done again.
        pub redo: Option<Vec<Redo>>,
    }
}

record! {
    /// Every transaction of a coordinator below this one is finished: whatever comes of it has strayed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Floor {
        /// The first that may not be finished.
        pub txid: TxnId,
    } tags {
        /// Rows of transactions from here to the floor are left. Absent: there are none below the floor.
        1 => pub left: Option<TxnId>,
    }
}
