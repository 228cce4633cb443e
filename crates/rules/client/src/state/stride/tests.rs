//! What is guessed, and when.

use super::*;
use alloc::vec;

use crate::limits::AHEAD_MAX;

const END: u64 = 1 << 50;
const NOW: Millis = Millis(5_000);

/// The guess at the last of these reads of `len` bytes.
fn guess(offsets: &[u64], len: usize) -> Option<Guess> {
    let mut stride = Stride::default();
    reads(&mut stride, offsets, len)
}

fn reads(stride: &mut Stride, offsets: &[u64], len: usize) -> Option<Guess> {
    offsets.iter().for_each(|offset| stride.reads(*offset, len, NOW));
    one_target(stride, *offsets.last()?, len, END)
}

/// Of a file on one target, nothing of which is here.
fn one_target(stride: &Stride, offset: u64, len: usize, size: u64) -> Option<Guess> {
    let choice = Choice {
        records: STRIDE_MAX,
        bytes: AHEAD_MAX,
        is_here: |_: &Range<u64>| false,
        is_on: |_: &Range<u64>| true,
    };
    stride.guess((offset, len), size, &choice)
}

fn starts(guess: &Guess) -> Vec<u64> {
    guess.spans.iter().map(|span| span.start).collect()
}

/// Goal: the third read at one distance has the next ones guessed, forward and backward, no further than the file goes.
#[test]
fn the_third_read_at_a_distance_begins() {
    const FAR: u64 = 188_032;
    assert_eq!((guess(&[0], 47_008), guess(&[0, FAR], 47_008)), (None, None));
    let forward = guess(&[0, FAR, 2 * FAR], 47_008).unwrap();
    assert_eq!((starts(&forward), forward.ahead), (vec![2 * FAR, 3 * FAR, 4 * FAR, 5 * FAR], 3));
    assert!(
        forward.spans.iter().all(|span| span.end - span.start == 47_008) && forward.bytes() == 4 * 47_008
    );
    let backward = guess(&[9 * FAR, 8 * FAR, 7 * FAR], 47_008).unwrap();
    assert_eq!(starts(&backward), [4 * FAR, 5 * FAR, 6 * FAR, 7 * FAR]);
    assert_eq!(
        starts(&guess(&[5 * FAR, 4 * FAR, 3 * FAR + 1], 47_008).unwrap_or(forward.clone())),
        starts(&forward)
    );
    let begin = guess(&[3 * FAR + 7, 2 * FAR + 7, FAR + 7], 100).unwrap();
    assert_eq!((starts(&begin), begin.ahead), (vec![7, FAR + 7], 1));
    assert_eq!(guess(&[2 * FAR, FAR, 0], 100), None, "nothing is in front of it");
    let mut stride = Stride::default();
    assert!(reads(&mut stride, &[0, FAR, 2 * FAR], 47_008).is_some());
    let at_end = |size| one_target(&stride, 2 * FAR, 47_008, size).map(|guess| guess.spans);
    assert_eq!(at_end(3 * FAR + 5), Some(vec![2 * FAR..2 * FAR + 47_008, 3 * FAR..3 * FAR + 5]));
    assert_eq!((at_end(3 * FAR), at_end(2 * FAR), at_end(0)), (None, None, None));
}

/// Goal: what is no stride is not guessed at: in order, again and again at one place, jumps, lengths that differ, pauses, two who
/// read in turns through one handle, and what is beyond all numbers.
#[test]
fn what_is_no_stride_is_no_guess() {
    let turns: Vec<u64> =
        (0..40).map(|n| if n % 2 == 0 { n * 50_000 } else { (n << 30) + n * 70_000 }).collect();
    let far: Vec<u64> = (0..40).map(|n| if n % 2 == 0 { n << 17 } else { (1 << 33) + (n << 17) }).collect();
    let jumps: Vec<u64> = (0..40u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30).collect();
    let in_order: Vec<u64> = (0..40).map(|n| n * 4_096).collect();
    for offsets in [&turns, &far, &jumps, &in_order, &vec![70_000; 40]] {
        let mut stride = Stride::default();
        for offset in offsets {
            stride.reads(*offset, 4_096, NOW);
            assert_eq!(one_target(&stride, *offset, 4_096, END), None, "{offset}: {stride:?}");
        }
    }
    let mut stride = Stride::default();
    for n in 0..40u64 {
        stride.reads(n << 20, if n % 2 == 0 { 100 } else { 10_000 }, NOW);
        assert_eq!(one_target(&stride, n << 20, 100, END), None);
    }
    for n in 0..40 {
        stride.reads(n << 20, 100, NOW.plus(n * AHEAD_FOR_MS));
        assert_eq!(one_target(&stride, n << 20, 100, END), None);
    }
    let top = [u64::MAX - (3 << 20), u64::MAX - (2 << 20), u64::MAX - (1 << 20)];
    let mut stride = Stride::default();
    top.iter().for_each(|offset| stride.reads(*offset, 4_096, NOW));
    assert_eq!(one_target(&stride, top[2], 4_096, u64::MAX), None, "one ends where numbers do");
    for offset in [0, u64::MAX / 2 + 1, 0, u64::MAX / 2 + 1, 0, u64::MAX] {
        stride.reads(offset, 4_096, NOW);
        assert_eq!(one_target(&stride, offset, 4_096, u64::MAX), None);
    }
}

