//! Locks and appends through the whole server: waiting, restarts, sessions that end.

use super::*;
use crate::limit::{EVENTS_WAIT_MAX_MS, WAITS_MAX};
use skep_types::codec::Growing;

fn lock(owner: u64, kind: Option<LockKind>) -> LockWish {
    LockWish { owner, pid: owner as u32, space: LockSpace::Range, kind, start: 0, last: 9 }
}

const WRITE: Option<LockKind> = Some(LockKind::Write);

pub fn set(ino: Ino, owner: u64, ticket: Option<u64>, order: u64) -> SetLock {
    SetLock { ino, lock: lock(owner, WRITE), ticket, order }
}

fn wait_for(bed: &mut Bed, who: Who, received: u64) -> u64 {
    bed.send_as(who, ShardId(0), 0, skep_wire::meta::Events { received, wait_ms: 60_000 }.into())
}

fn told(bed: &mut Bed, to: u64) -> Option<EventsReply> {
    bed.reply::<EventsReply>(to).map(Result::unwrap)
}

/// One event.
fn became(bed: &Bed, ticket: u64, errno: u16) -> Growing<Event> {
    Growing(vec![LockOutcome { ticket, errno: u32::from(errno), term: bed.term() }.into()])
}

/// Goal: the wait for an outcome is answered when the lock is given up, not before; by time when nothing
/// comes; a newer wait ends the older one; a wait whose connection is gone is forgotten.
#[test]
fn outcomes_come_when_they_come() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    for who in [ME, OTHER] {
        bed.open(who, ino, OpenMode::Write, 1).unwrap();
    }
    assert_eq!(bed.call(ME, set(ino, 1, None, 1)).unwrap().state, LockState::Done);
    assert_eq!(bed.call(OTHER, set(ino, 2, Some(70), 1)).unwrap().state, LockState::Waits);
    let held = bed.call(OTHER, GetLock { ino, lock: lock(2, WRITE) }).unwrap().held.unwrap();
    assert_eq!((held.by, held.pid), (LockOwner { client: ClientId(1), owner: 1 }, 1));
    let first = wait_for(&mut bed, OTHER, 0);
    let second = wait_for(&mut bed, OTHER, 0);
    assert!(told(&mut bed, first).unwrap().events.0.is_empty());
    assert!(told(&mut bed, second).is_none());
    bed.call(ME, DropLocks { ino, space: LockSpace::Range, owner: 1, order: 2 }).unwrap();
    let reply = told(&mut bed, second).unwrap();
    assert_eq!(reply.events, became(&bed, 70, 0));
    let third = wait_for(&mut bed, OTHER, reply.number);
    assert_eq!(bed.server.next_deadline(), Some(bed.now.plus(EVENTS_WAIT_MAX_MS)));
    bed.tick(EVENTS_WAIT_MAX_MS);
    assert!(told(&mut bed, third).unwrap().events.0.is_empty());
    let gone = wait_for(&mut bed, OTHER, reply.number);
    bed.step(Input::Gone(gone));
    bed.call(ME, set(ino, 1, Some(5), 3)).unwrap();
    bed.close(OTHER, ino, 2);
    assert!(!bed.replies.contains_key(&gone));
    let mine = wait_for(&mut bed, ME, 0);
    assert_eq!(told(&mut bed, mine).unwrap().events, became(&bed, 5, 0), "the close gave the lock up");
    assert_eq!(bed.call(ME, set(Ino(999), 1, None, 4)).err(), Some(errno(Errno::ESTALE)));
}

