//! `GetFences`: fetches the fence list and the living sessions (not for clients).

use super::FencesReply;

crate::message! {
    /// Fetches the fence list and the living sessions (not for clients).
    GetFences = 0x0108 -> FencesReply {
    }
}
