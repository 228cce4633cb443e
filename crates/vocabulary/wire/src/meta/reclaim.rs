//! `Reclaim`: tells a restarted shard what is open.

use super::{Reclaimed, ReclaimedLock};
use skep_types::{Ino, Term, record};

crate::message! {
    /// Tells a restarted shard what is open.
    Reclaim = 0x0219 -> ReclaimReply {
        /// What the mount holds open on this shard.
        pub opens: alloc::vec::Vec<Reclaimed>,
        /// Locks that it holds there. A body has room for a limited number: send several.
        pub locks: alloc::vec::Vec<ReclaimedLock>,
        /// That was all: this session has reported.
        pub last: bool,
    } tags {
        /// For which term of the shard this was put together. Another one refuses it: it may have been told of closes since,
        /// or have heard a part of the report only.
        1 => pub term: Option<Term>,
        /// Of what it has open, the files that it holds.
        2 => pub holds: Option<alloc::vec::Vec<Ino>>,
    }
}

record! {
    /// What came of it.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ReclaimReply {} tags {
        /// Those of its locks that it does not hold any more: others hold them, or may have held them meanwhile.
        1 => pub lost: Option<alloc::vec::Vec<ReclaimedLock>>,
    }
}
