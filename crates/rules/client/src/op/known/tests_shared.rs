//! What is kept of answers, and what is told by it, step by step.

use crate::Limits;
use crate::op::recalls::tests::{T, leased};
use crate::state::{Became, Before, Change, Part, Shared, Source, Told};
use crate::testing::{METAD, attr};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use skep_types::{Attr, Incarnation, Ino, Kind, LogIndex, Millis, ShardId, Slot, Term};
use skep_wire::meta::{Grant, LeaseKind, LeaseTime, List, Recall, RecallKind, ShardStamp};

const NOW: Millis = Millis(1);

/// An answer as of `index` that lends directory 2, and says it has these attributes.
fn lends(shared: &mut Shared, number: u64, index: u64, touched: &[Attr]) -> Told {
    let from = Source { node: METAD, life: Incarnation(1), shard: ShardId(0), term: Term(1) };
    let grant = Grant { ino: Ino(2), kind: LeaseKind::Shared, number };
    let stamp = ShardStamp {
        grants: Some(vec![grant]),
        renews: Some(LeaseTime { ms: T, ended: 0 }),
        touched: Some(touched.to_vec()),
        ..ShardStamp::new(Term(1), LogIndex(index), LogIndex(1))
    };
    let sent = shared.leases.sends(METAD, ShardId(0), NOW, true);
    shared.leases.answered(&from, &sent, &stamp, NOW);
    shared.leases.is_over(ShardId(0), &sent);
    Told::new(&from, sent, &stamp)
}

fn dir(change: u64) -> Attr {
    Attr { kind: Kind::Dir, ..attr(2, change, 0) }
}

/// Goal: what went for want of room lost its lease, and what was learned of it in between goes as well: nobody would have been
/// told of its changes.
#[test]
fn what_lost_its_lease_is_not_known() {
    let mut shared = Shared::new(Limits { cache_bytes: 4_000, ..leased() });
    let told = lends(&mut shared, 1, 1, &[]);
    shared.learn_attr(&dir(1), &told, NOW);
    assert_eq!(shared.known_attr(Ino(2), NOW), Some(dir(1)));
    let era = shared.leases.era(ShardId(0));
    for number in 3..60 {
        shared.names.put_name((Ino(number), era), b"n", None, LogIndex(1));
    }
    assert_eq!(shared.known_attr(Ino(2), NOW), None);
    let told = lends(&mut shared, 2, 1, &[]);
    shared.learn_attr(&dir(1), &told, NOW);
    lends(&mut shared, 3, 1, &[]);
    assert!(shared.leases.believes(Ino(2), NOW).is_some());
    assert_eq!(shared.known_attr(Ino(2), NOW), None);
}

/// Goal: a lease under which nothing is kept is given back; one of which something is kept stays.
#[test]
fn what_is_not_kept_is_given_back() {
    let mut shared = Shared::new(leased());
    lends(&mut shared, 1, 1, &[]);
    shared.give_back_unkept(METAD);
    assert_eq!(shared.leases.believes(Ino(2), NOW), None);
    let reports = shared.leases.take_reports(METAD, |_, _| true, |_| false);
    assert!(reports.iter().any(|(_, report)| report.back == [(Ino(2), 1)]), "{reports:?}");
    let told = lends(&mut shared, 2, 1, &[]);
    shared.learn_attr(&dir(1), &told, NOW);
    shared.give_back_unkept(METAD);
    assert_eq!(shared.known_attr(Ino(2), NOW), Some(dir(1)));
    // All of a shard at once is said by a lapse.
    let lapses = |shared: &mut Shared| shared.leases.sends(METAD, ShardId(0), NOW, true).lapses;
    let before = lapses(&mut shared);
    shared.forget_leased(ShardId(0));
    assert_eq!((lapses(&mut shared), shared.known_attr(Ino(2), NOW)), (before + 1, None));
}

/// Goal: when somebody else changes a directory, what its `..` leads to and its ACL are asked for; its names are not.
#[test]
fn attributes_taken_back_are_a_listing_and_an_acl() {
    let mut shared = Shared::new(leased());
    let told = lends(&mut shared, 1, 1, &[]);
    shared.learn_attr(&dir(5), &told, NOW);
    let place = (Ino(2), shared.leases.era(ShardId(0)));
    let part = Part { lines: Vec::new(), end: true, parent: Ino(1) };
    shared.names.listed(place, Before::default(), LogIndex(1), (0, part));
    let list = List { dir: Ino(2), after: 0, max: 10, with_attr: false, as_told: None };
    assert!(shared.known_part(&list, NOW).is_some());
    let _ = shared.acls.ask(Ino(2), NOW);
    shared.acls.seen(Ino(2), 5, NOW);
    shared.acls.got(Ino(2), 5, None);
    shared.acls.seen(Ino(2), 5, NOW);
    let recall = Recall {
        shard: ShardId(0),
        term: Term(1),
        number: 2,
        ino: Ino(2),
        kind: RecallKind::Attributes,
        name: None,
        entry: None,
        wants_back: None,
    };
    shared.recalled(&recall, METAD, false, NOW);
    assert_eq!((shared.known_part(&list, NOW), shared.known_attr(Ino(2), NOW)), (None, None));
    assert_eq!(shared.known_entry(Ino(2), b"absent", NOW), Some(None));
    assert!(shared.acls.ask(Ino(2), NOW).is_err());
}

/// Goal: of two changes of this mount the older one's answer, which comes later, says nothing of a directory that the other
/// has changed, or taken elsewhere.
#[test]
fn a_late_answer_of_an_older_change_says_nothing() {
    let lane = (Slot(1), ShardId(0));
    for is_moved in [false, true] {
        let mut shared = Shared::new(leased());
        let told = lends(&mut shared, 1, 1, &[]);
        shared.learn_attr(&dir(1), &told, NOW);
        let name: Box<[u8]> = Box::from(&b"f"[..]);
        let mut older = Change {
            inos: [Some(Ino(2)), None],
            names: [Some((Ino(2), name.clone())), None],
            ..Change::default()
        };
        let mut newer = match is_moved {
            false => Change { inos: [Some(Ino(2)), None], ..Change::default() },
            true => Change {
                inos: [Some(Ino::ROOT), None],
                names: [Some((Ino::ROOT, name)), None],
                ..Change::default()
            },
        };
        shared.own_change_begins(&mut older, false, NOW);
        shared.own_change_begins(&mut newer, false, NOW);
        newer.found = [Some(Ino(2)).filter(|_| is_moved), None];
        shared.own_change_ended(&newer, Some(LogIndex(11)));
        if is_moved {
            shared.forget_moved(Ino(2));
        } else {
            shared.leases.changed(lane, newer, Became::Settled);
        }
        let told = lends(&mut shared, 2, 10, &[dir(10)]);
        shared.own_change_ended(&older, Some(LogIndex(10)));
        shared.leases.changed(lane, older, Became::Settled);
        shared.touched([Some(Ino(2)), None], &told, NOW);
        assert!(shared.leases.believes(Ino(2), NOW).is_some());
        assert_eq!(shared.known_attr(Ino(2), NOW), None);
    }
}
