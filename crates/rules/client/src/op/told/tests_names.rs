//! Tests of names that the kernel may use without asking, over the fake cluster.

use crate::limits::{NAME_MS, STUCK_NAME_MS, VALIDITY_MARGIN_MS};
use crate::op::recalls::tests::{T, beside, cluster, holder_with, leased, listens, make};
use crate::state::{AttrsBy, Change, LeadsTo};
use crate::testing::{Cluster, FakeLane, METAD, block_on, mount, step};
use crate::{Dropped, Limits, NewNode, RenameHow, Valid};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::{Attr, Ino, Kind, Millis, Name, ShardId};
use skep_wire::Message;
use skep_wire::meta::{Event, GetAttr, Lookup, Recall, RecallKind, Recalled};

const ROOT: Ino = Ino::ROOT;
const MOVES: RenameHow = RenameHow { no_replace: false, exchange: false };

fn teller(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane) {
    holder_with(cluster, Limits { validity: true, names: true, ..leased() })
}

/// Makes a file and looks at its name: for how long the kernel may use that.
fn shown(lane: &FakeLane, name: &[u8]) -> u64 {
    if let Ok(file) = block_on(make(lane, name)) {
        block_on(lane.release(file.handle));
    }
    looked(lane, name).name
}

fn looked(lane: &FakeLane, name: &[u8]) -> Valid {
    let attr = block_on(lane.lookup(ROOT, name)).unwrap();
    lane.name_valid_for(ROOT, name, &attr, AttrsBy::Look)
}

fn dropped(cluster: &RefCell<Cluster>) -> Vec<Vec<u8>> {
    core::mem::take(&mut cluster.borrow_mut().name_drops)
}

fn make_dir(lane: &FakeLane, name: &[u8]) -> Attr {
    let new = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 1, gid: 2, rdev: 0 };
    block_on(lane.make_node(ROOT, name, new)).unwrap()
}

/// Somebody else renames a file, while `ear` listens.
fn renames(plain: &FakeLane, (from, to): (&[u8], &[u8]), ear: &FakeLane) {
    beside(plain.rename(ROOT, from, ROOT, to, MOVES), &[ear]).unwrap();
}

/// Goal: a name is valid for half a second, and no longer than the lease on its directory less the margin; not one that is known to lead
/// elsewhere, nor where the kernel cannot drop all names.
#[test]
fn names_are_valid_for_half_a_second() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    let attr = block_on(lane.lookup(ROOT, b"f")).unwrap();
    let other = Attr { ino: Ino(77), ..attr.clone() };
    assert_eq!(lane.name_valid_for(ROOT, b"f", &other, AttrsBy::Look).name, 0);
    assert_eq!(lane.name_valid_for(ROOT, b"g", &attr, AttrsBy::Look).name, 0, "not known");
    assert_eq!(lane.name_valid_for(ROOT, b"f", &attr, AttrsBy::Made).name, NAME_MS);
    listens(&ear);
    cluster.borrow_mut().now += T - VALIDITY_MARGIN_MS - 300;
    let left = lane.name_valid_for(ROOT, b"f", &attr, AttrsBy::Look).name;
    assert!((1..=300).contains(&left), "{left}");
    lane.shared.borrow_mut().limits.names = false;
    assert_eq!(lane.name_valid_for(ROOT, b"f", &attr, AttrsBy::Look).name, 0);
}

/// Goal: what others do to one name has the kernel drop that one, before it is confirmed, and none that it was not told; where the
/// kernel may look for it too early its time is waited for.
#[test]
fn a_recalled_name_is_dropped_first() {
    let cluster = cluster();
    let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
    assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
    let reports = cluster.borrow().count(Recalled::KIND);
    renames(&plain, (b"f", b"h"), &ear);
    assert!(cluster.borrow().count(Recalled::KIND) > reports);
    assert_eq!(dropped(&cluster), [b"f"]);
    assert_eq!((cluster.borrow().bumps, looked(&lane, b"g").name), (0, NAME_MS));
    renames(&plain, (b"h", b"i"), &ear);
    assert_eq!(dropped(&cluster), [b""; 0], "it was not told");
    for (is_hasty, least) in [(false, 0), (true, NAME_MS)] {
        let cluster = self::cluster();
        let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
        lane.shared.borrow_mut().limits.hasty_kernel = is_hasty;
        shown(&lane, b"f");
        cluster.borrow_mut().name_answers.push_back(Dropped::Unknown);
        let begun = cluster.borrow().now;
        renames(&plain, (b"f", b"j"), &ear);
        let took = cluster.borrow().now - begun;
        assert!((least..least + 1_000).contains(&took), "{is_hasty}: {took} ms");
    }
}

