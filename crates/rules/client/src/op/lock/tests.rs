//! Locks of a mount against a fake shard.

use super::*;
use crate::limits::TOLD_AT_ONCE;
use crate::testing::{
    BOTH, FakeLane, Fault, block_on, create, heard, lane_beside, mount, mounted, read, step, write,
};
use crate::{OpenHow, Opened, WriteHow};
use core::pin::pin;
use skep_wire::Message;
use skep_wire::meta::{Commit, Events, Reclaim};
use skep_wire::storage::{PunchChunk, ReadChunk, StatChunks, WriteChunk};

pub(in crate::op) fn wish(owner: u64, kind: Option<LockKind>, start: u64, last: u64) -> LockWish {
    LockWish { owner, pid: owner as u32, space: LockSpace::Range, kind, start, last }
}

pub(super) const READ: Option<LockKind> = Some(LockKind::Read);
pub(in crate::op) const WRITE: Option<LockKind> = Some(LockKind::Write);

pub(super) fn open(lane: &FakeLane, ino: Ino) -> Opened {
    block_on(lane.open(ino, OpenHow { ..BOTH })).unwrap()
}

pub(super) fn waiting(lane: &FakeLane, file: &Opened, lock: LockWish) -> u64 {
    match block_on(lane.wait_for_lock(file.handle, lock)).unwrap() {
        Waiting::Ticket(ticket) => ticket,
        Waiting::Done => panic!("nothing to wait for"),
    }
}

fn cancel(lane: &FakeLane, ticket: u64) -> Option<Result<(), Errno>> {
    block_on(lane.cancel_lock(ticket)).map(|ended| ended.result)
}

/// What a server that was started again would be told.
pub(super) fn claimed(lane: &FakeLane) -> Vec<(u64, u64)> {
    let locks = lane.shared.borrow().locks.of_shard(ShardId(0));
    locks.iter().map(|one| (one.lock.start, one.lock.last)).collect()
}

fn events(lane: &FakeLane) -> Vec<Ended> {
    block_on(heard(lane, node(lane), 0))
}

fn node(lane: &FakeLane) -> NodeId {
    lane.shared.borrow().map.leader(ShardId(0)).unwrap()
}

/// Goal: a lock of one mount keeps another's away, is told to it, is waited for, and the outcome is
/// told once; a descriptor that is closed without locks costs no request.
#[test]
fn two_mounts_and_a_queue() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    block_on(first.flush(file.handle, 1)).unwrap();
    assert_eq!(cluster.borrow().count(DropLocks::KIND), 0);
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    assert_eq!(block_on(second.set_lock(other.handle, wish(1, READ, 9, 20))), Err(Errno::EAGAIN));
    let held = block_on(second.get_lock(other.handle, wish(1, READ, 9, 20))).unwrap().unwrap();
    assert!((held.start, held.last, second.is_own(&held), first.is_own(&held)) == (0, 9, false, true));
    let ticket = waiting(&second, &other, wish(1, READ, 9, 20));
    assert_eq!(events(&second), []);
    block_on(first.flush(file.handle, 1)).unwrap();
    assert_eq!(events(&second), [Ended { ticket, ino: file.attr.ino, result: Ok(()) }]);
    assert_eq!(events(&second), []);
    assert_eq!(block_on(first.set_lock(file.handle, wish(5, WRITE, 20, 20))), Err(Errno::EAGAIN));
    block_on(second.release(other.handle));
    block_on(first.set_lock(file.handle, wish(5, WRITE, 20, 20))).unwrap();
}

/// Goal: what was written under a lock, to inline content or chunks, is seen by who gets it next, and
/// the kernel's pages of it go.
#[test]
fn locks_carry_what_was_written_under_them() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    for (round, len) in [100usize, 3_000, 40_000].into_iter().enumerate() {
        block_on(second.fill(other.handle, 0, &mut [0; 4_096])).unwrap();
        let ticket = {
            block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 0))).unwrap();
            waiting(&second, &other, wish(2, READ, 0, 0))
        };
        let content = alloc::vec![round as u8 + 1; len];
        write(&first, &file, 0, &content);
        block_on(first.set_lock(file.handle, wish(1, None, 0, 0))).unwrap();
        let ended = events(&second);
        assert_eq!(ended[0].ticket, ticket);
        block_on(second.look_again(ended[0].ino));
        assert_eq!(cluster.borrow_mut().drops.drain(..).collect::<Vec<_>>(), [(2, ended[0].ino, 0, 0)]);
        assert_eq!(read(&second, &other, 0, len + 10), content);
        block_on(second.set_lock(other.handle, wish(2, None, 0, 0))).unwrap();
    }
}