/// Goal: a circle of owners that wait on two shards of one server is found: the lock that closed it is refused.
#[test]
fn circles_over_shards_are_found() {
    let mut bed = Bed::with(Config::default(), 2);
    let far = MakeDirOn {
        parent: Ino::ROOT,
        name: name("d"),
        mode: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        on: ShardId(1),
    };
    let far = bed.admin(far).unwrap().ino;
    let (a, b) = (bed.create(ME, Ino::ROOT, "a"), bed.create(ME, far, "b"));
    for (who, ino) in [(ME, a), (ME, b), (OTHER, a), (OTHER, b)] {
        bed.open(who, ino, OpenMode::Write, 1).unwrap();
    }
    assert_eq!(bed.call(ME, set(a, 1, None, 1)).unwrap().state, LockState::Done);
    assert_eq!(bed.call(OTHER, set(b, 2, None, 1)).unwrap().state, LockState::Done);
    assert_eq!(bed.call(ME, set(b, 1, Some(70), 2)).unwrap().state, LockState::Waits);
    let to = wait_for(&mut bed, OTHER, 0);
    assert!(told(&mut bed, to).is_none());
    bed.call(OTHER, set(a, 2, Some(71), 2)).unwrap();
    let events = told(&mut bed, to).expect("the circle is not found").events;
    assert_eq!(events, became(&bed, 71, Errno::EDEADLK.0));
    bed.call(OTHER, DropLocks { ino: b, space: LockSpace::Range, owner: 2, order: 3 }).unwrap();
    let to = wait_for(&mut bed, ME, 0);
    assert_eq!(told(&mut bed, to).unwrap().events, became(&bed, 70, 0));
}

/// Goal: who has something open on a shard, and may wait there, hears by an event that it began a term, also through another
/// shard and not before the term is on stable storage; again until it is confirmed. Nobody else hears, and nobody of what a
/// start begins: that is another life of the server.
#[test]
fn a_term_that_begins_alone_is_told() {
    let mut bed = Bed::with(Config::default(), 2);
    let fences = bed.fences(&[1, 2]);
    bed.step(Input::Fences(fences));
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    let ask = |bed: &mut Bed, who, received| {
        bed.send_as(who, ShardId(1), 0, skep_wire::meta::Events { received, wait_ms: 10_000 }.into())
    };
    let (holds, idle) = (ask(&mut bed, OTHER, 0), ask(&mut bed, ME, 0));
    bed.auto_sync = false;
    bed.restart_term(ShardId(0));
    assert!(told(&mut bed, holds).is_none(), "the term may be lost again");
    bed.auto_sync = true;
    bed.sync();
    let begun = |bed: &Bed| Growing(vec![TermBegun { shard: ShardId(0), term: bed.term() }.into()]);
    let reply = told(&mut bed, holds).expect("nobody told");
    assert_eq!(reply.events, begun(&bed));
    assert!(told(&mut bed, idle).is_none());
    bed.restart_term(ShardId(0));
    let again = ask(&mut bed, OTHER, 0);
    let reply = told(&mut bed, again).unwrap();
    assert_eq!(reply.events, begun(&bed), "of the newest only");
    let confirmed = ask(&mut bed, OTHER, reply.number);
    assert!(told(&mut bed, confirmed).is_none());
    bed.config.life = Incarnation(1 << 40);
    bed.restart(&[1, 2]);
    let old = ask(&mut bed, OTHER, reply.number);
    assert!(told(&mut bed, old).unwrap().events.0.is_empty());
}

