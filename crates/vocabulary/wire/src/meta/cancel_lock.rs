//! `CancelLock`: a waiting lock is not wanted any more.

use skep_types::{Ino, record};

crate::message! {
    /// A waiting lock is not wanted any more (the program has a signal).
    CancelLock = 0x0224 -> CancelLockReply {
        /// The file.
        pub ino: Ino,
        /// Its ticket.
        pub ticket: u64,
    }
}

record! {
    /// What was found.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CancelLockReply {
        /// Too late: the lock is held already.
        pub held: bool,
    }
}