/// Goal: a wish is taken back when its program has a signal, and a lock that came first is kept.
#[test]
fn signals() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
    assert_eq!(cancel(&second, ticket), Some(Err(Errno::EINTR)));
    assert_eq!(cancel(&second, ticket), None);
    let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
    block_on(first.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
    assert_eq!(cancel(&second, ticket), Some(Ok(())), "too late: it is held");
    assert_eq!(block_on(first.set_lock(file.handle, wish(1, READ, 0, 9))), Err(Errno::EAGAIN));
    // The server does not answer: the program goes on, and housekeeping takes the wish back.
    let ticket = waiting(&first, &file, wish(1, WRITE, 0, 9));
    cluster.borrow_mut().fail(CancelLock::KIND, &[Fault::Unreachable]);
    assert_eq!(cancel(&first, ticket), Some(Err(Errno::EINTR)));
    block_on(first.housekeeping());
    assert!(cluster.borrow().shard.locks.queue.is_empty());
    assert_eq!(cluster.borrow().shard.locks.held.len(), 1);
}

/// Goal: a lock whose request was given up in the middle is not held in the end, and what was held
/// before is.
#[test]
fn a_request_given_up_leaves_what_was() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    block_on(lane.set_lock(file.handle, wish(1, READ, 5, 6))).unwrap();
    cluster.borrow_mut().cancelled = true;
    cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LoseAnswer]);
    assert_eq!(block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    block_on(lane.housekeeping());
    let held = cluster.borrow().shard.locks.held.clone();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].2, wish(1, READ, 5, 6));
}

/// Goal: the last word of a report in several parts is not said when one of them was refused: the server would believe that
/// it knows all.
#[test]
fn the_last_word_comes_after_all_others() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    for number in 0..=TOLD_AT_ONCE as u64 {
        block_on(lane.set_lock(file.handle, wish(1, WRITE, number * 2, number * 2))).unwrap();
    }
    {
        let mut cluster = cluster.borrow_mut();
        cluster.restarts();
        cluster.shard.locks.restart();
        cluster.fail(Reclaim::KIND, &[Fault::Refuse(Status::NOT_READY)]);
    }
    block_on(lane.getattr(file.attr.ino)).unwrap();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    // Three parts, of which one was refused; then all three, and the last word.
    assert_eq!((cluster.borrow().count(Reclaim::KIND), cluster.borrow().shard.reclaims), (7, 1));
}

/// Goal: a restarted server is told every lock in bounded requests before anything else, and waiting
/// wishes are put into its queues again.
#[test]
fn a_restart_forgets_nothing() {
    const LOCKS: u64 = TOLD_AT_ONCE as u64 + 500;
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    for number in 0..LOCKS {
        block_on(first.set_lock(file.handle, wish(1, WRITE, number * 2, number * 2))).unwrap();
    }
    let ticket = waiting(&second, &other, wish(2, READ, 10, 10));
    {
        let mut cluster = cluster.borrow_mut();
        cluster.restarts();
        cluster.shard.locks.restart();
    }
    block_on(first.getattr(file.attr.ino)).unwrap();
    block_on(first.housekeeping());
    assert_eq!(cluster.borrow().shard.locks.held.len() as u64, LOCKS);
    assert_eq!(events(&second), []);
    assert_eq!(cluster.borrow().shard.locks.queue.len(), 1, "the wish is there again");
    block_on(first.flush(file.handle, 1)).unwrap();
    assert_eq!(events(&second), [Ended { ticket, ino: file.attr.ino, result: Ok(()) }]);
}

