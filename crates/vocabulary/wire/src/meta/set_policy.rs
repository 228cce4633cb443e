//! `SetPolicy`: sets the layout wish of a directory (inherited) or an empty file.

use crate::Empty;
use skep_types::{Ino, Policy};

crate::message! {
    /// Sets the layout wish of a directory (inherited) or an empty file.
    SetPolicy = 0x021a -> Empty {
        /// A directory, or a file that has no chunks yet.
        pub ino: Ino,
        /// The wish.
        pub policy: Policy,
        /// Is each directory that is made in it to get a shard of its own? `None`: as it was.
        pub spread: Option<bool>,
    }
}
