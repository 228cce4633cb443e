//! Who reads at a constant distance waits seldom, and reads nothing that has changed meanwhile.

use crate::Opened;
use crate::limits::{AHEAD_FOR_MS, STRIDE_GAP, STRIDE_NEAR_MAX, STRIDE_RUN};
use crate::op::recalls::tests::{beside, cluster, holder, make};
use crate::testing::{BOTH, Cluster, FakeLane, Fault, MACHINE, READ, block_on, mount, read, step, write};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::{Errno, Ino, SetAttr, TargetId};
use skep_wire::storage::ReadChunk;
use skep_wire::{Message, Status};

/// Chunks of the fake cluster have 4 KiB: a record lies on two or three of them.
const PIECE: usize = 5_000;
const FAR: usize = PIECE + STRIDE_GAP as usize + 1;
const SIZE: usize = 40 * FAR + 100;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

fn expected(record: usize) -> Vec<u8> {
    let at = record * FAR;
    content()[at..SIZE.min(at + PIECE)].to_vec()
}

/// A file that another mount made, of which one that has leases has read so many records; that mount, its ear, and who made it.
fn begun(cluster: &Rc<RefCell<Cluster>>, records: usize) -> (Opened, (FakeLane, FakeLane), FakeLane) {
    let plain = mount(cluster);
    let made = block_on(make(&plain, b"f")).unwrap();
    write(&plain, &made, 0, &content());
    block_on(plain.flush(made.handle, 0)).unwrap();
    block_on(plain.release(made.handle));
    block_on(plain.housekeeping());
    let (lane, ear) = holder(cluster);
    block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
    let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
    for record in 0..records {
        assert_eq!(read(&lane, &file, (record * FAR) as u64, PIECE), expected(record));
    }
    (file, (lane, ear), plain)
}

fn asked(cluster: &RefCell<Cluster>) -> usize {
    cluster.borrow().count(ReadChunk::KIND)
}

/// Goal: all records are what they are, none is asked for twice, most of them before the program does; forward, backward, and of
/// small ones with others between them a request for several. What nobody reads any more takes no memory.
#[test]
fn records_come_before_they_are_asked_for() {
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster, 41);
    let fetched = lane.shared.borrow().aheads.fetched;
    assert!(lane.shared.borrow().spared.reads >= 41 - 8, "{fetched:?}");
    assert_eq!((fetched.strided, fetched.in_order), (fetched.strided_used, 0));
    let before = (lane.shared.borrow().spared.reads, asked(&cluster));
    for record in (0..41).rev() {
        assert_eq!(read(&lane, &file, (record * FAR) as u64, PIECE), expected(record));
    }
    let backward = lane.shared.borrow().spared.reads - before.0;
    assert!(backward >= 41 - 8, "{backward}");
    assert!(asked(&cluster) <= before.1 + 41 * 3, "no byte twice");
    let before = asked(&cluster);
    for at in (0..SIZE - 10).step_by(500) {
        assert_eq!(read(&lane, &file, at as u64, 10), content()[at..at + 10]);
    }
    // Each chunk once, and some of them again, where a window ends in them.
    assert!(asked(&cluster) - before < SIZE / 500 / 5, "{}", asked(&cluster) - before);
    cluster.borrow_mut().now += AHEAD_FOR_MS;
    block_on(lane.housekeeping());
    assert!(lane.shared.borrow().aheads.is_empty());
}

/// Goal: long records of targets on the mount's own machine are read alone, short ones are not.
#[test]
fn what_is_at_hand_is_not_guessed() {
    for (piece, guesses) in [(STRIDE_NEAR_MAX, true), (STRIDE_NEAR_MAX + 1, false)] {
        let cluster = cluster();
        let (file, (lane, _), _) = begun(&cluster, 0);
        lane.shared.borrow_mut().mounting.machine = MACHINE;
        for record in 0..8 {
            let at = record * (piece + 2 * STRIDE_GAP as usize);
            assert_eq!(read(&lane, &file, at as u64, piece), content()[at..at + piece]);
        }
        assert_eq!(lane.shared.borrow().spared.reads > 0, guesses, "{piece}");
    }
}

/// Goal: nothing that was read ahead is shown when another mount may have written since, or when this one has cut the file.
#[test]
fn what_has_changed_is_read_again() {
    for cuts in [false, true] {
        let cluster = cluster();
        let (file, (lane, ear), plain) = begun(&cluster, 5);
        assert!(lane.shared.borrow().spared.reads >= 2 && !lane.shared.borrow().aheads.is_empty());
        let at = 5 * FAR;
        let new = if cuts {
            for size in [at as u64 + 10, SIZE as u64] {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                block_on(lane.setattr(file.attr.ino, set)).unwrap();
                block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
            }
            [&content()[at..at + 10], &[0; PIECE - 10]].concat()
        } else {
            let other = beside(plain.open(file.attr.ino, BOTH), &[&ear]).unwrap();
            write(&plain, &other, at as u64, &[255; PIECE]);
            [255; PIECE].to_vec()
        };
        assert_eq!(read(&lane, &file, at as u64, PIECE), new, "{cuts}");
    }
}

