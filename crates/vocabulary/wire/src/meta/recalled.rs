//! `Recalled`: what a mount uses no longer.

use crate::Empty;
use skep_types::{Ino, Term};

crate::message! {
    /// What a mount uses no longer: answered whatever else is refused, and without a row being read.
    Recalled = 0x0230 -> Empty {
        /// Term of the shard that the rest is about. What is of another term is settled by its end.
        pub term: Term,
        /// Recalls, by their numbers.
        pub confirmed: alloc::vec::Vec<u64>,
        /// Leases given back, and the highest number of a grant that the mount has of each.
        pub back: alloc::vec::Vec<(Ino, u64)>,
    } tags {
        /// Nothing that an earlier term of the shard gave is used any more.
        1 => pub anew: Option<bool>,
    }
}
