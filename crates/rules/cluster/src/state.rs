//! What survives a restart of the management service.

use crate::command::{
    Command, EndSession, Eviction, Node, Placed, Pool, Removed, Restored, Session, SessionEnd, Target,
};
use crate::limits::{
    CLOSED_MAX, ERAS_MAX, EVICTION_LISTED_S, EVICTIONS_MAX, FENCES_MAX, REMOVED_MAX, RESTORED_JUMP,
    RESTORED_JUMP_SMALL, STARTS_MAX,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;
use skep_types::codec::Keyed;
use skep_types::{ClientId, ClusterId, FenceEpoch, NamesKey, NodeId, PoolId, ShardId, TargetId, record};
use skep_wire::mgmt::{CapacityLimits, Fence, RegistryAge, ShardEntry, ShardState};

/// The pool that every new target is put into and that no one can delete.
pub const DEFAULT_POOL: PoolId = PoolId(1);
/// Alias of the default pool in a new cluster.
const DEFAULT_POOL_ALIAS: &str = "default";

record! {
    /// A start of the management service.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Start {
        /// Random.
        pub start: u64,
        /// The number of the change that it was.
        pub first: u64,
    }
}

record! {
    /// The registry as of a log index. Changed by [`State::apply`] only, so that every replica and
    /// every restart holds the same.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct State {
        pub cluster: ClusterId,
        /// Key of the routes of names, made with the cluster.
        pub names: NamesKey,
        /// Highest node id ever given.
        pub last_node: NodeId,
        /// Highest target id ever given.
        pub last_target: TargetId,
        /// Highest client id ever given.
        pub last_client: ClientId,
        /// Counts evictions.
        pub epoch: FenceEpoch,
        /// Semantic version of commands that metadata servers may use.
        pub command_level: u16,
        /// Registered daemons.
        pub nodes: BTreeMap<NodeId, Node>,
        /// Registered targets.
        pub targets: BTreeMap<TargetId, Target>,
        /// Shards, in order of their id.
        pub shards: Vec<ShardEntry>,
        /// Living sessions.
        pub sessions: BTreeMap<ClientId, Session>,
        /// Evictions, oldest first.
        pub fences: Vec<Fence>,
        /// Orderly ends, oldest first.
        pub closed: Vec<ClientId>,
        /// Evictions of the last day, oldest first.
        pub evictions: Vec<Eviction>,
        /// Nodes that are offline.
        pub offline: BTreeSet<NodeId>,
        /// Highest pool id ever given.
        pub last_pool: PoolId,
        /// Storage pools.
        pub pools: BTreeMap<PoolId, Pool>,
        /// Targets that were taken out, oldest first.
        pub removed: Vec<Removed>,
        /// Changes so far.
        pub changes: u64,
        /// Starts of the management service, oldest first.
        pub starts: Vec<Start>,
        /// An older copy was put back once: targets that it never knew may come with a number.
        pub restored: bool,
    }
}

impl State {
    /// An eviction, for people: what is older than a day is forgotten.
    fn remember(&mut self, session: Option<Session>, end: &EndSession) {
        let Some(Session { client, host, mount, .. }) = session else { return };
        self.evictions.retain(|old| old.at + EVICTION_LISTED_S > end.at);
        let eviction = Eviction { client, host, mount, at: end.at, why: end.why.clone() };
        push_bounded(&mut self.evictions, eviction, EVICTIONS_MAX);
    }

    /// An empty cluster of `shards` shards that nobody owns yet.
    pub fn format(cluster: ClusterId, names: NamesKey, shards: u16) -> Self {
        let shard = |id| ShardEntry {
            shard: ShardId(id),
            members: Vec::new(),
            leader: NodeId(0),
            epoch: 0,
            state: ShardState::New,
            era: 0,
            newer_are_lost: None,
        };
        let alias = DEFAULT_POOL_ALIAS.to_string();
        let pool = Pool { id: DEFAULT_POOL, alias, limits: CapacityLimits::default() };
        Self {
            cluster,
            names,
            last_node: NodeId(0),
            last_target: TargetId(0),
            last_client: ClientId(0),
            epoch: FenceEpoch(1),
            command_level: 1,
            nodes: BTreeMap::new(),
            targets: BTreeMap::new(),
            shards: (0..shards).map(shard).collect(),
            sessions: BTreeMap::new(),
            fences: Vec::new(),
            closed: Vec::new(),
            evictions: Vec::new(),
            offline: BTreeSet::new(),
            last_pool: DEFAULT_POOL,
            pools: BTreeMap::from([(DEFAULT_POOL, pool)]),
            removed: Vec::new(),
            changes: 0,
            starts: Vec::new(),
            restored: false,
        }
    }

