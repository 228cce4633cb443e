//! `DropLocks`: gives up every lock of an owner on a file.

use super::LockSpace;
use crate::Empty;
use skep_types::Ino;

crate::message! {
    /// Gives up every lock of an owner on a file (its handle is closed), waiting ones included.
    DropLocks = 0x0222 -> Empty {
        /// The file.
        pub ino: Ino,
        /// Space.
        pub space: LockSpace,
        /// The owner in the asking mount.
        pub owner: u64,
        /// As in `SetLock`.
        pub order: u64,
    }
}
