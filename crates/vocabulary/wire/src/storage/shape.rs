//! Small records of the storage messages.

use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Capacity, ChunkId, Consistency, ProjectId, ShardId, TargetId, Term, Timestamp, record};

record! {
    /// In whose name a metadata server speaks to a target: a later term of the shard deposes an earlier one.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ShardTerm {
        /// The shard that all chunk files of the message are of.
        pub shard: ShardId,
        /// Its term.
        pub term: Term,
    }
}

record! {
    /// To whom space is accounted.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Owner {
        /// User.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Project.
        pub project: ProjectId,
    }
}

record! {
    /// What the clock of a target shows. It goes on while the machine sleeps.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Clock {
        /// The run of the daemon: another number after each start, never 0.
        pub run: u64,
        /// Milliseconds since that began.
        pub ms: u64,
    }
}

record! {
    /// Answer to a read.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReadChunkReply {
        /// Length of the chunk file at the time of the read.
        pub size: u64,
    }
}

record! {
    /// Answer to a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WriteChunkReply {
        /// Length of the chunk file after the write.
        pub size: u64,
        /// 512-byte blocks of the chunk file.
        pub blocks: u64,
        /// Life of the target: changes whenever unsynced writes may have been lost.
        pub life: u64,
    } tags {
        /// [`ChunkStat::cuts`].
        1 => pub cuts: Option<u64>,
        /// So many bytes more may the client bring to this target for some seconds: there is room for them.
        2 => pub room: Option<u64>,
        /// To a write that says `later`: what the target's clock showed.
        3 => pub clock: Option<Clock>,
    }
}

record! {
    /// Answer to trim, punch and reserve.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ChunkReply {
        /// Length of the chunk file afterwards.
        pub size: u64,
        /// 512-byte blocks of the chunk file.
        pub blocks: u64,
        /// Life of the target, as after a write: a hole can be lost as well.
        pub life: u64,
    }
}

record! {
    /// Answer for one chunk file, in the order asked; missing ones are 0 long.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ChunkStat {
        /// Length.
        pub size: u64,
        /// 512-byte blocks.
        pub blocks: u64,
        /// Last change, nanoseconds since 1970.
        pub mtime_ns: i64,
    } tags {
        /// Moves with every change of the chunk file, and sometimes without.
        1 => pub changes: Option<u64>,
        /// Moves when a truncate cuts the chunk file, and sometimes without.
        2 => pub cuts: Option<u64>,
    }
}

record! {
    /// Lengths of chunk files.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StatChunksReply {
        /// One for each asked.
        pub chunks: Vec<ChunkStat>,
    } tags {
        /// When the target's life began: what was written before and not synced may be lost.
        1 => pub life_since: Option<Timestamp>,
    }
}

record! {
    /// One target of a storage daemon.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TargetStat {
        /// Its id.
        pub target: TargetId,
        /// Its directory on the server.
        pub path: String,
        /// State.
        pub consistency: Consistency,
        /// Space.
        pub capacity: Capacity,
        /// Read requests.
        pub reads: u64,
        /// Bytes read.
        pub read_bytes: u64,
        /// Write requests.
        pub writes: u64,
        /// Bytes written.
        pub written_bytes: u64,
        /// Requests that failed on the disk.
        pub errors: u64,
        /// Requests in work.
        pub in_flight: u64,
        /// Nanoseconds spent in reads.
        pub read_ns: u64,
        /// Nanoseconds spent in writes.
        pub write_ns: u64,
        /// Syncs of chunk files.
        pub syncs: u64,
        /// Nanoseconds spent in them.
        pub sync_ns: u64,
    } tags {
        /// Bytes that clients may still bring, of what is free.
        1 => pub promised: Option<u64>,
    }
}

record! {
    /// All targets of a storage daemon.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TargetStatsReply {
        /// In id order.
        pub targets: Vec<TargetStat>,
    }
}

record! {
    /// A part of the list of chunk files.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ListChunksReply {
        /// In ascending order.
        pub chunks: Vec<ChunkId>,
        /// Nothing follows.
        pub end: bool,
    }
}
