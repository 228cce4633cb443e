//! Shards that another server leads than the map says.

use crate::Opened;
use crate::testing::*;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Errno, MapVersion, Millis, ShardId};
use skep_wire::meta::GetAttr;
use skep_wire::mgmt::{GetMap, ShardState};
use skep_wire::{Lead, Message, View};

fn stat(lane: &FakeLane, file: &Opened) -> Result<(), Errno> {
    block_on(lane.getattr(file.attr.ino)).map(drop)
}

/// Goal: who is told the leader asks it next, without a pause and without mgmtd, and every later request goes there in the
/// epoch that was told; once mgmtd knows as much, its word counts.
#[test]
fn a_leader_that_is_named_is_asked_next() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    assert_eq!(cluster.borrow().epoch_seen, 1);
    let (now, maps) = (cluster.borrow().now, cluster.borrow().count(GetMap::KIND));
    cluster.borrow_mut().seat = Lead { node: METAD_2, epoch: 3 };
    write(&lane, &file, 0, b"hello");
    assert_eq!(read(&lane, &file, 0, 9), b"hello");
    assert_eq!((cluster.borrow().now, cluster.borrow().count(GetMap::KIND)), (now, maps), "at once");
    assert_eq!(cluster.borrow().epoch_seen, 3);
    assert_eq!(lane.shared.borrow().map.leader(ShardId(0)), Some(METAD_2));
    cluster.borrow_mut().told.0 = Lead { node: METAD, epoch: 2 };
    block_on(lane.refresh_map());
    assert_eq!(lane.shared.borrow().map.leader(ShardId(0)), Some(METAD_2), "mgmtd knows less");
    let back = Lead { node: METAD, epoch: 4 };
    (cluster.borrow_mut().told.0, cluster.borrow_mut().seat) = (back, back);
    block_on(lane.refresh_map());
    stat(&lane, &file).unwrap();
    assert_eq!((cluster.borrow().epoch_seen, cluster.borrow().shard.executed), (4, 2));
}

/// Goal: a leader that was named and cannot be reached is not asked for ever: the map's word counts again.
#[test]
fn a_leader_that_does_not_answer_is_forgotten() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    cluster.borrow_mut().seat = Lead { node: METAD_2, epoch: 3 };
    stat(&lane, &file).unwrap();
    cluster.borrow_mut().seat = Lead { node: METAD, epoch: 1 };
    cluster.borrow_mut().fail(GetAttr::KIND, &[Fault::Unreachable]);
    stat(&lane, &file).unwrap();
    assert_eq!(lane.shared.borrow().map.leader(ShardId(0)), Some(METAD));
}

/// Goal: servers that name each other in turn are asked a few times at once, and then with pauses, like one that is silent.
#[test]
fn hops_are_bounded() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let (before, asked) = (cluster.borrow().now, cluster.borrow().total());
    cluster.borrow_mut().flees = 40;
    stat(&lane, &file).unwrap();
    let (waited, asked) = (cluster.borrow().now - before, cluster.borrow().total() - asked);
    assert!(cluster.borrow().flees == 0 && waited > 100, "{asked} requests in {waited} ms");
}

/// Goal: who is told that the shard is elsewhere fetches the map at once, if the server knows a newer one than it holds, and
/// goes on; else it waits as for a server that is behind.
#[test]
fn elsewhere_is_looked_up() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    stat(&lane, &file).unwrap();
    let (now, maps) = (cluster.borrow().now, cluster.borrow().count(GetMap::KIND));
    let moved = Lead { node: METAD_2, epoch: 5 };
    (cluster.borrow_mut().told.0, cluster.borrow_mut().seat) = (moved, moved);
    let newer = View { map: MapVersion(5), epoch: 5 };
    cluster.borrow_mut().fail(GetAttr::KIND, &[Fault::Elsewhere(newer)]);
    stat(&lane, &file).unwrap();
    assert_eq!((cluster.borrow().now, cluster.borrow().count(GetMap::KIND)), (now, maps + 1));
    let older = View { map: MapVersion(4), epoch: 0 };
    cluster.borrow_mut().fail(GetAttr::KIND, &[Fault::Elsewhere(older)]);
    stat(&lane, &file).unwrap();
    assert!(cluster.borrow().now > now);
}

/// Goal: nobody waits for a shard that is retired; one that moves is asked as ever.
#[test]
fn retired_shards_are_not_waited_for() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let tell = |epoch, state| {
        cluster.borrow_mut().told = (Lead { node: METAD, epoch }, state);
        block_on(lane.refresh_map());
    };
    tell(2, ShardState::Moving);
    stat(&lane, &file).unwrap();
    tell(3, ShardState::Retired);
    let now = cluster.borrow().now;
    assert_eq!((stat(&lane, &file), cluster.borrow().now), (Err(Errno::EIO), now));
    let lines = cluster.borrow().lines.join("\n");
    assert!(lines.contains("shard 0 is retired"), "{lines}");
}

/// Goal: a mount tells that it waits for a server only as long as it asks it for something: not for one whose shards went to
/// another server, which may never answer again.
#[test]
fn nobody_waits_for_who_has_no_shards_any_more() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let waits = || {
        let waits = lane.shared.borrow().waits(Millis(cluster.borrow().now));
        waits.into_iter().map(|waiting| waiting.server).collect::<Vec<String>>()
    };
    let move_to = |node, epoch| {
        let lead = Lead { node, epoch };
        (cluster.borrow_mut().told.0, cluster.borrow_mut().seat) = (lead, lead);
    };
    cluster.borrow_mut().fail(GetAttr::KIND, &[Fault::Unreachable; 10_000]);
    assert_eq!(stat(&lane, &file), Err(Errno::EIO));
    assert_eq!(waits(), ["node-1"]);
    move_to(METAD_2, 5);
    block_on(lane.refresh_map());
    assert!(waits().is_empty(), "{:?}", waits());
    assert_eq!(stat(&lane, &file), Err(Errno::EIO));
    assert_eq!(waits(), ["node-4"], "the other one is silent, too");
    cluster.borrow_mut().faults.clear();
    stat(&lane, &file).unwrap();
    assert!(waits().is_empty(), "{:?}", waits());
}
