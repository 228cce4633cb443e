//! Who is at the other end.

use skep_types::{ClientId, Role};
use skep_wire::{Hello, Protection};

/// What the socket itself tells of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// `host:port`, or `unix:` with the process id and user id.
    pub address: String,
    /// Without what changes from one connection to the next (port, process): log lines are
    /// limited per host.
    pub host: String,
    /// User of the process at the other end of a Unix socket, told by the kernel.
    pub uid: Option<u32>,
    /// Frames carry a MAC, or come over a Unix socket.
    pub protection: Protection,
}

/// An authenticated peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// What it said in the handshake; `role` is proven by its key, the rest is for the service to check.
    pub hello: Hello,
    /// What the socket tells.
    pub info: PeerInfo,
}

impl Peer {
    /// The lane of a client that this connection serves; `None` where nothing is superseded.
    pub(crate) fn lane(&self) -> Option<Lane> {
        let hello = &self.hello;
        (hello.role != Role::Server && hello.client != ClientId(0)).then_some((hello.client, hello.group))
    }

    /// Order of the connections of one lane.
    pub(crate) fn rank(&self) -> Rank {
        (self.hello.incarnation.0, self.hello.connection)
    }
}

/// A client and one of its connection groups.
pub(crate) type Lane = (ClientId, u32);
/// (incarnation, connection number): the higher one ends the lower one.
pub(crate) type Rank = (u64, u64);
