//! `Unlink`: removes the name of something that is no directory.

use crate::Empty;
use skep_types::{Ino, Name};

crate::message! {
    /// Removes the name of something that is no directory.
    Unlink = 0x0209 -> Empty {
        /// The directory.
        pub parent: Ino,
        /// The name.
        pub name: Name,
    }
}