/// Goal: events of one shard are told through another one of the group that is not ready to answer for itself, and whose
/// stamp is not shown then; a newer wait through any shard ends the older. Not through a shard that the client is to report
/// to first, nor one that is not here, nor to others than clients with a session.
#[test]
fn events_are_of_the_group() {
    let mut bed = Bed::with(Config::default(), 2);
    let fences = bed.fences(&[1, 2]);
    bed.step(Input::Fences(fences));
    let far = MakeDirOn {
        parent: Ino::ROOT,
        name: name("d"),
        mode: 0o755,
        umask: 0,
        uid: 0,
        gid: 0,
        on: ShardId(1),
    };
    let far = bed.admin(far).unwrap().ino;
    bed.open(OTHER, far, OpenMode::Read, 1).unwrap();
    let ino = bed.create(ME, Ino::ROOT, "f");
    for who in [ME, OTHER] {
        bed.open(who, ino, OpenMode::Write, 1).unwrap();
    }
    bed.call(ME, set(ino, 1, None, 1)).unwrap();
    bed.call(OTHER, set(ino, 2, Some(70), 1)).unwrap();
    bed.auto_sync = false;
    bed.restart_term(ShardId(1));
    let ask = |bed: &mut Bed, shard| {
        let wait = skep_wire::meta::Events { received: 0, wait_ms: 60_000 };
        bed.send_as(OTHER, ShardId(shard), 0, wait.into())
    };
    let through = |bed: &Bed, to: u64| bed.replies[&to].0.clone();
    let older = ask(&mut bed, 0);
    let to = ask(&mut bed, 1);
    assert!(told(&mut bed, older).unwrap().events.0.is_empty());
    assert_eq!(through(&bed, older).term, bed.term());
    assert!(told(&mut bed, to).is_none());
    bed.call(ME, DropLocks { ino, space: LockSpace::Range, owner: 1, order: 2 }).unwrap();
    assert_eq!(told(&mut bed, to).unwrap().events, became(&bed, 70, 0));
    assert_eq!(through(&bed, to), ShardStamp::default(), "its term may be lost again");
    bed.auto_sync = true;
    bed.sync();
    let now = bed.server.standing(ShardId(1)).unwrap();
    let mut both = became(&bed, 70, 0);
    both.0.push(TermBegun { shard: ShardId(1), term: now.term }.into());
    let in_grace = ask(&mut bed, 1);
    assert_eq!(told(&mut bed, in_grace).unwrap().events, both, "told again, and that a term began");
    assert_eq!(through(&bed, in_grace), now);
    bed.tick(80_000);
    let (late, elsewhere) = (ask(&mut bed, 1), ask(&mut bed, 9));
    assert_eq!(bed.reply::<EventsReply>(late), Some(Err(Status::NOT_READY)));
    assert_eq!(through(&bed, late).term, now.term, "which it is to report to");
    assert_eq!(bed.reply::<EventsReply>(elsewhere), Some(Err(Status::ELSEWHERE)));
    let still = ask(&mut bed, 0);
    assert_eq!(told(&mut bed, still).unwrap().events, both);
    let admin = bed.admin_send(skep_wire::meta::Events { received: 0, wait_ms: 0 });
    assert_eq!(bed.reply::<EventsReply>(admin), Some(Err(Status::ROLE)));
    bed.fenced.push(2);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    let ended = ask(&mut bed, 0);
    assert_eq!(bed.reply::<EventsReply>(ended), Some(Err(Status::FENCED)));
}

/// Goal: an evicted client's locks are free at once, its wishes are gone.
#[test]
fn sessions_take_their_locks_along() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    for who in [ME, OTHER] {
        bed.open(who, ino, OpenMode::Write, 1).unwrap();
    }
    bed.call(ME, set(ino, 1, None, 1)).unwrap();
    bed.call(OTHER, set(ino, 2, Some(7), 1)).unwrap();
    bed.call(ME, set(ino, 3, Some(8), 2)).unwrap();
    let to = wait_for(&mut bed, OTHER, 0);
    bed.fenced.push(1);
    let fences = bed.fences(&[2]);
    bed.step(Input::Fences(fences));
    assert_eq!(told(&mut bed, to).unwrap().events, became(&bed, 7, 0));
    let stats = bed.admin(GroupStats {}).unwrap().counters;
    let gauge = |name: &str| stats.iter().find(|counter| counter.name == name).unwrap().value;
    assert_eq!((gauge("locks"), gauge("lock_waits")), (1, 0));
}

