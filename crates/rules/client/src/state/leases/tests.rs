//! Tests of the leases that a mount believes in.

use super::*;
use crate::limits::DOUBTS_MAX;
use alloc::vec;
use skep_wire::meta::{LeaseKind, LeaseTime, Recall, RecallKind};

const SHARD: ShardId = ShardId(3);
const NODE: NodeId = NodeId(1);
const T: u64 = 4_000;

fn ino(serial: u64) -> Ino {
    Ino::new(SHARD, serial)
}

fn source(life: u64, term: u64) -> Source {
    Source { node: NODE, life: Incarnation(life), shard: SHARD, term: Term(term) }
}

fn stamp(grants: &[(Ino, u64)], ended: u64) -> ShardStamp {
    let grant = |(ino, number): &(Ino, u64)| Grant { ino: *ino, kind: LeaseKind::Shared, number: *number };
    let mut stamp = ShardStamp::new(Term(1), LogIndex(1), LogIndex(1));
    stamp.grants = Some(grants.iter().map(grant).collect());
    stamp.renews = Some(LeaseTime { ms: T, ended });
    stamp
}

fn recall(ino: Ino, number: u64, kind: RecallKind) -> Recall {
    Recall { shard: SHARD, term: Term(1), number, ino, kind, name: None, entry: None, wants_back: None }
}

fn sends(leases: &mut Leases, now: u64) -> Sent {
    leases.sends(NODE, SHARD, Millis(now), true)
}

/// Asks and is answered at once.
fn asks(leases: &mut Leases, now: u64, grants: &[(Ino, u64)]) -> Told {
    let sent = sends(leases, now);
    let stamp = stamp(grants, 0);
    leases.answered(&source(1, 1), &sent, &stamp, Millis(now));
    leases.is_over(SHARD, &sent);
    Told::new(&source(1, 1), sent, &stamp)
}

fn believes(leases: &mut Leases, ino: Ino, now: u64) -> bool {
    leases.believes(ino, Millis(now)).is_some()
}

/// Goal: a lease holds from the question on that was renewed last, and not from its answer; when its time is over all of the
/// server are over, that is counted, and what was asked before brings none.
#[test]
fn time_counts_from_the_question() {
    let mut leases = Leases::default();
    let sent = sends(&mut leases, 100);
    leases.answered(&source(1, 1), &sent, &stamp(&[(ino(1), 1)], 0), Millis(3_000));
    assert!(believes(&mut leases, ino(1), 4_099));
    let late = sends(&mut leases, 4_000);
    assert_eq!((late.lapses, believes(&mut leases, ino(1), 4_100)), (0, false));
    leases.answered(&source(1, 1), &late, &stamp(&[(ino(2), 2)], 0), Millis(4_200));
    assert!(!believes(&mut leases, ino(2), 4_201) && !leases.holds(NODE));
    assert_eq!(sends(&mut leases, 4_300).lapses, 1);
    asks(&mut leases, 5_000, &[(ino(2), 3)]);
    asks(&mut leases, 8_000, &[]);
    assert!(believes(&mut leases, ino(2), 11_999) && !believes(&mut leases, ino(2), 12_000));
}

/// Goal: a lease whose answer came later than its own time is none, though others were renewed meanwhile: the server may have
/// gone on without it in between.
#[test]
fn a_lease_that_comes_too_late_is_none() {
    let mut leases = Leases::default();
    let first = sends(&mut leases, 0);
    let second = sends(&mut leases, 3_000);
    leases.answered(&source(1, 1), &second, &stamp(&[], 0), Millis(6_950));
    leases.answered(&source(1, 1), &first, &stamp(&[(ino(1), 1)], 0), Millis(6_960));
    assert!(!believes(&mut leases, ino(1), 6_961));
}

/// Goal: an answer that renews nothing gives nothing.
#[test]
fn an_old_server_gives_nothing() {
    let mut leases = Leases::default();
    let sent = sends(&mut leases, 0);
    let unrenewed = ShardStamp { renews: None, ..stamp(&[(ino(1), 1)], 0) };
    leases.answered(&source(1, 1), &sent, &unrenewed, Millis(1));
    assert!(!believes(&mut leases, ino(1), 2));
}