/// Goal: nobody waits for a target that has nothing of what he asks for, however it hangs: what lies there is not guessed. Who
/// needs it waits for it, once for all that he will read there.
#[test]
fn nobody_waits_for_a_target_that_he_does_not_need() {
    const LONG: u64 = 400;
    const LEN: usize = 100;
    const CHUNK: usize = 4_096;
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster, 0);
    let layout = lane.shared.borrow().inodes.get(file.attr.ino).unwrap().layout.clone().unwrap();
    let place = |record: usize| record * CHUNK + 1_000;
    let target = |record: usize| layout.pieces(place(record) as u64, LEN as u64)[0].stripe.first();
    let last = (SIZE - 2_000) / CHUNK;
    let first =
        (0..last).find(|record| layout.extents.last().unwrap().start <= place(*record) as u64).unwrap();
    let bad = target(first + STRIDE_RUN as usize);
    cluster.borrow_mut().hangs = Some((bad, LONG));
    let (mut waits, mut on_bad) = (0, 0);
    for record in first..last {
        let before = cluster.borrow().now;
        let at = place(record);
        assert_eq!(read(&lane, &file, at as u64, LEN), content()[at..at + LEN]);
        let waited = cluster.borrow().now - before;
        assert!(waited == 0 || target(record) == bad, "{record} waited for {waited} ms");
        on_bad += usize::from(target(record) == bad);
        waits += usize::from(waited > 0);
    }
    let fetched = lane.shared.borrow().aheads.fetched;
    assert!(fetched.strided > 0 && waits < on_bad, "{waits} of {on_bad}: {fetched:?}");
}

/// Goal: what cannot be read ahead fails nobody who has not asked for it, is asked for once, and not again soon; errors of
/// what is asked for are told.
#[test]
fn trouble_ahead_is_nobody_s() {
    let faults = [Fault::Unreachable, Fault::LoseAnswer, Fault::Refuse(Status::LOST_CHUNK)];
    for fault in faults {
        let cluster = cluster();
        let (file, (lane, _), _) = begun(&cluster, 2);
        let now = cluster.borrow().now;
        cluster.borrow_mut().fail(ReadChunk::KIND, &[fault]);
        for record in 2..41 {
            assert_eq!(read(&lane, &file, (record * FAR) as u64, PIECE), expected(record), "{fault:?}");
        }
        assert_eq!(cluster.borrow().now, now, "nobody waited");
        assert_eq!((lane.shared.borrow().spared.reads, lane.shared.borrow().aheads.fetched.strided), (0, 0));
        cluster.borrow_mut().fail(ReadChunk::KIND, &[Fault::Refuse(Status::errno(Errno::EIO)); 100]);
        assert_eq!(block_on(lane.read(file.handle, 0, &mut [0; PIECE])), Err(Errno::EIO));
    }
}

/// Goal: what a target has lost is an error, and never zeros, also for who has it read ahead.
#[test]
fn what_is_lost_is_no_hole() {
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster, 2);
    cluster.borrow_mut().targets.chunks.values_mut().for_each(|chunk| chunk.truncate(0));
    for record in 2..6 {
        let found = block_on(lane.read(file.handle, (record * FAR) as u64, &mut [0; PIECE]));
        assert_eq!(found, Err(Errno::EIO), "{record}");
    }
}

/// Goal: what was never written is zeros.
#[test]
fn holes_are_zeros() {
    let cluster = cluster();
    let plain = mount(&cluster);
    let made = block_on(make(&plain, b"f")).unwrap();
    let end = 2 * SIZE;
    write(&plain, &made, 0, &content());
    write(&plain, &made, end as u64, b"end");
    block_on(plain.flush(made.handle, 0)).unwrap();
    block_on(plain.release(made.handle));
    block_on(plain.housekeeping());
    let (lane, _ear) = holder(&cluster);
    block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
    let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
    let before = lane.shared.borrow().spared.reads;
    for at in (SIZE - FAR..end - PIECE).step_by(FAR) {
        let expected: Vec<u8> =
            (at..at + PIECE).map(|at| if at < SIZE { (at % 251) as u8 } else { 0 }).collect();
        assert_eq!(read(&lane, &file, at as u64, PIECE), expected, "{at}");
    }
    assert!(lane.shared.borrow().spared.reads > before + 20);
}

/// Goal: what another mount has cut while records were on their way is no hole in them.
#[test]
fn what_is_cut_meanwhile_is_no_hole() {
    let cluster = cluster();
    // On one target: so that the next records are those that are on their way.
    cluster.borrow_mut().shard.full.extend([TargetId(2), TargetId(3)]);
    let (file, (lane, ear), plain) = begun(&cluster, 6);
    let guessed = lane.shared.borrow().aheads.fetched.strided;
    assert!(guessed > 0);
    let mut out = [7; PIECE];
    let mut reads = Box::pin(lane.read(file.handle, 6 * FAR as u64, &mut out));
    assert!(step(reads.as_mut()).is_pending(), "the records are on their way");
    let end = 6 * FAR + 100;
    let set = SetAttr { size: Some(end as u64), ..SetAttr::default() };
    beside(plain.setattr(file.attr.ino, set), &[&ear]).unwrap();
    let n = block_on(reads).unwrap();
    assert!(out[..n] == content()[6 * FAR..end], "{n} bytes");
    assert!(read(&lane, &file, 7 * FAR as u64, PIECE).is_empty());
}
