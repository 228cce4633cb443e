//! Files that were there before: asked for, and held.

use crate::limits::{GATHER_WRITE_MAX, HOLD_MS, HOLD_TELL_MS, WISH_AFTER};
use crate::op::hold::tests::{asked, beside, holding_with, on_shard};
use crate::op::recalls::tests::{cluster, leased, listens, make};
use crate::state::Stay;
use crate::testing::{Cluster, FakeLane, Fault, block_on, clock, lane_beside, mount, read, step, write};
use crate::{Limits, Opened, WriteHow};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::limits::TRANSFER_MAX;
use skep_types::{Errno, Ino, SetAttr, Term};
use skep_wire::meta::{Commit, Grow, Question, ReserveEnd, Tell};
use skep_wire::storage::WriteChunk;
use skep_wire::{Message, Status};

const BEGUN: usize = 9_000;
const PIECE: usize = 512;
const PLAIN: WriteHow =
    WriteHow { kill_suidgid: false, sync: false, append: false, from_pages: false, direct: false };
const APPEND: WriteHow = WriteHow { append: true, ..PLAIN };

/// A mount that lets small writes wait, who hears for it, who tells, and a file that it writes to and does not hold.
fn writing(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane, FakeLane, Opened) {
    writing_with(cluster, Limits { gathers: true, ..leased() })
}

fn writing_with(cluster: &Rc<RefCell<Cluster>>, limits: Limits) -> (FakeLane, FakeLane, FakeLane, Opened) {
    let (lane, ear, teller) = holding_with(cluster, limits);
    {
        let mut cluster = cluster.borrow_mut();
        cluster.targets.promises = Some(64 << 20);
        let holds = &mut cluster.shard.holds;
        (holds.room, holds.keeps, holds.gives) = (None, true, true);
    }
    let file = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &file, 0, &[1; BEGUN]);
    (lane, ear, teller, file)
}

/// What is in the file behind so many pieces.
fn all(count: usize) -> Vec<u8> {
    [[1; BEGUN].to_vec(), [2; PIECE].repeat(count)].concat()
}

/// Writes these pieces behind what is there.
fn pieces(lane: &FakeLane, file: &Opened, numbers: core::ops::Range<usize>) {
    for number in numbers {
        write(lane, file, (BEGUN + number * PIECE) as u64, &[2; PIECE]);
    }
}

fn tells(cluster: &RefCell<Cluster>) -> usize {
    asked(cluster, &[Tell::KIND])
}

fn waits(lane: &FakeLane, ino: Ino) -> usize {
    let run = lane.shared.borrow().inodes.get(ino).and_then(|inode| inode.run());
    run.map_or(0, |(from, end)| (end - from) as usize)
}

fn is_held(lane: &FakeLane, ino: Ino) -> bool {
    lane.shared.borrow().inodes.get(ino).is_some_and(|inode| inode.hold.is_some())
}

/// The file is asked for: is it held then?
fn holds(lane: &FakeLane, teller: &FakeLane, file: &Opened) -> bool {
    pieces(lane, file, 0..WISH_AFTER as usize);
    block_on(teller.tell_held());
    is_held(lane, file.attr.ino)
}

fn passes(cluster: &RefCell<Cluster>, ms: u64) {
    cluster.borrow_mut().now += ms;
}

/// Goal: a file that was there before is asked for behind four small writes, by a teller, with one request; from then on they
/// stay as of a new one, all of it is read, and told.
#[test]
fn a_file_that_was_there_before_is_held() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    // What was there is one of them.
    pieces(&lane, &file, 0..2);
    block_on(teller.tell_held());
    assert_eq!((tells(&cluster), is_held(&lane, file.attr.ino)), (0, false));
    pieces(&lane, &file, 2..4);
    assert_eq!(tells(&cluster), 0, "no lane of a program asks");
    block_on(teller.tell_held());
    assert_eq!((tells(&cluster), is_held(&lane, file.attr.ino)), (1, true));
    // This one asks for room, the others stay.
    pieces(&lane, &file, 4..5);
    let before = cluster.borrow().total();
    pieces(&lane, &file, 5..9);
    assert_eq!((cluster.borrow().total(), waits(&lane, file.attr.ino)), (before, 4 * PIECE));
    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size as usize, BEGUN + 9 * PIECE);
    // It goes on with what is told.
    passes(&cluster, HOLD_TELL_MS);
    block_on(teller.tell_held());
    assert_eq!((tells(&cluster), is_held(&lane, file.attr.ino)), (2, true));
    assert_eq!(on_shard(&cluster, file.attr.ino).size as usize, BEGUN + 9 * PIECE);
    pieces(&lane, &file, 9..12);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert!(!is_held(&lane, file.attr.ino) && cluster.borrow().shard.holds.by.is_empty());
    assert!(read(&lane, &file, 0, 1 << 20) == all(12));
    assert_eq!(on_shard(&cluster, file.attr.ino).size as usize, BEGUN + 12 * PIECE);
}

