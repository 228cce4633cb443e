//! Small records of the management messages.

use crate::SessionToken;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{
    Capacity, CapacityClass, ClientId, ClusterId, Consistency, FenceEpoch, Incarnation, MapVersion, NodeId,
    PoolId, Reachability, ServiceKind, ShardId, TargetId, Uuid, byte_enum, record,
};

record! {
    /// Where a service can be reached.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Address {
        /// `unix:/path`, `host:port` or `[v6]:port`.
        pub text: String,
        /// Network interface, for people and for choosing; may be empty.
        pub nic: String,
        /// Lower is better.
        pub preference: u16,
    }
}

record! {
    /// How old a registry is. Of two registries of one cluster the one is older that does not know the start
    /// of the other, or knows fewer changes.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RegistryAge {
        /// Random, chosen at each start of mgmtd; 0 = none seen yet.
        pub start: u64,
        /// Changes of the registry so far.
        pub changes: u64,
    }
}

record! {
    /// A node's place in the cluster.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RegisterNodeReply {
        /// Its id, for ever.
        pub node: NodeId,
        /// Its alias.
        pub alias: String,
        /// The cluster.
        pub cluster: ClusterId,
        /// Fence epoch to start from.
        pub epoch: FenceEpoch,
        /// Age of the registry.
        pub registry: RegistryAge,
    }
}

record! {
    /// A target's place in the cluster, to be written into its identity file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RegisterTargetReply {
        /// Its id, for ever.
        pub target: TargetId,
        /// Its alias.
        pub alias: String,
        /// Its uuid.
        pub uuid: Uuid,
        /// What mgmtd holds of it.
        pub consistency: Consistency,
        /// As in [`TargetEntry`].
        pub failures: u64,
        /// As in [`TargetEntry`].
        pub decisions: u64,
    }
}

record! {
    /// What a storage daemon reports of a target.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TargetReport {
        /// The target.
        pub target: TargetId,
        /// Its state as seen by the daemon (`Bad` after disk errors).
        pub consistency: Consistency,
        /// How often its disk failed while it was good: a higher number is a failure that mgmtd has not heard of.
        pub failures: u64,
        /// Space.
        pub capacity: Capacity,
        /// Names the file system that it is on, among those of all machines; 0 = not known.
        pub filesystem: u64,
    } tags {
        /// As in `RegisterTarget`: a registry that was put back from an older copy does not know it.
        1 => pub mark: Option<u64>,
    }
}

record! {
    /// What everybody alive is told.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HeartbeatReply {
        /// Fetch the map when it is newer than yours.
        pub map: MapVersion,
        /// Fetch the fences when it is higher than yours.
        pub epoch: FenceEpoch,
        /// Sessions that ended so far, in whatever way: fetch the fences when it moved.
        pub ended: u64,
        /// Age of the registry.
        pub registry: RegistryAge,
    }
}

record! {
    /// A node in the map.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeEntry {
        /// Id.
        pub node: NodeId,
        /// What it is.
        pub service: ServiceKind,
        /// Alias.
        pub alias: String,
        /// Where it listens.
        pub addresses: Vec<Address>,
        /// Its machine.
        pub machine: Uuid,
        /// Is it heard?
        pub reachability: Reachability,
        /// Its life.
        pub incarnation: Incarnation,
        /// What fails together with it (host, rack, power): choosers spread over domains.
        pub domain: String,
    }
}

record! {
    /// Limits of free space (bytes) or of free inodes. Absent = the default.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SpaceLimits {
        /// A target with less free is low. Default: 512 GiB or 10 million inodes, but at most a tenth of
        /// the target.
        pub low: Option<u64>,
        /// A target with less free is in emergency. Default: 10 GiB or 1 million inodes, but at most a
        /// fiftieth of the target.
        pub emergency: Option<u64>,
        /// When the free space of the normal targets differs by more than this, `low_dynamic` is what
        /// makes a target low. Default: `low`.
        pub normal_spread: Option<u64>,
        /// When the free space of the low targets differs by more than this, `emergency_dynamic` is what
        /// makes a target an emergency. Default: `emergency`.
        pub low_spread: Option<u64>,
        /// Default: twice `low`.
        pub low_dynamic: Option<u64>,
        /// Default: twice `emergency`.
        pub emergency_dynamic: Option<u64>,
    }
}

