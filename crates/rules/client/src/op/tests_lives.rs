//! Lives of shards: which of them is told again, and how many questions that takes.

use crate::CreateHow;
use crate::testing::shard::Shard;
use crate::testing::{BOTH, Cluster, FakeLane, Fault, block_on, create, mount, read};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::{Ino, ShardId, Term};
use skep_wire::meta::{GetAttr, LockKind, LockSpace, LockWish, Reclaim, SetLock, Sync};
use skep_wire::{Message, Status};

const BESIDE: ShardId = ShardId(1);

/// A server with two shards, whose terms are different.
fn two_shards() -> (Rc<RefCell<Cluster>>, FakeLane) {
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    let mut beside = Shard::new(BESIDE);
    beside.term = 40;
    cluster.borrow_mut().beside = Some(beside);
    let lane = mount(&cluster);
    block_on(lane.housekeeping());
    (cluster, lane)
}

/// Makes an open file in each shard, with a lock on it.
fn files(lane: &FakeLane) -> [crate::Opened; 2] {
    let how = CreateHow { mode: 0o644, umask: 0, uid: 1, gid: 2, exclusive: false, policy: None };
    let there = Ino::new(BESIDE, 1);
    let files = [create(lane, b"f"), block_on(lane.create(there, b"f", how, BOTH)).unwrap()];
    for file in &files {
        block_on(lane.set_lock(file.handle, lock())).unwrap();
    }
    files
}

fn lock() -> LockWish {
    let (space, kind) = (LockSpace::Whole, Some(LockKind::Write));
    LockWish { owner: 1, pid: 0, space, kind, start: 0, last: u64::MAX }
}

fn reports(cluster: &RefCell<Cluster>) -> (usize, usize) {
    let cluster = cluster.borrow();
    (cluster.shard.reclaims, cluster.beside.as_ref().map_or(0, |shard| shard.reclaims))
}

fn told(lane: &FakeLane) -> Vec<Option<Term>> {
    let shared = lane.shared.borrow();
    [ShardId(0), BESIDE].map(|shard| shared.shards.told(shard)).to_vec()
}

/// Goal: a shard whose term changes alone is told what is open there, and no other; what is known of the other one's
/// files stays. Its locks are claimed, what was granted in the old term is not believed.
#[test]
fn one_shard_begins_anew() {
    let (cluster, lane) = two_shards();
    assert_eq!(told(&lane), [Some(Term(1)), Some(Term(40))]);
    let [here, there] = files(&lane);
    crate::testing::write(&lane, &here, 0, b"here");
    {
        let cluster = &mut *cluster.borrow_mut();
        let shard = cluster.beside.as_mut().unwrap();
        shard.term += 1;
        shard.opens.clear();
        shard.locks.restart();
    }
    let before = reports(&cluster);
    block_on(lane.getattr(there.attr.ino)).unwrap();
    block_on(lane.getattr(here.attr.ino)).unwrap();
    assert_eq!(reports(&cluster), before, "only that answer showed the new life");
    block_on(lane.getattr(there.attr.ino)).unwrap();
    block_on(lane.housekeeping());
    assert_eq!(reports(&cluster), (before.0, before.1 + 1));
    assert_eq!(told(&lane), [Some(Term(1)), Some(Term(41))]);
    let cluster = cluster.borrow();
    let shard = cluster.beside.as_ref().unwrap();
    assert_eq!(shard.opens.keys().copied().collect::<Vec<_>>(), [there.attr.ino]);
    assert_eq!(shard.locks.held.len(), 1);
    let shared = lane.shared.borrow();
    assert!(shared.inodes.get(here.attr.ino).unwrap().layout.is_some(), "of a shard that forgot nothing");
    assert!(shared.inodes.get(there.attr.ino).unwrap().layout.is_none());
}

/// Goal: after a restart of a server every shard of it is told, also one that nobody asks, and their terms are asked for
/// together: two rounds of questions, however many shards there are.
#[test]
fn a_restart_is_told_to_all_shards_at_once() {
    let (cluster, lane) = two_shards();
    let [here, there] = files(&lane);
    // So that nothing is asked about changes of an ended term.
    block_on(lane.fsync(here.handle)).unwrap();
    block_on(lane.fsync(there.handle)).unwrap();
    let before = reports(&cluster);
    cluster.borrow_mut().restarts();
    block_on(lane.getattr(here.attr.ino)).unwrap();
    let (syncs, claims) = (cluster.borrow().count(Sync::KIND), cluster.borrow().count(Reclaim::KIND));
    block_on(lane.housekeeping());
    assert_eq!(told(&lane), [Some(Term(2)), Some(Term(41))]);
    assert_eq!(reports(&cluster), (before.0 + 1, before.1 + 1));
    let cluster = cluster.borrow();
    assert_eq!(cluster.count(Sync::KIND), syncs + 1, "of the shard whose term nobody has heard");
    assert_eq!(cluster.count(Reclaim::KIND), claims + 6, "opens, locks and the last word of each");
}

