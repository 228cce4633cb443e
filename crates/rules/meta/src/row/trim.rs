//! The trim intent: a truncate that every target of the file must be told of.

use skep_types::{Generation, record};

record! {
    /// The size is already in force on the shard; chunk files may still be longer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Trim {
        /// Number of the trim.
        pub id: u64,
        /// New size of the file.
        pub size: u64,
        /// Layout generation that is trimmed.
        pub generation: Generation,
    } tags {
        /// `true`: the file became longer.
        1 => pub longer: Option<bool>,
    }
}
