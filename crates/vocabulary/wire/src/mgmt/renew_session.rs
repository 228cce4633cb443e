//! `RenewSession`: a mount is alive.

use super::HeartbeatReply;
use skep_types::ClientId;

crate::message! {
    /// A mount is alive.
    RenewSession = 0x0106 -> HeartbeatReply {
        /// The session.
        pub client: ClientId,
    }
}
