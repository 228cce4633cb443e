//! Targets refuse what comes in a term that is over.

use super::*;
use crate::key::Table;
use crate::store::{MemoryStore, Store};
use alloc::vec::Vec;
use skep_wire::mgmt::MapReply;
use skep_wire::storage::ShardTerm;

fn trims(bed: &mut Bed) -> Vec<Task> {
    let all = core::mem::take(&mut bed.tasks);
    all.into_iter().filter(|task| matches!(task.job, Job::Trim { .. })).collect()
}

fn refuse(bed: &mut Bed, task: &Task, term: Option<Term>) {
    let why = "a later term".into();
    bed.step(Input::Courier { task: task.id, result: Ok(JobReply::Deposed { term, why }) });
}

fn by(ino: Ino, term: Term) -> impl Fn(&Task) -> bool {
    move |task| task.by == ShardTerm { shard: ino.shard(), term }
}

fn counter(bed: &mut Bed, name: &str) -> u64 {
    let counters = bed.admin(GroupStats {}).unwrap().counters;
    counters.into_iter().find(|counter| counter.name == name).unwrap().value
}

/// Goal: every message to a target says in which term of which shard it is sent. What a target refuses because it has
/// heard of a later term is not repeated in this one, and one warning says so, however many are refused. The map still gives
/// the shard to this server: a term behind the one that the target named begins, and all of it is sent again in that.
#[test]
fn a_shard_goes_on_behind_a_later_term() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 64 << 20);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.tasks.clear();
    let term = bed.term();
    let waits = bed.truncate_later(ino, 100);
    let sent = trims(&mut bed);
    assert_eq!(sent.len(), layout.chunks().count());
    assert!(sent.len() > 1 && sent.iter().all(by(ino, term)));
    bed.warnings.clear();
    let heard = Term(term.0 + (3 << 32));
    let before_that = bed.now;
    for task in &sent {
        refuse(&mut bed, task, Some(heard));
    }
    assert!(bed.wants_map, "another server may have the shard");
    assert_eq!(bed.warnings.len(), 1, "{:?}", bed.warnings);
    assert!(bed.warnings[0].contains("a later term"), "{:?}", bed.warnings);
    let before = (trims(&mut bed), bed.term(), bed.reply::<Empty>(waits));
    assert_eq!(before, (vec![], term, None), "it waits for the map");
    assert_eq!(
        (counter(&mut bed, "old_terms"), counter(&mut bed, "errands")),
        (sent.len() as u64, sent.len() as u64)
    );
    bed.tick(crate::limit::RETRY_LAST_MS);
    bed.step(Input::Vouched(before_that));
    bed.tick(0);
    assert_eq!(bed.term(), term, "mgmtd has said nothing since: another process may have its place");
    bed.step(Input::Vouched(bed.now));
    bed.tick(0);
    let next = bed.term();
    assert!(next > heard);
    assert_eq!(bed.reply::<Empty>(waits), Some(Err(Status::NOT_READY)), "who waits asks again");
    let again = trims(&mut bed);
    assert!(again.len() == sent.len() && again.iter().all(by(ino, next)));
    // What was sent in the old term concerns nobody any more.
    refuse(&mut bed, &sent[0], Some(Term(next.0 + 1)));
    assert_eq!(bed.warnings.len(), 1);
    for task in again {
        bed.step(Input::Courier { task: task.id, result: Ok(JobReply::Trimmed(0)) });
    }
    assert_eq!(bed.server.store().get(&crate::key::of_ino(Table::Trim, ino)).unwrap(), None);
    bed.check();
}

/// Goal: two servers that both take a shard for theirs end each other's terms ever more seldom, not as fast as messages go;
/// a target that does not say which term it has heard of is met in few steps; one that names a term that cannot be is not
/// followed.
#[test]
fn later_terms_are_followed_with_pauses() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 1);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.tasks.clear();
    bed.truncate_later(ino, 100);
    let far = Term(bed.term().0 + (1 << 20));
    let mut pauses = vec![];
    while bed.term() <= far {
        let (sent, before, since) = (trims(&mut bed), bed.term(), bed.now);
        refuse(&mut bed, &sent[0], None);
        while bed.term() == before {
            bed.step(Input::Vouched(bed.now));
            bed.tick(50);
        }
        pauses.push(bed.now.since(since));
    }
    let longest = pauses.last().copied().unwrap_or(0);
    assert!(pauses.len() < 30 && pauses[0] < 1_000 && longest >= crate::limit::RETRY_LAST_MS, "{pauses:?}");
    let sent = trims(&mut bed);
    let term = bed.term();
    refuse(&mut bed, &sent[0], Some(Term(u64::MAX)));
    bed.tick(3_600_000);
    assert_eq!(bed.term(), term);
}

