//! Who reads in order gets more and more at once, of what has not changed.

use super::*;
use crate::limits::AHEAD_BYTES_MAX;

const AS_OF: AsOf = AsOf { cover: 1, opened_to_write: 0, truncations: 0, size: 10 << 20 };
const NOW: Millis = Millis(5_000);
const FIRST: u64 = AHEAD_FIRST as u64;

fn wanted(aheads: &mut Aheads, offset: u64, len: usize) -> Option<usize> {
    match aheads.reads(1, offset, len, Some(AS_OF), NOW) {
        Ahead::Wanted(window) => Some(window),
        _ => None,
    }
}

fn put(aheads: &mut Aheads, handle: Handle, from: u64, len: usize, now: Millis) {
    aheads.put(handle, (from, 0), Arc::new(alloc::vec![7; len]), AS_OF, (now, now));
}

fn is_here(aheads: &mut Aheads, handle: Handle, offset: u64, as_of: AsOf, now: Millis) -> bool {
    matches!(aheads.reads(handle, offset, 100, Some(as_of), now), Ahead::Here(..))
}

/// Goal: who reads in order gets more and more at once, up to the limit and the end of the file; who jumps, or reads
/// large pieces, gets what was asked for, and begins anew.
#[test]
fn what_is_read_in_order_is_read_ahead() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    assert_eq!(wanted(&mut aheads, 0, 100), None, "one read is no order");
    assert_eq!(wanted(&mut aheads, 100, 100), Some(AHEAD_FIRST));
    // A chunk ends there: what is wanted next depends on what was wanted, not on that.
    put(&mut aheads, 1, 100, 800, NOW);
    for at in (200..900).step_by(100) {
        assert!(is_here(&mut aheads, 1, at, AS_OF, NOW));
    }
    let mut from = 900;
    for window in [2 * AHEAD_FIRST, 4 * AHEAD_FIRST, AHEAD_MAX, AHEAD_MAX] {
        assert_eq!(wanted(&mut aheads, from, 100), Some(window));
        put(&mut aheads, 1, from, 200, NOW);
        assert!(is_here(&mut aheads, 1, from + 100, AS_OF, NOW));
        from += 200;
    }
    assert_eq!(wanted(&mut aheads, 5_000_000, 100), None, "a jump");
    assert_eq!(wanted(&mut aheads, 5_000_100, 100), None);
    assert_eq!(wanted(&mut aheads, 5_000_200, 100), Some(AHEAD_FIRST));
    put(&mut aheads, 1, 5_000_200, AHEAD_FIRST, NOW);
    assert_eq!(wanted(&mut aheads, 0, AHEAD_MAX), None);
    assert_eq!(wanted(&mut aheads, AHEAD_MAX as u64, AHEAD_MAX), None, "so much comes as fast alone");
    let end = AS_OF.size - 150;
    for (offset, window) in [(end - 200, None), (end - 100, None), (end, Some(150)), (end + 100, None)] {
        assert_eq!(wanted(&mut aheads, offset, 100), window);
    }
}

/// Goal: who makes pauses, reads so many files that none of it is kept for long, or finds something wrong there, does not
/// have more and more read that nobody uses.
#[test]
fn what_is_of_no_use_is_not_read() {
    let mut aheads = Aheads::new(3 * AHEAD_FIRST);
    let mut reads = |handle, offset, now| aheads.reads(handle, offset, 100, Some(AS_OF), now);
    for n in 0..20 {
        let slow = reads(1, n * 100, NOW.plus(n * AHEAD_FOR_MS));
        assert!(matches!(slow, Ahead::No), "{slow:?}");
    }
    let mut fetched = 0;
    for n in 0..100 {
        for handle in 10..30 {
            let now = NOW.plus(n);
            if let Ahead::Wanted(window) = aheads.reads(handle, n * 100, 100, Some(AS_OF), now) {
                fetched += 1;
                put(&mut aheads, handle, n * 100, window, now);
            }
        }
    }
    assert_eq!(fetched, 3, "who finds no room reads alone");
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    wanted(&mut aheads, 0, 100);
    assert_eq!(wanted(&mut aheads, 100, 100), Some(AHEAD_FIRST));
    aheads.give_up(1, 100, AHEAD_FIRST);
    let tried: Vec<u64> =
        (2..1_500).map(|n| n * 100).filter(|at| wanted(&mut aheads, *at, 100).is_some()).collect();
    assert_eq!((tried, aheads.bytes), (alloc::vec![100 * (FIRST + 100).div_ceil(100)], AHEAD_FIRST));
}

/// Goal: those who read beside each other by one handle have one window read, not one each.
#[test]
fn one_window_is_read_at_a_time() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let found: Vec<_> = (0..32).filter_map(|n| wanted(&mut aheads, n * 4_096, 4_096)).collect();
    assert_eq!((found, aheads.bytes), (alloc::vec![AHEAD_FIRST], AHEAD_FIRST));
    put(&mut aheads, 1, 4_096, AHEAD_FIRST, NOW);
    assert_eq!(aheads.bytes, AHEAD_FIRST);
}