/// Goal: where the directory's lock is held all names go at once, and names are told for a moment only from then on; but little is
/// waited for, and so is all where something is mounted.
#[test]
fn a_name_that_is_held_takes_all_along() {
    for (has_mounts, wait, bumps) in [(false, 0, 1), (true, 0, 0), (false, NAME_MS + 200, 0)] {
        let cluster = cluster();
        let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
        assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
        listens(&ear);
        cluster.borrow_mut().now += wait;
        cluster.borrow_mut().has_mounts = has_mounts;
        cluster.borrow_mut().name_answers.extend([Dropped::Waits; 2]);
        let begun = cluster.borrow().now;
        renames(&plain, (b"f", b"h"), &ear);
        let names = dropped(&cluster);
        assert_eq!((cluster.borrow().bumps, names), (bumps, [b"f".to_vec()].into()));
        let (took, now) = (cluster.borrow().now - begun, Millis(cluster.borrow().now));
        assert_eq!(took > NAME_MS, has_mounts, "{took} ms");
        let names = &lane.shared.borrow().kernel.names;
        let (_, known, waits) = names.counts();
        assert_eq!((known as usize, waits as usize), (bumps, 1 - bumps));
        assert_eq!(names.uses(ROOT, b"g", now), bumps == 0);
    }
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    lane.shared.borrow_mut().kernel.names.sticks(ROOT, Millis(cluster.borrow().now));
    assert_eq!(shown(&lane, b"f"), STUCK_NAME_MS);
}

/// Goal: where somebody waits for the lease on a directory the names of files in it go; those of directories are waited for, for
/// somebody may be in them: so long nothing of this directory is said, and everything else is.
#[test]
fn names_go_with_the_lease_on_their_directory() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    make_dir(&lane, b"d");
    assert_eq!(looked(&lane, b"d").name, NAME_MS);
    lane.shared.borrow_mut().kernel.drop_all_soon(ROOT, true);
    assert!(block_on(ear.drop_told(METAD)));
    assert_eq!(dropped(&cluster), [b"f"]);
    let waits = |dir| lane.shared.borrow().kernel.waits_in(dir);
    assert!(waits(ROOT) && !waits(Ino(77)));
    let now = Millis(cluster.borrow().now);
    assert_eq!(lane.shared.borrow().names_wait_for(METAD, now), Some(NAME_MS + VALIDITY_MARGIN_MS));
    cluster.borrow_mut().now += NAME_MS + VALIDITY_MARGIN_MS;
    assert!(block_on(ear.drop_told(METAD)) && !waits(ROOT));
    assert_eq!((dropped(&cluster).len(), cluster.borrow().bumps), (0, 0));
}

/// Goal: a lease that is wanted back goes with what is recalled; but where names of directories, or all if something is mounted,
/// would have to be waited for, it is kept until they are over, and no more are told: nobody waits.
#[test]
fn a_lease_that_is_wanted_back_is_kept_while_names_would_be_waited_for() {
    for (with_dir, has_mounts) in [(false, false), (true, false), (false, true)] {
        let cluster = cluster();
        let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
        assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
        if with_dir {
            make_dir(&lane, b"d");
            assert_eq!(looked(&lane, b"d").name, NAME_MS);
        }
        cluster.borrow_mut().has_mounts = has_mounts;
        cluster.borrow_mut().shard.leases.wants_back = true;
        let begun = cluster.borrow().now;
        renames(&plain, (b"f", b"h"), &ear);
        let is_kept = with_dir || has_mounts;
        let is_held = || cluster.borrow().shard.leases.held.keys().any(|(_, ino)| *ino == ROOT);
        assert_eq!(is_held(), is_kept);
        assert_eq!(dropped(&cluster), if is_kept { [b"f"].as_slice() } else { &[b"f", b"g"] });
        assert_eq!(looked(&lane, b"h").name == 0, is_kept, "{with_dir} {has_mounts}");
        assert!(cluster.borrow().now - begun < 100, "nobody waited");
        if is_kept {
            cluster.borrow_mut().now += NAME_MS + VALIDITY_MARGIN_MS;
            listens(&ear);
            renames(&plain, (b"h", b"i"), &ear);
            assert_eq!((is_held(), cluster.borrow().bumps), (false, 0));
        }
    }
}

