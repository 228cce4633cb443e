//! `AwaitLocks`: waits until something becomes of the mount's waiting locks.

use super::LockOutcome;
use skep_types::record;

crate::message! {
    /// Waits until something becomes of the mount's waiting locks on any shard of this server, or the time is over.
    /// One per mount and server at a time; a newer one ends an older one.
    AwaitLocks = 0x0223 -> AwaitLocksReply {
        /// Outcomes up to this number have been received: the server forgets them.
        pub received: u64,
        /// Longest wait in milliseconds (the server may answer earlier, without outcomes).
        pub wait_ms: u64,
    }
}

record! {
    /// What became of waiting locks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AwaitLocksReply {
        /// In the order in which it happened; those not yet confirmed are told again.
        pub outcomes: alloc::vec::Vec<LockOutcome>,
        /// Number of the last one. Every life of a server counts on from a higher number than the one before.
        pub number: u64,
    }
}
