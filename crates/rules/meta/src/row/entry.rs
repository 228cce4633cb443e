//! The entry row: a name in a directory.

use skep_types::{Ino, Kind, Name, record};

record! {
    /// A living name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Target {
        pub name: Name,
        pub ino: Ino,
        pub kind: Kind,
    }
}

record! {
    /// A place in the chain of names with the same hash.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Entry {
        /// The chain goes on at the next collision index.
        pub more: bool,
        /// `None`: nothing here any more, kept because the chain goes on.
        pub target: Option<Target>,
    }
}