/// Goal: a grant that a recall has overtaken is not believed; one behind it is. A part that is recalled leaves the lease, but
/// no answer from before counts. What is kept of recalls goes with the requests that it is kept for.
#[test]
fn recalls_overtake_grants() {
    let mut leases = Leases::default();
    let (slow, slower) = (sends(&mut leases, 0), sends(&mut leases, 0));
    let recalled = leases.recalled(&recall(ino(1), 5, RecallKind::Everything), false, NODE);
    assert_eq!(recalled, TakenBack::All);
    leases.answered(&source(1, 1), &slow, &stamp(&[(ino(1), 4)], 0), Millis(1));
    assert!(!believes(&mut leases, ino(1), 1));
    leases.is_over(SHARD, &slow);
    let told = asks(&mut leases, 1, &[(ino(1), 6)]);
    assert!(leases.keeps(ino(1), &told, Millis(1)).is_some());
    assert_eq!(leases.shards[&SHARD].recalled.len(), 1, "another one is on its way");
    leases.is_over(SHARD, &slower);
    assert!(leases.shards[&SHARD].recalled.is_empty());
    assert_eq!(leases.recalled(&recall(ino(1), 7, RecallKind::Name), false, NODE), TakenBack::Part);
    assert!(believes(&mut leases, ino(1), 2));
    assert!(leases.keeps(ino(1), &told, Millis(2)).is_none(), "it may be what was recalled");
    let told = asks(&mut leases, 2, &[(ino(1), 8)]);
    assert!(leases.keeps(ino(1), &told, Millis(2)).is_some());
    leases.recalled(&recall(ino(1), 9, RecallKind::Everything), false, NODE);
    asks(&mut leases, 3, &[(ino(1), 10)]);
    assert!(leases.keeps(ino(1), &told, Millis(3)).is_none(), "of a lease that has ended");
    let [(shard, report)] = leases.take_reports(NODE, |_, _| true, |_| false).try_into().unwrap();
    assert_eq!((shard, &report.confirmed[..], report.anew), (SHARD, &[5, 7, 9][..], Some(true)));
    leases.report_again(SHARD, report.clone());
    assert_eq!(leases.take_reports(NODE, |_, _| true, |_| false), [(SHARD, report)]);
    assert_eq!(leases.take_reports(NODE, |_, _| true, |_| false), []);
}

/// Goal: a grant that is refused because a recall of a part overtook it is given back with the rest of its lease; and one that was
/// lent behind a recall of everything stays when that is told once more.
#[test]
fn what_is_refused_is_given_back_with_the_rest() {
    let mut leases = Leases::default();
    asks(&mut leases, 0, &[(ino(1), 1)]);
    let slow = sends(&mut leases, 0);
    leases.recalled(&recall(ino(1), 3, RecallKind::Name), false, NODE);
    leases.answered(&source(1, 1), &slow, &stamp(&[(ino(1), 2)], 0), Millis(1));
    leases.is_over(SHARD, &slow);
    leases.give_back(ino(1));
    let [(_, report)] = leases.take_reports(NODE, |_, _| true, |_| false).try_into().unwrap();
    assert_eq!(report.back, [(ino(1), 2)]);
    asks(&mut leases, 2, &[(ino(1), 4)]);
    let everything = recall(ino(1), 5, RecallKind::Everything);
    leases.recalled(&everything, false, NODE);
    asks(&mut leases, 3, &[(ino(1), 6)]);
    leases.recalled(&everything, false, NODE);
    assert!(believes(&mut leases, ino(1), 3));
    // The same of one that is wanted back.
    let wanted = Recall { wants_back: Some(true), ..recall(ino(1), 7, RecallKind::Name) };
    assert_eq!(leases.recalled(&wanted, true, NODE), TakenBack::All);
    assert!(!believes(&mut leases, ino(1), 3));
    asks(&mut leases, 4, &[(ino(1), 8)]);
    assert_eq!(leases.recalled(&wanted, true, NODE), TakenBack::Part);
    assert!(believes(&mut leases, ino(1), 4));
    // One that is kept counts once.
    let wanted = Recall { wants_back: Some(true), ..recall(ino(1), 9, RecallKind::Name) };
    assert_eq!([(); 2].map(|()| leases.recalled(&wanted, false, NODE)), [TakenBack::Kept; 2]);
    assert_eq!((leases.counts.given_back, leases.counts.kept), (1, 1));
}