/// Goal: after a restart only what was held before can be held; the first of two claims wins and a line
/// says who lost; whoever has reported may give up; then everything goes on.
#[test]
fn locks_are_reclaimed() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.call(ME, set(ino, 1, None, 1)).unwrap();
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    bed.restart(&[1, 2]);
    bed.notes.clear();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 1)).err(), Some(Status::GRACE));
    assert_eq!(bed.call(OTHER, GetLock { ino, lock: lock(2, WRITE) }).err(), Some(Status::GRACE));
    let unlock = SetLock { ino, lock: lock(1, None), ticket: None, order: 9 };
    assert_eq!(bed.call(ME, unlock.clone()).err(), Some(Status::GRACE), "it may still claim it");
    let claim = |owner, last| Reclaim {
        opens: vec![Reclaimed { ino, mode: OpenMode::Write, open_seq: 1, reserved: 0 }],
        locks: vec![ReclaimedLock { ino, lock: lock(owner, WRITE), order: 6 }],
        last,
        term: None,
        holds: None,
    };
    assert_eq!(bed.call(ME, claim(1, true)).unwrap().lost, None);
    assert_eq!(bed.call(OTHER, claim(2, false)).unwrap().lost, Some(claim(2, false).locks));
    assert!(bed.warnings.iter().any(|line| line.contains("client 2 lost its lock")), "{:?}", bed.warnings);
    assert_eq!(bed.call(ME, set(ino, 1, None, 2)).err(), Some(Status::GRACE));
    bed.call(OTHER, Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: None }).unwrap();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 2)).err(), Some(errno(Errno::EAGAIN)));
    let late = DropLocks { ino, space: LockSpace::Range, owner: 1, order: 5 };
    assert_eq!(bed.call(ME, late).err(), Some(Status::OLD_SEQUENCE), "older than what was claimed");
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 2)).err(), Some(errno(Errno::EAGAIN)));
    bed.call(ME, unlock).unwrap();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 3)).unwrap().state, LockState::Done);
}

/// Goal: whoever has not reported when grace ends is not heard about locks before, so that nothing that it claims then is
/// given up already; the others are.
#[test]
fn whoever_is_late_reports_first() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.restart(&[1]);
    let deadline = bed.server.next_deadline().unwrap();
    bed.tick(deadline.since(bed.now));
    let drop_it = DropLocks { ino, space: LockSpace::Range, owner: 1, order: 7 };
    assert_eq!(bed.open(ME, ino, OpenMode::Write, 1).err(), Some(Status::NOT_READY));
    assert_eq!(bed.call(ME, drop_it.clone()).err(), Some(Status::NOT_READY));
    assert_eq!(bed.call(ME, set(ino, 2, None, 8)).err(), Some(Status::NOT_READY));
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    let opens = vec![Reclaimed { ino, mode: OpenMode::Write, open_seq: 1, reserved: 0 }];
    let locks = vec![ReclaimedLock { ino, lock: lock(1, WRITE), order: 6 }];
    bed.call(ME, Reclaim { opens, locks, last: true, term: None, holds: None }).unwrap();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 1)).err(), Some(errno(Errno::EAGAIN)));
    bed.call(ME, drop_it).unwrap();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 2)).unwrap().state, LockState::Done);
}

/// Goal: a report counts in the term only for which it was put together: another one may have heard a part of it, and not
/// the locks in the rest (seed 3522 of the simulator: two held one), or of closes since (seed 1305).
#[test]
fn a_report_is_for_one_term() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    let before = bed.term();
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.restart(&[1]);
    let now = bed.term();
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    let report = |term| Reclaim { opens: vec![], locks: vec![], last: true, term: Some(term), holds: None };
    assert_eq!(bed.call(ME, report(before)).err(), Some(Status::NOT_READY));
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 1)).err(), Some(Status::GRACE));
    bed.call(ME, report(now)).unwrap();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 1)).unwrap().state, LockState::Done);
}

/// Goal: a claim that is repeated late takes nothing again that was given up since, by an unlock, the close, or the end of
/// the open file that had it, and keeps what is held.
#[test]
fn late_claims_take_nothing_again() {
    for how in ["close", "unlock", "end"] {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.restart(&[1]);
        let claim = Reclaim {
            opens: vec![Reclaimed { ino, mode: OpenMode::Write, open_seq: 1, reserved: 0 }],
            locks: vec![ReclaimedLock { ino, lock: lock(1, WRITE), order: 6 }],
            last: true,
            term: None,
            holds: None,
        };
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        for _ in 0..2 {
            bed.call(ME, claim.clone()).unwrap();
            assert_eq!(bed.call(OTHER, set(ino, 2, None, 1)).err(), Some(errno(Errno::EAGAIN)));
        }
        match how {
            "close" => bed.close(ME, ino, 2),
            "unlock" => {
                let unlock = SetLock { ino, lock: lock(1, None), ticket: None, order: 7 };
                assert_eq!(bed.call(ME, unlock).unwrap().state, LockState::Done);
            }
            _ => {
                let end = DropLocks { ino, space: LockSpace::Range, owner: 1, order: 6 };
                for _ in 0..2 {
                    bed.call(ME, end.clone()).unwrap();
                }
            }
        }
        bed.call(ME, claim).unwrap();
        assert_eq!(bed.call(OTHER, set(ino, 2, None, 2)).unwrap().state, LockState::Done);
    }
}