/// Goal: the end of a session ends every wait, and a program that believes in a lock which went with it gets EIO
/// from its descriptor until it gives that lock up; others go on.
#[test]
fn an_eviction_ends_waits() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    let third = open(&second, file.attr.ino);
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    block_on(second.set_lock(other.handle, wish(2, WRITE, 20, 29))).unwrap();
    let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
    cluster.borrow_mut().fail(Events::KIND, &[Fault::Refuse(Status::FENCED)]);
    let ended = events(&second);
    assert_eq!(ended, [Ended { ticket, ino: file.attr.ino, result: Err(Errno::ENOTCONN) }]);
    let server = node(&second);
    second.shared.borrow_mut().nodes.confirm_events(server, 50);
    block_on(second.housekeeping());
    assert!(second.shared.borrow().has_session());
    let write = || block_on(second.write(other.handle, 20, b"under it", WriteHow::default()));
    assert_eq!(write(), Err(Errno::EIO));
    assert_eq!(block_on(second.set_lock(other.handle, wish(2, WRITE, 20, 29))), Err(Errno::EIO));
    assert_eq!(block_on(second.write(third.handle, 40, b"beside it", WriteHow::default())), Ok(9));
    let unlock =
        || block_on(second.set_lock(other.handle, LockWish { kind: None, ..wish(2, WRITE, 0, u64::MAX) }));
    assert_eq!(unlock(), Err(Errno::EIO), "told, once");
    assert_eq!(unlock(), Ok(()));
    block_on(second.set_lock(other.handle, wish(2, WRITE, 20, 29))).unwrap();
    assert_eq!(write(), Ok(8));
    assert_eq!(
        second.shared.borrow().nodes.events(node(&second)),
        0,
        "numbers of the next session begin anew"
    );
}

/// Goal: an unlock gives the lock up, and a downgrade downgrades, though what was written under it cannot be
/// committed; the program is told that; a new read lock is not taken then.
#[test]
fn a_commit_that_fails_keeps_no_lock() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    let full = Fault::Refuse(Status::errno(Errno::ENOSPC));
    for kind in [READ, None] {
        block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
        write(&lane, &file, 0, &[1; 20_000]);
        cluster.borrow_mut().fail(Commit::KIND, &[full]);
        assert_eq!(block_on(lane.set_lock(file.handle, wish(1, kind, 0, 20))), Err(Errno::ENOSPC));
        let held = cluster.borrow().shard.locks.held.clone();
        let held: Vec<LockWish> = held.into_iter().map(|(_, _, lock)| lock).collect();
        match kind {
            None => assert!(held.is_empty(), "{held:?}"),
            _ => assert_eq!(held, [wish(1, READ, 0, 9)]),
        }
        block_on(lane.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
    }
}

/// Goal: who cannot ask after a grant believes nothing any more: the next read asks, and pages go.
#[test]
fn a_look_that_fails_forgets() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    write(&first, &file, 0, b"old");
    let other = open(&second, file.attr.ino);
    assert_eq!(read(&second, &other, 0, 10), b"old");
    block_on(second.fill(other.handle, 0, &mut [0; 4_096])).unwrap();
    write(&first, &file, 0, b"new");
    let broken = Fault::Refuse(Status::errno(Errno::EIO));
    cluster.borrow_mut().fail(skep_wire::meta::ReadInline::KIND, &[broken]);
    block_on(second.set_lock(other.handle, wish(1, READ, 0, 9))).unwrap();
    assert!(cluster.borrow().faults.values().all(alloc::collections::VecDeque::is_empty));
    assert_eq!(cluster.borrow().drops, [(2, file.attr.ino, 0, 0)]);
    assert_eq!(read(&second, &other, 0, 10), b"new");
}

/// Goal: an unlock at a close that was given up, and is repeated after a restart, does not take the lock that
/// the owner got since.
#[test]
fn orders_are_reclaimed() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    cluster.borrow_mut().cancelled = true;
    cluster.borrow_mut().fail(DropLocks::KIND, &[Fault::LoseRequest]);
    let _ = block_on(lane.flush(file.handle, 1));
    cluster.borrow_mut().cancelled = false;
    block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    cluster.borrow_mut().restarts();
    cluster.borrow_mut().shard.locks.restart();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    let drops = cluster.borrow().count(DropLocks::KIND);
    block_on(lane.housekeeping());
    assert_eq!(cluster.borrow().count(DropLocks::KIND), drops + 1);
    assert_eq!(cluster.borrow().shard.locks.held.len(), 1);
}