/// Goal: too many recalls beside a request that hangs refuse all older grants to what was asked before, and none to others.
#[test]
fn recalls_are_bounded() {
    let mut leases = Leases::default();
    let slow = sends(&mut leases, 0);
    for number in 1..=RECALLS_KEPT_MAX as u64 + 1 {
        leases.recalled(&recall(ino(number), 1_000 + number, RecallKind::Everything), false, NODE);
    }
    assert!(leases.shards[&SHARD].recalled.is_empty() && leases.shards[&SHARD].order.is_empty());
    leases.answered(&source(1, 1), &slow, &stamp(&[(ino(7), 1_003), (ino(8), 9_000)], 0), Millis(1));
    assert!(!believes(&mut leases, ino(7), 1) && believes(&mut leases, ino(8), 1));
    asks(&mut leases, 1, &[(ino(9), 9_001)]);
    leases.is_over(SHARD, &slow);
    assert_eq!(leases.shards[&SHARD].floor, (0, 0));
}

/// Goal: a new term ends the leases of its shard, a new life those of its server, and so does the end of another shard's term
/// there; a term that is news is told that nothing of those before is used. What comes of an ended one is nothing.
#[test]
fn terms_and_lives_end_leases() {
    let mut leases = Leases::default();
    let other = Source { shard: ShardId(4), ..source(1, 1) };
    let there = Ino::new(ShardId(4), 1);
    let hold = |leases: &mut Leases, number| {
        asks(leases, 10, &[(ino(1), number)]);
        let sent = leases.sends(NODE, ShardId(4), Millis(10), true);
        leases.answered(&other, &sent, &stamp(&[(there, number)], 0), Millis(10));
        assert!(believes(leases, ino(1), 10) && believes(leases, there, 10));
    };
    hold(&mut leases, 1);
    leases.take_reports(NODE, |_, _| true, |_| false);
    assert!(leases.term_is(SHARD, Term(2), NODE));
    assert!(!believes(&mut leases, ino(1), 11) && believes(&mut leases, there, 11));
    let [(SHARD, report)] = &leases.take_reports(NODE, |_, _| true, |_| false)[..] else { panic!() };
    assert_eq!((report.term, report.anew), (Term(2), Some(true)));
    let recalled = leases.recalled(&recall(ino(1), 9, RecallKind::Everything), false, NODE);
    assert_eq!(recalled, TakenBack::Nothing, "of the term before");
    assert_eq!(sends(&mut leases, 11).lapses, 0, "the others go on");

    let mut leases = Leases::default();
    hold(&mut leases, 1);
    let sent = sends(&mut leases, 12);
    leases.answered(&source(1, 1), &sent, &stamp(&[(ino(2), 2)], 1), Millis(12));
    assert!(!believes(&mut leases, there, 12) && !believes(&mut leases, ino(2), 12));
    let sent = sends(&mut leases, 13);
    assert_eq!(sent.lapses, 1);
    leases.answered(&source(1, 1), &sent, &stamp(&[(ino(2), 3)], 1), Millis(13));
    assert!(believes(&mut leases, ino(2), 13));

    let sent = sends(&mut leases, 14);
    leases.answered(&source(2, 1), &sent, &stamp(&[(ino(2), 3)], 0), Millis(14));
    assert!(!believes(&mut leases, ino(2), 14));
    let sent = sends(&mut leases, 15);
    leases.answered(&source(1, 1), &sent, &stamp(&[(ino(2), 4)], 1), Millis(15));
    assert!(!believes(&mut leases, ino(2), 15), "a life that has ended");
}

/// Goal: what is given back is used no longer, and an older grant that is on its way brings nothing; a session that ends ends
/// all.
#[test]
fn leases_are_given_back() {
    let mut leases = Leases::default();
    asks(&mut leases, 1, &[(ino(1), 3), (ino(2), 4)]);
    leases.take_reports(NODE, |_, _| true, |_| false);
    let slow = sends(&mut leases, 1);
    leases.give_back(ino(1));
    leases.answered(&source(1, 1), &slow, &stamp(&[(ino(1), 2)], 0), Millis(1));
    assert!(!believes(&mut leases, ino(1), 1) && believes(&mut leases, ino(2), 1));
    let [(_, report)] = leases.take_reports(NODE, |_, _| true, |_| false).try_into().unwrap();
    assert_eq!((report.back, report.confirmed, report.anew), (vec![(ino(1), 3), (ino(1), 2)], vec![], None));
    asks(&mut leases, 1, &[(ino(1), 5)]);
    assert!(believes(&mut leases, ino(1), 1));
    leases.session_ended();
    assert!(!believes(&mut leases, ino(1), 1) && !believes(&mut leases, ino(2), 1));
    assert!(leases.nodes().is_empty());
    assert_eq!(sends(&mut leases, 2).lapses, 1);
}

