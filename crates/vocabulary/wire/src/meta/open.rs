//! `Open`: opens a file (or a directory, to pin it).

use super::{OpenMode, OpenReply};
use skep_types::Ino;

crate::message! {
    /// Opens a file (or a directory, to pin it).
    Open = 0x020d -> OpenReply {
        /// The file.
        pub ino: Ino,
        /// What for.
        pub mode: OpenMode,
        /// Cut to 0 (O_TRUNC).
        pub truncate: bool,
        /// With `truncate`: another handle of this mount may be writing, or is being made.
        pub shared: bool,
        /// A truncating ordinary user: clear suid and sgid.
        pub kill_suidgid: bool,
        /// Counts opens and closes of the mount; the shard keeps the highest, so a late close cannot undo a newer open.
        pub open_seq: u64,
    }
}