/// Goal: a file is asked for only where small writes follow one another, went to chunks, would stay if it was held, and came
/// within a second.
#[test]
fn what_counts() {
    type Writes = fn(&RefCell<Cluster>, &FakeLane, &Opened, usize);
    let cases: [(&str, Writes, bool); 8] = [
        ("in order", |_, lane, file, n| pieces(lane, file, n..n + 1), true),
        (
            "appended",
            |_, lane, file, _| {
                block_on(lane.write(file.handle, 0, &[2; PIECE], APPEND)).unwrap();
            },
            true,
        ),
        ("elsewhere", |_, lane, file, n| pieces(lane, file, 2 * n..2 * n + 1), false),
        (
            "slowly",
            |cluster, lane, file, n| {
                passes(cluster, 400);
                pieces(lane, file, n..n + 1);
            },
            false,
        ),
        (
            "synchronously",
            |_, lane, file, n| {
                let how = WriteHow { sync: true, ..PLAIN };
                block_on(lane.write(file.handle, (BEGUN + n * PIECE) as u64, &[2; PIECE], how)).unwrap();
            },
            false,
        ),
        (
            "direct",
            |_, lane, file, n| {
                let how = WriteHow { direct: true, ..PLAIN };
                block_on(lane.write(file.handle, (BEGUN + n * PIECE) as u64, &[2; PIECE], how)).unwrap();
            },
            false,
        ),
        (
            "large",
            |_, lane, file, n| {
                let len = GATHER_WRITE_MAX + 1;
                write(lane, file, (BEGUN + n * len) as u64, &alloc::vec![2; len]);
            },
            false,
        ),
        (
            "with set-id bits",
            |_, lane, file, n| {
                if n == 0 {
                    let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
                    block_on(lane.setattr(file.attr.ino, set)).unwrap();
                }
                pieces(lane, file, n..n + 1);
            },
            false,
        ),
    ];
    for (what, does, expected) in cases {
        let cluster = cluster();
        let (lane, _, teller, file) = writing(&cluster);
        (0..6).for_each(|number| does(&cluster, &lane, &file, number));
        block_on(teller.tell_held());
        assert_eq!(is_held(&lane, file.attr.ino), expected, "{what}");
        assert_eq!(cluster.borrow().shard.holds.by.len(), usize::from(expected), "{what}");
    }
    let cluster = cluster();
    let (lane, _, teller, file) = writing_with(&cluster, leased());
    assert!(!holds(&lane, &teller, &file) && tells(&cluster) == 0, "it gathers nothing");
}

/// Goal: refused, it is asked for again after 1 s, 2 s, and so on up to 32; never sooner.
#[test]
fn refusals_make_it_seldom() {
    let cluster = cluster();
    let (lane, ear, teller, file) = writing(&cluster);
    cluster.borrow_mut().shard.holds.gives = false;
    let began = clock(&cluster);
    let mut times = Vec::new();
    let mut number = 0;
    while clock(&cluster) < began + 130_000 {
        let before = tells(&cluster);
        pieces(&lane, &file, number..number + 4);
        number += 4;
        block_on(teller.tell_held());
        if tells(&cluster) > before {
            times.push((clock(&cluster) - began) / 1_000);
        }
        passes(&cluster, 250);
        listens(&ear);
    }
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 95, 127]);
}