/// Goal: an answer from before a change of this mount was answered is not kept, of what the change concerns. A change that was
/// given up may come at any moment, until the lane's next one has been answered.
#[test]
fn own_changes_count() {
    let mut leases = Leases::default();
    let (lane, there) = ((Slot(1), SHARD), Ino::new(ShardId(SHARD.0 + 1), 1));
    let names = || [Some((ino(1), (*b"n").into())), None];
    let change = || Change { inos: [Some(ino(1)), None], names: names(), ..Change::default() };
    let keeps = |leases: &mut Leases, told: &Told| leases.keeps(ino(1), told, Millis(1)).is_some();
    let before = asks(&mut leases, 1, &[(ino(1), 1)]);
    assert!(keeps(&mut leases, &before));
    leases.own.begins(&change());
    let beside = asks(&mut leases, 1, &[(ino(1), 2)]);
    assert!(!keeps(&mut leases, &beside) && leases.keeps_own(ino(1), &beside, Millis(1)).is_some());
    assert!(!leases.own.is_free(ino(1)) && !leases.own.is_name_free(ino(1), b"n"));
    assert!(leases.own.is_name_free(ino(1), b"m") && leases.own.is_free(ino(2)));
    leases.changed(lane, change(), Became::Settled);
    assert!(!keeps(&mut leases, &before) && !keeps(&mut leases, &beside));
    assert!(leases.own.is_free(ino(1)) && leases.own.is_name_free(ino(1), b"n"));
    let behind = asks(&mut leases, 1, &[(ino(1), 3)]);
    assert!(keeps(&mut leases, &behind));
    for _ in 0..2 {
        leases.own.begins(&change());
        leases.changed(lane, change(), Became::InDoubt);
    }
    let behind = asks(&mut leases, 1, &[(ino(1), 4)]);
    assert!(!keeps(&mut leases, &behind) && !leases.own.is_name_free(ino(1), b"n"));
    leases.own.begins(&Change::default());
    leases.changed(lane, Change::default(), Became::Over);
    assert!(!leases.own.is_name_free(ino(1), b"n"), "that one was never sent");
    leases.own.begins(&Change::default());
    leases.changed(lane, Change::default(), Became::Settled);
    let behind = asks(&mut leases, 1, &[(ino(1), 5)]);
    assert!(keeps(&mut leases, &behind) && leases.own.is_name_free(ino(1), b"n"));
    leases.own.begins(&change());
    leases.changed(lane, change(), Became::InDoubt);
    leases.session_ended();
    assert!(leases.own.is_free(ino(1)));
    let some_dir = || Change { found: [Some(there), None], some_dir_of: Some(SHARD), ..Change::default() };
    leases.own.begins(&some_dir());
    assert!(![ino(1), ino(2), there].iter().any(|ino| leases.own.is_free(*ino)), "nobody knows which");
    let beside = asks(&mut leases, 1, &[(ino(1), 6)]);
    leases.changed(lane, some_dir(), Became::Settled);
    assert!(!keeps(&mut leases, &beside) && leases.own.is_free(ino(1)) && leases.own.is_free(there));
    let behind = asks(&mut leases, 1, &[(ino(1), 7)]);
    assert!(keeps(&mut leases, &behind));
}

