//! `Rename`: moves a name.

use crate::Empty;
use skep_types::{Ino, Name};

crate::message! {
    /// Moves a name.
    Rename = 0x020b -> Empty {
        /// The old directory.
        pub parent: Ino,
        /// The old name.
        pub name: Name,
        /// The new directory.
        pub to_parent: Ino,
        /// The new name.
        pub to_name: Name,
        /// An existing target is EEXIST.
        pub no_replace: bool,
        /// Swap the two.
        pub exchange: bool,
    }
}
