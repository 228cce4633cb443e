//! `Commit`: commits size and time after writes to chunks.

use super::AttrReply;
use skep_types::{Generation, Ino, Timestamp};

crate::message! {
    /// Commits size and time after writes to chunks.
    Commit = 0x020f -> AttrReply {
        /// The file.
        pub ino: Ino,
        /// Layout generation that was written to.
        pub generation: Generation,
        /// End of the furthest write; the size grows to it, never shrinks.
        pub size: u64,
        /// Time of the last write.
        pub mtime: Timestamp,
        /// 512-byte blocks in all chunk files, when known.
        pub blocks: Option<u64>,
        /// An ordinary user wrote: clear suid and sgid.
        pub kill_suidgid: bool,
    }
}
