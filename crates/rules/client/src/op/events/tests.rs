//! Tests of the channel of events.

use crate::state::Ended;
use crate::testing::{BOTH, FakeLane, block_on, create, mount, mounted};
use crate::{OpenHow, Waiting};
use alloc::vec::Vec;
use skep_types::{Errno, Ino, NodeId, ShardId};
use skep_wire::Message;
use skep_wire::meta::{Events, LockKind, LockSpace, LockWish};

fn wish(owner: u64, kind: Option<LockKind>) -> LockWish {
    LockWish { owner, pid: 0, space: LockSpace::Range, kind, start: 0, last: 9 }
}

const WRITE: Option<LockKind> = Some(LockKind::Write);

fn node(lane: &FakeLane) -> NodeId {
    lane.shared.borrow().map.leader(ShardId(0)).unwrap()
}

fn events(lane: &FakeLane) -> Vec<(Ino, Result<(), Errno>)> {
    let ended = block_on(lane.events(node(lane), 0)).unwrap();
    ended.into_iter().map(|Ended { ino, result, .. }| (ino, result)).collect()
}

/// Goal: a lock that was granted in a term of its shard that has ended is not believed, though the server is in the same
/// life and tells of it still: the wish waits in the next term. What was told is confirmed. Nobody asks without a reason.
#[test]
fn a_grant_of_an_ended_term_is_nothing() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let ino = file.attr.ino;
    let other = block_on(second.open(ino, OpenHow { ..BOTH })).unwrap();
    assert!(second.shared.borrow().nodes_to_ask().is_empty());
    assert_eq!(events(&second), []);
    assert_eq!(cluster.borrow().count(Events::KIND), 0);
    block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
    let waits = block_on(second.wait_for_lock(other.handle, wish(2, WRITE)));
    assert!(matches!(waits, Ok(Waiting::Ticket(_))));
    assert_eq!(second.shared.borrow().nodes_to_ask(), [node(&second)]);
    block_on(first.set_lock(file.handle, wish(1, None))).unwrap();
    let told = |now: usize| {
        let told: usize = cluster.borrow().shard.locks.events.values().map(Vec::len).sum();
        assert_eq!(told, now);
    };
    told(1);
    {
        let shard = &mut cluster.borrow_mut().shard;
        shard.term += 1;
        shard.locks.held.clear();
    }
    for lane in [&first, &second] {
        block_on(lane.getattr(ino)).unwrap();
        block_on(lane.housekeeping());
    }
    block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
    assert_eq!(events(&second), [], "the first holds it");
    assert_eq!(cluster.borrow().shard.locks.queue.len(), 1);
    assert_eq!(events(&second), []);
    told(0);
    block_on(first.set_lock(file.handle, wish(1, None))).unwrap();
    assert_eq!(events(&second), [(ino, Ok(()))]);
}
