//! `CloseSession`: a mount ends its session.

use crate::Empty;
use skep_types::ClientId;

crate::message! {
    /// A mount ends its session.
    CloseSession = 0x0107 -> Empty {
        /// The session.
        pub client: ClientId,
    }
}
