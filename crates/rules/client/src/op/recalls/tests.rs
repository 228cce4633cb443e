//! Tests of leases as a mount has them, over the fake cluster.

use crate::testing::{
    BOTH, Cluster, FakeLane, Fault, METAD, METAD_2, block_on, ear_beside, heard, lane_beside, mount,
    mount_with, step,
};
use crate::{CreateHow, Limits, Opened};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use core::task::Poll;
use skep_types::{Errno, Ino, LogIndex, Millis, ShardId, Term};
use skep_wire::meta::{Create, Event, Events, GetAttr, Lookup, Recalled, Sync, TermBegun};
use skep_wire::{Lead, Message, Status};

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
    holder_with(cluster, leased())
}

pub fn holder_with(cluster: &Rc<RefCell<Cluster>>, limits: Limits) -> (FakeLane, FakeLane) {
    let lane = mount_with(cluster, limits);
    let ear = lane_beside(cluster, &lane);
    // It asks for leases where it can hear what is taken back.
    block_on(lane.getattr(ROOT)).unwrap();
    assert!(!believes(cluster, &lane, ROOT) && lane.shared.borrow().nodes_to_hear().is_empty());
    block_on(ear.housekeeping());
    block_on(lane.getattr(ROOT)).unwrap();
    listens(&ear);
    (lane, ear)
}

fn believes(cluster: &RefCell<Cluster>, lane: &FakeLane, ino: Ino) -> bool {
    let now = Millis(cluster.borrow().now);
    lane.shared.borrow_mut().leases.believes(ino, now).is_some()
}

/// Hears what its server has to tell.
pub fn listens(lane: &FakeLane) {
    let _ = block_on(heard(lane, METAD, 0));
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
    assert_eq!(lane.shared.borrow().nodes_to_hear(), [METAD].into());
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
    assert!(lane.shared.borrow().nodes_to_hear().is_empty());
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
        assert_eq!(lane.shared.borrow().leases.reports().count(), 0);
    }
}

/// Goal: while something is held events are asked for, and not for longer than that they renew; who asks for nothing lapses,
/// says so, once, and its shard counts it no more. Who is silent for long is passed over.
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
    assert!(!believes(&cluster, &lane, ROOT));
    assert_eq!(
        lane.shared.borrow().nodes_to_hear().into_iter().collect::<Vec<_>>(),
        [METAD],
        "it may have been passed over"
    );
    (0..3).for_each(|_| listens(&ear));
    assert_eq!(cluster.borrow().count(Events::KIND), asked + 1, "nothing is held");
    assert!(cluster.borrow().shard.leases.held.is_empty(), "it was told");
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

/// Goal: who only hears does so, and nothing else, also where a term is news, the server tells nothing, or the mount is to
/// report first: what all that leads to is left to others, who hear that there is work. It takes no place of a lane.
#[test]
fn who_hears_does_nothing_else() {
    let cluster = cluster();
    let (lane, plain) = (mount_with(&cluster, leased()), mount(&cluster));
    block_on(lane.getattr(ROOT)).unwrap();
    block_on(lane.housekeeping());
    block_on(lane.getattr(ROOT)).unwrap();
    let ear = ear_beside(&cluster, &lane);
    let mut asked = BTreeSet::new();
    let mut hear = || {
        let before = cluster.borrow().kinds();
        let told = block_on(ear.hear(METAD, 0));
        let now = cluster.borrow().kinds();
        asked.extend(
            now.into_iter().filter(|(kind, times)| before.get(kind) != Some(times)).map(|(kind, _)| kind),
        );
        told
    };
    assert_eq!(hear(), Ok(()));
    let mut work = pin!(make(&plain, b"f"));
    while step(work.as_mut()).is_pending() {
        let _ = hear();
    }
    assert!(cluster.borrow().now < 100 && believes(&cluster, &lane, ROOT), "it was confirmed");
    {
        let mut cluster = cluster.borrow_mut();
        cluster.shard.begins();
        cluster.fail(Events::KIND, &[Fault::LoseAnswer, Fault::Unreachable]);
    }
    for _ in 0..4 {
        let _ = hear();
    }
    assert_eq!(asked.into_iter().collect::<Vec<u16>>(), [Events::KIND, Recalled::KIND]);
    assert!(lane.shared.borrow().map.is_behind(), "housekeeping asks for the map");
    drop(ear);
    assert_ne!(lane_beside(&cluster, &lane).slot(), lane.slot(), "it gave back what it did not have");
}

