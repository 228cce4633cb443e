//! Tests of leases as a mount has them, over the fake cluster.

use crate::testing::{BOTH, Cluster, FakeLane, Fault, METAD, block_on, lane_beside, mount, mount_with, step};
use crate::{CreateHow, Limits, Opened};
use alloc::format;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::pin::pin;
use core::task::Poll;
use skep_types::{Errno, Ino, Millis, ShardId, Term};
use skep_wire::meta::{Create, Events, GetAttr, Lookup, Recalled, TermBegun};
use skep_wire::{Message, Status};

pub const T: u64 = 4_000;
const ROOT: Ino = Ino::ROOT;

pub fn leased() -> Limits {
    Limits { leases: true, ..Limits::default() }
}

pub fn cluster() -> Rc<RefCell<Cluster>> {
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    cluster.borrow_mut().shard.gives_leases(T);
    cluster
}

/// A mount that has leases, and the lane that takes in its events.
pub fn holder(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane) {
    let lane = mount_with(cluster, leased());
    let ear = lane_beside(cluster, &lane);
    block_on(lane.getattr(ROOT)).unwrap();
    block_on(ear.housekeeping());
    (lane, ear)
}

fn believes(cluster: &RefCell<Cluster>, lane: &FakeLane, ino: Ino) -> bool {
    let now = Millis(cluster.borrow().now);
    lane.shared.borrow_mut().leases.believes(ino, now).is_some()
}

/// Hears what its server has to tell.
pub fn listens(lane: &FakeLane) {
    let _ = block_on(lane.events(METAD, 0));
}

pub async fn make(lane: &FakeLane, name: &[u8]) -> Result<Opened, Errno> {
    let how = CreateHow { mode: 0o644, umask: 0, uid: 1, gid: 2, exclusive: true, policy: None };
    lane.create(ROOT, name, how, BOTH).await
}

/// Does `work` while `ears` take in events.
pub fn beside<T>(work: impl Future<Output = T>, ears: &[&FakeLane]) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = step(work.as_mut()) {
            return done;
        }
        ears.iter().for_each(|ear| listens(ear));
    }
}

/// Goal: who asks gets leases, whether the name is there or not; a change by somebody else waits until the mount has dropped
/// what it names and has said so, and no longer. Nothing is held by who does not wish for it.
#[test]
fn a_change_waits_for_holders() {
    let cluster = cluster();
    let ((lane, ear), plain) = (holder(&cluster), mount(&cluster));
    assert_eq!(block_on(lane.lookup(ROOT, b"f")), Err(Errno::ENOENT));
    assert!(believes(&cluster, &lane, ROOT) && cluster.borrow().shard.leases.held.len() == 1);
    assert_eq!(lane.shared.borrow().nodes_to_ask(), [METAD]);
    block_on(plain.lookup(ROOT, b"f")).unwrap_err();
    assert_eq!(cluster.borrow().shard.leases.held.len(), 1);
    let reports = cluster.borrow().count(Recalled::KIND);
    beside(make(&plain, b"f"), &[&ear]).unwrap();
    assert_eq!(cluster.borrow().count(Recalled::KIND), reports + 1);
    assert!(cluster.borrow().now < 100 && cluster.borrow().shard.leases.waits.is_empty());
    assert!(believes(&cluster, &lane, ROOT), "the name was recalled, not the lease");
    let mount = *cluster.borrow().shard.leases.held.keys().map(|(mount, _)| mount).next().unwrap();
    {
        let shard = &mut cluster.borrow_mut().shard;
        let event = shard.leases.recall_all(mount, ROOT);
        shard.locks.tell(mount, event);
    }
    listens(&ear);
    assert!(!believes(&cluster, &lane, ROOT) && cluster.borrow().shard.leases.waits.is_empty());
    assert!(lane.shared.borrow().nodes_to_ask().is_empty());
}

/// Goal: a confirmation that is lost on the way is said again, whichever way it was lost.
#[test]
fn confirmations_are_repeated() {
    for fault in [Fault::LoseRequest, Fault::LoseAnswer, Fault::Unreachable] {
        let cluster = cluster();
        let ((lane, ear), plain) = (holder(&cluster), mount(&cluster));
        cluster.borrow_mut().fail(Recalled::KIND, &[fault; 3]);
        beside(make(&plain, b"f"), &[&ear]).unwrap();
        assert!(believes(&cluster, &lane, ROOT), "nobody was passed over");
        listens(&ear);
        listens(&ear);
        assert!(lane.shared.borrow().leases.nodes_to_hear().is_empty());
    }
}