/// Goal: a request for a lock that its own close has overtaken takes nothing, waits for nothing, and may be
/// asked again once the file is open; giving up needs no open file.
#[test]
fn locks_need_an_open_file() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.close(ME, ino, 2);
    for (ticket, order) in [(None, 1), (Some(3), 2)] {
        assert_eq!(bed.call(ME, set(ino, 1, ticket, order)).err(), Some(Status::OLD_SEQUENCE));
    }
    let unlock = SetLock { ino, lock: lock(1, None), ticket: None, order: 3 };
    assert_eq!(bed.call(ME, unlock).unwrap().state, LockState::Done);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    assert_eq!(bed.call(OTHER, set(ino, 2, None, 1)).unwrap().state, LockState::Done, "nobody holds it");
    bed.open(ME, ino, OpenMode::Write, 3).unwrap();
    assert_eq!(bed.call(ME, set(ino, 1, Some(4), 4)).unwrap().state, LockState::Waits);
}

/// No look at the targets.
const NEVER: Term = Term(0);

fn reserve(ino: Ino, len: u64, number: u64, at_least: u64, looked: Term) -> ReserveEnd {
    ReserveEnd { ino, len, number, at_least, looked, cuts: None }
}

/// Goal: no byte is given to two appends; a repetition gets the same range; while others write the asker
/// looks first; a cut, a new generation and the last close begin anew.
#[test]
fn ends_are_given_once() {
    let mut bed = Bed::new();
    let now = bed.term();
    let inline = bed.create(ME, Ino::ROOT, "i");
    assert_eq!(bed.call(ME, reserve(inline, 5, 1, 0, NEVER)).err(), Some(Status::MUST_GROW));
    let (ino, layout) = bed.grown("f", 100);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    let first = bed.call(ME, reserve(ino, 50, 1, 0, NEVER)).unwrap();
    assert_eq!((first.offset, first.generation), (Some(100), layout.generation));
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    // The answer was lost: else zeros would stay there (seed 2773 of the simulator).
    let again = bed.call(ME, reserve(ino, 50, 1, 0, NEVER)).unwrap();
    assert_eq!(again.offset, Some(100), "a repetition, though others write by now");
    assert_eq!(bed.call(ME, reserve(ino, 50, 2, 150, NEVER)).unwrap().offset, None);
    assert_eq!(bed.call(ME, reserve(ino, 50, 2, 120, now)).unwrap().offset, Some(150));
    assert_eq!(bed.call(ME, reserve(ino, 50, 2, 120, now)).unwrap().offset, Some(150), "a repetition");
    assert_eq!(bed.call(OTHER, reserve(ino, 10, 2, 500, now)).unwrap().offset, Some(500));
    assert_eq!(bed.call(ME, reserve(ino, 1, 3, 0, now)).unwrap().offset, Some(510));
    assert_eq!(bed.call(ME, reserve(ino, u64::MAX, 4, 0, now)).err(), Some(errno(Errno::EFBIG)));
    bed.truncate(ME, ino, 30).unwrap();
    for who in [ME, OTHER] {
        let stale = bed.call(who, reserve(ino, 5, 5, 500, now)).unwrap();
        assert_eq!(stale.offset, None, "what is believed from before the cut counts for nothing");
    }
    assert_eq!(bed.call(ME, reserve(ino, 5, 5, 0, now)).unwrap().offset, Some(30));
    bed.close(OTHER, ino, 2);
    assert_eq!(bed.call(ME, reserve(ino, 5, 6, 0, NEVER)).unwrap().offset, Some(35));
    bed.restart(&[1]);
    assert_eq!(bed.call(ME, reserve(ino, 5, 7, 0, NEVER)).err(), Some(Status::GRACE));
    bed.report(OTHER);
    let open = Reclaimed { ino, mode: OpenMode::Write, open_seq: 3, reserved: 40 };
    bed.call(ME, Reclaim { opens: vec![open], locks: vec![], last: true, term: None, holds: None }).unwrap();
    for _ in 0..2 {
        assert_eq!(bed.call(ME, reserve(ino, 5, 7, 0, now)).unwrap().offset, None, "a look from before");
        assert_eq!(bed.call(ME, reserve(ino, 5, 7, 0, NEVER)).unwrap().offset, None, "no look since");
    }
    let now = bed.term();
    assert_eq!(bed.call(ME, reserve(ino, 5, 7, 0, now)).unwrap().offset, Some(40));
    assert_eq!(bed.call(ME, reserve(ino, 5, 8, 0, NEVER)).unwrap().offset, Some(45), "alone, and has looked");
    bed.close(ME, ino, 4);
    bed.open(ME, ino, OpenMode::Write, 5).unwrap();
    assert_eq!(bed.call(ME, reserve(ino, 5, 9, 0, NEVER)).unwrap().offset, Some(30), "closed by everybody");
    bed.truncate(ME, ino, 0).unwrap();
    assert_eq!(bed.call(ME, reserve(ino, 5, 10, 0, NEVER)).err(), Some(Status::MUST_GROW));
}