/// Goal: whoever looks is shown all of it, and ends the hold; then it is not asked for again for longer and longer, but for a
/// second where a hold went on for as long as the file was left alone before.
#[test]
fn who_looks_makes_it_seldom() {
    let cluster = cluster();
    let (lane, ear, teller, file) = writing(&cluster);
    let other = mount(&cluster);
    let mut number = 0;
    let mut round = |wait: u64, goes_on: u64| {
        passes(&cluster, wait);
        let mut goes = |count: usize| {
            pieces(&lane, &file, number..number + count);
            number += count;
            block_on(teller.tell_held());
        };
        goes(4);
        let held = is_held(&lane, file.attr.ino);
        for _ in 0..goes_on / 500 {
            passes(&cluster, 500);
            listens(&ear);
            goes(4);
        }
        let seen = beside(other.getattr(file.attr.ino), &ear, &teller).unwrap();
        assert!(!held || seen.size as usize == BEGUN + number * PIECE);
        held
    };
    let all: Vec<bool> =
        [(0, 0), (999, 0), (1, 0), (1_999, 0), (1, 0), (3_999, 0), (1, 5_000), (999, 0), (1, 0)]
            .map(|(wait, goes_on)| round(wait, goes_on))
            .to_vec();
    assert_eq!(all, [true, false, true, false, true, false, true, false, true]);
}

/// Goal: a question that comes before the answer to the wish: the file is not held, and the shard is told so, by a number that
/// is not older.
#[test]
fn a_question_comes_first() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    let ino = file.attr.ino;
    pieces(&lane, &file, 0..4);
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    let mut asks = pin!(teller.tell_held());
    while tells(&cluster) == 0 {
        assert!(step(asks.as_mut()).is_pending());
    }
    let now = skep_types::Millis(clock(&cluster));
    lane.shared.borrow_mut().is_asked_for(&Question { term: Term(1), ino, looks: None }, now);
    block_on(asks);
    assert_eq!((is_held(&lane, ino), tells(&cluster)), (false, 2));
    assert!(cluster.borrow().shard.holds.by.is_empty());
}

/// Goal: an answer that comes late, or when nobody has the file open for writing, holds nothing, and the shard is told so; so
/// it is where the outcome is in doubt.
#[test]
fn answers_that_do_not_count() {
    for case in ["late", "closed", "in doubt", "refused", "counts"] {
        let cluster = cluster();
        let (lane, _, teller, file) = writing(&cluster);
        pieces(&lane, &file, 0..4);
        let fault = match case {
            "in doubt" => Fault::Garble,
            "refused" => Fault::Refuse(Status::errno(Errno::ESTALE)),
            _ => Fault::LateAnswer,
        };
        cluster.borrow_mut().fail(Tell::KIND, &[fault]);
        {
            let mut asks = pin!(teller.tell_held());
            if matches!(fault, Fault::LateAnswer) {
                while tells(&cluster) == 0 {
                    assert!(step(asks.as_mut()).is_pending());
                }
            }
            match case {
                "late" => passes(&cluster, HOLD_MS),
                "closed" => block_on(lane.release(file.handle)),
                _ => {}
            }
            block_on(asks);
        }
        let expected = if case == "counts" { (true, 1) } else { (false, 2) };
        assert_eq!((is_held(&lane, file.attr.ino), tells(&cluster)), expected, "{case}");
        assert_eq!(cluster.borrow().shard.holds.by.len(), usize::from(case == "counts"), "{case}");
    }
}

/// Goal: beside a commit that began before the file was held nothing stays: what it tells of the size is with the targets.
#[test]
fn a_commit_that_began_before() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    let other = lane_beside(&cluster, &lane);
    pieces(&lane, &file, 0..4);
    cluster.borrow_mut().fail(Commit::KIND, &[Fault::LateAnswer]);
    {
        let mut commits = pin!(other.commit(file.attr.ino));
        while asked(&cluster, &[Commit::KIND]) == 0 {
            assert!(step(commits.as_mut()).is_pending());
        }
        block_on(teller.tell_held());
        assert!(is_held(&lane, file.attr.ino));
        pieces(&lane, &file, 4..7);
        assert_eq!(waits(&lane, file.attr.ino), 0);
        block_on(commits).unwrap();
    }
    pieces(&lane, &file, 7..8);
    assert_eq!(waits(&lane, file.attr.ino), PIECE);
}

