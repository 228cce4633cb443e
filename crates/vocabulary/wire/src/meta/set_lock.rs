//! `SetLock`: takes or gives up a lock, or waits in line for one.

use super::{LockWish, SetLockReply};
use skep_types::Ino;

crate::message! {
    /// Takes or gives up a lock, or waits in line for one. EAGAIN when it conflicts and there is no ticket, EDEADLK
    /// when waiting would never end, ENOLCK at a limit. Volatile: a restarted shard is told by `Reclaim`.
    SetLock = 0x0220 -> SetLockReply {
        /// The file.
        pub ino: Ino,
        /// The lock.
        pub lock: LockWish,
        /// Wait, under this number (unique within the mount), when it conflicts.
        pub ticket: Option<u64>,
        /// Counts the mount's lock requests: one that is older than the newest of the same owner and file is
        /// refused (OLD_SEQUENCE), so that a late duplicate cannot take a lock again. So is one that takes a lock of a
        /// file that the mount has closed.
        pub order: u64,
    }
}
