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
    }
}
