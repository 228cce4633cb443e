//! Carries tasks of the shards to storage daemons and other metadata servers.
//!
//! For each destination and class of jobs there is a pool of threads, so that one that is away does not hold up the others,
//! nor deletions a truncate that somebody waits for. Results, failures among them, go into the mailbox; the rules decide when
//! to try again. See `docs/design/group.md`, "The courier".

mod pool;
#[cfg(test)]
mod tests;

use super::mailbox::Mailbox;
use pool::{IDLE, JOB_LIMIT, Pool, Sent, Times};
use skep_base::caller::{Caller, hello};
use skep_meta::{Class, Job, JobFailure, JobReply, Task};
use skep_net::{Keyring, choose, machine_id};
use skep_types::{FenceEpoch, Incarnation, NodeId, Role, ShardId, TargetId};
use skep_wire::Hello;
use skep_wire::mgmt::{MapReply, ShardEntry};
use skep_wire::storage::ChunkStat;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The owner's side.
pub struct Courier {
    keyring: Arc<Keyring>,
    node: NodeId,
    incarnation: Incarnation,
    mailbox: Arc<Mailbox>,
    map: Option<MapReply>,
    destinations: BTreeMap<NodeId, Destination>,
    /// Threads beside the first of each pool.
    further: Arc<AtomicUsize>,
    times: Times,
    /// Destinations' lives so far: connections to a later one have higher numbers, also where the last one led there already.
    lives: u32,
}

struct Destination {
    /// The life that its pools are for, with its addresses.
    incarnation: Incarnation,
    pools: BTreeMap<Class, Pool>,
    /// Its connections have higher numbers.
    connection: u64,
}

impl Courier {
    /// Knows nobody before the first map.
    pub fn new(keyring: Arc<Keyring>, node: NodeId, incarnation: Incarnation, mailbox: Arc<Mailbox>) -> Self {
        Self {
            keyring,
            node,
            incarnation,
            mailbox,
            map: None,
            destinations: BTreeMap::new(),
            further: Arc::default(),
            times: Times { job: JOB_LIMIT, idle: IDLE },
            lives: 0,
        }
    }

    /// Takes a newer map; destinations that began another life get new threads at the next task.
    pub fn set_map(&mut self, map: MapReply) {
        if !is_newer(self.map.as_ref(), &map) {
            return;
        }
        let life =
            |node: NodeId| map.nodes.iter().find(|entry| entry.node == node).map(|entry| entry.incarnation);
        self.destinations.retain(|node, destination| life(*node) == Some(destination.incarnation));
        self.map = Some(map);
    }

    /// Hands a task to its destination's threads.
    pub fn send(&mut self, task: Task, fences: FenceEpoch) {
        let id = task.id;
        if let Err(why) = self.try_send(task, fences) {
            self.mailbox.result(id, Err(JobFailure(why)));
        }
    }

    fn try_send(&mut self, task: Task, fences: FenceEpoch) -> Result<(), String> {
        if let Some(reply) = self.without_target(&task.job) {
            self.mailbox.result(task.id, Ok(reply));
            return Ok(());
        }
        let (node, shard_epoch) = match &task.job {
            Job::Delete { target, .. }
            | Job::Trim { target, .. }
            | Job::Seal { target, .. }
            | Job::Stat { target, .. } => (self.node_of(*target), 0),
            // In the epoch in which the shard was given to this server.
            Job::Fetch { node, epoch, .. } => (Some(*node), *epoch),
            Job::Shard { shard, .. } => {
                let seat = self.seat(*shard);
                (seat.and_then(ShardEntry::led_by), seat.map_or(0, |seat| seat.epoch))
            }
        };
        let node = node.ok_or("the map names no server for it")?;
        let line = task.job.line(task.id);
        self.pool(node, line.class)?.push(line.number, Sent { task, shard_epoch, fences })
    }

    /// What there is to say of a target that was removed from the cluster, with all it held: a target that a
    /// shard knows was in a map once, and none comes back.
    fn without_target(&self, job: &Job) -> Option<JobReply> {
        let map = self.map.as_ref()?;
        let gone = |target: &TargetId| !map.targets.iter().any(|entry| entry.target == *target);
        match job {
            Job::Delete { target, .. } if gone(target) => Some(JobReply::Done),
            Job::Trim { target, .. } if gone(target) => Some(JobReply::Trimmed(0)),
            Job::Seal { target, .. } if gone(target) => {
                Some(JobReply::NotSealed(format!("target {target} was removed from the cluster")))
            }
            Job::Stat { target, chunks } if gone(target) => {
                let nothing = ChunkStat::default();
                Some(JobReply::Stats(vec![nothing; chunks.len()]))
            }
            _ => None,
        }
    }

    fn node_of(&self, target: TargetId) -> Option<NodeId> {
        self.map.as_ref()?.targets.iter().find(|entry| entry.target == target).map(|entry| entry.node)
    }

    fn seat(&self, shard: ShardId) -> Option<&ShardEntry> {
        self.map.as_ref()?.shards.iter().find(|entry| entry.shard == shard)
    }

    fn pool(&mut self, node: NodeId, class: Class) -> Result<&Pool, String> {
        let map = self.map.as_ref().ok_or("there is no map yet")?;
        let entry =
            map.nodes.iter().find(|entry| entry.node == node).ok_or("the map does not know the node")?;
        let incarnation = entry.incarnation;
        let destination = self.destinations.entry(node).or_insert_with(|| {
            self.lives += 1;
            Destination { incarnation, pools: BTreeMap::new(), connection: u64::from(self.lives) << 32 }
        });
        let connection = destination.connection;
        Ok(destination.pools.entry(class).or_insert_with(|| {
            let endpoints = choose(&entry.addresses, entry.machine, machine_id());
            let mut introduction = hello(Role::Server);
            (introduction.node, introduction.incarnation) = (self.node, self.incarnation);
            let caller = |group| {
                Caller::new(
                    self.keyring.clone(),
                    endpoints.clone(),
                    Hello { group, connection, ..introduction.clone() },
                )
            };
            let name = format!("{}-{node}", name_of(class));
            Pool::new(class, caller, self.mailbox.clone(), self.further.clone(), self.times, name)
        }))
    }
}

/// Of its threads: at most 15 characters are shown with the number of a node.
fn name_of(class: Class) -> &'static str {
    match class {
        Class::Trims => "trims",
        Class::Deletions => "deletions",
        Class::Messages => "messages",
        Class::Rows => "rows",
    }
}

/// Is this map to be believed? What an older one or a difference does not name is not gone: errands for a target
/// that is gone count as done.
fn is_newer(known: Option<&MapReply>, map: &MapReply) -> bool {
    map.is_whole() && known.is_none_or(|known| map.version >= known.version)
}
