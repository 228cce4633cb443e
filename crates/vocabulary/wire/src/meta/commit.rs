//! `Commit`: commits size and time after writes to chunks.

use super::AttrReply;
use skep_types::{Generation, Held, Ino, Timestamp};

crate::message! {
    /// Commits size and time after writes to chunks.
    Commit = 0x020f -> AttrReply {
        /// The file.
        pub ino: Ino,
        /// Layout generation that was written to.
        pub generation: Generation,
        /// End of the furthest write; the size grows to it, never shrinks.
        pub size: u64,
        /// The file's cuts as of which `size` is known. When it was cut since, and would grow, the request is
        /// refused with STALE_SIZE: the targets tell what is left of what was written.
        pub cuts: u64,
        /// Time of the last write.
        pub mtime: Timestamp,
        /// The newest of the file's set times that was known when something of it was written: a time that was set
        /// later stays.
        pub time_sets: u64,
        /// 512-byte blocks in all chunk files, when known.
        pub blocks: Option<u64>,
        /// An ordinary user wrote: clear suid and sgid.
        pub kill_suidgid: bool,
        /// What chunk files hold that were written, or synced since. CUT_SINCE when the layout was cut since they were
        /// looked at; then nothing of the message was done.
        pub held: Option<Held>,
    }
}