/// Goal: records may differ a little, and what is read ahead is as long as the longest of them; one that is somewhere else ends
/// it, and three begin it again.
#[test]
fn records_differ_and_one_elsewhere_ends_it() {
    let mut stride = Stride::default();
    for (n, len) in [(0u64, 40_000), (1, 47_008), (2, 41_000)] {
        stride.reads(n << 20, len, NOW);
    }
    let guess = one_target(&stride, 2 << 20, 41_000, END).unwrap();
    let lens: Vec<u64> = guess.spans.iter().map(|span| span.end - span.start).collect();
    assert_eq!(lens, [41_000, 47_008, 47_008, 47_008], "of what is asked for no more");
    for (offset, begins) in [(77, false), (3 << 20, false), (4 << 20, false), (5 << 20, true)] {
        stride.reads(offset, 47_008, NOW);
        assert_eq!(one_target(&stride, offset, 47_008, END).is_some(), begins, "{offset}");
    }
}

/// Goal: small records near each other are one request with what lies between; those further apart are one each. Neither their
/// number nor their bytes grow beyond the limits, whatever the distance.
#[test]
fn near_records_are_one_request() {
    for (len, gap, one) in [(512, 3_584, true), (4_096, STRIDE_GAP, true), (4_096, STRIDE_GAP + 1, false)] {
        let far = len as u64 + gap;
        for offsets in [[0, far, 2 * far], [40 * far, 39 * far, 38 * far]] {
            let guess = guess(&offsets, len).unwrap();
            assert_eq!((guess.spans.len() == 1, guess.ahead), (one, 3), "{len}, {gap}: {guess:?}");
            assert_eq!(guess.bytes(), if one { len + 3 * far as usize } else { 4 * len });
        }
    }
    // Those that overlap as well: no byte twice.
    let over = guess(&[0, 100, 200], 1_000).unwrap();
    assert_eq!((over.spans.len(), over.spans[0].clone()), (1, 200..1_500));
    for (len, far, most) in
        [(4_096, 65_536, 32), (47_008, 188_032, 22), (131_072, 1 << 20, 8), (1_000, 9_000, 32)]
    {
        let mut stride = Stride::default();
        reads(&mut stride, &[0, far, 2 * far], len);
        let mut counts = vec![];
        for _ in 0..6 {
            let guess = one_target(&stride, 2 * far, len, END).unwrap();
            assert!(guess.bytes() <= AHEAD_MAX && guess.ahead < STRIDE_MAX as u32);
            counts.push(guess.ahead + 1);
            stride.was_right(guess.ahead, guess.ahead, true);
        }
        assert_eq!((counts[0], counts[1], counts[5]), (4, 8, most), "{len}");
    }
}

/// Goal: who has most of what was guessed for him not used is guessed for later and later, and little; who used all of it, from
/// the third read on again.
#[test]
fn wrong_guesses_cost_little() {
    let (mut stride, mut read, mut fetched) = (Stride::default(), 0u64, 0u64);
    let mut at = 0;
    for len in [3, 3, 6, 12, 24, 48, 64, 64, 64, 64, 200] {
        // So many at a distance, the last of which is guessed for, and then a jump.
        for n in 0..len {
            stride.reads(at + n * 100_000, 100, NOW);
            read += 1;
            if let Some(guess) = one_target(&stride, at + n * 100_000, 100, END) {
                fetched += u64::from(guess.ahead);
                stride.was_right(0, guess.ahead, true);
            }
        }
        at += 1 << 32;
    }
    assert!(fetched * 8 < read, "{fetched} of {read}");
    assert_eq!(stride.needs, STRIDE_RUN_MAX);
    stride.was_right(3, 3, true);
    assert!(reads(&mut stride, &[0, 1 << 20, 2 << 20], 100).is_some_and(|guess| guess.ahead == 7));
    stride.was_right(4, 7, true);
    assert!(reads(&mut stride, &[0, 1 << 20, 2 << 20], 100).is_some_and(|guess| guess.ahead == 3));
    reads(&mut stride, &(0..100).map(|n| n << 20).collect::<Vec<u64>>(), 100);
    stride.was_right(3, 3, true);
    stride.fails();
    assert!(reads(&mut stride, &[100 << 20], 100).is_none() && stride.count == STRIDE_FIRST);
    for n in 0..u64::from(STRIDE_RUN_MAX) {
        let guess = reads(&mut stride, &[(1 << 40) + (n << 20)], 100);
        assert_eq!(guess.is_some(), n + 1 == u64::from(STRIDE_RUN_MAX), "{n}");
    }
}

