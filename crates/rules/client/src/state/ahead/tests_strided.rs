//! Who reads at a constant distance finds his next records, as long as nothing of the file has changed.

use super::*;
use crate::limits::{
    AHEAD_BYTES_MAX, STRIDE_KEPT_MAX, STRIDE_MAX, STRIDE_QUICK_MS, STRIDE_ROUNDS, STRIDE_SLOW_MS,
};
use crate::state::stride::place_in;
use skep_types::{Code, Extent, Floors, Generation, Layout, Stripe, TargetId};

const AS_OF: AsOf = AsOf { cover: 1, opened_to_write: 0, truncations: 0, size: 1 << 30 };
const NOW: Millis = Millis(5_000);
const FAR: u64 = 65_536;
const LEN: usize = 4_096;

/// On so many targets.
fn layout(targets: u32) -> Layout {
    let targets: Vec<TargetId> = (1..=targets).map(TargetId).collect();
    let extent = Extent {
        number: 0,
        start: 0,
        end: u64::MAX,
        origin: Ino(9),
        generation: Generation(1),
        code: Code::Copies,
        chunk_size: 1 << 16,
        stripes: Stripe::each(&targets),
        floors: Floors::default(),
        cuts: Vec::new(),
    };
    Layout { generation: Generation(1), extents: alloc::vec![extent], ..Layout::default() }
}

/// As a mount does it, of a file on so many targets.
fn look(
    aheads: &mut Aheads,
    handle: Handle,
    (offset, len): (u64, usize),
    (as_of, targets): (Option<AsOf>, u32),
    now: Millis,
) -> Ahead {
    match (aheads.reads(handle, offset, len, as_of, now), as_of) {
        (Ahead::No, Some(as_of)) => {
            aheads.guesses(handle, (offset, len), (as_of.size, &layout(targets)), now)
        }
        (ahead, _) => ahead,
    }
}

fn reads(aheads: &mut Aheads, handle: Handle, record: u64, now: Millis) -> Ahead {
    look(aheads, handle, (record * FAR, LEN), (Some(AS_OF), 1), now)
}

fn put(aheads: &mut Aheads, handle: Handle, guess: Guess, now: Millis) -> bool {
    let bytes = alloc::vec![7; guess.bytes()];
    aheads.put_strided(handle, (guess, LEN), Arc::new(bytes), AS_OF, (now, now))
}

/// Reads these; those that are guessed for, by their number, and those that were there.
fn run(aheads: &mut Aheads, records: impl Iterator<Item = u64>) -> (Vec<(u64, u32)>, Vec<u64>) {
    let (mut guessed, mut found) = (Vec::new(), Vec::new());
    for record in records {
        match reads(aheads, 1, record, NOW) {
            Ahead::Strided(guess) => {
                guessed.push((record, guess.ahead));
                put(aheads, 1, guess, NOW);
            }
            Ahead::Here(..) => found.push(record),
            Ahead::Wanted(_) => panic!("{record} is not in order"),
            Ahead::No => {}
        }
    }
    (guessed, found)
}

/// Goal: from the third record on they come in growing numbers, none is read twice, and all bytes are counted.
#[test]
fn records_come_together() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let (guessed, found) = run(&mut aheads, 0..100);
    assert_eq!(guessed, [(2, 3), (6, 7), (14, 15), (30, 31), (62, 31), (94, 31)]);
    assert_eq!(found.len(), 100 - 2 - guessed.len());
    let Fetched { strided, strided_used, .. } = aheads.fetched;
    assert_eq!((strided, strided_used), (118 * LEN as u64, found.len() as u64 * LEN as u64));
    // One elsewhere takes nothing away of what is there, and has nothing guessed.
    assert_eq!(
        run(&mut aheads, [5_000, 100, 101, 102].into_iter()),
        (alloc::vec![], alloc::vec![100, 101, 102])
    );
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let (guessed, found) = run(&mut aheads, (0..40).rev());
    assert_eq!(guessed, [(37, 3), (33, 7), (25, 15), (9, 9)]);
    assert_eq!(found.len(), 40 - 2 - guessed.len());
}

/// Goal: a guess that comes to nothing is not made again soon, and neither is one of which most was not used.
#[test]
fn what_is_not_used_is_guessed_seldom() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let begun = (0..1_000).flat_map(|run| (0..4).map(move |n| run * 1_000 + n * (run % 7 + 2)));
    let (guessed, found) = run(&mut aheads, begun);
    assert!(guessed.len() + found.len() < 8, "{guessed:?}, {found:?}");
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    for record in 0..60 {
        if let Ahead::Strided(_) = reads(&mut aheads, 1, record, NOW) {
            assert_eq!((record, aheads.bytes), (2, 4 * LEN));
            aheads.strays(1);
            assert_eq!(aheads.bytes, 0);
        }
    }
}

