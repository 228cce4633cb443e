//! `GetFences`: fetches the fence list and the living sessions (servers only).

use super::FencesReply;

crate::message! {
    /// Fetches the fence list and the living sessions (servers only).
    GetFences = 0x0108 -> FencesReply {
    }
}