    /// How old it is.
    pub fn age(&self) -> RegistryAge {
        let start = self.starts.last().map_or(0, |start| start.start);
        RegistryAge { start, changes: self.changes }
    }

    /// Makes one change.
    pub fn apply(&mut self, command: &Command) {
        self.changes += 1;
        match command {
            Command::SetNode(set) => {
                self.last_node = self.last_node.max(set.node.id);
                self.nodes.insert(set.node.id, set.node.clone());
            }
            Command::SetTarget(set) => {
                self.last_target = self.last_target.max(set.target.id);
                self.targets.insert(set.target.id, set.target.clone());
            }
            Command::SetSession(set) => {
                self.last_client = self.last_client.max(set.session.client);
                self.sessions.insert(set.session.client, set.session.clone());
            }
            Command::EndSession(end) => {
                let session = self.sessions.remove(&end.client);
                match end.end {
                    SessionEnd::Closed => push_bounded(&mut self.closed, end.client, CLOSED_MAX),
                    SessionEnd::Evicted => {
                        self.epoch = self.epoch.max(end.epoch);
                        self.remember(session, end);
                        push_bounded(
                            &mut self.fences,
                            Fence { client: end.client, epoch: end.epoch },
                            FENCES_MAX,
                        );
                    }
                }
            }
            Command::SetConsistency(set) => {
                if let Some(target) = self.targets.get_mut(&set.target) {
                    target.consistency = set.consistency;
                    target.failures = set.failures;
                    target.decisions = set.decisions;
                }
            }
            Command::SetOffline(set) => {
                if set.offline {
                    self.offline.insert(set.node);
                } else {
                    self.offline.remove(&set.node);
                }
            }
            Command::PlaceShards(place) => self.place(&place.places),
            Command::DropNode(drop) => {
                self.nodes.remove(&drop.node);
                self.offline.remove(&drop.node);
            }
            Command::SetPool(_) | Command::DropPool(_) | Command::MoveTargets(_) => self.apply_pool(command),
            Command::SetShards(_) | Command::Started(_) | Command::Restored(_) | Command::SetIndex(_) => {
                self.apply_age(command);
            }
            Command::DropTarget(drop) => {
                if let Some(Target { id, uuid, .. }) = self.targets.remove(&drop.target) {
                    push_bounded(&mut self.removed, Removed { target: id, uuid }, REMOVED_MAX);
                }
            }
            Command::SetClass(set) => {
                if let Some(target) = self.targets.get_mut(&set.target) {
                    target.class = set.class;
                }
            }
        }
    }

    fn place(&mut self, places: &[Placed]) {
        for place in places {
            let is_meant =
                |entry: &&mut ShardEntry| entry.shard == place.shard && entry.state != ShardState::Retired;
            let Some(entry) = self.shards.iter_mut().find(is_meant) else { continue };
            let newer_are_lost = place.newer_are_lost == Some(true);
            if entry.leader == place.node && !newer_are_lost {
                continue;
            }
            let asks_nobody = entry.state == ShardState::Moving && entry.comes_from().is_none();
            let is_given_up = entry.is_given_up() || (asks_nobody && entry.leader == place.node);
            entry.leader = place.node;
            entry.newer_are_lost = place.newer_are_lost;
            entry.epoch += 1;
            // Who has the rows is first among the members while they are on their way. Where that one is gone for good it
            // stays the only one: it can have the shard back, but nobody asks it for rows.
            match entry.members.first().copied().filter(|_| entry.state != ShardState::New) {
                Some(source) if source != place.node => {
                    entry.state = ShardState::Moving;
                    let gives_up = place.node == NodeId(0);
                    let goes = (!gives_up && !is_given_up).then_some(place.node);
                    entry.members = [source].into_iter().chain(goes).collect();
                    // Whose rows are served next, they may be older ones.
                    entry.era = (entry.era + u16::from(gives_up)).min(ERAS_MAX);
                }
                Some(source) => {
                    entry.state = ShardState::Active;
                    entry.members = Vec::from([source]);
                }
                None => entry.members = Vec::from([place.node]),
            }
            entry.era = (entry.era + u16::from(newer_are_lost)).min(ERAS_MAX);
        }
    }