/// Goal: nothing of it is given out when the file may have changed, or when it is old; and a piece of which a byte is missing
/// neither.
#[test]
fn what_may_have_changed_is_not_there() {
    let changes = [
        Some(AsOf { cover: 2, ..AS_OF }),
        Some(AsOf { opened_to_write: 1, ..AS_OF }),
        Some(AsOf { truncations: 1, ..AS_OF }),
        Some(AsOf { size: 1 << 29, ..AS_OF }),
        None,
    ];
    let is_here = |ahead: Ahead| matches!(ahead, Ahead::Here(..));
    for changed in changes {
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        assert_eq!(run(&mut aheads, 0..4).1, [3]);
        assert!(
            !is_here(look(&mut aheads, 1, (4 * FAR, LEN + 1), (Some(AS_OF), 1), NOW)),
            "the last byte is not there"
        );
        assert!(!is_here(look(&mut aheads, 1, (4 * FAR - 1, LEN), (Some(AS_OF), 1), NOW)), "nor one before");
        assert!(
            !is_here(look(&mut aheads, 1, (4 * FAR, LEN), (changed, 1), NOW)) && aheads.is_empty(),
            "{changed:?}"
        );
        assert_eq!(aheads.bytes, 0);
    }
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    assert_eq!(run(&mut aheads, 0..4).1, [3]);
    assert!(!is_here(reads(&mut aheads, 1, 4, NOW.plus(AHEAD_FOR_MS))) && aheads.is_empty());
}

/// Goal: of records that lie apart each byte comes from where it is in the file, and the last one of a file ends with it.
#[test]
fn bytes_are_those_of_their_places() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let as_of = AsOf { size: 5 * FAR + 10, ..AS_OF };
    let byte = |at: u64| (at / FAR * 31 + at % 251) as u8;
    let mut seen = 0;
    for record in 0..6 {
        match look(&mut aheads, 1, (record * FAR, LEN), (Some(as_of), 1), NOW) {
            Ahead::Strided(guess) => {
                let bytes: Vec<u8> = guess.spans.iter().cloned().flatten().map(byte).collect();
                assert_eq!(
                    (bytes.len(), place_in(&guess.spans, record * FAR, record * FAR + 1)),
                    (3 * LEN + 10, Some(0))
                );
                aheads.put_strided(1, (guess, LEN), Arc::new(bytes), as_of, (NOW, NOW));
            }
            Ahead::Here(bytes, at) => {
                let len = LEN.min((as_of.size - record * FAR) as usize);
                assert!((0..len).all(|n| bytes[at + n] == byte(record * FAR + n as u64)), "{record}");
                assert!(record < 5 || bytes.len() == at + 10, "the file ends there");
                seen += 1;
            }
            _ => assert!(record < 2),
        }
    }
    assert_eq!(seen, 3);
}

/// Goal: one guess is under way for a handle, its memory counts with all other, and goes with the handle, or when it is old.
#[test]
fn memory_is_bounded() {
    let mut aheads = Aheads::new(8 * LEN);
    let begins = |aheads: &mut Aheads, handle, now| {
        (0..3).find_map(|record| match reads(aheads, handle, record, now) {
            Ahead::Strided(guess) => Some(guess),
            _ => None,
        })
    };
    let one = begins(&mut aheads, 1, NOW).unwrap();
    assert!(matches!(reads(&mut aheads, 1, 3, NOW), Ahead::No), "it is under way");
    let two = begins(&mut aheads, 2, NOW).unwrap();
    assert!(begins(&mut aheads, 3, NOW).is_none() && aheads.bytes == 8 * LEN);
    assert!(put(&mut aheads, 1, one, NOW) && !put(&mut aheads, 2, two, NOW));
    assert!(begins(&mut aheads, 4, NOW.plus(AHEAD_KEPT_MS - 1)).is_none());
    let now = NOW.plus(AHEAD_KEPT_MS);
    let guess = begins(&mut aheads, 5, now).unwrap();
    assert_eq!(aheads.bytes, 8 * LEN, "the oldest went");
    aheads.forget(2);
    aheads.forget(5);
    assert_eq!((aheads.bytes, aheads.is_empty()), (0, true));
    assert!(!put(&mut aheads, 5, guess, now), "it was closed");
    assert_eq!((aheads.bytes, aheads.is_empty()), (0, true));
    aheads.forget(1);
    assert_eq!(run(&mut aheads, 10..15).1, [13, 14]);
    assert_eq!((aheads.forget_old(NOW.plus(AHEAD_FOR_MS)), aheads.bytes), (None, 0));
}

/// Goal: where the file ends so soon that nothing is ahead, nothing is read ahead.
#[test]
fn nothing_is_ahead_where_the_file_ends() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let as_of = AsOf { size: 1_100, ..AS_OF };
    for offset in [0, 100, 200, 300, 400] {
        // Each of them has all that follows.
        assert!(
            matches!(look(&mut aheads, 1, (offset, 1_000), (Some(as_of), 1), NOW), Ahead::No),
            "{offset}"
        );
    }
    assert_eq!(aheads.bytes, 0);
}

/// Goal: who reads so, and of whose file too little is known, has that asked for.
#[test]
fn what_is_missing_is_asked_for() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    for record in 0..3 {
        assert!(!aheads.asks(1, NOW), "{record}");
        look(&mut aheads, 1, (record * FAR, LEN), (None, 1), NOW);
    }
    assert!(aheads.asks(1, NOW) && aheads.next_asking() == Some(1));
}

