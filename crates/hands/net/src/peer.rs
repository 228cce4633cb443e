//! Who is at the other end.

use skep_types::{ClientId, NodeId, Role};
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
    /// The lane that this connection serves; `None` where nothing is superseded.
    ///
    /// Daemons have lanes too: a truncate of a metadata server that was sent again must not be done a
    /// second time by the connection that it was sent on first, when a client has written since.
    pub(crate) fn lane(&self) -> Option<Lane> {
        let hello = &self.hello;
        match hello.role {
            Role::Server if hello.node != NodeId(0) => Some(Lane::Node(hello.node, hello.group)),
            Role::Client | Role::Admin if hello.client != ClientId(0) => {
                Some(Lane::Client(hello.client, hello.group))
            }
            _ => None,
        }
    }

    /// Order of the connections of one lane.
    pub(crate) fn rank(&self) -> Rank {
        (self.hello.incarnation.0, self.hello.connection)
    }
}

/// One connection group of a client or a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Client(ClientId, u32),
    /// Of a daemon.
    Node(NodeId, u32),
}
/// (incarnation, connection number): the higher one ends the lower one.
pub(crate) type Rank = (u64, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{ClusterId, FenceEpoch, Incarnation};

    fn peer(role: Role, client: u64, node: u32) -> Peer {
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            features: 0,
            role,
            client: ClientId(client),
            incarnation: Incarnation(7),
            token: [0; 32],
            node: NodeId(node),
            group: 3,
            connection: 5,
            cluster: ClusterId::default(),
            epoch: FenceEpoch(0),
        };
        let (address, host) = (String::new(), String::new());
        Peer { hello, info: PeerInfo { address, host, uid: None, protection: Protection::Local } }
    }

    /// Goal: connections of clients and of registered daemons are superseded, each in lanes of its own
    /// (seed 1269 of the simulator: a repeated truncate was done once more after a newer write).
    #[test]
    fn who_has_a_lane() {
        assert_eq!(peer(Role::Client, 4, 0).lane(), Some(Lane::Client(ClientId(4), 3)));
        assert_eq!(peer(Role::Server, 0, 4).lane(), Some(Lane::Node(NodeId(4), 3)));
        assert_eq!(peer(Role::Server, 0, 0).lane(), None, "not registered yet");
        assert_eq!(peer(Role::Admin, 0, 0).lane(), None, "a command");
        assert_eq!(peer(Role::Client, 4, 0).rank(), (7, 5));
    }
}