record! {
    /// When the targets of a pool count as low on space.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct CapacityLimits {
        /// Of bytes.
        pub bytes: SpaceLimits,
        /// Of inodes.
        pub inodes: SpaceLimits,
        /// Do the dynamic limits count, too?
        pub dynamic: bool,
    }
}

record! {
    /// A new pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CreatePoolReply {
        /// Its id, never given again.
        pub pool: PoolId,
    }
}

record! {
    /// A storage pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PoolEntry {
        /// Id.
        pub pool: PoolId,
        /// Alias.
        pub alias: String,
    }
}

record! {
    /// A pool with what is set for it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PoolStatus {
        /// The pool.
        pub pool: PoolEntry,
        /// As set; what is absent has its default.
        pub limits: CapacityLimits,
    }
}

record! {
    /// A target in the map.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TargetEntry {
        /// Id.
        pub target: TargetId,
        /// Alias.
        pub alias: String,
        /// Its daemon.
        pub node: NodeId,
        /// State.
        pub consistency: Consistency,
        /// Space when last reported (coarse in the map, exact in the status).
        pub capacity: Capacity,
        /// Its pool; 0 = none: nothing new is put on it.
        pub pool: PoolId,
        /// How full it is.
        pub class: CapacityClass,
        /// Names its file system, so that a disk with several targets is counted once; 0 = not told.
        pub filesystem: u64,
        /// Failures of its disk that mgmtd has heard of: the state answers these, and none that came later.
        pub failures: u64,
        /// Words of administrators on its state so far.
        pub decisions: u64,
        /// Does its daemon, when it is heard, say that it serves it? Otherwise nobody does.
        pub served: bool,
    }
}

impl TargetEntry {
    /// Can it be reached, when its daemon is `node`? A target that its daemon does not serve is offline, however well
    /// the daemon is.
    pub fn reached(&self, node: Reachability) -> Reachability {
        if self.served { node } else { Reachability::Offline }
    }
}

byte_enum! {
    /// What a shard is.
    pub enum ShardState {
        /// Its server is to format it: nobody has used it yet.
        New = 1,
        /// It was formatted: a server without its rows has lost them.
        Active = 2,
        /// Its leader fetches its rows from the first member, and nobody answers.
        Moving = 3,
        /// Nobody answers for it, and it is never placed again.
        Retired = 4,
    }
}

record! {
    /// A shard at its place in some map.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ShardAt {
        /// The shard.
        pub shard: ShardId,
        /// Its epoch there.
        pub epoch: u64,
    }
}

impl ShardState {
    /// As people and programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Active => "active",
            Self::Moving => "moving",
            Self::Retired => "retired",
        }
    }
}

record! {
    /// A shard in the map.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ShardEntry {
        /// The shard.
        pub shard: ShardId,
        /// Metadata servers that hold it. One that moves: who has its rows, and who is to have them; only the first where
        /// that one is gone for good.
        pub members: Vec<NodeId>,
        /// The member that answers for it, as far as mgmtd has heard; 0 = none yet. Of one that moves, who is to have it.
        pub leader: NodeId,
        /// Raised with every change of members, leader or state.
        pub epoch: u64,
        /// New until its server says that it is formatted.
        pub state: ShardState,
        /// Times that an older copy of it was put back: in each era inode serials and generations begin higher
        /// than all that may have been given.
        pub era: u16,
    } tags {
        /// It has this place by the word of an administrator that newer rows than its server will have are lost. Tag 1 is
        /// reserved.
        2 => pub newer_are_lost: Option<bool>,
    }
}

