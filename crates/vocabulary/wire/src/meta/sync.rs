//! `Sync`: waits until acknowledged changes are on stable storage.

use crate::Empty;
use skep_types::{LogIndex, Term};

crate::message! {
    /// Waits until acknowledged changes are on stable storage.
    Sync = 0x0218 -> Empty {
        /// Term of the newest stamp the sender holds.
        pub term: Term,
        /// Its index. Answered when durable; LOST_HISTORY when a power cut took it.
        pub index: LogIndex,
    }
}