/// Goal: what is known of an end from before a cut counts for nothing, also when it is told again because the answer was lost; who
/// has looked since is given a range at once.
#[test]
fn an_end_from_before_a_cut_counts_for_nothing() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 100);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    let before = bed.attr(ino).unwrap().cuts;
    let ask = |at_least, cuts| ReserveEnd { cuts: Some(cuts), ..reserve(ino, 5, 1, at_least, NEVER) };
    assert_eq!(bed.call(ME, ask(500, before)).unwrap().offset, Some(500));
    bed.truncate(OTHER, ino, 30).unwrap();
    let ask = |at_least, cuts| ReserveEnd { number: 2, ..ask(at_least, cuts) };
    for _ in 0..3 {
        assert_eq!(bed.call(ME, ask(505, before)).unwrap().offset, None);
    }
    let since = bed.attr(ino).unwrap().cuts;
    assert_eq!(bed.call(ME, ask(30, since)).unwrap().offset, Some(30));
}

/// Goal: who has not told what he has open when the grace period is over may have written behind the end that the row knows, or be
/// about to: whoever appends waits for him, or the end of his session (seed 213 of the simulator once: an append went over what
/// a mount had written that was killed meanwhile). Other files need not.
#[test]
fn appends_wait_for_the_late() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 100);
    let (other, _) = bed.grown("g", 100);
    bed.close(ME, other, 9);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    bed.restart(&[1]);
    let deadline = bed.server.next_deadline().unwrap();
    bed.tick(deadline.since(bed.now));
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    let now = bed.term();
    bed.open(OTHER, other, OpenMode::Write, 2).unwrap();
    for looked in [NEVER, now] {
        assert_eq!(bed.call(OTHER, reserve(ino, 5, 1, 100, looked)).err(), Some(Status::GRACE));
    }
    assert_eq!(bed.call(OTHER, reserve(other, 5, 1, 100, NEVER)).unwrap().offset, Some(100));
    let opens = vec![Reclaimed { ino, mode: OpenMode::Write, open_seq: 1, reserved: 900 }];
    bed.call(ME, Reclaim { opens, locks: vec![], last: true, term: None, holds: None }).unwrap();
    assert_eq!(bed.call(OTHER, reserve(ino, 5, 2, 100, NEVER)).unwrap().offset, None);
    assert_eq!(bed.call(OTHER, reserve(ino, 5, 2, 100, now)).unwrap().offset, Some(900));
}

