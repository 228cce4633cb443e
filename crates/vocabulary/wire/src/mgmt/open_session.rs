//! `OpenSession`: a mount asks for a session.

use super::OpenSessionReply;
use alloc::string::String;
use skep_types::Uuid;

crate::message! {
    /// A mount asks for a session.
    OpenSession = 0x0105 -> OpenSessionReply {
        /// Random, chosen by the mount: a repeated request gets the same session.
        pub uuid: Uuid,
        /// Host name, for people.
        pub host: String,
        /// Mount point, for people.
        pub mount: String,
        /// Identifies the machine.
        pub machine: Uuid,
    }
}
