//! What leases are made of: a promise of a shard that nobody changes what they cover before their holder was told and has
//! confirmed, or before their time is over.

use skep_types::{Ino, Name, ShardId, Term, byte_enum, record};

/// Bits of a call's wish.
pub struct Wish;

impl Wish {
    /// Shared leases.
    pub const SHARED: u8 = 1;
    /// To hold what a create makes.
    pub const HOLD: u8 = 2;
}

byte_enum! {
    /// What a lease allows.
    pub enum LeaseKind {
        /// To use what it covers, as others may.
        Shared = 1,
    }
}

record! {
    /// A lease on an inode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Grant {
        /// The inode.
        pub ino: Ino,
        /// Its kind.
        pub kind: LeaseKind,
        /// Grants and recalls of a client are numbered together, in each term of each shard.
        pub number: u64,
    }
}

record! {
    /// How long leases hold.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LeaseTime {
        /// Milliseconds from the moment on at which the answered request was sent.
        pub ms: u64,
        /// Moves when a term of a shard has ended in this life of the group of which the asker had leases: it does not
        /// answer for these any more.
        pub ended: u64,
    }
}

byte_enum! {
    /// What is about to change.
    pub enum RecallKind {
        /// A name in a directory: what it leads to, the attributes of the directory, and its listing.
        Name = 1,
        /// The attributes of an entry of a directory that the lease on the directory covers.
        Entry = 2,
        /// The attributes of the inode itself.
        Attributes = 3,
        /// Whatever the lease covers: it ends.
        Everything = 4,
    }
}

record! {
    /// What a recall names is to be used no longer, and that is to be confirmed. But for [`RecallKind::Everything`] the
    /// lease stays.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Recall {
        /// The shard.
        pub shard: ShardId,
        /// Its term.
        pub term: Term,
        /// Number of the recall. What grants with lower ones say of it does not count.
        pub number: u64,
        /// The inode that the lease is on.
        pub ino: Ino,
        /// What about it.
        pub kind: RecallKind,
        /// The name.
        pub name: Option<Name>,
        /// The entry.
        pub entry: Option<Ino>,
    } tags {
        /// Others change it again and again: the lease is wanted back with it, if the holder need not wait to give it back.
        1 => pub wants_back: Option<bool>,
    }
}
