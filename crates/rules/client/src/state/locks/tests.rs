//! What a mount keeps of its locks, by itself.

use super::*;

fn wish(kind: Option<LockKind>, start: u64, last: u64) -> LockWish {
    LockWish { owner: 7, pid: 70, space: LockSpace::Range, kind, start, last }
}

const INO: Ino = Ino(9);

fn held(locks: &Locks) -> Vec<(u64, u64, LockKind)> {
    locks.of_shard(ShardId(0)).iter().map(|l| (l.lock.start, l.lock.last, l.lock.kind.unwrap())).collect()
}

/// Goal: the end of one open file takes nothing from the next one, to which the kernel has given its owner's number: not
/// what it holds, nor what it waits for.
#[test]
fn a_close_takes_nothing_from_the_next() {
    let mut locks = Locks::default();
    let key = LockKey::of(INO, &wish(None, 0, 0));
    locks.done(INO, &wish(Some(LockKind::Write), 0, 9), 3, 1);
    locks.done(INO, &wish(Some(LockKind::Write), 20, 29), 4, 3);
    let ticket = locks.wish(INO, wish(Some(LockKind::Write), 50, 51), 4);
    locks.order = 3;
    locks.number(Some(ticket));
    locks.suspect(INO, wish(None, 5, 6), None);
    locks.dropped(&key, 2);
    assert_eq!(held(&locks), [(20, 29, LockKind::Write)]);
    assert_eq!((locks.of_handle(INO, 4), locks.of_handle(INO, 3)), (Vec::from([key]), Vec::new()));
    assert!(locks.wish_of(ticket).is_some() && locks.take_ended().is_empty() && locks.has_work());
    locks.dropped(&key, 5);
    locks.settled(&key);
    assert!(!locks.knows(&key) && !locks.has_work());
}

/// Goal: a range is not counted as newer than a close because its neighbour is.
#[test]
fn a_close_takes_what_has_a_newer_neighbour() {
    let mut locks = Locks::default();
    let key = LockKey::of(INO, &wish(None, 0, 0));
    let order = locks.next_order();
    locks.done(INO, &wish(Some(LockKind::Write), 0, 9), 3, order);
    let close = locks.ends(key).unwrap();
    let order = locks.next_order();
    locks.done(INO, &wish(Some(LockKind::Write), 10, 19), 3, order);
    locks.dropped(&key, close);
    locks.ended(close);
    assert_eq!(held(&locks), [(10, 19, LockKind::Write)]);
    let order = locks.next_order();
    locks.done(INO, &wish(Some(LockKind::Write), 20, 29), 3, order);
    assert_eq!(held(&locks), [(10, 29, LockKind::Write)]);
}

/// Goal: what is held is split, replaced and merged as POSIX says, byte by byte against an array.
#[test]
fn ranges_agree_with_bytes() {
    let (mut locks, mut bytes) = (Locks::default(), [None; 16]);
    let mut random = 12_345u64;
    for _ in 0..2_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (a, b) = ((random >> 33) % 16, (random >> 40) % 16);
        let kind = [None, Some(LockKind::Read), Some(LockKind::Write)][(random >> 50) as usize % 3];
        let (start, last) = (a.min(b), a.max(b));
        locks.done(INO, &wish(kind, start, last), 1, 1);
        bytes[start as usize..=last as usize].fill(kind);
        let mut seen = [None; 16];
        for (start, last, kind) in held(&locks) {
            seen[start as usize..=last as usize].fill(Some(kind));
        }
        assert_eq!(seen, bytes);
        let runs = bytes.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count();
        assert_eq!(held(&locks).len(), runs, "neighbours are one lock");
    }
    locks.done(INO, &wish(None, 0, u64::MAX), 1, 1);
    assert!(locks.is_empty());
}

/// Goal: a doubt is put right by requests that never let go of what is held.
#[test]
fn a_doubt_is_put_right() {
    let mut locks = Locks::default();
    locks.done(INO, &wish(Some(LockKind::Read), 10, 19), 1, 1);
    let asked = wish(Some(LockKind::Write), 5, u64::MAX);
    assert_eq!(
        locks.believed(INO, &asked),
        [wish(None, 5, 9), wish(Some(LockKind::Read), 10, 19), wish(None, 20, u64::MAX)]
    );
    locks.done(INO, &wish(Some(LockKind::Write), 0, u64::MAX), 1, 1);
    assert_eq!(locks.believed(INO, &asked), [wish(Some(LockKind::Write), 5, u64::MAX)]);
}

