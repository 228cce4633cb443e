//! Carries tasks of the shards to storage daemons and other metadata servers.
//!
//! A thread per destination, so that one that is away does not hold up the others. Results,
//! failures among them, go into the mailbox; the rules decide when to try again.

use super::mailbox::Mailbox;
use skep_base::caller::{CallError, Caller, hello};
use skep_meta::{Job, JobFailure, JobReply, ShardMessage, Task};
use skep_net::{Keyring, choose, machine_id};
use skep_types::{FenceEpoch, Incarnation, NodeId, Role, ShardId, TargetId};
use skep_wire::meta::ShardCall;
use skep_wire::mgmt::{MapReply, ShardEntry};
use skep_wire::storage::{ChunkStat, DeleteChunks, SealChunk, StatChunks, TrimChunk};
use skep_wire::{Refusal, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Tasks that wait for one destination; more are handed back as failed, to be tried later.
const QUEUE_MAX: usize = 1_024;
/// Longest time that one task may take.
const TASK_LIMIT: Duration = Duration::from_secs(10);

/// The owner's side.
pub struct Courier {
    keyring: Arc<Keyring>,
    node: NodeId,
    incarnation: Incarnation,
    mailbox: Arc<Mailbox>,
    map: Option<MapReply>,
    queues: BTreeMap<NodeId, Queue>,
}

/// A task, the epoch of the shard that it is for, and the fence epoch.
type Sent = (Task, u64, FenceEpoch);

struct Queue {
    /// The destination's life and addresses that the thread was started for.
    incarnation: Incarnation,
    sender: SyncSender<Sent>,
}

impl Courier {
    /// Knows nobody before the first map.
    pub fn new(keyring: Arc<Keyring>, node: NodeId, incarnation: Incarnation, mailbox: Arc<Mailbox>) -> Self {
        Self { keyring, node, incarnation, mailbox, map: None, queues: BTreeMap::new() }
    }

    /// Takes a newer map; destinations with new addresses get new threads at the next task.
    pub fn set_map(&mut self, map: MapReply) {
        if !is_newer(self.map.as_ref(), &map) {
            return;
        }
        let life =
            |node: NodeId| map.nodes.iter().find(|entry| entry.node == node).map(|entry| entry.incarnation);
        self.queues.retain(|node, queue| life(*node) == Some(queue.incarnation));
        self.map = Some(map);
    }

    /// Hands a task to its destination's thread.
    pub fn send(&mut self, task: Task, epoch: FenceEpoch) {
        let id = task.id;
        if let Err(why) = self.try_send(task, epoch) {
            self.mailbox.result(id, Err(JobFailure(why)));
        }
    }

    fn try_send(&mut self, task: Task, epoch: FenceEpoch) -> Result<(), String> {
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
        if !self.queues.contains_key(&node) {
            let queue = self.start(node)?;
            self.queues.insert(node, queue);
        }
        let queue = self.queues.get(&node).ok_or("no queue")?;
        queue.sender.try_send((task, shard_epoch, epoch)).map_err(|e| match e {
            TrySendError::Full(_) => format!("{QUEUE_MAX} tasks wait for node {node} already"),
            TrySendError::Disconnected(_) => format!("the thread for node {node} has ended"),
        })
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

    fn start(&self, node: NodeId) -> Result<Queue, String> {
        let map = self.map.as_ref().ok_or("there is no map yet")?;
        let entry =
            map.nodes.iter().find(|entry| entry.node == node).ok_or("the map does not know the node")?;
        let endpoints = choose(&entry.addresses, entry.machine, machine_id());
        let mut introduction = hello(Role::Server);
        (introduction.node, introduction.incarnation) = (self.node, self.incarnation);
        let mut caller = Caller::new(self.keyring.clone(), endpoints, introduction);
        let (sender, tasks) = sync_channel::<Sent>(QUEUE_MAX);
        let mailbox = self.mailbox.clone();
        let spawned = std::thread::Builder::new().name(format!("courier-{node}")).spawn(move || {
            // Ends when the owner drops its side.
            while let Ok((task, shard_epoch, epoch)) = tasks.recv() {
                caller.hello.epoch = caller.hello.epoch.max(epoch);
                let result = match carry(&mut caller, &task, shard_epoch) {
                    Err(CallError::Refused(refusal)) if refusal.status == Status::OLD_TERM => {
                        Ok(JobReply::Deposed { term: refusal.term, why: refusal.to_string() })
                    }
                    done => done.map_err(|e| JobFailure(e.to_string())),
                };
                mailbox.result(task.id, result);
            }
        });
        spawned.map_err(|e| format!("no thread for node {node}: {e}"))?;
        Ok(Queue { incarnation: entry.incarnation, sender })
    }
}

/// Is this map to be believed? What an older one or a difference does not name is not gone: errands for a target
/// that is gone count as done.
fn is_newer(known: Option<&MapReply>, map: &MapReply) -> bool {
    map.is_whole() && known.is_none_or(|known| map.version >= known.version)
}

/// Will the target never do this for the shard? (Another server's shard is another matter: OLD_TERM.)
fn is_final(refusal: &Refusal) -> bool {
    !refusal.status.is_transient() && !refusal.status.is_misdirected() && refusal.status != Status::OLD_TERM
}

fn carry(caller: &mut Caller, task: &Task, epoch: u64) -> Result<JobReply, CallError> {
    let deadline = Instant::now() + TASK_LIMIT;
    let by = Some(task.by);
    Ok(match &task.job {
        Job::Delete { target, chunks } => {
            caller.call(&DeleteChunks { target: *target, by, chunks: chunks.clone() }, deadline)?;
            JobReply::Done
        }
        Job::Trim { target, chunk, size, keeps_reserved } => {
            let message = TrimChunk {
                target: *target,
                by,
                chunk: *chunk,
                size: *size,
                keeps_reserved: keeps_reserved.then_some(true),
            };
            JobReply::Trimmed(caller.call(&message, deadline)?.blocks)
        }
        Job::Seal { target, chunk, floor } => {
            let message = SealChunk { target: *target, by: task.by, chunk: *chunk, floor: *floor };
            match caller.call(&message, deadline) {
                Ok(reply) => JobReply::Sealed(reply.limit),
                // It will not: its disk is full to the last byte, or has failed.
                Err(CallError::Refused(refusal)) if is_final(&refusal) => {
                    JobReply::NotSealed(format!("target {target}: {refusal}"))
                }
                Err(e) => return Err(e),
            }
        }
        Job::Stat { target, chunks } => {
            let message = StatChunks { target: *target, by, chunks: chunks.clone() };
            JobReply::Stats(caller.call(&message, deadline)?.chunks)
        }
        Job::Fetch { shard, message, .. } => {
            let call = ShardCall { shard: *shard, epoch, ..ShardCall::default() };
            JobReply::Rows(caller.call_shard(call, message, deadline)?.1)
        }
        Job::Shard { shard, message } => {
            let call = ShardCall { shard: *shard, epoch, ..ShardCall::default() };
            match message {
                ShardMessage::Prepare(m) => JobReply::Voted(caller.call_shard(call, m, deadline)?.1.vote),
                ShardMessage::Decide(m) => {
                    caller.call_shard(call, m, deadline)?;
                    JobReply::Done
                }
                ShardMessage::AskHistory(m) => {
                    JobReply::History(caller.call_shard(call, m, deadline)?.1.holds)
                }
                ShardMessage::AskOutcome(m) => {
                    JobReply::Outcome(caller.call_shard(call, m, deadline)?.1.outcome)
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{MapVersion, Reachability, ServiceKind, Uuid};
    use skep_wire::mgmt::NodeEntry;

    fn map(version: u64, base: u64) -> MapReply {
        let node = NodeEntry {
            node: NodeId(1),
            service: ServiceKind::Storaged,
            alias: String::new(),
            addresses: Vec::new(),
            machine: Uuid::default(),
            reachability: Reachability::Online,
            incarnation: Incarnation(1),
            domain: String::new(),
        };
        MapReply {
            version: MapVersion(version),
            base: MapVersion(base),
            nodes: vec![node],
            command_level: 1,
            ..MapReply::default()
        }
    }

    /// Goal: a map that is older, or that says only what changed, never makes a target look removed.
    #[test]
    fn older_maps_are_not_believed() {
        assert!(is_newer(None, &map(3, 0)));
        assert!(is_newer(Some(&map(3, 0)), &map(3, 0)) && is_newer(Some(&map(3, 0)), &map(4, 0)));
        assert!(!is_newer(Some(&map(3, 0)), &map(2, 0)), "older");
        assert!(!is_newer(Some(&map(3, 0)), &map(4, 3)) && !is_newer(None, &map(4, 3)), "a difference");
    }
}