/// Goal: while something is held events are asked for, and not for longer than that they renew; who asks for nothing lapses,
/// says so, and its shard counts it no more. Who is silent for long is passed over.
#[test]
fn events_renew_leases() {
    let cluster = cluster();
    let ((lane, ear), plain) = (holder(&cluster), mount(&cluster));
    for _ in 0..5 {
        cluster.borrow_mut().now += T / 2;
        listens(&ear);
    }
    assert!(believes(&cluster, &lane, ROOT));
    let asked = cluster.borrow().count(Events::KIND);
    assert!(asked >= 5);
    cluster.borrow_mut().now += T;
    assert!(!believes(&cluster, &lane, ROOT) && lane.shared.borrow().nodes_to_ask().is_empty());
    listens(&ear);
    assert_eq!(cluster.borrow().count(Events::KIND), asked, "nothing is held");
    assert_eq!(block_on(lane.lookup(ROOT, b"f")), Err(Errno::ENOENT));
    assert_eq!(cluster.borrow().shard.leases.lapses.values().max(), Some(&1));
    assert!(believes(&cluster, &lane, ROOT));
    block_on(make(&plain, b"f")).unwrap();
    assert!(cluster.borrow().now >= 4 * T, "it waited for the silent one");
    assert!(!believes(&cluster, &lane, ROOT), "whose time was over before");
}

/// Goal: an answer that is lost gives nothing, and the next one gives it; nothing is kept of requests that have ended.
#[test]
fn lost_answers_give_nothing() {
    let cluster = cluster();
    let (lane, ear) = holder(&cluster);
    cluster.borrow_mut().now += 2 * T;
    cluster.borrow_mut().fail(GetAttr::KIND, &[Fault::LoseAnswer, Fault::LoseRequest, Fault::Unreachable]);
    let mut asks = pin!(lane.getattr(ROOT));
    assert!(step(asks.as_mut()).is_pending());
    assert!(!believes(&cluster, &lane, ROOT));
    while step(asks.as_mut()).is_pending() {}
    assert!(believes(&cluster, &lane, ROOT));
    cluster.borrow_mut().fail(Lookup::KIND, &[Fault::LateAnswer]);
    let mut slow = pin!(lane.lookup(ROOT, b"f"));
    assert!(step(slow.as_mut()).is_pending() && step(slow.as_mut()).is_pending());
    {
        let shard = &mut cluster.borrow_mut().shard;
        let event = shard.leases.recall_all(1, ROOT);
        shard.locks.tell(1, event);
    }
    listens(&ear);
    assert_eq!(block_on(slow), Err(Errno::ENOENT));
    assert!(!believes(&cluster, &lane, ROOT), "the recall has overtaken the grant");
}

/// Goal: whatever becomes of a request, no recall is kept for its answer when that has come, or comes no more: nor for one that
/// nobody can read.
#[test]
fn every_flight_ends() {
    let cluster = cluster();
    let (lane, _) = holder(&cluster);
    let faults = [
        Fault::LoseAnswer,
        Fault::LoseRequest,
        Fault::Unreachable,
        Fault::Refuse(Status::BUSY),
        Fault::LateAnswer,
        Fault::Garble,
    ];
    for fault in faults {
        for kind in [Lookup::KIND, Create::KIND] {
            cluster.borrow_mut().fail(kind, &[fault]);
        }
        let looked = block_on(lane.lookup(ROOT, format!("{fault:?}").as_bytes()));
        let garbled = fault == Fault::Garble;
        assert_eq!(looked, Err(if garbled { Errno::EIO } else { Errno::ENOENT }), "{fault:?}");
        let made = block_on(make(&lane, format!("made {fault:?}").as_bytes()));
        assert_eq!(made.err(), garbled.then_some(Errno::EIO), "{fault:?}");
        assert_eq!(lane.shared.borrow().leases.flights(), 0, "{fault:?}");
    }
}

/// Goal: a new term ends what was held of its shard, and the shard hears that nothing of before is used, be the server in a new
/// life or in the same.
#[test]
fn a_new_term_hears_that_nothing_is_used() {
    for same_life in [true, false] {
        let cluster = cluster();
        let (lane, ear) = holder(&cluster);
        let first = Term(cluster.borrow().shard.term);
        assert!(cluster.borrow().shard.leases.anew.contains(&(1, first)));
        {
            let mut cluster = cluster.borrow_mut();
            match same_life {
                true => cluster.shard.begins(),
                false => cluster.restarts(),
            }
            let begun = TermBegun { shard: ShardId(0), term: Term(first.0 + 1) };
            cluster.shard.locks.tell(1, begun.into());
        }
        listens(&ear);
        assert!(!believes(&cluster, &lane, ROOT));
        block_on(ear.housekeeping());
        listens(&ear);
        assert!(cluster.borrow().shard.leases.anew.contains(&(1, Term(first.0 + 1))));
        block_on(lane.getattr(ROOT)).unwrap();
        block_on(lane.getattr(ROOT)).unwrap();
        assert!(believes(&cluster, &lane, ROOT));
    }
}