/// Goal: what was read ahead is used while nothing of the file can have changed, and it is young; else it goes. At the
/// end of the file less than asked for is all that there is.
#[test]
fn what_may_have_changed_is_read_again() {
    let changes = [
        AsOf { cover: 2, ..AS_OF },
        AsOf { opened_to_write: 1, ..AS_OF },
        AsOf { truncations: 1, ..AS_OF },
        AsOf { size: 1 << 20, ..AS_OF },
    ];
    for changed in changes {
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        aheads.reads(1, 0, 1, Some(AS_OF), NOW);
        put(&mut aheads, 1, 0, 1_000, NOW);
        assert!(is_here(&mut aheads, 1, 500, AS_OF, NOW) && is_here(&mut aheads, 1, 900, AS_OF, NOW));
        assert!(!is_here(&mut aheads, 1, 901, AS_OF, NOW), "the last byte is not there");
        assert!(!is_here(&mut aheads, 1, 500, changed, NOW) && aheads.is_empty());
        put(&mut aheads, 1, 0, 1_000, NOW);
        assert!(!is_here(&mut aheads, 1, 500, AS_OF, NOW.plus(AHEAD_FOR_MS)), "it is old");
        put(&mut aheads, 1, 0, 1_000, NOW);
        assert!(matches!(aheads.reads(1, 0, 100, None, NOW), Ahead::No) && aheads.is_empty());
    }
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let as_of = AsOf { size: 1_000, ..AS_OF };
    aheads.reads(1, 0, 1, Some(as_of), NOW);
    aheads.put(1, (0, 0), Arc::new(alloc::vec![7; 1_000]), as_of, (NOW, NOW));
    assert!(is_here(&mut aheads, 1, 950, as_of, NOW), "the file ends there");
}

/// Goal: memory is bounded, with what is being read; the oldest goes first, and all of it when nobody reads any more.
#[test]
fn memory_is_bounded() {
    let mut aheads = Aheads::new(3 * AHEAD_FIRST);
    let wants = |aheads: &mut Aheads, handle, now| {
        aheads.reads(handle, 0, 1, Some(AS_OF), now);
        matches!(aheads.reads(handle, 1, 1, Some(AS_OF), now), Ahead::Wanted(_))
    };
    for handle in 1..10 {
        let now = NOW.plus(handle * AHEAD_KEPT_MS);
        assert!(wants(&mut aheads, handle, now));
        let is_first = aheads.put(handle, (0, 0), Arc::new(alloc::vec![7; AHEAD_FIRST]), AS_OF, (now, now));
        assert_eq!((is_first, aheads.bytes), (handle == 1, AHEAD_FIRST * 3.min(handle as usize)));
    }
    let kept: Vec<Handle> = aheads.by_age.iter().map(|(_, handle)| *handle).collect();
    assert_eq!((kept, aheads.take_dropped().len()), (alloc::vec![7, 8, 9], 6));
    aheads.forget(8);
    assert!(!aheads.put(8, (0, 0), Arc::default(), AS_OF, (NOW, NOW)));
    assert_eq!((aheads.bytes, aheads.of.len()), (2 * AHEAD_FIRST, 8));
    assert_eq!(aheads.forget_old(NOW.plus(7 * AHEAD_KEPT_MS + AHEAD_FOR_MS)), Some(2 * AHEAD_KEPT_MS));
    assert_eq!(aheads.bytes, AHEAD_FIRST);
    assert_eq!(aheads.forget_old(NOW.plus(9 * AHEAD_KEPT_MS + AHEAD_FOR_MS)), None);
    assert_eq!((aheads.bytes, aheads.is_empty()), (0, true));
    // What is being read counts, and does not go.
    assert!((20..23).all(|handle| wants(&mut aheads, handle, NOW)) && !wants(&mut aheads, 23, NOW));
    aheads.give_up(21, 1, 1);
    aheads.forget(20);
    assert_eq!(aheads.bytes, AHEAD_FIRST);
}

/// Goal: what took its time to come is as old as the question; it stays as long as what came at once for who has had no time to use
/// it yet. A byte that is given out again is not counted again.
#[test]
fn its_age_is_that_of_the_question() {
    let mut aheads = Aheads::new(2 * AHEAD_FIRST);
    aheads.reads(1, 0, 1, Some(AS_OF), NOW);
    let came = NOW.plus(AHEAD_FOR_MS - 1);
    aheads.put(1, (0, 100), Arc::new(alloc::vec![7; AHEAD_FIRST]), AS_OF, (NOW, came));
    for (offset, used) in [(100, 100), (100, 100), (0, 100), (150, 150), (1_000, 250)] {
        assert!(is_here(&mut aheads, 1, offset, AS_OF, came));
        assert_eq!(aheads.fetched.in_order_used, used, "{offset}");
    }
    let wants = |aheads: &mut Aheads, handle, now| {
        aheads.reads(handle, 0, 1, Some(AS_OF), now);
        matches!(aheads.reads(handle, 1, 1, Some(AS_OF), now), Ahead::Wanted(_))
    };
    assert!(wants(&mut aheads, 2, came) && !wants(&mut aheads, 3, came), "it is too young to go");
    assert!(!is_here(&mut aheads, 1, 0, AS_OF, came.plus(1)) && aheads.is_empty(), "and too old to be shown");
}
