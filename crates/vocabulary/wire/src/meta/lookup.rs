//! `Lookup`: finds a name in a directory.

use super::EntryReply;
use skep_types::{Ino, Name};

crate::message! {
    /// Finds a name in a directory.
    Lookup = 0x0201 -> EntryReply {
        /// The directory.
        pub parent: Ino,
        /// The name.
        pub name: Name,
    } tags {
        /// Whoever asks does without attributes of now: of a file that another mount holds, those that it has told are enough.
        1 => pub as_told: Option<bool>,
    }
}
