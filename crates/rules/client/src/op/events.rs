//! What metadata servers tell of their own accord: one keeper for each server asks, while there is a reason to. See
//! `docs/design/client.md`.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Ended, Shards, Shared};
use alloc::vec::Vec;
use skep_types::{Errno, NodeId};
use skep_wire::Status;
use skep_wire::meta::{Event, Events, EventsReply};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Waits up to `wait_ms` for events of `node`, takes them in, and gives the waits for locks that ended by them.
    /// Wishes that their shards have forgotten (a new life) are put into its queues again. An error: the
    /// server could not be asked; ask again after a pause.
    pub async fn events(&self, node: NodeId, wait_ms: u64) -> Result<Vec<Ended>, Errno> {
        let shards = self.shared.with(|s| s.wished_shards(node));
        // Any of them names the channel.
        let Some(shard) = shards.first().copied() else {
            return Ok(self.shared.with(|s| s.locks.take_ended()));
        };
        if !self.reclaim_due(shards, Shards::begin_reclaim).await {
            return Err(Errno::EAGAIN);
        }
        // Another lane may have seen the new life.
        let ended = self.wish_forgotten_again(node).await;
        if !ended.is_empty() {
            return Ok(ended);
        }
        let received = self.shared.with(|s| s.nodes.events(node));
        let reply = match self.once(self.asking(shard, &Events { received, wait_ms })).await {
            Ok(reply) => reply,
            Err(refusal) if refusal.status == Status::FENCED => {
                return Ok(self.shared.with(|s| s.locks.take_ended()));
            }
            Err(_) => {
                // The server may have moved, or be a new one.
                self.refresh_map().await;
                return Err(Errno::EAGAIN);
            }
        };
        let EventsReply { events, number } = self.errno(reply.read())?;
        let told: Option<Vec<Ended>> = self.shared.with(|s| {
            // The channel is the server's, whichever shard it was asked through.
            if s.nodes.has_ended(reply.node, reply.incarnation) {
                return None;
            }
            let told = events.0.iter().filter_map(|event| s.event(event)).collect();
            // Those of kinds that this release does not know count as well.
            if reply.client == s.client() {
                s.nodes.confirm_events(node, number);
            }
            Some(told)
        });
        let Some(mut ended) = told else { return Ok(Vec::new()) };
        ended.extend(self.wish_forgotten_again(node).await);
        Ok(ended)
    }
}

impl Shared {
    /// Takes an event in.
    fn event(&mut self, event: &Event) -> Option<Ended> {
        match event {
            Event::Lock(outcome) => self.lock_outcome(outcome),
        }
    }

    /// Servers whose events there is a reason to ask for: something waits there.
    pub fn nodes_to_ask(&self) -> Vec<NodeId> {
        self.wished_nodes()
    }
}

#[cfg(test)]
mod tests;
