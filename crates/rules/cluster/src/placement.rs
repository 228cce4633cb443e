//! Which metadata server holds which shard.

use crate::age::eras_are_used_up;
use crate::alias::unknown;
use crate::command::{PlaceShards, Placed};
use crate::limits::ERAS_MAX;
use crate::registry::{Output, Registry};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Errno, NodeId, Reachability, ServiceKind, ShardId};
use skep_wire::mgmt::{GiveShard, ShardEntry, ShardState};
use skep_wire::{Refusal, Status};

impl Registry {
    /// Spreads the shards of a new cluster evenly over its metadata servers, once all of them have registered: who comes later gets
    /// none, for formatted shards do not move by themselves. Each group of a server counts as one.
    pub(crate) fn place_shards(&mut self, out: &mut Output) {
        let is_homeless = |entry: &&ShardEntry| entry.members.is_empty() && entry.state == ShardState::New;
        let homeless = self.state.shards.iter().filter(is_homeless);
        let shards: Vec<ShardId> = homeless.map(|entry| entry.shard).collect();
        let metads = self.state.nodes.values().filter(|node| node.service == ServiceKind::Metad);
        let metads: Vec<NodeId> = metads.map(|node| node.id).collect();
        if shards.is_empty() || metads.len() < self.config.metas {
            return;
        }
        let members: Vec<&str> = metads.iter().map(|id| self.state.nodes[id].alias.as_str()).collect();
        out.notes.push(format!(
            "{} shards are spread over {} metadata servers (of groups each is one): {}; whoever registers later gets none",
            shards.len(),
            metads.len(),
            members.join(", ")
        ));
        let places = shards.into_iter().zip(metads.iter().cycle());
        let places = places.map(|(shard, node)| Placed::at(shard, *node)).collect();
        self.commit(PlaceShards { places }, out);
        self.map_changed();
    }

    /// Gives a shard to another metadata server. Nobody answers for it until that one has said that its rows are there; until
    /// then it can be given to a third one, or back. To node 0: who has its rows is gone for good.
    pub fn give_shard(&mut self, order: &GiveShard, out: &mut Output) -> Result<(), Refusal> {
        let GiveShard { shard, node, newer_are_lost } = *order;
        let newer_are_lost = newer_are_lost.filter(|lost| *lost);
        let Some(entry) = self.state.shards.iter().find(|entry| entry.shard == shard) else {
            return Err(unknown("shard", u32::from(shard.0), "shard"));
        };
        match entry.state {
            ShardState::Retired => {
                return refuse(format!("shard {shard} is retired: nobody answers for it any more"));
            }
            ShardState::New => {
                return refuse(format!("shard {shard} is not made yet: wait until its server has started"));
            }
            ShardState::Active | ShardState::Moving => {}
        }
        if node == NodeId(0) {
            return self.give_up_source(shard, out);
        }
        if self.state.nodes.get(&node).is_none_or(|known| known.service != ServiceKind::Metad) {
            return refuse(format!("node {node} is no metadata server of this cluster"));
        }
        // Given back before it has moved, it is where its rows are, whoever is there.
        let source = entry.members.first().copied().filter(|source| *source != node);
        if let Some(source) = source.filter(|_| !self.is_online(node)) {
            let meanwhile = match entry.is_given_up() {
                true => "it waits for a server that has a copy".into(),
                false => format!("it stays with node {source}"),
            };
            return refuse(format!(
                "node {node} is not online, and nobody would answer for the shard meanwhile: {meanwhile}"
            ));
        }
        let asks_nobody = entry.state == ShardState::Moving && entry.comes_from().is_none();
        let is_given_up = entry.is_given_up() || (asks_nobody && entry.is_led_by(node));
        let is_there = source.is_none_or(|source| self.is_online(source));
        if let Some(source) = source.filter(|_| !is_there && !is_given_up) {
            return refuse(format!(
                "node {source}, which has the rows of shard {shard}, is not online: nobody could fetch them. Start it; only \
                 if it is gone for good, and node {node} has a copy: skep shard give {shard} {node} --source-is-gone"
            ));
        }
        // One that was called gone and is there again has the rows after all: whoever has the shard now asks it for them.
        let back = source.filter(|_| is_there && asks_nobody);
        if newer_are_lost.is_some() && entry.era >= ERAS_MAX {
            return refuse(eras_are_used_up());
        }
        if !entry.is_led_by(node) || back.is_some() || newer_are_lost.is_some() {
            let back = back.map(|source| Placed::at(shard, source));
            let places = back.into_iter().chain([Placed { shard, node, newer_are_lost }]).collect();
            let word = if newer_are_lost.is_some() { "; newer rows than it will have are lost" } else { "" };
            out.notes.push(format!("shard {shard} is given to node {node}{word}"));
            self.commit(PlaceShards { places }, out);
            self.map_changed();
        }
        Ok(())
    }

    /// An administrator says that who has the rows of the shard is gone for good. Nobody answers for it until it is given to
    /// a server that has a copy, or back. What that copy lacks was used: another era begins.
    fn give_up_source(&mut self, shard: ShardId, out: &mut Output) -> Result<(), Refusal> {
        let Some(entry) = self.state.shards.iter().find(|entry| entry.shard == shard) else { return Ok(()) };
        let Some(source) = entry.members.first().copied().filter(|_| !entry.is_given_up()) else {
            return Ok(());
        };
        if self.is_online(source) {
            return refuse(format!(
                "node {source}, which has the rows of shard {shard}, is online, so it is not gone: give the shard without \
                 --source-is-gone"
            ));
        }
        // One that was heard a moment ago may be serving mounts.
        if self.nodes.get(&source).is_some_and(|pulse| pulse.reachability != Reachability::Offline) {
            return refuse(format!(
                "node {source}, which has the rows of shard {shard}, does not count as offline yet: make sure that it does \
                 not run, and try again in a minute"
            ));
        }
        if entry.era >= ERAS_MAX {
            return refuse(eras_are_used_up());
        }
        out.notes.push(format!("node {source} is gone for good, and what only it has of shard {shard}"));
        self.commit(PlaceShards { places: Vec::from([Placed::at(shard, NodeId(0))]) }, out);
        self.map_changed();
        Ok(())
    }

    fn is_online(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|pulse| pulse.reachability == Reachability::Online)
    }
}

fn refuse(text: String) -> Result<(), Refusal> {
    Err(Refusal::with(Status::errno(Errno::EINVAL), text))
}