/// Goal: a close ends the owner's locks and wishes and nobody else's; a handle knows what was taken
/// through it; an ended session tells everybody who waits.
#[test]
fn closes_end_locks_and_wishes() {
    let mut locks = Locks::default();
    let other = LockWish { owner: 8, ..wish(Some(LockKind::Write), 50, 60) };
    locks.done(INO, &wish(Some(LockKind::Read), 0, 9), 3, 1);
    locks.done(INO, &other, 4, 1);
    let ticket = locks.wish(INO, wish(Some(LockKind::Write), 50, 51), 3);
    locks.number(Some(ticket));
    let key = LockKey::of(INO, &wish(None, 0, 0));
    assert_eq!(locks.of_handle(INO, 3), [key]);
    assert!(locks.knows(&key));
    locks.dropped(&key, 2);
    assert!(!locks.knows(&key) && locks.of_handle(INO, 3).is_empty());
    assert_eq!(locks.take_ended(), [Ended { ticket, ino: INO, result: Err(Errno::EBADF) }]);
    assert_eq!(held(&locks), [(50, 60, LockKind::Write)]);
    let ticket = locks.wish(INO, wish(Some(LockKind::Write), 50, 51), 3);
    locks.session_ended();
    assert_eq!(locks.take_ended(), [Ended { ticket, ino: INO, result: Err(Errno::ENOTCONN) }]);
    assert!(!locks.is_empty(), "what the programs believe to hold is lost, and they must not go on");
}

/// Goal: while a close is on its way nothing of its owner is told to be held, or not to be: numbered from then on, it would be
/// taken again behind the close.
#[test]
fn nothing_is_decided_while_a_close_is_on_its_way() {
    let mut locks = Locks::default();
    let all = wish(None, 0, u64::MAX);
    let order = locks.next_order();
    locks.done(INO, &wish(Some(LockKind::Write), 0, 9), 3, order);
    let close = locks.ends(LockKey::of(INO, &all)).unwrap();
    assert_eq!(locks.decided(INO, &all), (Vec::new(), Vec::from([all])));
    locks.ended(close);
    assert_eq!(locks.decided(INO, &all), (Vec::from([all]), Vec::new()));
}

/// Goal: what another owner held when a request came says nothing of what was got since.
#[test]
fn a_late_refusal_takes_nothing_newer() {
    let mut locks = Locks::default();
    let orders = [locks.next_order(), locks.next_order(), locks.next_order()];
    locks.done(INO, &wish(Some(LockKind::Write), 0, 9), 3, orders[0]);
    locks.done(INO, &wish(Some(LockKind::Write), 20, 29), 4, orders[2]);
    locks.disbelieve(INO, &wish(Some(LockKind::Write), 0, 29), orders[1]);
    assert_eq!(held(&locks), [(20, 29, LockKind::Write)]);
}

/// Goal: a wish whose request was not answered stays where it was, in doubt until it is answered; no answer is waited for any
/// more when it is granted.
#[test]
fn an_unanswered_wish_is_in_doubt() {
    let mut locks = Locks::default();
    let ticket = locks.wish(INO, wish(Some(LockKind::Write), 0, 9), 3);
    locks.number(Some(ticket));
    locks.waits(ticket, Term(1));
    for (unsure, doubt) in [(false, false), (true, true), (false, true)] {
        locks.number(Some(ticket));
        locks.not_answered(ticket, unsure);
        let wish = locks.wish_of(ticket).unwrap();
        assert_eq!((wish.term, wish.unsure), (Some(Term(1)), doubt));
    }
    locks.number(Some(ticket));
    locks.waits(ticket, Term(2));
    assert!(!locks.wish_of(ticket).unwrap().unsure);
    locks.number(Some(ticket));
    locks.not_answered(ticket, true);
    assert!(locks.granted(ticket).is_some() && !locks.was_early(ticket));
}
