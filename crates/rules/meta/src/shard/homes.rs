//! Where a new directory shall live: on the shard of its parent, but in the root and in directories that spread on a shard
//! of its own. Below it everything stays there.

use super::Shard;
use super::trims::inode_in;
use crate::group::{Host, Request};
use crate::limit::FULL_MS;
use crate::near::Near;
use crate::row::inode::SPREADS;
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{Incarnation, Ino, Kind, Millis, NodeId, Reachability, ShardId};
use skep_wire::meta::{MakeDirOn, MetaRequest};
use skep_wire::mgmt::{MapReply, NodeEntry, ShardEntry, ShardState};

/// A shard at its place in the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    pub shard: ShardId,
    epoch: u64,
    server: NodeId,
    /// The life of its server.
    life: Incarnation,
}

/// The shards that directories are dealt to, one after the other. None in a cluster of one metadata server, where they
/// would only make renames fail.
#[derive(Debug, Default)]
pub struct Homes {
    all: Vec<Home>,
    next: usize,
    /// Their servers have said that they have no rows of them, or withhold them. They can be put back: before another life
    /// of the server, or with another place of the shard.
    lost: BTreeSet<Home>,
    /// Servers that had no room for one more, and until when they are not asked.
    full: BTreeMap<NodeId, Millis>,
}

impl Homes {
    /// Begins somewhere: a server that is started often does not always begin with the same one.
    pub fn new(seed: u64) -> Self {
        Self { next: seed as usize % usize::from(u16::MAX), ..Self::default() }
    }

    /// As the map has them now. One whose server is away is passed over: who makes a directory would wait for it. One that
    /// is new is not: all shards of a cluster are placed at once, and the first server that has formatted its own would get
    /// whatever is made before the others have.
    pub fn update(&mut self, map: &MapReply) {
        let nodes: BTreeMap<NodeId, &NodeEntry> = map.nodes.iter().map(|entry| (entry.node, entry)).collect();
        let servers: BTreeSet<NodeId> = map.shards.iter().filter_map(server_of).collect();
        let home = |entry: &ShardEntry| {
            let node = nodes.get(&server_of(entry)?)?;
            let is_there = matches!(entry.state, ShardState::New | ShardState::Active)
                && node.reachability != Reachability::Offline;
            let (shard, epoch, server, life) = (entry.shard, entry.epoch, node.node, node.incarnation);
            is_there.then_some(Home { shard, epoch, server, life })
        };
        self.all.clear();
        if servers.len() > 1 {
            self.all.extend(map.shards.iter().filter_map(home));
        }
        let lost = core::mem::take(&mut self.lost);
        let (lost, all) = self.all.drain(..).partition::<Vec<Home>, _>(|home| lost.contains(home));
        (self.lost, self.all) = (lost.into_iter().collect(), all);
    }

    /// Where a shard is now: who is asked there has to do with that place, and with no later one.
    pub fn of(&self, shard: ShardId) -> Option<Home> {
        self.all.iter().find(|home| home.shard == shard).copied()
    }

    /// Its server cannot serve it: it gets no directory any more. Nothing, if it was said of an earlier place of the shard, or
    /// by an earlier life of its server.
    pub fn has_lost(&mut self, asked: Home) {
        let Some(at) = self.all.iter().position(|home| *home == asked) else { return };
        // Whose turn it is stays.
        self.next %= self.all.len();
        self.next -= usize::from(at < self.next);
        self.lost.insert(self.all.remove(at));
    }

    /// Its server has no room for one more, if it is still the one that was asked. Is there another one that may have?
    pub fn has_no_room(&mut self, asked: Option<Home>, now: Millis) -> bool {
        let full = asked.filter(|asked| self.all.contains(asked)).map(|home| home.server);
        self.full.extend(full.map(|server| (server, now.plus(FULL_MS))));
        self.all.iter().any(|home| self.has_room(home, now))
    }

    fn has_room(&self, home: &Home, now: Millis) -> bool {
        self.full.get(&home.server).is_none_or(|until| *until <= now)
    }

    /// Whose turn it is, but not this one's.
    pub fn deal_beside(&mut self, shard: ShardId, now: Millis) -> Option<ShardId> {
        self.turn(now, |home| home.shard != shard)
    }

    /// Whose turn it is.
    fn deal(&mut self, now: Millis) -> Option<ShardId> {
        self.full.retain(|_, until| *until > now);
        self.turn(now, |_| true)
    }

