//! Tests of the channel of events.

use crate::job::IntoStatus;
use crate::state::Ended;
use crate::testing::shard::Shard;
use crate::testing::{
    BOTH, Cluster, FakeLane, Fault, block_on, create, heard, lane_beside, mount, mounted, step,
};
use crate::{OpenHow, Waiting};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::{Errno, Ino, Millis, NodeId, ShardId, Term};
use skep_wire::meta::{
    Close, Events, LockKind, LockOutcome, LockSpace, LockWish, Reclaim, SetLock, TermBegun,
};
use skep_wire::mgmt::RenewSession;
use skep_wire::{Message, Status};

fn wish(owner: u64, kind: Option<LockKind>) -> LockWish {
    LockWish { owner, pid: 0, space: LockSpace::Range, kind, start: 0, last: 9 }
}

const WRITE: Option<LockKind> = Some(LockKind::Write);

fn node(lane: &FakeLane) -> NodeId {
    lane.shared.borrow().map.leader(ShardId(0)).unwrap()
}

fn events(lane: &FakeLane) -> Vec<(Ino, Result<(), Errno>)> {
    let ended = block_on(heard(lane, node(lane), 0));
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
    assert!(second.shared.borrow().nodes_to_hear().is_empty());
    assert_eq!(events(&second), []);
    assert_eq!(cluster.borrow().count(Events::KIND), 0);
    block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
    let waits = block_on(second.wait_for_lock(other.handle, wish(2, WRITE)));
    assert!(matches!(waits, Ok(Waiting::Ticket(_))));
    assert_eq!(second.shared.borrow().nodes_to_hear(), [node(&second)].into());
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

fn wait(lane: &FakeLane, handle: u64, owner: u64) -> u64 {
    match block_on(lane.wait_for_lock(handle, wish(owner, WRITE))) {
        Ok(Waiting::Ticket(ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

/// Goal: a mount that only waits hears by an event that a shard has begun a term: the shard is told what is held, and the wish
/// waits there again.
#[test]
fn a_term_that_begins_is_heard_of() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = block_on(second.open(file.attr.ino, OpenHow { ..BOTH })).unwrap();
    block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
    wait(&second, other.handle, 2);
    let client = second.shared.borrow().client().0;
    let far = ShardId(1);
    for term in [3, 4] {
        let begun = TermBegun { shard: far, term: Term(term) };
        cluster.borrow_mut().shard.locks.tell(client, begun.into());
        assert_eq!(events(&second), []);
        assert_eq!(second.shared.borrow().shards.term(far), Term(term), "no answer has shown it");
    }
    assert!(second.shared.borrow().shards.is_due(far));
    let reclaims = cluster.borrow().shard.reclaims;
    {
        let shard = &mut cluster.borrow_mut().shard;
        shard.term += 1;
        shard.locks.restart();
        let begun = TermBegun { shard: ShardId(0), term: Term(shard.term) };
        shard.locks.tell(client, begun.into());
    }
    assert_eq!(events(&second), [(file.attr.ino, Ok(()))], "it is free now");
    assert_eq!(cluster.borrow().shard.reclaims, reclaims + 1);
}

/// Goal: a server that began terms of several shards tells of all in one answer, and none is missed: it is not told again.
#[test]
fn terms_that_begin_together_are_all_heard_of() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = block_on(second.open(file.attr.ino, OpenHow { ..BOTH })).unwrap();
    block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
    wait(&second, other.handle, 2);
    let client = second.shared.borrow().client().0;
    for shard in 1..4 {
        let begun = TermBegun { shard: ShardId(shard), term: Term(30 + u64::from(shard)) };
        cluster.borrow_mut().shard.locks.tell(client, begun.into());
    }
    assert_eq!(events(&second), []);
    let heard = |shard| second.shared.borrow().shards.term(ShardId(shard));
    assert_eq!([1, 2, 3].map(heard), [Term(31), Term(32), Term(33)]);
}

/// Goal: a mount that holds a lock, waits for nothing and asks for nothing hears of a new term from its housekeeping, long
/// before a grace period is over: others could get the lock.
#[test]
fn a_mount_that_only_holds_hears_of_terms() {
    let (cluster, first) = mounted();
    let file = create(&first, b"f");
    block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
    block_on(first.housekeeping());
    let client = first.shared.borrow().client().0;
    let reclaims = {
        let shard = &mut cluster.borrow_mut().shard;
        shard.term += 1;
        shard.locks.restart();
        let begun = TermBegun { shard: ShardId(0), term: Term(shard.term) };
        shard.locks.tell(client, begun.into());
        shard.reclaims
    };
    block_on(first.housekeeping());
    assert_eq!(cluster.borrow().shard.reclaims, reclaims, "not all the time");
    let timeout = first.shared.borrow().session.open().unwrap().timeout_ms;
    cluster.borrow_mut().now += timeout / 4;
    block_on(first.housekeeping());
    block_on(first.housekeeping());
    assert_eq!(cluster.borrow().shard.reclaims, reclaims + 1);
}

fn pass_a_quarter(cluster: &RefCell<Cluster>, lane: &FakeLane) {
    block_on(lane.housekeeping());
    cluster.borrow_mut().now += lane.shared.borrow().session.open().unwrap().timeout_ms / 4;
}

/// Goal: a program that begins to wait while housekeeping listens is told that it has its lock, though housekeeping was told of
/// it and the server tells it to nobody else: by whoever asks for waits, or by a signal. What nobody waits for is not kept.
#[test]
fn a_lock_granted_while_housekeeping_listens_is_told() {
    for by_signal in [false, true] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let ino = file.attr.ino;
        let other = block_on(second.open(ino, OpenHow { ..BOTH })).unwrap();
        block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
        pass_a_quarter(&cluster, &second);
        let stranger = LockOutcome { ticket: 999, errno: 0, term: Term(cluster.borrow().shard.term) };
        let client = second.shared.borrow().client().0;
        let ticket = {
            let keeping = lane_beside(&cluster, &second);
            let mut keeping = pin!(keeping.housekeeping());
            // Its question is on its way: the next poll hands it over.
            while second.shared.borrow().listened != Some(Millis(cluster.borrow().now)) {
                assert!(step(keeping.as_mut()).is_pending());
            }
            assert_eq!(cluster.borrow().count(Events::KIND), 0);
            let ticket = wait(&second, other.handle, 2);
            block_on(first.set_lock(file.handle, wish(1, None))).unwrap();
            cluster.borrow_mut().shard.locks.tell(client, stranger.into());
            block_on(keeping);
            ticket
        };
        assert_eq!(cluster.borrow().count(Events::KIND), 1);
        assert_eq!(second.shared.borrow().locks.wish_of(ticket), None, "it was granted");
        let told = Ended { ticket, ino, result: Ok(()) };
        if by_signal {
            assert_eq!(block_on(second.cancel_lock(ticket)), Some(told));
        } else {
            assert_eq!(
                second.shared.borrow().nodes_with_waits(),
                [node(&second)].into(),
                "somebody is to be told"
            );
            assert_eq!(second.shared.borrow().wished_node(ticket), Some(node(&second)));
            assert!(
                second.shared.borrow_mut().locks.take_refused().is_empty(),
                "not without a look at the file"
            );
            assert_eq!(block_on(heard(&second, node(&second), 10_000)), [told]);
            assert_eq!(cluster.borrow().count(Events::KIND), 1, "without asking anybody");
        }
        assert!(
            second.shared.borrow().nodes_with_waits().is_empty() && !second.shared.borrow().locks.has_ended()
        );
        assert_eq!(events(&second), []);
    }
}

/// Goal: an outcome that another lane took in is told by one whose server cannot be asked.
#[test]
fn a_dead_server_holds_up_no_outcome() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let files = [create(&first, b"f"), create(&first, b"g")];
    let [waits, granted] = files.map(|file| {
        block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
        let other = block_on(second.open(file.attr.ino, OpenHow { ..BOTH })).unwrap();
        (file, wait(&second, other.handle, 2))
    });
    let beside = lane_beside(&cluster, &second);
    cluster.borrow_mut().fail(Events::KIND, &[Fault::Unreachable, Fault::Unreachable]);
    let ended = Ended { ticket: granted.1, ino: granted.0.attr.ino, result: Ok(()) };
    {
        let mut asking = pin!(heard(&second, node(&second), 0));
        assert!(step(asking.as_mut()).is_pending());
        let taken = beside.shared.borrow_mut().locks.granted(granted.1).unwrap();
        beside.shared.borrow_mut().locks.keep_ended(taken);
        assert_eq!(block_on(asking), [ended]);
    }
    assert_eq!(block_on(second.hear(node(&second), 0)), Err(Errno::EIO.into_status()));
    block_on(first.set_lock(waits.0.handle, wish(1, None))).unwrap();
    assert_eq!(events(&second), [(waits.0.attr.ino, Ok(()))]);
}

/// Goal: housekeeping asks all servers together, and after all else that it has to do: one that does not answer keeps it from
/// hearing what another tells, and from nothing else.
#[test]
fn servers_are_listened_to_together_and_last() {
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    let far = ShardId(1);
    cluster.borrow_mut().beside = Some(Shard::new(far));
    cluster.borrow_mut().apart = true;
    let lane = mount(&cluster);
    let file = create(&lane, b"f");
    assert_eq!(block_on(lane.getattr(Ino::new(far, 1))), Err(Errno::ENOENT), "it knows this mount now");
    pass_a_quarter(&cluster, &lane);
    block_on(lane.release(file.handle));
    let begun = TermBegun { shard: far, term: Term(9) };
    let client = lane.shared.borrow().client().0;
    cluster.borrow_mut().beside.as_mut().unwrap().locks.tell(client, begun.into());
    cluster.borrow_mut().fail(Events::KIND, &[Fault::Unreachable]);
    let mut keeping = pin!(lane.housekeeping());
    while cluster.borrow().count(Events::KIND) == 0 {
        let _ = step(keeping.as_mut());
    }
    let before = [RenewSession::KIND, Close::KIND].map(|kind| cluster.borrow().count(kind));
    assert_eq!((cluster.borrow().count(Events::KIND), before), (2, [1, 1]));
    assert_eq!(lane.shared.borrow().shards.term(far), Term(9), "the other one was heard");
}

/// Goal: a shard that takes no wishes, or no report, for it is in its grace period, keeps the mount from nothing else: what
/// became of other waits is told at once, and the wish is put again, once at each call.
#[test]
fn a_shard_in_grace_holds_up_no_outcome() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let files = [create(&first, b"f"), create(&first, b"g")];
    let [slow, quick] = files.map(|file| {
        block_on(first.set_lock(file.handle, wish(1, WRITE))).unwrap();
        let other = block_on(second.open(file.attr.ino, OpenHow { ..BOTH })).unwrap();
        (file.attr.ino, wait(&second, other.handle, 2))
    });
    let client = second.shared.borrow().client().0;
    let term = {
        let cluster = &mut *cluster.borrow_mut();
        cluster.shard.term += 1;
        cluster.fail(SetLock::KIND, &[Fault::Refuse(Status::GRACE); 5]);
        cluster.fail(Reclaim::KIND, &[Fault::Refuse(Status::NOT_READY)]);
        Term(cluster.shard.term)
    };
    let outcome = LockOutcome { ticket: quick.1, errno: 35, term };
    cluster.borrow_mut().shard.locks.tell(client, outcome.into());
    let asked = || cluster.borrow().count(SetLock::KIND);
    let before = asked();
    assert_eq!(events(&second), [(quick.0, Err(Errno(35)))]);
    assert_eq!(asked(), before + 1, "the other one, once");
    cluster.borrow_mut().shard.locks.held.clear();
    for n in 2..=5 {
        assert_eq!((events(&second), asked()), (vec![], before + n));
    }
    assert_eq!(events(&second), [(slow.0, Ok(()))]);
    assert_eq!(asked(), before + 6);
}