/// Goal: a mount that ends, or that stood still for nobody knows how long, believes in nothing any more and says so: others do
/// not wait until it has been silent for long enough. One that ends asks for nothing more, whatever it still has to say.
#[test]
fn who_ends_or_stood_still_keeps_nobody_waiting() {
    for ends in [true, false] {
        let cluster = cluster();
        let ((lane, _), plain) = (holder(&cluster), mount(&cluster));
        assert!(believes(&cluster, &lane, ROOT));
        match ends {
            true => block_on(lane.give_up_leases()),
            false => {
                lane.shared.borrow_mut().all_lapses(false);
                assert_eq!(lane.shared.borrow().nodes_to_hear(), [METAD].into(), "it is to say so");
                let _ = block_on(ear_beside(&cluster, &lane).hear(METAD, 0));
            }
        }
        assert!(!believes(&cluster, &lane, ROOT) && cluster.borrow().shard.leases.held.is_empty());
        assert!(lane.shared.borrow().nodes_to_hear().is_empty());
        assert_eq!(lane.shared.borrow().leases.counts().lapses, 1);
        block_on(make(&plain, b"f")).unwrap();
        assert!(cluster.borrow().now < 100, "it waited");
        block_on(lane.getattr(ROOT)).unwrap();
        assert_eq!(believes(&cluster, &lane, ROOT), !ends);
    }
}

/// Goal: an unmount gives back first, and before the rest of what it has to do.
#[test]
fn an_unmount_gives_back() {
    let cluster = cluster();
    let ((lane, _), plain) = (holder(&cluster), mount(&cluster));
    block_on(lane.detach());
    assert!(cluster.borrow().shard.leases.held.is_empty());
    block_on(make(&plain, b"f")).unwrap();
    assert!(cluster.borrow().now < 100, "it waited");
}

/// Goal: events are waited for no longer than a quarter of what leases hold for.
#[test]
fn a_short_term_is_renewed_in_time() {
    let cluster = cluster();
    cluster.borrow_mut().shard.gives_leases(400);
    let (lane, _) = holder(&cluster);
    assert_eq!(lane.shared.borrow().leases.patience(METAD), 100);
    cluster.borrow_mut().shard.gives_leases(40_000);
    block_on(lane.lookup(ROOT, b"f")).unwrap_err();
    assert_eq!(lane.shared.borrow().leases.patience(METAD), 1_000);
}

/// Goal: who was passed over is lent nothing before it listens, and listens at once and once, though it holds nothing; who
/// hears is called for that, and does not wait for events.
#[test]
fn who_was_passed_over_listens_again() {
    let cluster = cluster();
    let ((lane, _), plain) = (holder(&cluster), mount(&cluster));
    block_on(make(&plain, b"f")).unwrap();
    assert!(cluster.borrow().now > T, "it waited for the silent one");
    let bells = cluster.borrow().bells;
    block_on(lane.getattr(ROOT)).unwrap();
    assert!(!believes(&cluster, &lane, ROOT) && cluster.borrow().bells > bells);
    assert_eq!(lane.shared.borrow().nodes_to_hear().into_iter().collect::<Vec<_>>(), [METAD]);
    let (ear, asked) = (ear_beside(&cluster, &lane), cluster.borrow().count(Events::KIND));
    assert_eq!(lane.shared.borrow().patience_of_ear(METAD, 1_000, Millis(0)), 0);
    block_on(ear.hear(METAD, 1_000)).unwrap();
    assert_eq!(cluster.borrow().count(Events::KIND), asked + 1);
    assert!(lane.shared.borrow().nodes_to_hear().is_empty());
    block_on(lane.getattr(ROOT)).unwrap();
    assert!(believes(&cluster, &lane, ROOT));
    assert_eq!(lane.shared.borrow().patience_of_ear(METAD, 9_000, Millis(0)), 1_000);
}

