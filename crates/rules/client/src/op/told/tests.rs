//! Tests of what the kernel may use without asking, over the fake cluster.

use crate::limits::{OLD_LOOK_MS, UNKNOWN_PATIENCE_MS, VALIDITY_MARGIN_MS};
use crate::op::recalls::tests::{T, beside, cluster, holder_with, leased, listens, make};
use crate::state::AttrsBy;
use crate::testing::{Cluster, FakeLane, METAD, block_on, mount};
use crate::{Limits, RenameHow, Shown};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::{Attr, Errno, Ino, Millis, ShardId};
use skep_wire::Message;
use skep_wire::meta::{Create, Recalled};

const ROOT: Ino = Ino::ROOT;

fn teller(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane) {
    holder_with(cluster, Limits { validity: true, ..leased() })
}

fn root(lane: &FakeLane) -> Attr {
    block_on(lane.getattr(ROOT)).unwrap()
}

/// What was dropped, and how many requests there had been before.
fn drops(cluster: &RefCell<Cluster>) -> Vec<(Ino, usize)> {
    core::mem::take(&mut cluster.borrow_mut().attr_drops)
}

/// Goal: the kernel may use what is known for what is left of the lease, less the margin; nothing that is older, and nothing of
/// what makes an inode, or where it is not to answer at all. One that does not count evictions uses looks for a moment only.
#[test]
fn validity_is_what_is_left() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    let (attr, begun) = (root(&lane), cluster.borrow().now);
    let valid = |by| lane.valid_for(&attr, by);
    assert_eq!(valid(AttrsBy::Question), T - VALIDITY_MARGIN_MS - (cluster.borrow().now - begun));
    cluster.borrow_mut().now = begun + 1_000;
    assert_eq!(valid(AttrsBy::Look), T - VALIDITY_MARGIN_MS - 1_000);
    assert_eq!(valid(AttrsBy::Made), 0);
    let older = Attr { change: attr.change - 1, ..attr.clone() };
    let both = [&older, &attr].map(|attr| (b"d".as_slice().into(), Shown::from(attr)));
    let attributes = |valid: &crate::Valid| valid.attributes;
    let valid_lines: Vec<u64> = lane.lines_valid_for(ROOT, &both).iter().map(attributes).collect();
    assert_eq!(valid_lines, [0, T - VALIDITY_MARGIN_MS - 1_000]);
    lane.shared.borrow_mut().limits.old_kernel = true;
    assert_eq!((valid(AttrsBy::Look), valid(AttrsBy::Question) > OLD_LOOK_MS), (OLD_LOOK_MS, true));
    cluster.borrow_mut().now = begun + T - VALIDITY_MARGIN_MS;
    assert_eq!(valid(AttrsBy::Question), 0);
    listens(&ear);
    assert!(valid(AttrsBy::Question) > 0);
    let (silent, _) = holder_with(&cluster, leased());
    assert_eq!(silent.valid_for(&root(&silent), AttrsBy::Question), 0);
}

/// Goal: a recall is confirmed when the kernel has dropped what it names, and not before: be it that it does not know the inode
/// yet, though it was given it. What it was never told of needs no drop.
#[test]
fn what_is_taken_back_is_dropped_first() {
    for unknown in [0, 3] {
        let cluster = cluster();
        let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
        beside(make(&plain, b"e"), &[&ear]).unwrap();
        assert_eq!(drops(&cluster), []);
        assert!(lane.valid_for(&root(&lane), AttrsBy::Look) > 0);
        cluster.borrow_mut().unknown_drops = unknown;
        let reports = cluster.borrow().count(Recalled::KIND);
        beside(make(&plain, b"f"), &[&ear]).unwrap();
        let (dropped, total) = (drops(&cluster), cluster.borrow().total());
        assert_eq!(cluster.borrow().count(Recalled::KIND), reports + 1);
        assert_eq!(dropped.len(), unknown + 1);
        assert!(dropped.iter().all(|(ino, before)| *ino == ROOT && *before < total));
        assert_eq!(lane.shared.borrow().kernel.counts().1, 0, "and is told nothing");
        assert!(lane.valid_for(&root(&lane), AttrsBy::Question) > 0, "but what is so now");
    }
}