/// Goal: while a truncate is on its way to the targets an append waits for it.
#[test]
fn appends_wait_for_a_truncate() {
    let mut bed = Bed::new();
    let now = bed.term();
    let (ino, _) = bed.grown("f", 100);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.send(ME, ChangeAttr { ino, set: SetAttr { size: Some(7), ..SetAttr::default() } });
    let append = bed.send(ME, reserve(ino, 5, 1, 100, now));
    assert!(!bed.replies.contains_key(&append));
    bed.courier_works = true;
    bed.run_courier();
    assert!(bed.replies.contains_key(&append));
    assert_eq!(bed.call(ME, reserve(ino, 5, 2, 7, now)).unwrap().offset.map(|at| at >= 7), Some(true));
}

/// Goal: a request that waits and whose connection is gone is never carried out; its place is free again.
#[test]
fn requests_that_were_given_up_do_not_happen() {
    let mut bed = Bed::new();
    bed.auto_sync = false;
    // The first create of a life waits for its block of numbers.
    let given_up = bed.send(ME, create(Ino::ROOT, "given up"));
    let wanted = bed.send(OTHER, create(Ino::ROOT, "wanted"));
    assert!(!bed.replies.contains_key(&given_up) && !bed.replies.contains_key(&wanted));
    bed.step(Input::Gone(given_up));
    bed.step(Input::Gone(given_up));
    bed.step(Input::Gone(1 << 40));
    bed.sync();
    bed.sync();
    bed.auto_sync = true;
    assert!(bed.replies.contains_key(&wanted) && !bed.replies.contains_key(&given_up));
    assert_eq!(bed.lookup(Ino::ROOT, "given up").err(), Some(errno(Errno::ENOENT)));
    assert!(bed.lookup(Ino::ROOT, "wanted").is_ok());
    bed.auto_sync = false;
    for n in 0..WAITS_MAX as u64 + 100 {
        let index = bed.last();
        let seq = bed.send_as(ME, ShardId(0), 0, Sync { term: bed.term(), index }.into());
        if n == 0 {
            bed.unlink(ME, Ino::ROOT, "wanted").unwrap();
        }
        bed.step(Input::Gone(seq));
        bed.replies.remove(&seq);
    }
    let index = bed.last();
    let last = bed.send_as(ME, ShardId(0), 0, Sync { term: bed.term(), index }.into());
    assert!(!bed.replies.contains_key(&last), "there is room to wait");
}

/// Goal: who claims a lock when the grace period is over gets it if nobody else was given one on that file since, and is told
/// that it is lost if somebody was, though he has given it up again.
#[test]
fn a_late_claim_is_refused_where_others_came() {
    for others_came in [false, true] {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.open(ME, ino, OpenMode::Write, 1).unwrap();
        bed.call(ME, set(ino, 1, None, 1)).unwrap();
        bed.restart(&[1, 2]);
        bed.call(OTHER, Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: None })
            .unwrap();
        bed.tick(80_000);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        if others_came {
            assert_eq!(bed.call(OTHER, set(ino, 2, None, 2)).unwrap().state, LockState::Done);
            bed.call(OTHER, SetLock { ino, lock: lock(2, None), ticket: None, order: 3 }).unwrap();
        }
        let claim = Reclaim {
            opens: vec![Reclaimed { ino, mode: OpenMode::Write, open_seq: 1, reserved: 0 }],
            locks: vec![ReclaimedLock { ino, lock: lock(1, WRITE), order: 6 }],
            last: true,
            term: None,
            holds: None,
        };
        let lost = others_came.then(|| claim.locks.clone());
        assert_eq!(bed.call(ME, claim.clone()).unwrap().lost, lost);
        assert_eq!(bed.call(ME, claim).unwrap().lost, lost, "the answer may have been lost");
        let taken = bed.call(OTHER, set(ino, 2, None, 4)).map(|reply| reply.state);
        let held = Err(errno(Errno::EAGAIN));
        assert_eq!(taken, if others_came { Ok(LockState::Done) } else { held });
    }
}
