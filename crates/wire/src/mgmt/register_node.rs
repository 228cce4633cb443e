//! `RegisterNode`: a daemon announces itself (servers only).

use super::{Address, RegisterNodeReply};
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Incarnation, ServiceKind, Uuid};

crate::message! {
    /// A daemon announces itself (servers only).
    RegisterNode = 0x0101 -> RegisterNodeReply {
        /// From the state directory of the daemon: the same daemon gets the same id.
        pub uuid: Uuid,
        /// What it is.
        pub service: ServiceKind,
        /// Wished alias; empty = one is made up.
        pub alias: String,
        /// Where it listens, best first.
        pub addresses: Vec<Address>,
        /// Identifies the machine: Unix socket addresses work on the same one only.
        pub machine: Uuid,
        /// Its life.
        pub incarnation: Incarnation,
        /// What fails together with it; empty = its machine.
        pub domain: String,
    }
}