/// Goal: a shard that a target refuses, and that the map gives to another server by then, begins no term.
#[test]
fn a_shard_of_another_server_is_given_up() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 1);
    bed.courier_works = false;
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.tasks.clear();
    bed.truncate_later(ino, 100);
    let (sent, term) = (trims(&mut bed), bed.term());
    refuse(&mut bed, &sent[0], Some(Term(term.0 + 1)));
    let mut away = MapReply { version: MapVersion(7), ..map(1, 5) };
    away.shards[0].leader = NodeId(9);
    bed.step(Input::Map { own: OWN, map: away });
    bed.tick(600_000);
    assert_eq!((trims(&mut bed), bed.term()), (vec![], term));
    bed.step(Input::Map { own: OWN, map: MapReply { version: MapVersion(8), ..map(1, 5) } });
    assert!(bed.term().0 > term.0 + 1, "the term that was heard of is not used");
    assert!(!trims(&mut bed).is_empty());
}

/// Goal: an administrator put back mgmtd and a server that runs: the next map says a later era. Targets have heard of terms
/// that this copy does not know, so the term ends at once and one of the new era begins; what was under way goes on in it,
/// and inode numbers go on behind all that were given.
#[test]
fn a_later_era_begins_a_term_of_it() {
    let mut bed = Bed::with(Config::default(), 2);
    let (ino, layout) = bed.grown("f", 64 << 20);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.tasks.clear();
    let waits = bed.truncate_later(ino, 100);
    let sent = trims(&mut bed);
    let other = bed.server.standing(ShardId(1)).unwrap().term;
    let mut restored = MapReply { version: MapVersion(7), ..map(2, 5) };
    restored.shards[0].era = 4;
    bed.step(Input::Map { own: OWN, map: restored.clone() });
    assert_eq!(bed.term(), Term(4 << 32));
    assert_eq!(bed.server.standing(ShardId(1)).unwrap().term, other, "its era is the same");
    assert_eq!(bed.reply::<Empty>(waits), Some(Err(Status::NOT_READY)));
    let again = trims(&mut bed);
    assert!(again.len() == sent.len() && again.iter().all(by(ino, Term(4 << 32))));
    assert_eq!(again.len(), layout.chunks().count());
    bed.courier_works = true;
    for task in again {
        bed.step(Input::Courier { task: task.id, result: Ok(JobReply::Trimmed(0)) });
    }
    bed.end_hold();
    assert!(bed.create(ME, Ino::ROOT, "g").serial() > 3 << 32);
    let last = bed.log.len();
    bed.step(Input::Map { own: OWN, map: restored });
    assert_eq!((bed.log.len(), bed.term()), (last, Term(4 << 32)), "the same map once more");
    bed.restart_term(ShardId(0));
    assert_eq!(bed.term(), Term((4 << 32) + 1));
    bed.check();
}

/// Goal: a shard that the map does not give to this server keeps quiet: no term of it begins, nothing that its rows hold
/// goes to a target, and no chore of it is done. Given back, all of it goes on.
#[test]
fn a_shard_without_a_place_keeps_quiet() {
    let mut bed = Bed::with(Config::default(), 2);
    let (ino, _) = bed.grown("f", 64 << 20);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.truncate_later(ino, 100);
    let mut server = Group::new(bed.config.clone(), MemoryStore::default()).unwrap();
    bed.log.iter().for_each(|record| server.replay(record).unwrap());
    let mut out = Output::default();
    let step = |server: &mut Group<MemoryStore>, input, out: &mut Output| {
        server.step(Millis(9_000), Timestamp::default(), input, out).unwrap();
        let last = server.last_seq();
        server.step(Millis(9_000), Timestamp::default(), Input::Durable(last), out).unwrap();
        server.step(Millis(9_000), Timestamp::default(), Input::Tick, out).unwrap();
    };
    server.start();
    let before = server.standing(ShardId(0)).unwrap();
    bed.fenced.push(2);
    step(&mut server, Input::Fences(bed.fences(&[1])), &mut out);
    assert!(out.records.is_empty(), "before the map says whose they are");
    let mut away = MapReply { version: MapVersion(7), ..map(2, 5) };
    away.shards[0].leader = NodeId(9);
    step(&mut server, Input::Map { own: OWN, map: away }, &mut out);
    assert!(server.has_term(ShardId(1)) && !server.has_term(ShardId(0)));
    assert_eq!((server.standing(ShardId(0)), out.tasks.len()), (Some(before.clone()), 0));
    assert_eq!(server.next_deadline(), None);
    let back = MapReply { version: MapVersion(8), ..map(2, 5) };
    step(&mut server, Input::Map { own: OWN, map: back }, &mut out);
    assert!(server.standing(ShardId(0)).unwrap().term > before.term);
    assert!(out.tasks.iter().any(|task| matches!(task.job, Job::Trim { .. })));
    let gone = crate::key::holder(ShardId(0), ClientId(2));
    assert_eq!(server.store().get(&gone).unwrap(), None, "its session ended meanwhile");
}

/// Goal: a target that fails and is asked again is asked in the same term.
#[test]
fn repetitions_keep_their_term() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 1 << 20);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.tasks.clear();
    bed.truncate_later(ino, 100);
    let sent = trims(&mut bed);
    bed.step(Input::Courier { task: sent[0].id, result: Err(JobFailure("away".into())) });
    bed.tick(1_000);
    assert_eq!(trims(&mut bed), [sent[0].clone()]);
}
