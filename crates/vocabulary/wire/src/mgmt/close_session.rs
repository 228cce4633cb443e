//! `CloseSession`: a mount ends its session, or that of a mount that died before it in the same place.

use crate::Empty;
use skep_types::ClientId;

crate::message! {
    /// A mount ends its session.
    CloseSession = 0x0107 -> Empty {
        /// The session.
        pub client: ClientId,
        /// Its process is dead: what it had under way is fenced, as at an eviction.
        pub died: bool,
    }
}