/// Goal: what the kernel does not know is waited for only as long as it may come to know it: not when it has forgotten it.
#[test]
fn what_is_forgotten_is_dropped() {
    let cluster = cluster();
    let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
    assert!(lane.valid_for(&root(&lane), AttrsBy::Look) > 0);
    lane.valid_for(&root(&lane), AttrsBy::Look);
    lane.forget(ROOT, 2);
    beside(make(&plain, b"e"), &[&ear]).unwrap();
    assert_eq!(drops(&cluster), [], "it has nothing of it");
    // By a handle that it has, without a look-up that is counted.
    assert!(lane.valid_for(&root(&lane), AttrsBy::Question) > 0);
    cluster.borrow_mut().unknown_drops = 1;
    beside(make(&plain, b"f"), &[&ear]).unwrap();
    assert_eq!((drops(&cluster).len(), lane.shared.borrow().kernel.lost()), (1, 0));
}

/// Goal: before this mount changes something itself the kernel has dropped it, for others may see the change before its answer
/// comes; meanwhile it is told nothing of it.
#[test]
fn own_changes_are_dropped_before_they_are_sent() {
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    let attr = root(&lane);
    assert!(lane.valid_for(&attr, AttrsBy::Question) > 0);
    let (total, creates) = (cluster.borrow().total(), cluster.borrow().count(Create::KIND));
    block_on(make(&lane, b"f")).unwrap();
    assert_eq!(cluster.borrow().count(Create::KIND), creates + 1);
    assert_eq!(drops(&cluster), [(ROOT, total)]);
    assert_eq!(lane.valid_for(&attr, AttrsBy::Question), 0, "older");
    block_on(make(&lane, b"g")).unwrap();
    assert_eq!(drops(&cluster), [], "nothing was told");
}

/// Goal: that leases have lapsed is said, and others are asked for, when the kernel uses nothing any more that they covered; when
/// their time is over there is nothing to wait for.
#[test]
fn a_lapse_is_said_when_the_kernel_has_dropped_all() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    let says = || {
        let now = Millis(cluster.borrow().now);
        let leases = &mut lane.shared.borrow_mut().leases;
        let sent = leases.sends(METAD, ShardId(0), now, true);
        leases.is_over(ShardId(0), &sent);
        (sent.lapses, sent.wishes)
    };
    let (before, wishes) = says();
    assert!(wishes && lane.valid_for(&root(&lane), AttrsBy::Question) > 0);
    lane.shared.borrow_mut().all_lapses(false);
    assert_eq!(says(), (before, false));
    assert_eq!(lane.valid_for(&root(&lane), AttrsBy::Question), 0);
    assert!(lane.shared.borrow().nodes_to_hear().contains(&METAD));
    listens(&ear);
    assert_eq!((drops(&cluster).len(), says()), (1, (before + 1, true)));
    assert!(lane.valid_for(&root(&lane), AttrsBy::Question) > 0);
    lane.shared.borrow_mut().all_lapses(false);
    cluster.borrow_mut().now += T;
    assert_eq!(says(), (before + 2, true));
}

/// Goal: a mount that ends gives its leases up at once if its kernel has gone as well, and else leaves them to time.
#[test]
fn a_kernel_that_lives_on_keeps_its_leases() {
    for is_gone in [false, true] {
        let cluster = cluster();
        let (lane, ear) = teller(&cluster);
        assert!(lane.valid_for(&root(&lane), AttrsBy::Question) > 0);
        if is_gone {
            lane.shared.borrow_mut().unmounted();
        }
        block_on(ear.give_up_leases());
        assert_eq!(cluster.borrow().shard.leases.held.is_empty(), is_gone);
    }
}

