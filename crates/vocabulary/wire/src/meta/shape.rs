//! Small records that requests are made of.

use super::{Grant, LeaseTime};
use skep_types::codec::Bytes;
use skep_types::{
    Attr, ClientId, Ino, Layout, LogIndex, Mode, Policy, ProjectId, Seq, ShardId, Slot, Term, byte_enum,
    record,
};

skep_types::record! {
    /// Stands before the body of every request to a shard.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ShardCall {
        /// Which shard.
        pub shard: ShardId,
        /// The sender's lane.
        pub slot: Slot,
        /// Position in the lane; 0 for requests that change nothing.
        pub seq: Seq,
        /// The shard's epoch in the sender's map; 0 = it has none.
        pub epoch: u64,
    } tags {
        /// Leases that the answer may give: [`Wish`].
        19 => pub wish: Option<u8>,
        /// What the mount kept open, and closes with this request; a `Close` says the same later.
        21 => pub closed: Option<Closed>,
        /// So often have all leases of this mount at this group lapsed.
        22 => pub lapses: Option<u64>,
    }
}

skep_types::record! {
    /// Stands before the body of every answer of a shard, refusals included.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ShardStamp {
        /// Term of the log.
        pub term: Term,
        /// Log index whose effects the answer shows.
        pub index: LogIndex,
        /// Log index that is on stable storage.
        pub durable: LogIndex,
    } tags {
        /// Leases that it gives.
        19 => pub grants: Option<alloc::vec::Vec<Grant>>,
        /// The asker holds the file that it has made, or told of, and may keep so many bytes of its content to himself.
        20 => pub holds: Option<u32>,
        /// What it opened may stay open for a while when no program of the mount has it open any more.
        21 => pub keeps: Option<bool>,
        /// It renews the leases that the asking mount has at this group.
        23 => pub renews: Option<LeaseTime>,
        /// Other inodes that the change touched, as they are after it.
        30 => pub touched: Option<alloc::vec::Vec<Attr>>,
    }
}

impl ShardStamp {
    /// Without leases.
    pub fn new(term: Term, index: LogIndex, durable: LogIndex) -> Self {
        Self { term, index, durable, ..Self::default() }
    }
}

byte_enum! {
    /// What a file is opened for.
    pub enum OpenMode {
        /// Reading.
        Read = 1,
        /// Writing.
        Write = 2,
        /// Both.
        ReadWrite = 3,
    }
}

impl OpenMode {
    /// May it write?
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// Both wishes together.
    pub fn union(self, other: Self) -> Self {
        if self == other { self } else { Self::ReadWrite }
    }
}

record! {
    /// One inode of a `Close`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Closed {
        /// The inode.
        pub ino: Ino,
        /// The number of this close among the mount's opens and closes.
        pub open_seq: u64,
    }
}

impl Closed {
    /// Whatever the mount opened with this number, by a create of which nobody was told: it has no inode to name. (A server
    /// that does not know of this finds no such inode open.)
    pub fn untold(shard: ShardId, open_seq: u64) -> Self {
        Self { ino: Ino::new(shard, 0), open_seq }
    }

    /// See [`Closed::untold`].
    pub fn is_untold(&self) -> bool {
        self.ino.serial() == 0
    }
}

record! {
    /// One inode of a `Reclaim`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Reclaimed {
        /// The inode.
        pub ino: Ino,
        /// What it is open for.
        pub mode: OpenMode,
        /// The number of its last open.
        pub open_seq: u64,
        /// End of the furthest range that an append of the mount under way has reserved (see `ReserveEnd`); 0 = none.
        pub reserved: u64,
    }
}

record! {
    /// What `Grow` allotted.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GrowReply {
        /// The attributes.
        pub attr: Attr,
        /// The layout to write to.
        pub layout: Layout,
        /// Present: copy this inline content to the chunks, then `Switch`. Absent: already switched.
        pub copy: Option<InlineCopy>,
    }
}

record! {
    /// Inline content to be copied to chunks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InlineCopy {
        /// The content.
        pub data: Bytes,
        /// Its version.
        pub version: u64,
    }
}

record! {
    /// An open session of an inode.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OpenSession {
        /// The client.
        pub client: ClientId,
        /// What for.
        pub mode: OpenMode,
    }
}

record! {
    /// Everything about an inode.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InspectReply {
        /// The attributes.
        pub attr: Attr,
        /// Parent (directories) or first directory that names it.
        pub parent: Ino,
        /// The layout.
        pub layout: Layout,
        /// Targets that each extent was to have, in the order of the layout; 0 = all there are. An extent with fewer
        /// was made when its pool had no more.
        pub asked: alloc::vec::Vec<u32>,
        /// Wish set on it (directories and empty files), after inheritance.
        pub policy: Policy,
        /// The wish was set on this very inode.
        pub policy_is_own: bool,
        /// Does each directory that is made in it get a shard of its own?
        pub spread: bool,
        /// Bytes of content in the metadata.
        pub inline_len: Option<u64>,
        /// Who has it open.
        pub sessions: alloc::vec::Vec<OpenSession>,
        /// Entries (directories).
        pub entries: u64,
    }
}

record! {
    /// One counter.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Counter {
        /// Its name.
        pub name: alloc::string::String,
        /// Its value.
        pub value: u64,
    }
}

record! {
    /// Counters since the start of the daemon.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StatsReply {
        /// In name order.
        pub counters: alloc::vec::Vec<Counter>,
    }
}

record! {
    /// A directory that another shard is to make: everything that it inherits is worked out already.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NewDir {
        /// Permission bits.
        pub mode: Mode,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Project.
        pub project: ProjectId,
        /// Layout wish.
        pub policy: Option<Policy>,
        /// Access ACL, as an extended attribute holds it.
        pub access_acl: Option<Bytes>,
        /// Default ACL.
        pub default_acl: Option<Bytes>,
    }
}
