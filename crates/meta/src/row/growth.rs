//! The growth intent: chunks are allotted to a file whose content is still inline.

use skep_types::{ClientId, Layout, Slot, Timestamp, record};

record! {
    /// Chunks that a client copies the inline content to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Growth {
        /// The layout to be.
        pub layout: Layout,
        /// Who copies.
        pub client: ClientId,
        /// In which lane.
        pub slot: Slot,
        /// Since when.
        pub since: Timestamp,
    }
}
