//! `Evict`: an administrator evicts a client.

use crate::Empty;
use skep_types::ClientId;

crate::message! {
    /// An administrator evicts a client.
    Evict = 0x0109 -> Empty {
        /// The session to end.
        pub client: ClientId,
    }
}