    /// The next one that may be, and has room. Of servers that are all full one says so.
    fn turn(&mut self, now: Millis, may_be: impl Fn(&Home) -> bool) -> Option<ShardId> {
        let in_turn = (0..self.all.len()).map(|step| (self.next + step) % self.all.len());
        let homes = in_turn.filter_map(|at| Some((at, *self.all.get(at)?))).filter(|(_, home)| may_be(home));
        let mut with_room = homes.clone().filter(|(_, home)| self.has_room(home, now));
        let (at, home) = with_room.next().or_else(|| homes.clone().next())?;
        self.next = (at + 1) % self.all.len();
        Some(home.shard)
    }
}

/// Who answers for it; while that is not known, who holds it.
fn server_of(entry: &ShardEntry) -> Option<NodeId> {
    let member = entry.members.first().filter(|_| entry.state != ShardState::Retired);
    entry.led_by().or(member.copied())
}

impl Shard {
    /// A directory that is to have a shard of its own is asked for there, as an administrator would. `None`: the request
    /// waits for the row that says so.
    pub(super) fn dealt<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
    ) -> Result<Option<Request>, StoreError> {
        let MetaRequest::MakeNode(m) = &request.message else { return Ok(Some(request)) };
        if m.kind != Kind::Dir || host.homes.all.is_empty() {
            return Ok(Some(request));
        }
        let near = Near::new(&host.store, self.reads_in_place(host));
        let spreads = match self.spreads(&near, m.parent) {
            Err(StoreError::Away) => {
                self.await_rows(host, request, near.take_lacks());
                return Ok(None);
            }
            spreads => spreads?,
        };
        let Some(on) = spreads.then(|| host.homes.deal(host.now)).flatten() else { return Ok(Some(request)) };
        let (parent, name) = (m.parent, m.name.clone());
        let (mode, umask, uid, gid) = (m.mode, m.umask, m.uid, m.gid);
        let message = MetaRequest::MakeDirOn(MakeDirOn { parent, name, mode, umask, uid, gid, on });
        Ok(Some(Request { message, ..request }))
    }

    fn spreads(&self, rows: &impl Store, dir: Ino) -> Result<bool, StoreError> {
        if dir.shard() != self.id {
            return Ok(false);
        }
        Ok(dir == Ino::ROOT || inode_in(rows, dir)?.is_some_and(|inode| inode.flags & SPREADS != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::Homes;
    use crate::limit::{DEALT_FAILURES_MAX, FULL_MS};
    use crate::testing::*;
    use crate::{Input, ShardMessage};
    use alloc::vec::Vec;
    use alloc::{format, vec};
    use skep_types::{
        Errno, Incarnation, Ino, Kind, MapVersion, Millis, NodeId, Policy, Reachability, ServiceKind, ShardId,
    };
    use skep_wire::Status;
    use skep_wire::meta::{EntryReply, MakeDirOn, SetPolicy, TxnRefused, Vote};
    use skep_wire::mgmt::{MapReply, NodeEntry, ShardState};

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

    fn dealt(homes: &mut Homes, count: usize) -> Vec<u16> {
        (0..count).filter_map(|_| homes.deal(Millis(0))).map(|shard| shard.0).collect()
    }

    /// Goal: in a cluster that was made just now the servers that have not formatted their shards yet get their part of the
    /// directories; those of a server that is away, or whose rows are on their way, do not.
    #[test]
    fn new_shards_are_dealt_to() {
        let mut map = beside(4, Reachability::Online);
        map.shards[3].state = ShardState::New;
        let mut homes = Homes::new(0);
        homes.update(&map);
        assert_eq!(dealt(&mut homes, 8), [0, 1, 2, 3, 0, 1, 2, 3]);
        // Who answers for it is not known yet; who holds it is.
        (map.shards[3].members, map.shards[3].leader) = (vec![NodeId(9)], NodeId(0));
        homes.update(&map);
        assert_eq!(dealt(&mut homes, 4), [0, 1, 2, 3]);
        for (state, there) in [(ShardState::Moving, 3), (ShardState::Retired, 0)] {
            map.shards[3].state = state;
            homes.update(&map);
            assert_eq!(dealt(&mut homes, 3).len(), there, "{state:?}");
        }
        map.shards[3].state = ShardState::New;
        map.nodes.last_mut().unwrap().reachability = Reachability::Offline;
        homes.update(&map);
        assert!(!dealt(&mut homes, 8).contains(&3));
    }

    /// Goal: a shard whose server has lost its rows is passed over, and no other loses its turn, until the server begins
    /// another life or the shard has another place.
    #[test]
    fn a_lost_shard_is_passed_over() {
        let mut map = beside(4, Reachability::Online);
        for lives in [true, false] {
            let mut homes = Homes::new(0);
            homes.update(&map);
            assert_eq!(dealt(&mut homes, 2), [0, 1]);
            let asked = homes.of(ShardId(1)).unwrap();
            homes.has_lost(asked);
            homes.has_lost(asked);
            assert_eq!(dealt(&mut homes, 4), [2, 3, 0, 2]);
            homes.update(&map);
            assert!(!dealt(&mut homes, 8).contains(&1));
            match lives {
                true => map.nodes[0].incarnation = Incarnation(7),
                false => map.shards[1].epoch += 1,
            }
            homes.update(&map);
            // Said once more, late: it is of the place of before.
            homes.has_lost(asked);
            homes.has_no_room(Some(asked), Millis(0));
            assert!(homes.full.is_empty());
            assert!(dealt(&mut homes, 8).contains(&1));
        }
    }

    /// Goal: a no that was on its way while the shard got another place, or its server another life, says nothing of that: what
    /// it was for goes to the next one, and the shard is dealt to again.
    #[test]
    fn a_late_no_is_of_the_place_that_was_asked() {
        for no in [Errno::EIO, Errno::ENOSPC] {
            for lives in [true, false] {
                let mut bed = Bed::with(Default::default(), 4);
                let mut map = beside(4, Reachability::Online);
                bed.step(Input::Map { own: OWN, map: map.clone() });
                bed.courier_works = false;
                let asked: Vec<u64> = (0..4)
                    .map(|slot| {
                        bed.send(Who { client: 1, slot }, node(Ino::ROOT, &format!("{slot}"), Kind::Dir))
                    })
                    .collect();
                map.version = MapVersion(3);
                match lives {
                    true => map.nodes.last_mut().unwrap().incarnation = Incarnation(7),
                    false => map.shards[3].epoch += 1,
                }
                bed.step(Input::Map { own: OWN, map });
                bed.elsewhere = Some(Vote::No(TxnRefused { errno: Status::errno(no).0 }));
                bed.courier_works = true;
                bed.run_courier();
                for to in asked {
                    assert!(bed.reply::<EntryReply>(to).unwrap().unwrap().ino.shard() < ShardId(3));
                }
                assert_eq!(prepares(&bed), 1);
                shards_of(&mut bed, Ino::ROOT, "a");
                assert_eq!(prepares(&bed), 2, "{no:?} {lives}: it is asked where it is now");
                bed.check();
            }
        }
    }

    /// Goal: nobody waits for a shard of this server that has lost its rows: what is dealt to it goes to the next one, and who
    /// asks for it by name gets an error.
    #[test]
    fn nobody_waits_for_a_lost_shard_here() {
        let mut bed = Bed::with(Default::default(), 4);
        // Shard 4 is not here, and shard 5 is of the other server.
        bed.step(Input::Map { own: OWN, map: beside(6, Reachability::Offline) });
        assert!(bed.warnings.iter().any(|line| line.contains("have no rows here")), "{:?}", bed.warnings);
        let dealt = shards_of(&mut bed, Ino::ROOT, "a");
        assert!((0..4).all(|shard| dealt.contains(&shard)) && !dealt.contains(&4), "{dealt:?}");
        let on = MakeDirOn {
            parent: Ino::ROOT,
            name: name("named"),
            mode: 0o755,
            umask: 0,
            uid: 0,
            gid: 0,
            on: ShardId(4),
        };
        assert_eq!(bed.admin(on).err(), Some(errno(Errno::EIO)));
        bed.check();
    }

    /// Goal: nobody waits for a server that does not answer, though the map has it online: what was dealt to it goes to the
    /// next one after some tries.
    #[test]
    fn nobody_waits_for_a_server_that_does_not_answer() {
        let mut bed = Bed::with(Default::default(), 4);
        bed.step(Input::Map { own: OWN, map: beside(4, Reachability::Online) });
        let asked: Vec<u64> = (0..8)
            .map(|slot| {
                let who = Who { client: 1, slot };
                bed.send(who, node(Ino::ROOT, &format!("{slot}"), Kind::Dir))
            })
            .collect();
        let waits = |bed: &Bed| asked.iter().filter(|to| !bed.replies.contains_key(to)).count();
        assert_eq!(waits(&bed), 2, "two of eight were dealt to it");
        for _ in 0..DEALT_FAILURES_MAX {
            bed.tick(100);
        }
        assert_eq!(waits(&bed), 0);
        for to in asked {
            assert!(bed.reply::<EntryReply>(to).unwrap().unwrap().ino.shard() < ShardId(3));
        }
        bed.check();
    }

    /// Goal: the same of a shard of another server: it is asked once, and never again by what is dealt.
    #[test]
    fn nobody_waits_for_a_lost_shard_elsewhere() {
        let mut bed = Bed::with(Default::default(), 4);
        bed.step(Input::Map { own: OWN, map: beside(4, Reachability::Online) });
        bed.elsewhere = Some(Vote::No(TxnRefused { errno: Status::errno(Errno::EIO).0 }));
        let dealt = shards_of(&mut bed, Ino::ROOT, "a");
        for shard in 0..3 {
            assert_eq!(dealt.iter().filter(|on| **on == shard).count(), 2, "{dealt:?}");
        }
        assert_eq!(prepares(&bed), 1);
        bed.check();
    }

    /// How often another server was asked for its vote.
    fn prepares(bed: &Bed) -> usize {
        bed.asked.iter().filter(|message| matches!(message, ShardMessage::Prepare(_))).count()
    }

    /// Goal: a server whose disk is full is no reason not to make a directory that was dealt to it: the next one gets it, and
    /// the full one is not asked for a while. Who asks for it by name is told. Where none has room that is said, at once.
    #[test]
    fn a_full_server_is_passed_over() {
        let mut bed = Bed::with(Default::default(), 4);
        bed.step(Input::Map { own: OWN, map: beside(4, Reachability::Online) });
        bed.elsewhere = Some(Vote::No(TxnRefused { errno: Status::errno(Errno::ENOSPC).0 }));
        for round in 1..=2 {
            let dealt = shards_of(&mut bed, Ino::ROOT, &format!("a{round}"));
            assert!((0..3).all(|shard| dealt.contains(&shard)) && !dealt.contains(&3), "{dealt:?}");
            assert_eq!(prepares(&bed), round, "once in a while");
            bed.tick(FULL_MS);
        }
        let on = MakeDirOn {
            parent: Ino::ROOT,
            name: name("named"),
            mode: 0o755,
            umask: 0,
            uid: 0,
            gid: 0,
            on: ShardId(3),
        };
        assert_eq!(bed.admin(on).err(), Some(errno(Errno::ENOSPC)));
        bed.step(Input::LowSpace(true));
        let before = prepares(&bed);
        for slot in 0..8 {
            let to = bed.send(Who { client: 1, slot }, node(Ino::ROOT, "b", Kind::Dir));
            assert_eq!(bed.reply::<EntryReply>(to), Some(Err(errno(Errno::ENOSPC))));
        }
        assert_eq!(prepares(&bed), before + 2, "each of eight asked one of four");
        bed.check();
    }

    /// Goal: of several full servers each is asked once, whatever shards it has; others have their turns meanwhile.
    #[test]
    fn full_servers_are_counted_by_server() {
        let mut map = beside(6, Reachability::Online);
        map.shards[4].leader = NodeId(9);
        let mut homes = Homes::new(0);
        homes.update(&map);
        let (now, later) = (Millis(0), Millis(FULL_MS));
        assert!(homes.has_no_room(homes.of(ShardId(5)), now));
        assert_eq!(dealt(&mut homes, 5), [0, 1, 2, 3, 0], "shard 4 is of the same server");
        assert_eq!(homes.deal_beside(ShardId(1), now), Some(ShardId(2)));
        assert!(!homes.has_no_room(homes.of(ShardId(0)), now), "none is left");
        assert_eq!(dealt(&mut homes, 6), [3, 4, 5, 0, 1, 2], "somebody has to say so");
        assert!(homes.has_no_room(homes.of(ShardId(0)), later), "it is a while ago");
        assert_eq!((homes.deal(later), homes.deal(later)), (Some(ShardId(4)), Some(ShardId(5))));
    }
}