/// Goal: a mount that cannot hear asks for no leases, be it that its questions are lost, refused, or cannot be read: nobody
/// waits for it. It goes on trying, and has some again when it can.
#[test]
fn who_cannot_hear_wishes_for_nothing() {
    for fault in [Fault::LoseAnswer, Fault::Unreachable, Fault::Refuse(Status::NOT_READY), Fault::Garble] {
        let cluster = cluster();
        let ((lane, ear), plain) = (holder(&cluster), mount(&cluster));
        cluster.borrow_mut().fail(Events::KIND, &[fault; 2]);
        listens(&ear);
        cluster.borrow_mut().now += 2 * T;
        block_on(lane.getattr(ROOT)).unwrap();
        assert!(!believes(&cluster, &lane, ROOT) && cluster.borrow().shard.leases.held.is_empty());
        let now = cluster.borrow().now;
        block_on(make(&plain, b"f")).unwrap();
        assert!(cluster.borrow().now < now + 100, "{fault:?}: it waited");
        listens(&ear);
        assert_eq!(lane.shared.borrow().nodes_to_hear().into_iter().collect::<Vec<_>>(), [METAD]);
        listens(&ear);
        block_on(lane.getattr(ROOT)).unwrap();
        assert!(believes(&cluster, &lane, ROOT), "{fault:?}");
    }
}

/// Goal: what a shard is to hear goes to the leader that lent it, and to no other: a new one has lent nothing, and who only
/// hears waits for none but its own.
#[test]
fn reports_go_to_who_lent() {
    let cluster = cluster();
    let (lane, _) = holder(&cluster);
    lane.shared.borrow_mut().leases.give_back(ROOT);
    let moves = |node, epoch| {
        let seat = Lead { node, epoch };
        let told = (seat, cluster.borrow().told.1);
        let mut cluster = cluster.borrow_mut();
        (cluster.seat, cluster.told) = (seat, told);
    };
    moves(METAD_2, 2);
    assert!(block_on(lane.refresh_map()));
    let reports = cluster.borrow().count(Recalled::KIND);
    assert!(lane.shared.borrow().nodes_to_hear().is_empty(), "there is nobody to tell");
    let _ = block_on(ear_beside(&cluster, &lane).hear(METAD, 0));
    assert_eq!(cluster.borrow().count(Recalled::KIND), reports);
    moves(METAD, 3);
    assert!(block_on(lane.refresh_map()));
    block_on(ear_beside(&cluster, &lane).hear(METAD, 0)).unwrap();
    assert_eq!(cluster.borrow().count(Recalled::KIND), reports + 1);
    assert!(cluster.borrow().shard.leases.held.is_empty());
}

/// Goal: a lease of which the mount never heard, for its answer was lost or cannot be read, has nobody wait: who holds nothing
/// says so at once, be the request given up or not.
#[test]
fn a_lost_lease_has_nobody_wait() {
    for fault in [Fault::LoseAnswer, Fault::Garble] {
        let cluster = cluster();
        let (lane, plain) = (mount_with(&cluster, leased()), mount(&cluster));
        block_on(lane.getattr(ROOT)).unwrap();
        block_on(lane.housekeeping());
        let ear = ear_beside(&cluster, &lane);
        {
            let mut cluster = cluster.borrow_mut();
            cluster.cancelled = true;
            cluster.fail(GetAttr::KIND, &[fault]);
        }
        let bells = cluster.borrow().bells;
        assert!(block_on(lane.getattr(ROOT)).is_err());
        cluster.borrow_mut().cancelled = false;
        assert!(cluster.borrow().shard.leases.held.len() == 1 && cluster.borrow().bells > bells);
        assert!(lane.shared.borrow().nodes_to_hear().contains(&METAD));
        block_on(ear.hear(METAD, 1_000)).unwrap();
        assert!(lane.shared.borrow().nodes_to_hear().is_empty());
        block_on(make(&plain, b"f")).unwrap();
        assert!(cluster.borrow().now < 100, "{fault:?}: it waited");
        block_on(lane.getattr(ROOT)).unwrap();
        assert!(believes(&cluster, &lane, ROOT));
    }
}

