//! `GetSpace`: fetches the space of every target as its daemon last told it.

use alloc::vec::Vec;
use skep_types::{Capacity, TargetId, record};

crate::message! {
    /// Fetches the space of every target as its daemon last told it. (The map has it too, but is told anew only
    /// when much has changed.)
    GetSpace = 0x0115 -> SpaceReply {
    }
}

record! {
    /// Space of all targets.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SpaceReply {
        /// In order of their numbers.
        pub targets: Vec<TargetSpace>,
    }
}

record! {
    /// Space of a target.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TargetSpace {
        /// Which.
        pub target: TargetId,
        /// Its space.
        pub capacity: Capacity,
    }
}