/// Goal: an unlock at a close that a life answered after the list for the next one was made is repeated there.
#[test]
fn an_unlock_of_an_ended_life_is_repeated() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    let (shard, claimed) = (file.attr.ino.shard(), cluster.borrow().shard.locks.held.clone());
    // Another lane has just made the list.
    assert!(lane.shared.borrow_mut().shards.heard(shard, Term(2)));
    assert!(lane.shared.borrow_mut().shards.begin_reclaim(shard));
    assert_eq!(lane.shared.borrow_mut().shards.tells(shard), Some(Term(2)));
    block_on(lane.flush(file.handle, 1)).unwrap();
    cluster.borrow_mut().restarts();
    cluster.borrow_mut().shard.locks.restart();
    cluster.borrow_mut().shard.locks.held = claimed;
    block_on(lane.housekeeping());
    assert!(cluster.borrow().shard.locks.held.is_empty());
}

/// Goal: the port is told of every request that must not be left behind, and of no other.
#[test]
fn changes_are_marked() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 20_000]);
    let _ = read(&lane, &file, 0, 20_000);
    block_on(lane.fallocate(file.handle, crate::Allocate::Punch, 0, 8_192)).unwrap();
    block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    block_on(lane.get_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    block_on(lane.flush(file.handle, 1)).unwrap();
    let changing = cluster.borrow().changing.clone();
    for kind in [WriteChunk::KIND, PunchChunk::KIND, SetLock::KIND, DropLocks::KIND, Commit::KIND] {
        assert!(changing.contains(&kind), "{kind:#x}");
    }
    for kind in [ReadChunk::KIND, GetLock::KIND, StatChunks::KIND] {
        assert!(!changing.contains(&kind), "{kind:#x}");
    }
    assert!(cluster.borrow().count(ReadChunk::KIND) > 0);
}

/// Goal: what was believed by change counters of the life before is not believed of the next: content of small
/// files, the absence of capabilities, ACLs.
#[test]
fn a_new_life_begins_with_nothing_known() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, b"lost");
    assert_eq!(read(&lane, &file, 0, 9), b"lost");
    {
        let mut shared = lane.shared.borrow_mut();
        let (ino, now) = (file.attr.ino, skep_types::Millis(0));
        let change = shared.inodes.get(ino).unwrap().attr.as_ref().unwrap().change;
        assert!(shared.inodes.get(ino).unwrap().no_capability != 0);
        let _ = shared.acls.ask(ino, now);
        shared.acls.seen(ino, change, now);
        shared.acls.got(ino, change, None);
    }
    {
        // A power cut took the write; another one has the same change counter.
        let mut cluster = cluster.borrow_mut();
        cluster.restarts();
        cluster.shard.files.get_mut(&file.attr.ino).unwrap().inline = b"kept".to_vec();
    }
    block_on(lane.getattr(file.attr.ino)).unwrap();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!(cluster.borrow().shard.reclaims, 1);
    assert_eq!(read(&lane, &file, 0, 9), b"kept");
    let mut shared = lane.shared.borrow_mut();
    assert_eq!(shared.inodes.get(file.attr.ino).unwrap().no_capability, 0);
    assert!(shared.acls.ask(file.attr.ino, skep_types::Millis(0)).is_err());
}

/// Goal: what housekeeping puts right of an owner takes nothing that the owner is granted meanwhile, and is put
/// right when the owner waits no longer.
#[test]
fn a_doubt_waits_for_its_owners_wish() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    let given_up = waiting(&second, &other, wish(2, WRITE, 0, 9));
    cluster.borrow_mut().fail(CancelLock::KIND, &[Fault::Unreachable]);
    assert_eq!(cancel(&second, given_up), Some(Err(Errno::EINTR)));
    let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
    let house = lane_beside(&cluster, &second);
    {
        // Up to the moment when its next request has a number and is on its way.
        let mut keeping = pin!(house.housekeeping());
        let mut ready = false;
        while !ready && cluster.borrow().count(CancelLock::KIND) < 2 {
            ready = step(keeping.as_mut()).is_ready();
        }
        block_on(first.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
        if !ready {
            block_on(keeping);
        }
    }
    let ended = events(&second);
    assert_eq!(ended, [Ended { ticket, ino: file.attr.ino, result: Ok(()) }]);
    let held = |owner| {
        let cluster = cluster.borrow();
        cluster.shard.locks.held.iter().filter(|(_, _, lock)| lock.owner == owner).count()
    };
    assert_eq!(held(2), 1, "the program was told that it holds the lock");
    assert_eq!(block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))), Err(Errno::EAGAIN));
    block_on(house.housekeeping());
    assert_eq!(held(2), 1);
    assert!(!second.shared.borrow().locks.has_work());
}