/// Goal: appends to a held file stay, one behind the other and behind what was written, without a question for the end; where
/// they cannot, what waits goes first, and the hold goes on.
#[test]
fn appends_stay() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    let other = lane_beside(&cluster, &lane);
    let append = |lane: &FakeLane, data: &[u8], how: WriteHow| {
        assert_eq!(block_on(lane.write(file.handle, 0, data, how)), Ok(data.len()));
    };
    (0..4).for_each(|_| append(&lane, &[2; PIECE], APPEND));
    block_on(teller.tell_held());
    assert!(is_held(&lane, file.attr.ino));
    // The first asks for room, by the way that it always goes; it does not end the hold.
    append(&lane, &[2; PIECE], APPEND);
    let before = (cluster.borrow().total(), tells(&cluster));
    assert_eq!((before.1, waits(&lane, file.attr.ino)), (1, 0));
    append(&lane, &[2; PIECE], APPEND);
    append(&other, &[2; PIECE], APPEND);
    pieces(&lane, &file, 7..8);
    append(&other, &[2; PIECE], APPEND);
    assert_eq!((cluster.borrow().total(), waits(&lane, file.attr.ino)), (before.0, 4 * PIECE));
    // Too large, or synchronous: behind what waits.
    let large = alloc::vec![3; GATHER_WRITE_MAX + 1];
    append(&lane, &large, APPEND);
    append(&lane, &[4; PIECE], WriteHow { direct: true, ..APPEND });
    assert!(is_held(&lane, file.attr.ino) && waits(&lane, file.attr.ino) == 0);
    append(&lane, &[5; PIECE], APPEND);
    assert_eq!(waits(&lane, file.attr.ino), PIECE);
    let expected = [all(9), large, [4; PIECE].to_vec(), [5; PIECE].to_vec()].concat();
    assert!(read(&lane, &file, 0, 1 << 20) == expected);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(on_shard(&cluster, file.attr.ino).size as usize, expected.len());
    assert!(read(&lane, &file, 0, 1 << 20) == expected);
}

/// Goal: an append that finds another one in its place, when it is about to stay there, does not: the place is looked for anew.
/// Nor does one beside a write of the mount to chunks, or where one came to nothing before, which may land late.
#[test]
fn two_appends_have_two_places() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    let ino = file.attr.ino;
    assert!(holds(&lane, &teller, &file));
    pieces(&lane, &file, 4..6);
    let now = (skep_types::Millis(clock(&cluster)), skep_types::Timestamp::default());
    let end = lane.shared.borrow().append_stays_at(ino, now.0).unwrap();
    assert_eq!(end as usize, BEGUN + 6 * PIECE);
    block_on(lane.write(file.handle, 0, &[2; PIECE], APPEND)).unwrap();
    assert_eq!(lane.shared.borrow_mut().gathers_at_end(ino, end, &[7; 9], now), Stay::Goes);
    let here = end + PIECE as u64;
    assert_eq!(lane.shared.borrow_mut().gathers_at_end(ino, here, &[2; PIECE], now), Stay::Here);
    lane.shared.borrow_mut().inodes.entry(ino).change_begins();
    assert_eq!(lane.shared.borrow().append_stays_at(ino, now.0), None);
    lane.shared.borrow_mut().inodes.entry(ino).change_ends();
    assert!(read(&lane, &file, 0, 1 << 20) == all(8));
    let failed = Fault::Refuse(Status::errno(Errno::EIO));
    cluster.borrow_mut().fail(WriteChunk::KIND, &[failed]);
    let large = alloc::vec![3; GATHER_WRITE_MAX + 1];
    assert_eq!(block_on(lane.write(file.handle, 0, &large, APPEND)), Err(Errno::EIO));
    assert_eq!(lane.shared.borrow().append_stays_at(ino, now.0), None);
    let before = asked(&cluster, &[ReserveEnd::KIND]);
    block_on(lane.write(file.handle, 0, &[2; PIECE], APPEND)).unwrap();
    assert_eq!(asked(&cluster, &[ReserveEnd::KIND]), before + 1);
}