/// Goal: the name that changes goes, as it does without that, also when its time is just over and its lease is given back with it; and
/// what is kept under a lease that was lent since stays when the wish for the one before it is told once more.
#[test]
fn a_wish_takes_what_changes_and_no_later_lease() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
    let recall = cluster.borrow_mut().shard.leases.recall_all(1, ROOT);
    let Event::Recall(recall) = recall else { panic!("{recall:?}") };
    let name = Some(Name::new(b"f").unwrap());
    let recall = Recall { kind: RecallKind::Name, name, wants_back: Some(true), ..recall };
    listens(&ear);
    cluster.borrow_mut().now += NAME_MS + VALIDITY_MARGIN_MS;
    let hears = || lane.shared.borrow_mut().recalled(&recall, METAD, false, Millis(cluster.borrow().now));
    hears();
    assert!(!lane.shared.borrow().leases.has(ROOT));
    listens(&ear);
    assert_eq!(dropped(&cluster), [b"f"]);
    block_on(lane.lookup(ROOT, b"g")).unwrap();
    hears();
    let shared = lane.shared.borrow();
    assert!(shared.leases.has(ROOT) && !shared.kernel.is_leaving(ROOT));
    drop(shared);
    assert_eq!(looked(&lane, b"g").name, NAME_MS);
}

/// Goal: a lease that is given back takes no name along, and is given back when those are over.
#[test]
fn a_lease_is_given_back_when_names_are_over() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    {
        let shared = &mut lane.shared.borrow_mut();
        shared.kernel.drop_all_soon(ROOT, false);
        shared.leases.give_back(ROOT);
    }
    let held = || cluster.borrow().shard.leases.held.len();
    listens(&ear);
    assert_eq!((held(), dropped(&cluster).len()), (1, 0));
    let now = Millis(cluster.borrow().now);
    cluster.borrow_mut().now += lane.shared.borrow().names_wait_for(METAD, now).unwrap();
    assert!(cluster.borrow().now <= 2 * NAME_MS);
    listens(&ear);
    assert_eq!((held(), dropped(&cluster).len()), (0, 0));
}

/// Goal: whether somebody comes to wait for a lease that is being given back, or it is given back while somebody waits: names of
/// files go one by one, and nobody waits for their time.
#[test]
fn who_waits_for_a_lease_that_is_given_back_waits_for_no_name() {
    for is_asked_first in [false, true] {
        let cluster = cluster();
        let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
        assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
        if is_asked_first {
            let recall = cluster.borrow_mut().shard.leases.recall_all(1, ROOT);
            let Event::Recall(recall) = recall else { panic!("{recall:?}") };
            let recall = Recall { kind: RecallKind::Attributes, ..recall };
            let now = Millis(cluster.borrow().now);
            lane.shared.borrow_mut().recalled(&recall, METAD, false, now);
        }
        lane.shared.borrow_mut().give_back(ROOT);
        listens(&ear);
        let begun = cluster.borrow().now;
        if !is_asked_first {
            assert!(lane.shared.borrow().kernel.waits_in(ROOT) && dropped(&cluster).is_empty());
            renames(&plain, (b"f", b"h"), &ear);
        }
        assert!(!lane.shared.borrow().kernel.waits_in(ROOT) && cluster.borrow().now - begun < 100);
        let mut names = dropped(&cluster);
        names.sort();
        names.dedup();
        assert_eq!(names, [b"f", b"g"], "{is_asked_first}");
        assert!(!cluster.borrow().shard.leases.held.keys().any(|(_, ino)| *ino == ROOT));
    }
}

/// Goal: what is recalled of a lease that is held takes no other names along, though some in its directory go by time: else who goes
/// on recalling would have who waited first wait for names that were told later.
#[test]
fn names_of_a_lease_that_is_held_stay_though_others_go_by_time() {
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
    let recall = cluster.borrow_mut().shard.leases.recall_all(1, ROOT);
    let Event::Recall(recall) = recall else { panic!("{recall:?}") };
    let recall = Recall { kind: RecallKind::Attributes, ..recall };
    let (now, shared) = (Millis(cluster.borrow().now), &mut lane.shared.borrow_mut());
    shared.kernel.drop_all_soon(ROOT, false);
    assert!(shared.leases.has(ROOT) && shared.kernel.waits_in(ROOT));
    let until = shared.kernel.waits_until(ShardId(0));
    shared.recalled(&recall, METAD, false, now);
    assert_eq!(shared.kernel.waits_until(ShardId(0)), until);
}

/// Goal: after a lapse names are not dropped one by one, and nothing is said before they are over.
#[test]
fn a_lapse_waits_for_names() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    lane.shared.borrow_mut().all_lapses(false);
    assert!(block_on(ear.drop_told(METAD)) && dropped(&cluster).is_empty());
    let reports = |lane: &FakeLane| {
        let now = Millis(cluster.borrow().now);
        lane.shared.borrow_mut().take_lease_reports(METAD, now).len()
    };
    assert_eq!((reports(&lane), looked(&lane, b"f").name), (0, 0));
    cluster.borrow_mut().now += NAME_MS + VALIDITY_MARGIN_MS;
    assert_eq!((reports(&lane), dropped(&cluster).len()), (1, 0));
    assert_eq!(looked(&lane, b"f").name, NAME_MS);
}