/// Goal: nothing is guessed but what lies on the targets that the record needs which is asked for, wherever those are among the
/// records to come, and what lies between two as well; nothing that is here already; and no more than there is room for.
#[test]
fn only_what_lies_with_the_record_is_guessed() {
    // Four targets by turns, in chunks of 1 MiB.
    const CHUNK: u64 = 1 << 20;
    let on = |target: u64| {
        move |range: &Range<u64>| {
            (range.start / CHUNK..=(range.end - 1) / CHUNK).all(|chunk| chunk % 4 == target)
        }
    };
    let mut stride = Stride::default();
    (0..3).for_each(|n| stride.reads(n * CHUNK, 4_096, NOW));
    let mut choice = Choice {
        records: 9,
        bytes: AHEAD_MAX,
        is_here: |range: &Range<u64>| range.start == 10 * CHUNK,
        is_on: on(2),
    };
    let found = |stride: &Stride, choice: &Choice<_, _>| {
        stride.guess((2 * CHUNK, 4_096), END, choice).map(|guess| (starts(&guess), guess.ahead))
    };
    assert_eq!(found(&stride, &choice), Some(([2, 6, 14, 18].map(|n| n * CHUNK).to_vec(), 3)));
    choice.records = 1;
    assert_eq!(found(&stride, &choice), Some(([2, 6].map(|n| n * CHUNK).to_vec(), 1)));
    (choice.records, choice.bytes) = (9, 3 * 4_096);
    assert_eq!(found(&stride, &choice).unwrap().1, 2);
    choice.bytes = 4_096;
    assert_eq!(found(&stride, &choice), None);
    (choice.records, choice.bytes) = (0, AHEAD_MAX);
    assert_eq!(found(&stride, &choice), None);
    let nowhere = Choice {
        records: 9,
        bytes: AHEAD_MAX,
        is_here: |_: &Range<u64>| false,
        is_on: |_: &Range<u64>| false,
    };
    assert_eq!(stride.guess((2 * CHUNK, 4_096), END, &nowhere), None);
    assert_eq!(stride.to_come(2 * CHUNK, END).count(), STRIDE_SIGHT, "so far is looked");
    // Both ends of a chunk with what lies between them, and not the chunk of another target between two.
    let mut stride = Stride::default();
    (0..4).for_each(|n| stride.reads(CHUNK - 512 + n * 1_024 - 3 * 1_024, 512, NOW));
    let choice = Choice { records: 9, bytes: AHEAD_MAX, is_here: |_: &Range<u64>| false, is_on: on(0) };
    let at = CHUNK - 512;
    assert_eq!(stride.guess((at, 512), END, &choice), None, "the next ones are on the next target");
    let guess = stride.guess((at - 2_048, 512), END, &choice).unwrap();
    assert_eq!((guess.spans.len(), guess.spans[0].clone(), guess.ahead), (1, at - 2_048..CHUNK, 2));
}

/// Goal: guesses that take long are halved until they do not, and grow again as they take little.
#[test]
fn who_is_slow_is_asked_for_little() {
    let mut stride = Stride::default();
    let counts = |stride: &mut Stride, took: &[u64]| -> Vec<usize> {
        let once = |ms: &u64| {
            let grows = stride.took(*ms);
            stride.was_right(3, 3, grows);
            stride.count()
        };
        took.iter().map(once).collect()
    };
    assert_eq!(counts(&mut stride, &[1, 5, 0, 0]), [8, 16, 32, 32]);
    assert_eq!(counts(&mut stride, &[100, 6, 101, 500, 900, 101, 101]), [32, 32, 16, 8, 4, 2, 2]);
    stride.was_right(2, 3, true);
    stride.was_right(0, 3, true);
    stride.fails();
    assert_eq!(counts(&mut stride, &[80, 5, 5]), [2, 4, 8], "what is wrong makes none of them larger");
}