/// Goal: a file is closed, and the next open, to which the kernel gives the same owner, locks it before the mount has heard
/// of the end of the first one: that lock is kept, and goes with its own file. When the server does not give up the first
/// one's locks, since it has heard of a newer request, that is put right.
#[test]
fn an_owners_number_is_given_again() {
    for fault in [Fault::LateAnswer, Fault::Refuse(Status::OLD_SEQUENCE)] {
        let (cluster, first) = mounted();
        let file = create(&first, b"f");
        let next = open(&first, file.attr.ino);
        let beside = lane_beside(&cluster, &first);
        let held = || cluster.borrow().shard.locks.held.len();
        block_on(first.set_lock(file.handle, wish(7, WRITE, 0, 9))).unwrap();
        cluster.borrow_mut().fail(DropLocks::KIND, &[fault]);
        {
            let mut closing = pin!(first.release(file.handle));
            let mut closed = false;
            while cluster.borrow().count(DropLocks::KIND) == 0 {
                closed = step(closing.as_mut()).is_ready();
            }
            block_on(beside.set_lock(next.handle, wish(7, WRITE, 20, 29))).unwrap();
            if !closed {
                block_on(closing);
            }
        }
        block_on(beside.housekeeping());
        assert_eq!(held(), 1, "{fault:?}");
        assert_eq!(claimed(&first), [(20, 29)], "{fault:?}");
        assert!(!first.shared.borrow().locks.has_work());
        block_on(beside.release(next.handle));
        assert_eq!(held(), 0, "{fault:?}");
    }
}

/// Goal: the end of an open file that the mount hears of after the next one has locked, by the same number, ends its own
/// locks: though the next one waits for another, and whatever it holds.
#[test]
fn an_end_that_comes_late_takes_its_own() {
    for waits in [false, true] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let next = open(&first, file.attr.ino);
        let other = open(&second, file.attr.ino);
        let take = |start| block_on(second.set_lock(other.handle, wish(1, WRITE, start, start + 9)));
        take(50).unwrap();
        block_on(first.set_lock(file.handle, wish(7, WRITE, 0, 9))).unwrap();
        block_on(first.set_lock(next.handle, wish(7, WRITE, 20, 29))).unwrap();
        if waits {
            waiting(&first, &next, wish(7, WRITE, 50, 59));
        }
        block_on(first.release(file.handle));
        block_on(first.housekeeping());
        assert_eq!((take(0), take(20)), (Ok(()), Err(Errno::EAGAIN)), "{waits}");
        assert_eq!(claimed(&first), [(20, 29)], "{waits}");
        assert_eq!(first.shared.borrow().locks.has_work(), waits);
    }
}

/// Goal: what was asked for after a close is claimed, though the close is not answered.
#[test]
fn what_is_newer_than_a_close_is_claimed() {
    let (cluster, first) = mounted();
    let file = create(&first, b"f");
    let beside = lane_beside(&cluster, &first);
    block_on(first.set_lock(file.handle, wish(7, WRITE, 0, 9))).unwrap();
    cluster.borrow_mut().fail(DropLocks::KIND, &[Fault::LateAnswer]);
    let mut closing = pin!(first.flush(file.handle, 7));
    while cluster.borrow().count(DropLocks::KIND) == 0 {
        assert!(step(closing.as_mut()).is_pending());
    }
    for (start, last) in [(20, 29), (10, 19)] {
        block_on(beside.set_lock(file.handle, wish(7, WRITE, start, last))).unwrap();
    }
    let claimed = || claimed(&first);
    assert_eq!(claimed(), [(10, 19), (20, 29)]);
    block_on(closing).unwrap();
    assert_eq!(claimed(), [(10, 19), (20, 29)]);
}

