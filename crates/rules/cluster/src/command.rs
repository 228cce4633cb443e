//! What is written to the log of the management service.

use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{
    Capacity, CapacityClass, ClientId, Consistency, FenceEpoch, Incarnation, LogSeq, NodeId, PoolId,
    ServiceKind, ShardId, TargetId, Timestamp, Uuid, byte_enum, record, union,
};
use skep_wire::mgmt::{Address, CapacityLimits, ShardState};

record! {
    /// A registered daemon.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Node {
        /// Its id, for ever.
        pub id: NodeId,
        /// From its state directory.
        pub uuid: Uuid,
        pub service: ServiceKind,
        /// Unique name.
        pub alias: String,
        pub addresses: Vec<Address>,
        pub machine: Uuid,
        pub incarnation: Incarnation,
        /// What fails together with it; empty = its machine.
        pub domain: String,
        /// Alias that its configuration wished for when it registered last: an administrator's alias holds
        /// until the configuration wishes for another one.
        pub wish: String,
        /// Mark of its newest start: a directory that does not know it is an older copy. 0 = any is believed.
        pub mark: u64,
        /// What its log held on stable storage when that was last written down: a directory whose log ends before it
        /// is an older copy, or has lost its log.
        pub index: LogSeq,
    }
}

record! {
    /// A registered target.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Target {
        /// Its id, for ever.
        pub id: TargetId,
        /// From its identity file.
        pub uuid: Uuid,
        pub node: NodeId,
        /// Unique name.
        pub alias: String,
        /// State; `Bad` stays until an administrator changes it.
        pub consistency: Consistency,
        /// Space when registered (what is reported later is not logged).
        pub capacity: Capacity,
        /// Its pool; 0 = none.
        pub pool: PoolId,
        /// How full it was when last reported: kept over restarts, so that a nearly full target is not
        /// taken for an empty one until it is heard.
        pub class: CapacityClass,
        /// Its file system, as its daemon names it; 0 = not told yet.
        pub filesystem: u64,
        /// Failures of its disk that were heard of.
        pub failures: u64,
        /// Words of administrators on its state so far.
        pub decisions: u64,
        /// Mark of its newest start: a directory that does not know it is an older copy. 0 = any is believed.
        pub mark: u64,
    }
}

record! {
    /// A storage pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Pool {
        /// Its id, for ever.
        pub id: PoolId,
        /// Unique name.
        pub alias: String,
        /// When its targets count as low on space.
        pub limits: CapacityLimits,
    }
}

record! {
    /// A target that an administrator took out of the cluster.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Removed {
        /// Its id, never given again.
        pub target: TargetId,
        /// From its identity file.
        pub uuid: Uuid,
    }
}

record! {
    /// A mount's session.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Session {
        /// Its id, never reused.
        pub client: ClientId,
        /// Chosen by the mount.
        pub uuid: Uuid,
        pub host: String,
        pub mount: String,
        pub machine: Uuid,
    }
}

byte_enum! {
    /// How a session ended.
    pub enum SessionEnd {
        /// The mount said so.
        Closed = 1,
        /// Silent for too long, or by an administrator: fenced.
        Evicted = 2,
    }
}

record! {
    /// A session that was evicted, remembered for people.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Eviction {
        pub client: ClientId,
        pub host: String,
        pub mount: String,
        /// Seconds since 1970.
        pub at: u64,
        pub why: String,
    }
}

record! {
    /// Puts a node: a new one, or one with new addresses.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetNode {
        pub node: Node,
    }
}

record! {
    /// Puts a target.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetTarget {
        pub target: Target,
    }
}

record! {
    /// Opens a session.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetSession {
        pub session: Session,
    }
}

record! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EndSession {
        pub client: ClientId,
        /// How.
        pub end: SessionEnd,
        /// Epoch after an eviction.
        pub epoch: FenceEpoch,
        /// Seconds since 1970, by the clock of the one who decided.
        pub at: u64,
        /// Why it was evicted.
        pub why: String,
    }
}

record! {
    /// Changes the state of a target.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetConsistency {
        pub target: TargetId,
        pub consistency: Consistency,
        /// Failures of its disk that were heard of.
        pub failures: u64,
        /// Words of administrators on it so far.
        pub decisions: u64,
    }
}

record! {
    /// A node went offline or came back: a restart must not take a dead node for a living one, nor
    /// the other way round.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetOffline {
        pub node: NodeId,
        /// Is it offline now?
        pub offline: bool,
    }
}

record! {
    /// Puts a pool: a new one, or one with another alias or other limits.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetPool {
        pub pool: Pool,
    }
}