/// Goal: of a lane that gives up one change after another so many are remembered; with one more anything of their shards may
/// still change, until one of that lane is answered there, or the session ends. What was asked meanwhile is not kept.
#[test]
fn doubts_are_bounded() {
    let (lane, beside, there) = ((Slot(1), SHARD), (Slot(2), SHARD), ShardId(SHARD.0 + 1));
    let change = |serial: u64, dir: Ino| Change {
        inos: [Some(ino(serial)), None],
        names: [Some((dir, (*b"n").into())), None],
        ..Change::default()
    };
    for ends in [Leases::session_ended, |leases: &mut Leases| {
        leases.own.begins(&Change::default());
        leases.changed((Slot(1), SHARD), Change::default(), Became::Settled);
    }] {
        let mut leases = Leases::default();
        let give_up = |leases: &mut Leases, lane, change: Change| {
            leases.own.begins(&change);
            leases.changed(lane, change, Became::InDoubt);
        };
        let is_free =
            |leases: &Leases, ino: Ino| leases.own.is_free(ino) && leases.own.is_name_free(ino, b"m");
        give_up(&mut leases, beside, change(9_000, ino(9_000)));
        (0..DOUBTS_MAX as u64).for_each(|serial| give_up(&mut leases, lane, change(serial, ino(serial))));
        assert!(is_free(&leases, ino(8_000)) && !is_free(&leases, ino(5)));
        assert_eq!(leases.own.doubts(), DOUBTS_MAX + 1);
        for serial in 100..2_000 {
            give_up(&mut leases, lane, change(serial, Ino::new(there, serial)));
            assert!(![ino(5), ino(8_000), Ino::new(there, 8_000)].iter().any(|ino| is_free(&leases, *ino)));
            assert!(is_free(&leases, Ino::new(ShardId(9), 1)) && leases.own.doubts() <= DOUBTS_MAX + 1);
        }
        let meanwhile = asks(&mut leases, 1, &[(ino(5), 1)]);
        ends(&mut leases);
        assert!([ino(5), ino(8_000), Ino::new(there, 8_000)].iter().all(|ino| is_free(&leases, *ino)));
        assert!(leases.keeps(ino(5), &meanwhile, Millis(1)).is_none());
        let behind = asks(&mut leases, 1, &[(ino(5), 2)]);
        assert!(leases.keeps(ino(5), &behind, Millis(1)).is_some());
        assert_eq!(is_free(&leases, ino(9_000)), leases.own.doubts() == 0, "of another lane");
    }
}

/// Goal: a server that renews nothing has perhaps passed this mount over, for a lease of which the mount never heard: it is told
/// that all has lapsed, once in a while, and is believed again when it renews.
#[test]
fn a_server_that_renews_nothing_is_asked_to_begin_anew() {
    let mut leases = Leases::default();
    let silent = ShardStamp::new(Term(1), LogIndex(1), LogIndex(1));
    let answer = |leases: &mut Leases, sent: &Sent, stamp: &ShardStamp, now| {
        leases.answered(&source(1, 1), sent, stamp, Millis(now));
        leases.is_over(SHARD, sent);
    };
    let (first, second) = (sends(&mut leases, 5_000), sends(&mut leases, 5_000));
    answer(&mut leases, &first, &silent, 5_010);
    answer(&mut leases, &second, &silent, 5_020);
    let third = sends(&mut leases, 5_030);
    assert_eq!((second.lapses, third.lapses), (0, 1), "what was asked before says nothing");
    answer(&mut leases, &third, &silent, 5_040);
    assert_eq!(sends(&mut leases, 5_050).lapses, 1, "not with each answer");
    asks(&mut leases, 5_060, &[(ino(1), 9)]);
    assert!(believes(&mut leases, ino(1), 5_070));
    let late = sends(&mut leases, 6_100);
    answer(&mut leases, &late, &silent, 6_110);
    assert!(!believes(&mut leases, ino(1), 6_120));
    assert_eq!(sends(&mut leases, 6_130).lapses, 2);
}

/// Goal: a grant that is not believed is given back, be it too old or too late, and so is what a shard takes back that is not
/// held: it would have others wait. What is held by a newer grant stays.
#[test]
fn what_is_not_believed_is_given_back() {
    let back = |leases: &mut Leases| {
        let reports = leases.take_reports(NODE, |_, _| true, |_| false);
        reports.into_iter().flat_map(|(_, report)| report.back).collect::<Vec<_>>()
    };
    let mut leases = Leases::default();
    let (slow, slower) = (sends(&mut leases, 0), sends(&mut leases, 0));
    leases.recalled(&recall(ino(1), 5, RecallKind::Name), false, NODE);
    assert_eq!(back(&mut leases), [(ino(1), 5)]);
    leases.take_news();
    leases.answered(&source(1, 1), &slow, &stamp(&[(ino(1), 4), (ino(2), 3)], 0), Millis(1));
    assert!(leases.take_news());
    assert_eq!(back(&mut leases), [(ino(1), 4)]);
    leases.recalled(&recall(ino(2), 6, RecallKind::Name), false, NODE);
    assert_eq!(back(&mut leases), [], "it is held");
    asks(&mut leases, 3_900, &[]);
    leases.answered(&source(1, 1), &slower, &stamp(&[(ino(3), 7)], 0), Millis(4_050));
    assert!(!believes(&mut leases, ino(3), 4_050) && believes(&mut leases, ino(2), 4_050));
    assert_eq!(back(&mut leases), [(ino(3), 7)]);
}

