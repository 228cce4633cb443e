//! Operations over two shards: the intent of the one that asks, the memory of the one asked.

use crate::command::Caller;
use skep_types::{Attr, Ino, ShardId, byte_enum, record};
use skep_wire::meta::NewDir;

byte_enum! {
    /// What is done on the other shard.
    pub enum RemoteKind {
        /// Make a directory.
        Make = 1,
        /// Remove a directory.
        Retire = 2,
    }
}

byte_enum! {
    /// How far it is.
    pub enum RemotePhase {
        /// The other shard is being asked.
        Asking = 1,
        /// This shard has finished; the other one is told to forget.
        Forgetting = 2,
    }
}

record! {
    /// Driven by this shard until it ends: rolled forward, after every crash too.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RemoteIntent {
        /// What.
        pub kind: RemoteKind,
        /// How far.
        pub phase: RemotePhase,
        /// The shard asked.
        pub on: ShardId,
        /// The directory that holds the entry.
        pub parent: Ino,
        /// The entry.
        pub cookie: u64,
        /// The remote directory (0: to be made).
        pub ino: Ino,
        /// What is to be made (make).
        pub new: Option<NewDir>,
        /// Who waits for the answer.
        pub caller: Option<Caller>,
    }
}

record! {
    /// Every transaction of an asking shard below this one is finished: whatever comes of it has strayed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RemoteFloor {
        /// The first that may not be finished.
        pub txid: u64,
    }
}

record! {
    /// What this shard answered to a transaction of another one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RemoteMemory {
        /// The directory.
        pub ino: Ino,
        /// 0 = done.
        pub errno: u32,
        /// Attributes of a directory that was made.
        pub attr: Option<Attr>,
        /// The asking shard has finished: only a late repetition can still come.
        pub forgotten: bool,
    }
}