impl ShardEntry {
    /// See the field.
    pub fn are_newer_lost(&self) -> bool {
        self.newer_are_lost == Some(true)
    }

    /// Who answers for it.
    pub fn led_by(&self) -> Option<NodeId> {
        (self.state != ShardState::Retired && self.leader != NodeId(0)).then_some(self.leader)
    }

    /// Does this server answer for it?
    pub fn is_led_by(&self, node: NodeId) -> bool {
        self.led_by() == Some(node)
    }

    /// Who has its rows is gone for good, as an administrator said, and nobody else was given it yet.
    pub fn is_given_up(&self) -> bool {
        self.state == ShardState::Moving && self.leader == NodeId(0)
    }

    /// It is on its way to a server, and from this one. `None`: the one that had it is gone for good, so nobody is asked for
    /// its rows.
    pub fn comes_from(&self) -> Option<NodeId> {
        let comes = self.state == ShardState::Moving && self.members.contains(&self.leader);
        self.members.first().copied().filter(|source| comes && *source != self.leader)
    }
}

record! {
    /// A new session.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OpenSessionReply {
        /// Its id, never reused.
        pub client: ClientId,
        /// Its life.
        pub incarnation: Incarnation,
        /// To be shown to every server.
        pub token: SessionToken,
        /// The cluster.
        pub cluster: ClusterId,
        /// Fence epoch at its birth.
        pub epoch: FenceEpoch,
        /// Silent for this long (milliseconds), it is evicted.
        pub timeout_ms: u64,
    }
}

record! {
    /// An evicted session.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Fence {
        /// The client.
        pub client: ClientId,
        /// The epoch that its eviction made.
        pub epoch: FenceEpoch,
    }
}

record! {
    /// Who is out, who is in.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FencesReply {
        /// Epoch of the list.
        pub epoch: FenceEpoch,
        /// Evicted sessions, oldest first.
        pub fences: Vec<Fence>,
        /// Living sessions.
        pub sessions: Vec<ClientId>,
        /// Sessions that ended in good order since (their opens are gone too); newest 1,024.
        pub closed: Vec<ClientId>,
    }
}

record! {
    /// A node with its state.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeStatus {
        /// The node.
        pub node: NodeEntry,
        /// Milliseconds since it was heard; absent = not since mgmtd started.
        pub silent_ms: Option<u64>,
        /// Space of its state directory.
        pub capacity: Capacity,
        /// Newest map that it acts upon, as it said last; 0 = not since mgmtd started.
        pub map: MapVersion,
    }
}

record! {
    /// A session with its state.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SessionStatus {
        /// The client.
        pub client: ClientId,
        /// Host name.
        pub host: String,
        /// Mount point.
        pub mount: String,
        /// Milliseconds since it was heard; absent = not since mgmtd started.
        pub silent_ms: Option<u64>,
    }
}

record! {
    /// A session that was ended by force.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EvictionStatus {
        /// The client.
        pub client: ClientId,
        /// Host name.
        pub host: String,
        /// Mount point.
        pub mount: String,
        /// Milliseconds since.
        pub ago_ms: u64,
        /// Why.
        pub why: String,
    }
}

record! {
    /// The whole cluster.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StatusReply {
        /// The cluster.
        pub cluster: ClusterId,
        /// Map version.
        pub map: MapVersion,
        /// Fence epoch.
        pub epoch: FenceEpoch,
        /// All nodes.
        pub nodes: Vec<NodeStatus>,
        /// All targets.
        pub targets: Vec<TargetEntry>,
        /// All shards.
        pub shards: Vec<ShardEntry>,
        /// All storage pools.
        pub pools: Vec<PoolStatus>,
        /// All sessions.
        pub sessions: Vec<SessionStatus>,
        /// Sessions that were ended by force in the last day, oldest first.
        pub evictions: Vec<EvictionStatus>,
    }
}
