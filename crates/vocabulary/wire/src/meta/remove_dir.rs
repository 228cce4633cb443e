//! `RemoveDir`: removes an empty directory.

use crate::Empty;
use skep_types::{Ino, Name};

crate::message! {
    /// Removes an empty directory.
    RemoveDir = 0x020a -> Empty {
        /// The directory that holds it.
        pub parent: Ino,
        /// The name.
        pub name: Name,
    }
}
