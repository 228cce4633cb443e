//! `RegisterNode`: a daemon announces itself (servers only).

use super::{Address, RegisterNodeReply, RegistryAge};
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Incarnation, LogSeq, ServiceKind, Uuid};

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
        /// Random, written into the directory before it is told here; kept over starts until it is confirmed.
        pub mark: u64,
        /// The mark that was confirmed last, as the directory says; 0 = none. An older copy of the directory knows
        /// neither as its newest that which mgmtd holds.
        pub confirmed: u64,
        /// Where its log ends; 0 = it keeps none, or has none yet.
        pub index: LogSeq,
        /// An administrator says that this older copy is all there is.
        pub restored: bool,
        /// The newest registry that it knows.
        pub registry: RegistryAge,
        /// What fails together with it; empty = its machine.
        pub domain: String,
    }
}