/// Goal: when the answer to a wish was lost the mount goes on hearing while it holds something, and says that all has lapsed as
/// soon as it holds nothing; once.
#[test]
fn what_was_lost_ends_with_the_last_lease() {
    for ends in [
        |leases: &mut Leases| {
            leases.recalled(&recall(ino(1), 5, RecallKind::Everything), false, NODE);
        },
        |leases: &mut Leases| leases.give_back(ino(1)),
    ] {
        let mut leases = Leases::default();
        asks(&mut leases, 1, &[(ino(1), 1)]);
        let (lost, silent) = (sends(&mut leases, 2), leases.sends(NODE, SHARD, Millis(2), false));
        leases.is_lost(NODE, &silent);
        leases.is_lost(NODE, &lost);
        assert!(believes(&mut leases, ino(1), 3) && leases.asks(NODE) && !leases.asks_once(NODE));
        ends(&mut leases);
        assert!(leases.asks_once(NODE));
        let asked = leases.sends(NODE, SHARD, Millis(3), false);
        assert_eq!(asked.lapses, 1);
        leases.heard(NODE, &lost, true);
        assert!(leases.asks(NODE), "that was asked before");
        leases.heard(NODE, &asked, true);
        assert!(!leases.asks(NODE));
        leases.is_lost(NODE, &lost);
        assert_eq!(sends(&mut leases, 4).lapses, 1, "that one counts no more");
    }
}

/// Goal: whatever ends all leases of a server has one of its shards hear of it, and the server asked for events once, if it
/// lends; one that lends nothing is not asked. A mount that ends asks nobody.
#[test]
fn shards_hear_of_each_lapse() {
    let holds = || {
        let mut leases = Leases::default();
        asks(&mut leases, 1, &[(ino(1), 1)]);
        leases.take_reports(NODE, |_, _| true, |_| false);
        leases.take_news();
        leases
    };
    for ends in [
        |leases: &mut Leases| leases.forget_shard(SHARD),
        |leases: &mut Leases| leases.all_lapse(false),
        |leases: &mut Leases| assert_eq!(leases.believes(ino(1), Millis(9_000)), None),
    ] {
        let mut leases = holds();
        ends(&mut leases);
        assert!(leases.asks_once(NODE) && leases.take_news());
        let [(SHARD, report)] = &leases.take_reports(NODE, |_, _| true, |_| false)[..] else { panic!() };
        assert_eq!(report.anew, Some(true));
    }
    let mut leases = holds();
    leases.all_lapse(true);
    assert!(!leases.asks(NODE) && leases.reports().count() == 1);
    let mut leases = Leases::default();
    let unrenewed = ShardStamp::new(Term(1), LogIndex(1), LogIndex(1));
    for now in [5_000, 7_000, 9_000] {
        let sent = sends(&mut leases, now);
        leases.answered(&source(1, 1), &sent, &unrenewed, Millis(now));
    }
    assert!(!leases.asks(NODE));
}

/// Goal: nothing is wished for where the last question for events failed.
#[test]
fn who_hears_nothing_wishes_for_nothing() {
    let mut leases = Leases::default();
    let first = sends(&mut leases, 1);
    leases.heard(NODE, &first, false);
    assert!(leases.asks(NODE) && leases.take_news() && first.wishes && !sends(&mut leases, 2).wishes);
    assert!(leases.sends(NodeId(2), ShardId(4), Millis(2), true).wishes, "of another one");
    leases.heard(NODE, &first, true);
    assert!(!leases.asks(NODE) && sends(&mut leases, 2).wishes);
}
