//! What is in doubt between a mount and a shard is put right.

use super::tests::{READ, WRITE, claimed, open, waiting, wish};
use super::*;
use crate::testing::{Fault, block_on, create, heard, mount, mounted};
use skep_types::SetAttr;
use skep_wire::Message;
use skep_wire::meta::{Commit, Reclaim};

/// Goal: a close that a newer lock of its owner has overtaken, or whose answer is lost, leaves no wish in the queue
/// of the server: nobody would give up what that is granted.
#[test]
fn an_overtaken_close_leaves_no_wish() {
    for is_lost in [false, true] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        block_on(second.set_lock(other.handle, wish(1, WRITE, 0, 9))).unwrap();
        waiting(&first, &file, wish(7, WRITE, 0, 9));
        let key = Shared::range_key(file.attr.ino, 7);
        let close = first.shared.borrow_mut().locks.ends(key).unwrap();
        if is_lost {
            cluster.borrow_mut().cancelled = true;
            cluster.borrow_mut().fail(DropLocks::KIND, &[Fault::LoseRequest]);
            block_on(first.drop_locks(key, close));
            cluster.borrow_mut().cancelled = false;
        }
        block_on(first.set_lock(file.handle, wish(7, WRITE, 100, 109))).unwrap();
        if !is_lost {
            block_on(first.drop_locks(key, close));
        }
        block_on(first.housekeeping());
        block_on(first.housekeeping());
        assert!(cluster.borrow().shard.locks.queue.is_empty(), "{is_lost}");
        assert_eq!(claimed(&first), [(100, 109)], "{is_lost}");
        assert_eq!(cluster.borrow().shard.locks.held.len(), 2, "{is_lost}");
        assert!(!first.shared.borrow().locks.has_work());
    }
}

/// Goal: an unlock that was carried out, though its answer did not come, is believed once another mount has the lock: a
/// restarted server is not told that it is held here.
#[test]
fn a_lock_that_another_has_is_not_believed() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = open(&second, file.attr.ino);
    for start in [0, 20] {
        block_on(first.set_lock(file.handle, wish(7, WRITE, start, start + 9))).unwrap();
    }
    cluster.borrow_mut().cancelled = true;
    cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LoseAnswer]);
    assert_eq!(block_on(first.set_lock(file.handle, wish(7, None, 0, 5))), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    block_on(second.set_lock(other.handle, wish(1, READ, 0, 5))).unwrap();
    block_on(first.housekeeping());
    assert_eq!(claimed(&first), [(6, 9), (20, 29)]);
    assert!(!first.shared.borrow().locks.has_work());
}

/// Goal: a lock that a restarted server has given to another mount meanwhile is lost, and the program is told: EIO from that
/// descriptor, an operation that was under way included, until it has given the lock up. Other descriptors go on.
#[test]
fn a_lost_lock_is_told() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let beside = open(&first, file.attr.ino);
    let other = open(&second, file.attr.ino);
    block_on(first.set_lock(file.handle, wish(7, WRITE, 0, 9))).unwrap();
    block_on(first.set_lock(file.handle, wish(7, WRITE, 40, 49))).unwrap();
    block_on(first.set_lock(beside.handle, wish(8, WRITE, 20, 29))).unwrap();
    cluster.borrow_mut().restarts();
    cluster.borrow_mut().shard.locks.restart();
    block_on(second.getattr(file.attr.ino)).unwrap();
    block_on(second.set_lock(other.handle, wish(1, WRITE, 0, 9))).unwrap();
    // The first answer shows the new life; before the next request it is told, and says what is lost.
    block_on(first.getattr(file.attr.ino)).unwrap();
    let write = |handle| block_on(first.write(handle, 0, b"x", crate::WriteHow::default()));
    assert_eq!(write(file.handle), Err(Errno::EIO));
    assert_eq!(write(file.handle), Err(Errno::EIO));
    assert_eq!(write(beside.handle), Ok(1));
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    let cut =
        |handle| block_on(first.setattr_open(handle, file.attr.ino, empty.clone())).map(|attr| attr.size);
    assert_eq!(cut(file.handle), Err(Errno::EIO), "through the descriptor");
    assert_eq!(claimed(&first), [(40, 49), (20, 29)]);
    let commits = || cluster.borrow().count(Commit::KIND);
    crate::testing::write(&first, &beside, 0, &[7; 90_000]);
    let before = commits();
    assert_eq!(block_on(first.set_lock(file.handle, wish(7, None, 0, u64::MAX))), Err(Errno::EIO));
    assert_eq!(commits(), before + 1, "what was written under them is told first");
    assert_eq!(claimed(&first), [(20, 29)], "what is left of its locks is given up");
    block_on(second.set_lock(other.handle, wish(1, WRITE, 40, 49))).unwrap();
    assert_eq!(write(file.handle), Ok(1));
    assert_eq!(cut(beside.handle), Ok(0));
}

/// Goal: the end of an open file takes its own locks and no other's, though one request has told the server of both again; the
/// process of a lock is told again with it.
#[test]
fn an_end_after_a_doubt_takes_its_own() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let next = open(&first, file.attr.ino);
    let other = open(&second, file.attr.ino);
    block_on(first.set_lock(file.handle, wish(7, WRITE, 0, 9))).unwrap();
    block_on(first.set_lock(next.handle, wish(7, WRITE, 20, 29))).unwrap();
    first.shared.borrow_mut().locks.suspect(file.attr.ino, Shared::range_key(file.attr.ino, 7).all(), None);
    block_on(first.housekeeping());
    assert!(cluster.borrow().shard.locks.held.iter().all(|(_, _, lock)| lock.pid == 7));
    block_on(first.release(file.handle));
    block_on(first.housekeeping());
    let take = |start| block_on(second.set_lock(other.handle, wish(1, WRITE, start, start + 9)));
    assert_eq!((take(0), take(20)), (Ok(()), Err(Errno::EAGAIN)));
    assert_eq!(claimed(&first), [(20, 29)]);
}

/// Goal: a report that is refused is over all the same: the server does not wait for its last word for ever.
#[test]
fn a_refused_report_has_a_last_word() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    {
        let mut cluster = cluster.borrow_mut();
        cluster.restarts();
        cluster.shard.locks.restart();
        cluster.fail(Reclaim::KIND, &[Fault::Refuse(Status::errno(Errno::ENFILE))]);
    }
    block_on(lane.getattr(file.attr.ino)).unwrap();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!((cluster.borrow().count(Reclaim::KIND), cluster.borrow().shard.reclaims), (2, 1));
}

/// Goal: a wish that is put again after a new term by a request that is not answered may be held: when its program gets a
/// signal, what the shard has of it is put right. One that was answered since is in no doubt.
#[test]
fn a_wish_in_doubt_is_put_right() {
    for answered in [false, true] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
        let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
        cluster.borrow_mut().shard.term += 1;
        cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LoseRequest]);
        let node = second.shared.borrow().map.leader(ShardId(0)).unwrap();
        for _ in 0..1 + usize::from(answered) {
            assert_eq!(block_on(heard(&second, node, 0)), []);
        }
        assert_eq!(second.shared.borrow().locks.wish_of(ticket).unwrap().unsure, !answered);
        assert_eq!(block_on(second.cancel_lock(ticket)).unwrap().result, Err(Errno::EINTR));
        assert_eq!(second.shared.borrow().locks.has_work(), !answered);
    }
}