/// Reads these of a file on so many targets, record by record in the next chunk: how many asked a target, and for how many records
/// that nobody had asked for.
fn run_over(aheads: &mut Aheads, targets: u32, records: impl Iterator<Item = u64>, ms: u64) -> (u32, u32) {
    let (mut asked, mut ahead) = (0, 0);
    for record in records {
        match look(aheads, 1, (record * FAR, LEN), (Some(AS_OF), targets), NOW) {
            Ahead::Here(..) => continue,
            Ahead::Strided(guess) => {
                let of_target = |span: &Range<u64>| span.start / FAR % u64::from(targets);
                let own = record % u64::from(targets);
                assert!(guess.spans.iter().all(|span| of_target(span) == own), "{record}: {guess:?}");
                ahead += guess.ahead;
                let bytes = alloc::vec![7; guess.bytes()];
                aheads.put_strided(1, (guess, LEN), Arc::new(bytes), AS_OF, (NOW, NOW.plus(ms)));
            }
            _ => {}
        }
        asked += 1;
        let reading = &aheads.of[&1];
        let kept: usize = reading.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let waits: u32 = reading.pieces.iter().map(|piece| piece.ahead - piece.used).sum();
        assert!(kept <= STRIDE_KEPT_MAX && waits <= (STRIDE_ROUNDS * STRIDE_MAX) as u32);
        assert_eq!(kept, aheads.bytes);
    }
    (asked, ahead)
}

/// Goal: of each target its own records are read ahead, by who needs it: so who waits, waits for that one. All of them together are
/// bounded, and all are used.
#[test]
fn each_target_is_asked_for_its_own() {
    for targets in [1, 2, 3, 4, 8, 16] {
        for backward in [false, true] {
            let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
            let place = |record: u64| if backward { 1_023 - record } else { record };
            let (asked, ahead) = run_over(&mut aheads, targets, (0..1_024).map(place), 0);
            assert!(asked < 1_024 / 4, "{targets}, {backward}: {asked}");
            let Fetched { strided, strided_used, .. } = aheads.fetched;
            assert_eq!(strided, u64::from(ahead) * LEN as u64);
            assert_eq!(strided_used, u64::from(1_024 - asked) * LEN as u64);
            assert_eq!(aheads.strided_used(1), strided_used);
            aheads.forget(1);
            assert_eq!((aheads.bytes, aheads.is_empty(), aheads.by_age.len()), (0, true, 0));
        }
    }
}

/// Goal: who always jumps away has little read in vain, on however many targets; and who is slow has less of it at once.
#[test]
fn several_targets_cost_no_more() {
    for targets in [1, 4, 16, 64] {
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        let jumps = (0..100).flat_map(|run| (0..70).map(move |n| run * 1_003 + n));
        let (_, ahead) = run_over(&mut aheads, targets, jumps, 0);
        let (fetched, used) = (aheads.fetched.strided, aheads.fetched.strided_used);
        assert_eq!(fetched, u64::from(ahead) * LEN as u64);
        assert!(fetched - used <= 7_000 * LEN as u64 / 4, "{targets}: {used} of {fetched}");
    }
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let quick = run_over(&mut aheads, 4, 0..512, STRIDE_QUICK_MS).0;
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let slow = run_over(&mut aheads, 4, 0..512, STRIDE_SLOW_MS + 1).0;
    assert!(quick < 60 && (250..270).contains(&slow), "{quick}, {slow}");
}

/// Goal: one record counts once as used, however often and in however many pieces it is read.
#[test]
fn a_record_is_used_once() {
    for backward in [false, true] {
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        let place = |record: u64| if backward { 50 - record } else { record };
        run(&mut aheads, (0..3).map(place));
        for _ in 0..3 {
            for at in [0, 1_000, 0] {
                let offset = place(3) * FAR + at;
                assert!(matches!(
                    look(&mut aheads, 1, (offset, 1_000), (Some(AS_OF), 1), NOW),
                    Ahead::Here(..)
                ));
            }
        }
        assert_eq!(aheads.of[&1].pieces[0].used, 1, "{backward}");
        let used = aheads.fetched.strided_used;
        assert!((1_000..=2_000).contains(&used), "{used}");
    }
}

/// Goal: what took its time to come is as old as the question.
#[test]
fn records_are_as_old_as_the_question() {
    let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
    let guess = (0..3).find_map(|record| match reads(&mut aheads, 1, record, NOW) {
        Ahead::Strided(guess) => Some(guess),
        _ => None,
    });
    let (guess, came) = (guess.unwrap(), NOW.plus(AHEAD_FOR_MS - 1));
    let bytes = alloc::vec![7; guess.bytes()];
    aheads.put_strided(1, (guess, LEN), Arc::new(bytes), AS_OF, (NOW, came));
    assert!(matches!(reads(&mut aheads, 1, 3, came), Ahead::Here(..)));
    assert!(!matches!(reads(&mut aheads, 1, 4, came.plus(1)), Ahead::Here(..)) && aheads.is_empty());
}
