//! Where a new directory shall live: on the shard of its parent, but in the root and in directories that spread on a shard
//! of its own. Below it everything stays there.

use super::Shard;
use crate::group::{Host, Request};
use crate::row::inode::SPREADS;
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Ino, Kind, NodeId, Reachability, ShardId};
use skep_wire::meta::{MakeDirOn, MetaRequest};
use skep_wire::mgmt::{MapReply, ShardState};

/// The shards that directories are dealt to, one after the other. None in a cluster of one metadata server, where they
/// would only make renames fail.
#[derive(Debug, Default)]
pub struct Homes {
    shards: Vec<ShardId>,
    next: usize,
}

impl Homes {
    /// Begins somewhere: a server that is started often does not always begin with the same one.
    pub fn new(seed: u64) -> Self {
        Self { shards: Vec::new(), next: seed as usize % usize::from(u16::MAX) }
    }

    /// As the map has them now. One whose server is away is passed over: who makes a directory would wait for it.
    pub fn update(&mut self, map: &MapReply) {
        let away = |node: &NodeId| {
            map.nodes.iter().any(|entry| entry.node == *node && entry.reachability == Reachability::Offline)
        };
        let active = map.shards.iter().filter(|entry| entry.state == ShardState::Active);
        let led: Vec<_> = active.filter_map(|entry| Some((entry.shard, entry.led_by()?))).collect();
        let servers: BTreeSet<NodeId> = led.iter().map(|(_, leader)| *leader).collect();
        self.shards.clear();
        if servers.len() > 1 {
            self.shards.extend(led.iter().filter(|(_, leader)| !away(leader)).map(|(shard, _)| *shard));
        }
    }

    fn deal(&mut self) -> Option<ShardId> {
        let shard = *self.shards.get(self.next % self.shards.len().max(1))?;
        self.next = (self.next + 1) % self.shards.len();
        Some(shard)
    }
}

impl Shard {
    /// A directory that is to have a shard of its own is asked for there, as an administrator would.
    pub(super) fn dealt<S: Store>(
        &self,
        host: &mut Host<S>,
        request: Request,
    ) -> Result<Request, StoreError> {
        let MetaRequest::MakeNode(m) = &request.message else { return Ok(request) };
        if m.kind != Kind::Dir || host.homes.shards.is_empty() || !self.spreads(host, m.parent)? {
            return Ok(request);
        }
        let Some(on) = host.homes.deal() else { return Ok(request) };
        let (parent, name) = (m.parent, m.name.clone());
        let (mode, umask, uid, gid) = (m.mode, m.umask, m.uid, m.gid);
        let message = MetaRequest::MakeDirOn(MakeDirOn { parent, name, mode, umask, uid, gid, on });
        Ok(Request { message, ..request })
    }

    fn spreads<S: Store>(&self, host: &Host<S>, dir: Ino) -> Result<bool, StoreError> {
        if dir.shard() != self.id {
            return Ok(false);
        }
        Ok(dir == Ino::ROOT || self.inode(host, dir)?.is_some_and(|inode| inode.flags & SPREADS != 0))
    }
}

#[cfg(test)]
mod tests {
    use crate::Input;
    use crate::testing::*;
    use alloc::format;
    use alloc::vec::Vec;
    use skep_types::{Ino, MapVersion, NodeId, Policy, Reachability, ServiceKind, ShardId};
    use skep_wire::meta::SetPolicy;
    use skep_wire::mgmt::{MapReply, NodeEntry};

    /// A cluster of two metadata servers: this one, and one that has the last shard.
    fn beside(shards: u16, other: Reachability) -> MapReply {
        let mut map = map(shards, 5);
        let own = map.nodes[0].clone();
        assert_eq!(own.service, ServiceKind::Metad);
        let (node, incarnation) = (NodeId(9), own.incarnation);
        map.nodes.push(NodeEntry { node, incarnation, reachability: other, ..own });
        map.shards.last_mut().unwrap().leader = node;
        MapReply { version: MapVersion(2), ..map }
    }

    fn shards_of(bed: &mut Bed, parent: Ino, what: &str) -> Vec<u16> {
        (0..6).map(|n| bed.mkdir(parent, &format!("{what}{n}")).shard().0).collect()
    }

    /// Goal: with one server, directories stay with their parents. With several, those in the root are dealt evenly over all
    /// shards whose servers are there, and what is made in them stays with them.
    #[test]
    fn directories_in_the_root_are_dealt() {
        let mut bed = Bed::with(Default::default(), 4);
        assert_eq!(shards_of(&mut bed, Ino::ROOT, "a"), [0; 6]);
        bed.step(Input::Map { own: OWN, map: beside(4, Reachability::Offline) });
        let dealt = shards_of(&mut bed, Ino::ROOT, "b");
        for shard in 0..3 {
            assert_eq!(dealt.iter().filter(|on| **on == shard).count(), 2, "{dealt:?}");
        }
        let far =
            bed.lookup(Ino::ROOT, &format!("b{}", dealt.iter().position(|on| *on == 2).unwrap())).unwrap();
        assert_eq!(shards_of(&mut bed, far, "c"), [2; 6]);
    }

    /// Goal: a directory that spreads deals what is made in it, which does not spread in turn, until it is told to stop.
    #[test]
    fn a_directory_spreads_when_it_is_told_to() {
        let mut bed = Bed::with(Default::default(), 4);
        bed.step(Input::Map { own: OWN, map: beside(4, Reachability::Offline) });
        let dir = bed.mkdir(Ino::ROOT, "d");
        let tell = |bed: &mut Bed, spread| {
            let (ino, policy, spread) = (dir, Policy::default(), Some(spread));
            bed.call(ME, SetPolicy { ino, policy, spread }).unwrap();
        };
        tell(&mut bed, true);
        let dealt = shards_of(&mut bed, dir, "a");
        assert!((0..3).all(|shard| dealt.contains(&shard)), "{dealt:?}");
        let child = bed.lookup(dir, "a0").unwrap();
        assert_eq!(shards_of(&mut bed, child, "b"), [child.shard().0; 6]);
        tell(&mut bed, false);
        assert_eq!(shards_of(&mut bed, dir, "c"), [dir.shard().0; 6]);
        let file = bed.create(ME, dir, "f");
        let wish = SetPolicy { ino: file, policy: Policy::default(), spread: Some(true) };
        assert!(bed.call(ME, wish).is_err(), "nothing is made in a file");
        assert_ne!(ShardId(3), dir.shard(), "its server is away");
    }
}