/// Goal: a name that an own rename takes to where no lease is, or where another change of this mount may be made, the kernel is to
/// drop at once: nobody would say that it is another there. Others it keeps.
#[test]
fn a_name_goes_that_comes_to_where_no_lease_is() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    let dir = make_dir(&lane, b"d").ino;
    assert_eq!([shown(&lane, b"f"), shown(&lane, b"g")], [NAME_MS; 2]);
    assert!(lane.shared.borrow_mut().leases.believes(dir, Millis(cluster.borrow().now)).is_some());
    block_on(lane.rename(ROOT, b"f", dir, b"f", MOVES)).unwrap();
    assert!(dropped(&cluster).is_empty(), "a lease is on both");
    lane.shared.borrow_mut().leases.give_back(dir);
    listens(&ear);
    let begun = cluster.borrow().now;
    block_on(lane.rename(ROOT, b"g", dir, b"g2", MOVES)).unwrap();
    assert!(cluster.borrow().now - begun < 100 && dropped(&cluster).contains(&b"g2".to_vec()));
    assert_eq!(shown(&lane, b"h"), NAME_MS);
    let change = Change { names: [Some((ROOT, b"i".as_slice().into())), None], ..Change::default() };
    lane.shared.borrow_mut().leases.own.begins(&change);
    block_on(lane.rename(ROOT, b"h", ROOT, b"i", MOVES)).unwrap();
    assert!(dropped(&cluster).contains(&b"i".to_vec()));
}

/// Goal: a directory whose name the kernel used without asking is known when it is removed: who is in it goes on.
#[test]
fn a_directory_that_nobody_looked_up_is_known_when_it_goes() {
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    let made = make_dir(&lane, b"d");
    assert_eq!(looked(&lane, b"d").name, NAME_MS);
    // As by a listing.
    lane.shared.borrow_mut().ghosts.unseen(ROOT, b"d");
    block_on(lane.rename(ROOT, b"d", ROOT, b"e", MOVES)).unwrap();
    let asked = cluster.borrow().count(Lookup::KIND);
    block_on(lane.rmdir(ROOT, b"e")).unwrap();
    assert_eq!(cluster.borrow().count(Lookup::KIND), asked, "it is known by its new name");
    assert_eq!(block_on(lane.getattr(made.ino)).map(|attr| attr.nlink), Ok(0));
}

/// Goal: where the kernel has a name, and not the attributes of what it leads to, those are asked for by that name.
#[test]
fn attributes_are_asked_for_by_a_name_that_is_told() {
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    let ino = block_on(lane.lookup(ROOT, b"f")).unwrap().ino;
    lane.shared.borrow_mut().names.forget_attr(ino);
    let asked = |kind| cluster.borrow().count(kind);
    let before = (asked(Lookup::KIND), asked(GetAttr::KIND));
    assert_eq!(block_on(lane.getattr(ino)).unwrap().ino, ino);
    assert_eq!((asked(Lookup::KIND), asked(GetAttr::KIND)), (before.0 + 1, before.1));
    // Where the name leads elsewhere by now the inode is asked for.
    let other = block_on(make(&lane, b"g")).unwrap().attr.ino;
    let to = LeadsTo { ino: other, is_dir: false };
    block_on(lane.lookup(ROOT, b"g")).unwrap();
    let now = Millis(cluster.borrow().now);
    lane.shared.borrow_mut().kernel.names.tells((ROOT, b"f"), to, now.plus(T));
    lane.shared.borrow_mut().names.forget_attr(other);
    assert_eq!(block_on(lane.getattr(other)).unwrap().ino, other);
}

/// Goal: the kernel has a renamed name for as long as before, which is dropped when others change it.
#[test]
fn a_renamed_name_is_dropped() {
    let cluster = cluster();
    let ((lane, ear), plain) = (teller(&cluster), mount(&cluster));
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    block_on(lane.rename(ROOT, b"f", ROOT, b"g", MOVES)).unwrap();
    block_on(lane.lookup(ROOT, b"g")).unwrap();
    renames(&plain, (b"g", b"h"), &ear);
    assert_eq!(dropped(&cluster), [b"g"]);
}

/// Goal: what somebody has taken to have it dropped, and does not go on with, is dropped by the next.
#[test]
fn who_stops_leaves_the_rest_to_others() {
    let cluster = cluster();
    let (lane, ear) = teller(&cluster);
    assert_eq!(shown(&lane, b"f"), NAME_MS);
    lane.shared.borrow_mut().kernel.drop_all_soon(ROOT, true);
    {
        let mut drops = pin!(ear.drop_told(METAD));
        assert!(step(drops.as_mut()).is_pending());
    }
    assert!(!lane.shared.borrow_mut().kernel.is_clear(ShardId(0)));
    assert!(block_on(ear.drop_told(METAD)));
    assert!(lane.shared.borrow_mut().kernel.is_clear(ShardId(0)));
}