/// Goal: what housekeeping hears of leases is not left lying: who has a connection for that is called.
#[test]
fn what_housekeeping_hears_rings() {
    let cluster = cluster();
    let lane = mount_with(&cluster, leased());
    block_on(lane.getattr(ROOT)).unwrap();
    block_on(lane.housekeeping());
    block_on(ear_beside(&cluster, &lane).hear(METAD, 0)).unwrap();
    assert!(lane.shared.borrow().nodes_to_hear().is_empty());
    {
        let cluster = &mut *cluster.borrow_mut();
        cluster.now += 20_000;
        let event = cluster.shard.leases.recall_all(1, ROOT);
        cluster.shard.locks.tell(1, event);
    }
    let bells = cluster.borrow().bells;
    block_on(lane.housekeeping());
    assert!(cluster.borrow().bells > bells);
    assert!(lane.shared.borrow().nodes_to_hear().contains(&METAD));
    block_on(ear_beside(&cluster, &lane).hear(METAD, 0)).unwrap();
    assert!(
        cluster.borrow().shard.leases.waits.is_empty() && lane.shared.borrow().nodes_to_hear().is_empty()
    );
}

/// Goal: what has ended is freed as time goes, by answers and by housekeeping, also if nothing is learned any more.
#[test]
fn what_ended_is_freed_in_time() {
    let cluster = cluster();
    let (lane, _) = holder(&cluster);
    let plenty = |shared: &mut crate::Shared| {
        for at in 0..2_000_u32 {
            shared.names.put_name((ROOT, 0), &at.to_be_bytes(), None, LogIndex(1));
        }
        shared.all_lapses(false);
        assert_eq!((shared.names.bytes(), shared.names.spent()), (0, 1));
    };
    plenty(&mut lane.shared.borrow_mut());
    block_on(lane.housekeeping());
    assert_eq!(lane.shared.borrow().names.spent(), 0);
    plenty(&mut lane.shared.borrow_mut());
    for _ in 0..2_000 / 32 + 3 {
        block_on(lane.ask(ShardId(0), &Sync { term: Term(1), index: LogIndex(0) })).unwrap();
    }
    assert_eq!(lane.shared.borrow().names.spent(), 0);
}

/// Goal: an ACL of an entry is asked for again when its directory is taken back as a whole, or everything has lapsed.
#[test]
fn acls_of_entries_go_with_their_directory() {
    for lapses in [false, true] {
        let cluster = cluster();
        let (lane, _) = holder(&cluster);
        let (shared, ino, now) = (&mut *lane.shared.borrow_mut(), Ino::new(ShardId(0), 9), Millis(1));
        assert!(shared.acls.ask(ino, now).is_err());
        (0..3).for_each(|_| shared.acls.seen(ino, 5, now));
        shared.acls.got(ino, 5, None);
        assert_eq!(shared.acls.ask(ino, now), Ok(None));
        let Event::Recall(recall) = cluster.borrow_mut().shard.leases.recall_all(1, ROOT) else { panic!() };
        match lapses {
            true => shared.all_lapses(false),
            false => shared.recalled(&recall, METAD, false, now),
        }
        assert!(shared.acls.ask(ino, now).is_err());
    }
}

/// Goal: a server that is silent, where leases are held, is noticed before they are over: its answer is wanted for a second longer
/// than it may be held back.
#[test]
fn silence_is_noticed_while_leases_hold() {
    let cluster = cluster();
    let (lane, _) = holder(&cluster);
    let ear = ear_beside(&cluster, &lane);
    cluster.borrow_mut().waits.clear();
    assert_eq!(block_on(ear.hear(METAD, 10_000)), Ok(()));
    lane.shared.borrow_mut().all_lapses(false);
    assert_eq!(block_on(ear.hear(METAD, 10_000)), Ok(()));
    let waits = core::mem::take(&mut cluster.borrow_mut().waits);
    // What all lapsed at is asked once more, without a wait.
    let wanted = [(Events::KIND, Some(2_000)), (Recalled::KIND, Some(2_000)), (Events::KIND, Some(1_000))];
    assert_eq!(waits, wanted);
    // The ports that programs wait with are not hurried by it.
    block_on(lane.housekeeping());
    assert!(cluster.borrow().waits.iter().all(|(_, wanted)| wanted.is_none_or(|ms| ms == 5_000)));
}
