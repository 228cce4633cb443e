//! What the messages about locks are made of.

use skep_types::{ClientId, Ino, Term, byte_enum, record};

byte_enum! {
    /// What a lock keeps others from.
    pub enum LockKind {
        /// Writing (shared with other readers).
        Read = 1,
        /// Reading and writing.
        Write = 2,
    }
}

byte_enum! {
    /// Two kinds of locks that know nothing of each other.
    pub enum LockSpace {
        /// `fcntl`: ranges of bytes, of a process or an open file description.
        Range = 1,
        /// `flock`: the whole file.
        Whole = 2,
    }
}

record! {
    /// Whose lock: the owner's number means something within its mount only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct LockOwner {
        /// The mount.
        pub client: ClientId,
        /// As the kernel of that mount numbers owners.
        pub owner: u64,
    }
}

record! {
    /// A lock, or the wish for one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LockWish {
        /// Number of the owner in the asking mount.
        pub owner: u64,
        /// Its process, to be shown to others.
        pub pid: u32,
        /// Space.
        pub space: LockSpace,
        /// What for. `None` = unlock.
        pub kind: Option<LockKind>,
        /// First byte.
        pub start: u64,
        /// Last byte (inclusive); `u64::MAX` = to the end, wherever that will be.
        pub last: u64,
    }
}

record! {
    /// A lock that somebody holds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct HeldLock {
        /// Whose.
        pub by: LockOwner,
        /// Its process.
        pub pid: u32,
        /// What for.
        pub kind: LockKind,
        /// First byte.
        pub start: u64,
        /// Last byte.
        pub last: u64,
    }
}

byte_enum! {
    /// What became of a wish.
    pub enum LockState {
        /// The lock is held (or given up, as wished).
        Done = 1,
        /// It stands in the queue under its ticket: see `Events`.
        Waits = 2,
    }
}

record! {
    /// What became of a wish.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SetLockReply {
        /// See [`LockState`].
        pub state: LockState,
    }
}

record! {
    /// A wish that waited and does no more.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LockOutcome {
        /// Its ticket.
        pub ticket: u64,
        /// 0 = the lock is held, otherwise the error that the program gets (EDEADLK).
        pub errno: u32,
        /// Term of the shard in which that became of it: in a newer one it waits again, and nothing did.
        pub term: Term,
    }
}

record! {
    /// One lock of a `Reclaim`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ReclaimedLock {
        /// The file.
        pub ino: Ino,
        /// The lock.
        pub lock: LockWish,
        /// Number of the request that it was got by, or of a later one of its owner that was answered: what is
        /// older and comes late stays old.
        pub order: u64,
    }
}
