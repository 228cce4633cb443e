//! `GetLock`: which lock stands in the way of a wish?

use super::{HeldLock, LockWish};
use skep_types::{Ino, record};

crate::message! {
    /// Which lock stands in the way of a wish?
    GetLock = 0x0221 -> GetLockReply {
        /// The file.
        pub ino: Ino,
        /// The wish.
        pub lock: LockWish,
    }
}

record! {
    /// What stands in the way.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GetLockReply {
        /// One conflicting lock; absent: none.
        pub held: Option<HeldLock>,
    }
}