/// Goal: where one of several inodes cannot be dropped the others are, and it is tried again; nothing is confirmed before.
#[test]
fn what_cannot_be_dropped_stays_to_be_dropped() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    let attr = root(&lane);
    assert!(lane.valid_for(&attr, AttrsBy::Look) > 0);
    let now = Millis(cluster.borrow().now);
    {
        let kernel = &mut lane.shared.borrow_mut().kernel;
        kernel.looked(Ino(9));
        kernel.tells(Ino(9), ROOT, now.plus(T), now);
        kernel.drop_all_soon(ROOT, true);
    }
    (cluster.borrow_mut().unknown_drops, cluster.borrow_mut().cancelled) = (1, true);
    assert!(!block_on(ear.drop_told(METAD)));
    assert_eq!(drops(&cluster).iter().map(|(ino, _)| *ino).collect::<Vec<_>>(), [ROOT, Ino(9)]);
    assert!(!lane.shared.borrow_mut().kernel.is_clear(ShardId(0)));
    cluster.borrow_mut().cancelled = false;
    assert!(block_on(ear.drop_told(METAD)));
    assert_eq!(drops(&cluster).iter().map(|(ino, _)| *ino).collect::<Vec<_>>(), [ROOT]);
    assert!(lane.shared.borrow_mut().kernel.is_clear(ShardId(0)));
}

/// Goal: a program that was killed before its change was sent changes nothing, and what the kernel was told is dropped by somebody
/// else.
#[test]
fn a_killed_program_changes_nothing_that_is_told() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert!(lane.valid_for(&root(&lane), AttrsBy::Look) > 0);
    (cluster.borrow_mut().unknown_drops, cluster.borrow_mut().cancelled) = (1, true);
    let creates = cluster.borrow().count(Create::KIND);
    assert_eq!(block_on(make(&lane, b"f")).err(), Some(Errno::EINTR));
    assert_eq!(cluster.borrow().count(Create::KIND), creates);
    cluster.borrow_mut().cancelled = false;
    listens(&ear);
    assert_eq!(drops(&cluster).len(), 2);
    block_on(make(&lane, b"f")).unwrap();
}

/// Goal: a rename onto a name that is known as absent drops what it changes, and not all that the directory's lease covers.
#[test]
fn a_rename_onto_a_free_name_drops_little() {
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    block_on(make(&lane, b"from")).unwrap();
    block_on(lane.lookup(ROOT, b"from")).unwrap();
    block_on(lane.lookup(ROOT, b"to")).unwrap_err();
    let now = Millis(cluster.borrow().now);
    {
        let kernel = &mut lane.shared.borrow_mut().kernel;
        kernel.looked(Ino(99));
        kernel.tells(Ino(99), ROOT, now.plus(T), now);
    }
    let how = RenameHow { no_replace: false, exchange: false };
    block_on(lane.rename(ROOT, b"from", ROOT, b"to", how)).unwrap();
    assert!(drops(&cluster).iter().all(|(ino, _)| *ino != Ino(99)));
}

/// Goal: while one inode is not known the others are dropped, who hears goes on within a moment, and all is confirmed when that
/// one is; what has ended is cleaned in the pass that drops it.
#[test]
fn one_that_is_not_known_holds_up_no_other() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert!(lane.valid_for(&root(&lane), AttrsBy::Look) > 0);
    lane.shared.borrow_mut().all_lapses(false);
    cluster.borrow_mut().unknown_drops = 1_000;
    let begun = cluster.borrow().now;
    assert!(!block_on(ear.drop_told(METAD)));
    assert!(cluster.borrow().now - begun <= 2 * UNKNOWN_PATIENCE_MS);
    cluster.borrow_mut().unknown_drops = 0;
    assert!(block_on(ear.drop_told(METAD)));
    assert_eq!(lane.shared.borrow().leases.unclean().count(), 0);
}