/// Goal: a report for a term that has ended is refused, and told anew for the one that the refusal shows, before the
/// request that waits for it.
#[test]
fn a_report_for_an_ended_term_is_told_anew() {
    let (cluster, lane) = two_shards();
    let [here, _] = files(&lane);
    cluster.borrow_mut().shard.term += 1;
    block_on(lane.getattr(here.attr.ino)).unwrap();
    // The next one begins when the report is on its way.
    cluster.borrow_mut().shard.term += 1;
    let (before, asked) = (reports(&cluster), cluster.borrow().count(GetAttr::KIND));
    block_on(lane.getattr(here.attr.ino)).unwrap();
    assert_eq!(reports(&cluster), (before.0 + 1, before.1));
    assert_eq!(told(&lane), [Some(Term(3)), Some(Term(40))]);
    assert_eq!(cluster.borrow().count(GetAttr::KIND), asked + 1);
}

/// Goal: who refuses because it does not serve a shard says nothing of its term.
#[test]
fn a_stale_map_tells_no_term() {
    let (cluster, lane) = two_shards();
    let [here, _] = files(&lane);
    cluster.borrow_mut().shard.term = 90;
    cluster.borrow_mut().fail(GetAttr::KIND, &[Fault::Refuse(Status::STALE_MAP)]);
    let mut getattr = core::pin::pin!(lane.getattr(here.attr.ino));
    while cluster.borrow().count(GetAttr::KIND) == 0 {
        assert!(crate::testing::step(getattr.as_mut()).is_pending());
    }
    assert!(crate::testing::step(getattr.as_mut()).is_pending());
    cluster.borrow_mut().shard.term = 1;
    block_on(getattr).unwrap();
    assert_eq!(told(&lane), [Some(Term(1)), Some(Term(40))]);
    assert_eq!(read(&lane, &here, 0, 10), b"");
}

/// Goal: a lock that a shard granted in a term that has ended is asked for again, whatever the terms of other shards are.
#[test]
fn a_grant_of_an_ended_term_is_none() {
    let (cluster, lane) = two_shards();
    let beside = crate::testing::lane_beside(&cluster, &lane);
    let [_, there] = files(&lane);
    let unlock = LockWish { kind: None, ..lock() };
    block_on(lane.set_lock(there.handle, unlock)).unwrap();
    cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LateAnswer]);
    let asked = cluster.borrow().count(SetLock::KIND);
    let mut locking = core::pin::pin!(lane.set_lock(there.handle, lock()));
    while cluster.borrow().count(SetLock::KIND) == asked {
        assert!(crate::testing::step(locking.as_mut()).is_pending());
    }
    {
        let cluster = &mut *cluster.borrow_mut();
        let shard = cluster.beside.as_mut().unwrap();
        shard.term += 1;
        shard.locks.restart();
    }
    block_on(beside.getattr(there.attr.ino)).unwrap();
    block_on(beside.getattr(there.attr.ino)).unwrap();
    assert!(cluster.borrow().beside.as_ref().unwrap().locks.held.is_empty(), "it was not told of");
    block_on(locking).unwrap();
    assert_eq!(cluster.borrow().count(SetLock::KIND), asked + 2);
    assert_eq!(cluster.borrow().beside.as_ref().unwrap().locks.held.len(), 1);
}

/// Goal: who gives up for want of a session is told whom it waited for, and why.
#[test]
fn giving_up_without_a_session_names_who_is_missing() {
    let (_cluster, lane) = two_shards();
    let reason = alloc::string::String::from("evicted");
    lane.shared.borrow_mut().session = crate::state::SessionState::Dead { reason };
    let question = GetAttr { ino: Ino::ROOT };
    let refusal = block_on(lane.ask(ShardId(0), &question)).unwrap_err();
    assert!(refusal.detail.contains(": mgmtd: it has opened no session"), "{}", refusal.detail);
}