    fn apply_age(&mut self, command: &Command) {
        match command {
            Command::SetShards(set) => {
                let is_meant =
                    |shard: &&mut ShardEntry| set.shards.contains(&shard.shard) && shard.state != set.state;
                for shard in self.shards.iter_mut().filter(is_meant) {
                    if shard.state == ShardState::Moving {
                        shard.members = Vec::from([shard.leader]);
                    }
                    shard.state = set.state;
                    shard.epoch += 1;
                    shard.newer_are_lost = None;
                }
            }
            Command::Started(started) => {
                let start = Start { start: started.start, first: self.changes };
                push_bounded(&mut self.starts, start, STARTS_MAX);
            }
            Command::SetIndex(set) => {
                if let Some(node) = self.nodes.get_mut(&set.node) {
                    node.index = set.index;
                }
            }
            Command::Restored(Restored { node: NodeId(0), from_round }) => {
                self.begin_eras(|_| true);
                self.restored = true;
                // Which directories are the newest is not known here any more.
                self.nodes.values_mut().for_each(|node| node.mark = 0);
                self.targets.values_mut().for_each(|target| target.mark = 0);
                self.starts.clear();
                // From two copies that are put back, one after the other, histories begin at one number, so that daemons tell
                // them apart by their starts.
                self.changes = match from_round {
                    Some(true) => (self.changes / RESTORED_JUMP + 1) * RESTORED_JUMP,
                    _ => self.changes + RESTORED_JUMP,
                };
                self.last_client.0 += RESTORED_JUMP;
                // Sessions that were opened since the copy are known to servers, and not here: all ids up to one in the
                // list that do not live have ended.
                push_bounded(&mut self.closed, self.last_client, CLOSED_MAX);
                self.epoch.0 += RESTORED_JUMP;
                for shard in &mut self.shards {
                    shard.epoch += RESTORED_JUMP;
                    // That was said of what is known anew now.
                    shard.newer_are_lost = None;
                }
                self.last_node.0 += RESTORED_JUMP_SMALL;
                // Targets count from 101, also when none was registered before.
                self.last_target.0 += RESTORED_JUMP_SMALL;
                self.last_pool.0 += RESTORED_JUMP_SMALL;
            }
            Command::Restored(Restored { node, .. }) => {
                self.begin_eras(|shard| shard.members.contains(node));
            }
            _ => {}
        }
    }

    fn begin_eras(&mut self, of: impl Fn(&ShardEntry) -> bool) {
        for shard in self.shards.iter_mut().filter(|shard| of(shard)) {
            shard.era = (shard.era + 1).min(ERAS_MAX);
        }
    }

    fn apply_pool(&mut self, command: &Command) {
        match command {
            Command::SetPool(set) => {
                self.last_pool = self.last_pool.max(set.pool.id);
                self.pools.insert(set.pool.id, set.pool.clone());
            }
            Command::DropPool(drop) => {
                self.pools.remove(&drop.pool);
            }
            Command::MoveTargets(set) => {
                for id in &set.targets {
                    if let Some(target) = self.targets.get_mut(id) {
                        target.pool = set.pool;
                    }
                }
            }
            _ => {}
        }
    }
}

/// Keeps the newest `max` elements.
fn push_bounded<T>(list: &mut Vec<T>, item: T, max: usize) {
    if list.len() == max {
        list.remove(0);
    }
    list.push(item);
}

macro_rules! keyed {
    ($($value:ident by $field:ident: $key:ident),* $(,)?) => {
        $(impl Keyed for $value {
            type Key = $key;

            fn key(&self) -> $key {
                self.$field
            }
        })*
    };
}

keyed! { Node by id: NodeId, Target by id: TargetId, Session by client: ClientId, Pool by id: PoolId }
