//! What is a metadata server's own, whatever shards it has: its life, its silence, and what it tells.

use alloc::collections::BTreeMap;
use alloc::string::String;
use skep_types::{Incarnation, Millis, NodeId};

/// A server that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// When the first request began that was not answered.
    pub since: Millis,
    /// What the network said.
    pub why: String,
}

/// What a mount knows of its metadata servers.
#[derive(Debug, Default)]
pub struct Nodes {
    lives: BTreeMap<NodeId, Incarnation>,
    silent: BTreeMap<NodeId, Silence>,
    events: BTreeMap<NodeId, u64>,
}

impl Nodes {
    /// `node` was heard in life `incarnation`. Says whether that is a new life: its shards may be in new ones, too.
    pub fn heard(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let known = self.lives.get(&node).copied();
        if known.is_none_or(|known| known < incarnation) {
            self.lives.insert(node, incarnation);
            return true;
        }
        false
    }

    /// Is a newer life of `node` known than `incarnation`? What comes from that one is late.
    pub fn has_ended(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.lives.get(&node).is_some_and(|known| *known > incarnation)
    }

    /// Events that `node` has told, up to this number.
    pub fn events(&self, node: NodeId) -> u64 {
        self.events.get(&node).copied().unwrap_or(0)
    }

    /// Events up to `number` have been taken in. (Each life of a server counts on from the one before.)
    pub fn confirm_events(&mut self, node: NodeId, number: u64) {
        let known = self.events.entry(node).or_default();
        *known = number.max(*known);
    }

    /// A new session: servers number its events anew.
    pub fn forget_events(&mut self) {
        self.events.clear();
    }

    /// `node` has not answered since `since`, for this reason. Says whether that is news.
    pub fn silent(&mut self, node: NodeId, since: Millis, why: impl FnOnce() -> String) -> bool {
        let known = self.silent.contains_key(&node);
        if !known {
            self.silent.insert(node, Silence { since, why: why() });
        }
        !known
    }

    /// `node` answered. Says whether it had been silent.
    pub fn answers(&mut self, node: NodeId) -> bool {
        !self.silent.is_empty() && self.silent.remove(&node).is_some()
    }

    /// Nobody waits for who is not asked any more.
    pub fn forget_silences(&mut self, is_asked: impl Fn(NodeId) -> bool) {
        self.silent.retain(|node, _| is_asked(*node));
    }

    /// Nodes that somebody waits for.
    pub fn silences(&self) -> impl Iterator<Item = (NodeId, &Silence)> {
        self.silent.iter().map(|(node, silence)| (*node, silence))
    }
}
