//! The seal intent: an extent that is being closed.

use alloc::vec::Vec;
use skep_types::{Generation, Stripe, record};

record! {
    /// Targets are being told to seal the chunk files of an extent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Seal {
        /// Number of the seal.
        pub id: u64,
        pub generation: Generation,
        /// Number of the extent.
        pub extent: u16,
        /// Stripes of what comes behind it.
        pub stripes: Vec<Stripe>,
    }
}