/// Goal: what a program is giving up is not claimed from the next life of the server: the last one may have given it to
/// another (seed 3965 of the simulator). Once it is known to be held still, it is.
#[test]
fn what_is_being_given_up_is_not_claimed() {
    let (cluster, first) = mounted();
    let file = create(&first, b"f");
    let claimed = || claimed(&first);
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 29))).unwrap();
    cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LateAnswer]);
    {
        let asked = cluster.borrow().count(SetLock::KIND);
        let mut giving_up = pin!(first.set_lock(file.handle, wish(1, None, 10, 19)));
        while cluster.borrow().count(SetLock::KIND) == asked {
            assert!(step(giving_up.as_mut()).is_pending());
        }
        assert_eq!(claimed(), [(0, 9), (20, 29)]);
        block_on(giving_up).unwrap();
    }
    cluster.borrow_mut().fail(DropLocks::KIND, &[Fault::LateAnswer]);
    let mut closing = pin!(first.flush(file.handle, 1));
    while cluster.borrow().count(DropLocks::KIND) == 0 {
        assert!(step(closing.as_mut()).is_pending());
    }
    assert_eq!(claimed(), []);
    block_on(closing).unwrap();
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    assert_eq!(claimed(), [(0, 9)]);
}

/// Goal: an outcome that overtakes the answer to its wish leaves no doubt, and the lock is known with its number.
#[test]
fn an_outcome_before_the_answer() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
    cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LateAnswer]);
    let asked = cluster.borrow().count(SetLock::KIND);
    let mut wanting = pin!(second.wait_for_lock(other.handle, wish(2, WRITE, 0, 9)));
    while cluster.borrow().count(SetLock::KIND) == asked {
        assert!(step(wanting.as_mut()).is_pending());
    }
    block_on(first.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
    let beside = lane_beside(&cluster, &second);
    let ended = events(&beside);
    assert_eq!(ended.iter().map(|one| one.result).collect::<Vec<_>>(), [Ok(())]);
    assert_eq!(block_on(wanting), Ok(Waiting::Ticket(ended[0].ticket)));
    block_on(beside.housekeeping());
    let total = cluster.borrow().total();
    block_on(beside.housekeeping());
    assert_eq!(cluster.borrow().total(), total, "there is nothing to put right");
    assert!(second.shared.borrow().locks.of_shard(ShardId(0)).iter().all(|held| held.order > 0));
}

/// Goal: a lock that a server granted before it ended, told after the mount has said to the next one what it
/// holds, is not believed: the next one may have given it to another. It is asked for again.
#[test]
fn a_grant_of_an_ended_life_is_none() {
    for waits in [false, true] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        let beside = lane_beside(&cluster, &second);
        let next_life = || {
            cluster.borrow_mut().restarts();
            cluster.borrow_mut().shard.locks.restart();
            for lane in [&beside, &first] {
                block_on(lane.getattr(file.attr.ino)).unwrap();
                block_on(lane.getattr(file.attr.ino)).unwrap();
            }
            block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
        };
        if waits {
            block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
            let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
            block_on(first.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
            cluster.borrow_mut().fail(Events::KIND, &[Fault::LateAnswer]);
            {
                let mut told = pin!(heard(&second, node(&second), 0));
                while cluster.borrow().count(Events::KIND) == 0 {
                    assert!(step(told.as_mut()).is_pending());
                }
                next_life();
                assert_eq!(block_on(told), []);
            }
            assert_eq!(events(&second), []);
            block_on(first.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
            let ended = events(&second);
            assert_eq!(ended, [Ended { ticket, ino: file.attr.ino, result: Ok(()) }]);
        } else {
            cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LateAnswer]);
            let mut taking = pin!(second.set_lock(other.handle, wish(2, WRITE, 0, 9)));
            while cluster.borrow().count(SetLock::KIND) == 0 {
                assert!(step(taking.as_mut()).is_pending());
            }
            next_life();
            assert_eq!(block_on(taking), Err(Errno::EAGAIN));
        }
    }
}
