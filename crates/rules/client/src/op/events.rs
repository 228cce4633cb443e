//! What metadata servers tell of their own accord: one keeper for each server asks, while there is a reason to. See
//! `docs/design/client.md`.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Ended, Shards, Shared};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Errno, Millis, NodeId, ShardId};
use skep_wire::Status;
use skep_wire::meta::{Event, Events, EventsReply};

/// While something is to be tried again, events are waited for so long.
const EVENTS_SOON_MS: u64 = 100;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Waits up to `wait_ms` for events of `node`, takes them in, and gives the waits for locks that ended by them.
    /// Wishes that their shards have forgotten (a new term) are put into their queues again. A shard that does not take one
    /// now, or cannot be told what is held there, keeps nobody from hearing of the others: the rest is tried at the next call,
    /// and this one does not wait for events for long. An error: the server could not be asked; ask again after a pause.
    pub async fn events(&self, node: NodeId, wait_ms: u64) -> Result<Vec<Ended>, Errno> {
        let shards = self.shared.with(|s| s.wished_shards(node));
        if shards.is_empty() {
            return Ok(self.shared.with(|s| s.locks.take_ended()));
        }
        // Another lane may have seen the new term.
        let is_due = self.shared.with(|s| {
            shards.iter().any(|shard| s.shards.is_due(*shard)) || !s.forgotten_wishes(node).is_empty()
        });
        let told = self.ask_events(node, if is_due { wait_ms.min(EVENTS_SOON_MS) } else { wait_ms }).await;
        if told == Err(Status::NOT_READY) || told.is_ok() {
            let shards = self.shared.with(|s| s.wished_shards(node));
            self.reclaim_due(shards, Shards::begin_reclaim).await;
        }
        match told {
            Ok(mut ended) => {
                ended.extend(self.wish_forgotten_again(node).await);
                Ok(ended)
            }
            Err(Status::FENCED) => Ok(self.shared.with(|s| s.locks.take_ended())),
            Err(_) => {
                // The server may have moved, or be a new one.
                self.refresh_map().await;
                Err(Errno::EAGAIN)
            }
        }
    }

    /// A mount that holds something and asks for nothing would not hear that a shard began a term, and would lose what it holds
    /// with the grace period of that. So it asks every server that knows it now and then; those on which somebody waits are
    /// asked all the time.
    pub(crate) async fn listen(&self) {
        let now = self.port.now();
        for node in self.shared.with(|s| s.nodes_to_listen_to(now)) {
            // Whoever does not answer is asked again the next time, and by all who want something of it.
            let _ = self.ask_events(node, 0).await;
        }
    }

    /// The question itself.
    async fn ask_events(&self, node: NodeId, wait_ms: u64) -> Result<Vec<Ended>, Status> {
        let Some(shard) = self.shared.with(|s| s.names_channel(node)) else { return Ok(Vec::new()) };
        let received = self.shared.with(|s| s.nodes.events(node));
        let job = self.asking(shard, &Events { received, wait_ms });
        let reply = self.once(job).await.map_err(|refusal| refusal.status)?;
        let EventsReply { events, number } = reply.read().map_err(|refusal| refusal.status)?;
        let (ended, begun) = self.shared.with(|s| {
            // The channel is the server's, whichever shard it was asked through.
            if s.nodes.has_ended(reply.node, reply.incarnation) {
                return (Vec::new(), false);
            }
            let begun = events.0.iter().any(|event| s.term_begun(event));
            let ended = events.0.iter().filter_map(|event| s.lock_ended(event)).collect();
            // Those of kinds that this release does not know count as well.
            if reply.client == s.client() {
                s.nodes.confirm_events(node, number);
            }
            (ended, begun)
        });
        if begun {
            self.port.work_waits();
        }
        Ok(ended)
    }
}

impl Shared {
    /// A shard says of its own accord that it is in a term that was not known.
    fn term_begun(&mut self, event: &Event) -> bool {
        matches!(event, Event::Term(begun) if self.shards.heard(begun.shard, begun.term))
    }

    /// A wait that has ended by an event.
    fn lock_ended(&mut self, event: &Event) -> Option<Ended> {
        match event {
            Event::Lock(outcome) => self.lock_outcome(outcome),
            Event::Term(_) => None,
        }
    }

    /// The shard that names the channel of `node`: one that has heard of this mount, if there is any. Others may not listen
    /// before they have.
    fn names_channel(&self, node: NodeId) -> Option<ShardId> {
        let shards = self.wished_shards(node);
        let told = shards.iter().find(|shard| self.shards.told(**shard).is_some());
        let known = || self.shards.known_here().find(|shard| self.map.leader(*shard) == Some(node));
        told.or_else(|| shards.first()).copied().or_else(known)
    }

    /// Servers that know this mount and that nobody asks, when it is time.
    fn nodes_to_listen_to(&mut self, now: Millis) -> BTreeSet<NodeId> {
        let Some(session) = self.session.open() else { return BTreeSet::new() };
        // A mount that has just begun has nothing to hear yet.
        if now.since(*self.listened.get_or_insert(now)) < session.timeout_ms / 4 {
            return BTreeSet::new();
        }
        self.listened = Some(now);
        let asked = self.nodes_to_ask();
        let leaders = self.shards.known_here().filter_map(|shard| self.map.leader(shard));
        leaders.filter(|node| !asked.contains(node)).collect()
    }

    /// Servers whose events there is a reason to ask for: something waits there.
    pub fn nodes_to_ask(&self) -> Vec<NodeId> {
        self.wished_nodes()
    }
}

#[cfg(test)]
mod tests;