record! {
    /// Deletes a pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DropPool {
        pub pool: PoolId,
    }
}

record! {
    /// Moves targets to a pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MoveTargets {
        /// The pool; 0 = none.
        pub pool: PoolId,
        pub targets: Vec<TargetId>,
    }
}

record! {
    /// Takes a target out of the cluster.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DropTarget {
        pub target: TargetId,
    }
}

record! {
    /// Takes a node out of the cluster.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DropNode {
        pub node: NodeId,
    }
}

record! {
    /// A target became fuller or emptier than a limit of its pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetClass {
        pub target: TargetId,
        pub class: CapacityClass,
    }
}

record! {
    /// Shards become another thing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetShards {
        pub shards: Vec<ShardId>,
        /// What they are now.
        pub state: ShardState,
    }
}

record! {
    /// The management service was started.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Started {
        /// Random: no other start has this number.
        pub start: u64,
    }
}

record! {
    /// An administrator put back an older copy: what it may have given out since is never given again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Restored {
        /// Whose directory; 0 = that of the management service.
        pub node: NodeId,
    } tags {
        /// The changes of the history that begins are counted from a round number, as are those from any other copy of the
        /// same history.
        1 => pub from_round: Option<bool>,
    }
}

record! {
    /// What a node's log holds on stable storage.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SetIndex {
        pub node: NodeId,
        /// Up to here.
        pub index: LogSeq,
    }
}

record! {
    /// A shard and who holds it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Placed {
        pub shard: ShardId,
        /// Its metadata server. 0: none for now, and who has its rows is gone for good; who gets it next makes do with the
        /// rows that it has itself.
        pub node: NodeId,
    } tags {
        /// See [`skep_wire::mgmt::GiveShard`]. Tag 1 is reserved.
        2 => pub newer_are_lost: Option<bool>,
    }
}

impl Placed {
    /// At this server, with the newest rows that there are.
    pub fn at(shard: ShardId, node: NodeId) -> Self {
        Self { shard, node, newer_are_lost: None }
    }
}

record! {
    /// Decides which metadata servers hold which shards.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PlaceShards {
        /// Each shard that is placed anew.
        pub places: Vec<Placed>,
    }
}

/// Highest level of [`Decided`] that this release knows: 2 has a [`Placed`] of node 0, or that says that rows are lost, and
/// histories that begin at a round number.
pub const DECIDED_LEVEL: u16 = 2;

record! {
    /// A change as the log has it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Decided {
        /// A release that does not know it refuses the log, and does not apply what it would understand otherwise.
        pub level: u16,
        /// By the clock of the one who decided.
        pub at: Timestamp,
        /// What changes.
        pub command: Command,
    }
}

union! {
    /// One change of the registry.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Command {
        /// See [`SetNode`].
        SetNode(SetNode) = 1,
        /// See [`SetTarget`].
        SetTarget(SetTarget) = 2,
        /// See [`SetSession`].
        SetSession(SetSession) = 3,
        /// See [`EndSession`].
        EndSession(EndSession) = 4,
        /// See [`SetConsistency`].
        SetConsistency(SetConsistency) = 5,
        /// See [`SetOffline`].
        SetOffline(SetOffline) = 7,
        /// See [`SetPool`].
        SetPool(SetPool) = 8,
        /// See [`DropPool`].
        DropPool(DropPool) = 9,
        /// See [`MoveTargets`].
        MoveTargets(MoveTargets) = 10,
        /// See [`DropTarget`].
        DropTarget(DropTarget) = 11,
        /// See [`DropNode`].
        DropNode(DropNode) = 12,
        /// See [`SetClass`].
        SetClass(SetClass) = 13,
        /// See [`SetShards`].
        SetShards(SetShards) = 14,
        /// See [`Started`].
        Started(Started) = 15,
        /// See [`Restored`].
        Restored(Restored) = 16,
        /// See [`SetIndex`].
        SetIndex(SetIndex) = 17,
        /// See [`PlaceShards`].
        PlaceShards(PlaceShards) = 18,
    }
}

impl Command {
    /// The level by which a release is told whether it knows what this means.
    pub fn level(&self) -> u16 {
        let gives_up = |place: &Placed| place.node == NodeId(0) || place.newer_are_lost.is_some();
        match self {
            Self::PlaceShards(place) if place.places.iter().any(gives_up) => DECIDED_LEVEL,
            Self::Restored(Restored { from_round: Some(_), .. }) => DECIDED_LEVEL,
            _ => 1,
        }
    }
}