/// Goal: where an append came out short, none stays from then on, also when the file was closed and opened again: what is missing
/// may land late, in the place of the next ones.
#[test]
fn behind_a_short_append_none_stays() {
    for short in [true, false] {
        let cluster = cluster();
        let (lane, _, teller, file) = writing(&cluster);
        let ino = file.attr.ino;
        let stays =
            || lane.shared.borrow().append_stays_at(ino, skep_types::Millis(clock(&cluster))).is_some();
        assert!(holds(&lane, &teller, &file) && stays());
        let large = alloc::vec![3; TRANSFER_MAX + 1];
        let failed = [Fault::LateAnswer, Fault::Refuse(Status::errno(Errno::EIO))];
        cluster.borrow_mut().fail(WriteChunk::KIND, if short { &failed } else { &failed[..1] });
        let landed = block_on(lane.write(file.handle, 0, &large, APPEND)).unwrap();
        assert_eq!((landed < large.len(), stays()), (short, !short));
        block_on(lane.release(file.handle));
        let again = block_on(lane.open(ino, crate::testing::BOTH)).unwrap();
        passes(&cluster, 1_000);
        for number in 0..WISH_AFTER as usize {
            let at = BEGUN + WISH_AFTER as usize * PIECE + landed + number * PIECE;
            write(&lane, &again, at as u64, &[2; PIECE]);
        }
        block_on(teller.tell_held());
        assert_eq!((is_held(&lane, ino), stays()), (true, !short));
    }
}

/// Goal: beside a write that looks where it goes no append stays: it would count as before that, and be put over it.
#[test]
fn beside_a_write_no_append_stays() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    let other = lane_beside(&cluster, &lane);
    assert!(holds(&lane, &teller, &file));
    let ino = file.attr.ino;
    let stays = || lane.shared.borrow().append_stays_at(ino, skep_types::Millis(clock(&cluster))).is_some();
    let covered =
        lane.shared.borrow().inodes.get(ino).and_then(|inode| inode.layout.clone()).unwrap().covered();
    let before = asked(&cluster, &[Grow::KIND]);
    cluster.borrow_mut().fail(Grow::KIND, &[Fault::LateAnswer]);
    {
        let data = alloc::vec![7; GATHER_WRITE_MAX + 1];
        let mut writes = pin!(other.write(file.handle, covered, &data, PLAIN));
        while asked(&cluster, &[Grow::KIND]) == before {
            assert!(step(writes.as_mut()).is_pending());
        }
        assert!(!stays());
        block_on(writes).unwrap();
    }
    assert!(stays());
}

/// Goal: whoever closes the file and opens it again asks no sooner than who keeps it open.
#[test]
fn a_close_forgets_no_refusal() {
    let cluster = cluster();
    let (lane, ear, teller, file) = writing(&cluster);
    cluster.borrow_mut().shard.holds.gives = false;
    let (ino, began, mut times, mut number) = (file.attr.ino, clock(&cluster), Vec::new(), 0);
    block_on(lane.release(file.handle));
    while clock(&cluster) < began + 16_000 {
        let before = asked(&cluster, &[Tell::KIND]);
        let again = block_on(lane.open(ino, crate::testing::BOTH)).unwrap();
        pieces(&lane, &again, number..number + 4);
        number += 4;
        block_on(teller.tell_held());
        if asked(&cluster, &[Tell::KIND]) > before {
            times.push((clock(&cluster) - began) / 1_000);
        }
        block_on(lane.release(again.handle));
        passes(&cluster, 250);
        listens(&ear);
    }
    assert_eq!(times, [0, 1, 3, 7, 15]);
}

/// Goal: the other tellers are woken when a file begins to be held and nothing was, and only then.
#[test]
fn who_tells_is_woken() {
    let cluster = cluster();
    let (lane, _, teller, file) = writing(&cluster);
    pieces(&lane, &file, 0..WISH_AFTER as usize);
    let before = cluster.borrow().woken;
    block_on(teller.tell_held());
    assert!(is_held(&lane, file.attr.ino));
    assert_eq!(cluster.borrow().woken - before, 1);
}

/// Goal: a question and a refusal that meet count once.
#[test]
fn a_question_and_a_refusal_count_once() {
    let cluster = cluster();
    let (lane, ear, teller, file) = writing(&cluster);
    let ino = file.attr.ino;
    cluster.borrow_mut().shard.holds.gives = false;
    pieces(&lane, &file, 0..4);
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    {
        let mut asks = pin!(teller.tell_held());
        while tells(&cluster) == 0 {
            assert!(step(asks.as_mut()).is_pending());
        }
        let now = skep_types::Millis(clock(&cluster));
        lane.shared.borrow_mut().is_asked_for(&Question { term: Term(1), ino, looks: None }, now);
        block_on(asks);
    }
    passes(&cluster, 1_000);
    listens(&ear);
    let before = tells(&cluster);
    pieces(&lane, &file, 4..8);
    block_on(teller.tell_held());
    assert_eq!(tells(&cluster), before + 1);
}
