//! What both sides say inside the handshake, under the cluster key.

use skep_types::{ClientId, ClusterId, FenceEpoch, Incarnation, NodeId, Role, ServiceKind};
use skep_types::{byte_enum, record};

/// Proof that mgmtd opened this session: a keyed hash over client id and incarnation with a key
/// that only servers hold. All zero where there is no session.
pub type SessionToken = [u8; 32];

/// Feature bit: payloads go by memory that both sides of this connection have mapped. The descriptor of it came with the
/// `Hello`; in a `Welcome` the bit says that it is mapped there, too. (Bits 0 to 5 are reserved: `docs/design/wire.md`.)
pub const SHARED_MEMORY: u64 = 1 << 6;

byte_enum! {
    /// Is a frame protected after the handshake?
    pub enum Protection {
        /// Unix socket of this machine: checksums only.
        Local = 1,
        /// Keyed MAC over every frame.
        Integrity = 2,
    }
}

record! {
    /// From the side that connects.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Hello {
        /// Oldest version it speaks.
        pub version_min: u8,
        /// Newest version it speaks.
        pub version_max: u8,
        /// Feature bits it knows.
        pub features: u64,
        /// What it wants to be; proven by the key of that role.
        pub role: Role,
        /// A client's id (0: none yet).
        pub client: ClientId,
        /// A client's or server's life.
        pub incarnation: Incarnation,
        /// A client's proof of its session.
        pub token: SessionToken,
        /// A server's node id (0: none yet).
        pub node: NodeId,
        /// Which lane of the client this connection serves.
        pub group: u32,
        /// Connections of one lane are numbered; a higher one ends the lower ones.
        pub connection: u64,
        /// The cluster it believes to talk to (all zero: does not know yet).
        pub cluster: ClusterId,
        /// Fence epoch known to the sender.
        pub epoch: FenceEpoch,
    }
}

record! {
    /// From the side that accepts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Welcome {
        /// Version chosen for the connection.
        pub version: u8,
        /// Features that both sides know.
        pub features: u64,
        /// What answers here.
        pub service: ServiceKind,
        /// Its node id.
        pub node: NodeId,
        /// Its life: changes with every start.
        pub incarnation: Incarnation,
        /// Its cluster.
        pub cluster: ClusterId,
        /// Fence epoch that it knows.
        pub epoch: FenceEpoch,
    }
}
