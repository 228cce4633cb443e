//! Who reads in order asks seldom, and reads nothing that has changed meanwhile.

use crate::limits::{AHEAD_ASK_MAX_MS, AHEAD_FOR_MS};
use crate::op::recalls::tests::{T, beside, cluster, holder, holder_with, leased, listens, make};
use crate::state::AttrsBy;
use crate::testing::{BOTH, Cluster, FakeLane, Fault, READ, block_on, mount, read, step, write};
use crate::{Limits, Opened, WriteHow};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::{Errno, Ino, SetAttr};
use skep_wire::meta::{GetAttr, Lookup, ReadInline};
use skep_wire::storage::ReadChunk;
use skep_wire::{Message, Status};

const SIZE: usize = 300_000;
const PIECE: usize = 1_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

/// A file that another mount made, read up to the second piece by one that has leases; that mount, its ear, and who made it.
fn begun(cluster: &Rc<RefCell<Cluster>>) -> (Opened, (FakeLane, FakeLane), FakeLane) {
    let plain = mount(cluster);
    let made = block_on(make(&plain, b"f")).unwrap();
    write(&plain, &made, 0, &content());
    block_on(plain.flush(made.handle, 0)).unwrap();
    block_on(plain.release(made.handle));
    block_on(plain.housekeeping());
    let (lane, ear) = holder(cluster);
    block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
    let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
    for at in [0, PIECE] {
        assert_eq!(read(&lane, &file, at as u64, PIECE), content()[at..at + PIECE]);
    }
    (file, (lane, ear), plain)
}

fn asked(cluster: &RefCell<Cluster>) -> usize {
    cluster.borrow().count(ReadChunk::KIND)
}

/// Goal: a file that is read in order in small pieces is asked for in larger ones, with the right bytes up to its end; what nobody
/// has read for a while takes no memory.
#[test]
fn a_file_in_order_comes_in_large_pieces() {
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster);
    let before = asked(&cluster);
    let mut at = 2 * PIECE;
    while at < SIZE {
        let end = (at + PIECE).min(SIZE);
        assert_eq!(read(&lane, &file, at as u64, PIECE), content()[at..end]);
        at = end;
    }
    assert!(read(&lane, &file, SIZE as u64, PIECE).is_empty());
    // Chunks of the fake cluster have 4 KiB. Of each it is asked for the piece that begins in the one before, and the rest.
    assert!(asked(&cluster) <= before + 2 * SIZE / 4_096, "{}", asked(&cluster) - before);
    assert!(lane.shared.borrow().spared.reads > 200);
    cluster.borrow_mut().now += AHEAD_FOR_MS;
    block_on(lane.housekeeping());
    assert!(lane.shared.borrow().aheads.is_empty());
}

/// Goal: nothing that was read ahead is shown when the file may have changed since: by others, by this mount, or unheard of.
#[test]
fn what_was_read_ahead_is_not_shown_when_it_has_changed() {
    type Does = fn((&FakeLane, &FakeLane), &FakeLane, &RefCell<Cluster>, Ino);
    let new = [255; 2 * PIECE];
    let cases: [(&str, Does); 5] = [
        ("others wrote", |(_, ear), plain, _, ino| {
            let file = beside(plain.open(ino, BOTH), &[ear]).unwrap();
            write(plain, &file, 3_000, &[255; 2 * PIECE]);
        }),
        ("others wrote, and are done", |(lane, ear), plain, _, ino| {
            let file = beside(plain.open(ino, BOTH), &[ear]).unwrap();
            write(plain, &file, 3_000, &[255; 2 * PIECE]);
            block_on(plain.flush(file.handle, 0)).unwrap();
            block_on(plain.release(file.handle));
            block_on(plain.housekeeping());
            block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
        }),
        ("it wrote", |(lane, _), _, _, ino| {
            let file = block_on(lane.open(ino, BOTH)).unwrap();
            write(lane, &file, 3_000, &[255; 2 * PIECE]);
        }),
        ("it wrote, and is done", |(lane, _), _, _, ino| {
            let file = block_on(lane.open(ino, BOTH)).unwrap();
            write(lane, &file, 3_000, &[255; 2 * PIECE]);
            block_on(lane.flush(file.handle, 0)).unwrap();
            block_on(lane.release(file.handle));
            block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
        }),
        ("nothing was heard for long", |(lane, _), plain, cluster, ino| {
            cluster.borrow_mut().now += T;
            let file = block_on(plain.open(ino, BOTH)).unwrap();
            write(plain, &file, 3_000, &[255; 2 * PIECE]);
            assert!(!lane.shared.borrow().aheads.is_empty(), "nobody has told it");
        }),
    ];
    for (what, does) in cases {
        let cluster = cluster();
        let (file, (lane, ear), plain) = begun(&cluster);
        assert!(!lane.shared.borrow().aheads.is_empty());
        does((&lane, &ear), &plain, &cluster, file.attr.ino);
        for at in [3_000, 3_000 + PIECE] {
            assert_eq!(read(&lane, &file, at as u64, PIECE), new[..PIECE], "{what}");
        }
    }
}

/// Goal: the same of a truncate by this mount, through no handle of the file.
#[test]
fn what_was_read_ahead_is_not_shown_behind_a_cut() {
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster);
    for size in [2_500, 100_000] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        block_on(lane.setattr(file.attr.ino, set)).unwrap();
        block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
    }
    let expected = [&content()[2_000..2_500], &[0; 500]].concat();
    assert_eq!(read(&lane, &file, 2_000, PIECE), expected);
}

/// Goal: what cannot be read ahead keeps nobody from what he asked for: there the error is told.
#[test]
fn what_nobody_asked_for_fails_nobody() {
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster);
    let how = WriteHow::default();
    assert_eq!(block_on(lane.write(file.handle, 0, b"x", how)), Err(Errno::EBADF));
    cluster.borrow_mut().now += AHEAD_FOR_MS;
    for at in [2_000, 3_000] {
        assert_eq!(read(&lane, &file, at, PIECE), content()[at as usize..at as usize + PIECE], "it was old");
    }
    let refused = Fault::Refuse(Status::errno(Errno::EIO));
    cluster.borrow_mut().fail(ReadChunk::KIND, &[refused]);
    assert_eq!(read(&lane, &file, 4_000, PIECE), content()[4_000..5_000]);
    cluster.borrow_mut().fail(ReadChunk::KIND, &[refused; 100]);
    assert_eq!(block_on(lane.read(file.handle, 5_000, &mut [0; PIECE])), Err(Errno::EIO));
}

/// Goal: who reads what one target has asks no other for anything, and what is read ahead is asked for once: trouble costs
/// nobody a wait who gets what he asked for without it.
#[test]
fn nobody_waits_for_what_he_did_not_ask_for() {
    let cluster = cluster();
    let (file, (lane, _), _) = begun(&cluster);
    cluster.borrow_mut().now += AHEAD_FOR_MS;
    // A chunk of the fake cluster: the rest of it comes with the second piece.
    let chunk = 10 * 4_096;
    let before = asked(&cluster);
    for at in (chunk..chunk + 4_000).step_by(PIECE) {
        assert_eq!(read(&lane, &file, at as u64, PIECE), content()[at..at + PIECE]);
    }
    assert_eq!((asked(&cluster), lane.shared.borrow().spared.reads), (before + 3, 1));
    let now = cluster.borrow().now;
    let faults = [Fault::Unreachable, Fault::LoseAnswer, Fault::Refuse(Status::LOST_CHUNK)];
    for (fault, from) in faults.into_iter().zip([0, 100_000, 200_000]) {
        for at in [from, from + PIECE] {
            assert_eq!(read(&lane, &file, at as u64, PIECE), content()[at..at + PIECE]);
        }
        cluster.borrow_mut().fail(ReadChunk::KIND, &[fault]);
        let (before, at) = (asked(&cluster), from + 2 * PIECE);
        assert_eq!(read(&lane, &file, at as u64, PIECE), content()[at..at + PIECE]);
        assert!(
            asked(&cluster) > before + 1 && cluster.borrow().faults[&ReadChunk::KIND].is_empty(),
            "{fault:?}"
        );
        cluster.borrow_mut().now += AHEAD_FOR_MS;
    }
    assert_eq!(cluster.borrow().now, now + 3 * AHEAD_FOR_MS);
}

/// Goal: who reads on at the end of a file, without a look at its attributes, sees what another mount has added since, however
/// short it was when it was opened; where a lease says that nobody has, nobody is asked.
#[test]
fn what_others_add_is_seen_at_the_end() {
    for begun in [0, 100, 20_000] {
        let cluster = cluster();
        let (plain, (lane, ear)) = (mount(&cluster), holder(&cluster));
        let made = beside(make(&plain, b"f"), &[&ear]).unwrap();
        write(&plain, &made, 0, &content()[..begun]);
        block_on(plain.flush(made.handle, 0)).unwrap();
        let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
        let mut at = begun;
        for added in [50, 30_000, 7] {
            assert!(read(&lane, &file, at as u64, PIECE).is_empty());
            write(&plain, &made, at as u64, &content()[at..at + added]);
            block_on(plain.flush(made.handle, 0)).unwrap();
            assert!(read(&lane, &file, at as u64, 2 * added) == content()[at..at + added], "{begun}, {at}");
            at += added;
        }
        block_on(plain.flush(made.handle, 0)).unwrap();
        block_on(plain.release(made.handle));
        block_on(plain.housekeeping());
        hears_again((&lane, &ear));
        block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
        assert!(read(&lane, &file, at as u64, PIECE).is_empty());
        let before = cluster.borrow().total();
        assert!(read(&lane, &file, at as u64, PIECE).is_empty());
        assert_eq!(cluster.borrow().total(), before, "it is known");
    }
}

fn cut(lane: &FakeLane, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    block_on(lane.setattr(ino, set)).unwrap();
}

/// Goal: where another mount has cut a file, who reads it by what he knows sees no zeros up to the old end, nor in front of what was
/// written there since: also where both came between the answers of the targets and the question what they mean.
#[test]
fn what_others_cut_is_no_hole() {
    // In one chunk: what another one lacks wholly is asked about as a loss.
    const KNOWN: usize = 4_000;
    for grows_to in [0, KNOWN / 2, KNOWN] {
        let cluster = cluster();
        let (plain, other) = (mount(&cluster), mount(&cluster));
        let made = block_on(make(&plain, b"f")).unwrap();
        write(&plain, &made, 0, &content()[..90_000]);
        block_on(plain.flush(made.handle, 0)).unwrap();
        let file = block_on(other.open(made.attr.ino, READ)).unwrap();
        assert!(read(&other, &file, 0, KNOWN) == content()[..KNOWN]);
        cut(&plain, made.attr.ino, 100);
        cluster.borrow_mut().fail(ReadChunk::KIND, &[Fault::LateAnswer]);
        let mut out = alloc::vec![7; KNOWN];
        let mut reads = Box::pin(other.read(file.handle, 0, &mut out));
        // It is on its way, and then its answer.
        assert!(step(reads.as_mut()).is_pending() && step(reads.as_mut()).is_pending());
        let mut expected = content()[..100].to_vec();
        if grows_to > 0 {
            write(&plain, &made, 100, &content()[100..grows_to]);
            block_on(plain.flush(made.handle, 0)).unwrap();
            expected.extend_from_slice(&content()[100..grows_to]);
        }
        let n = block_on(reads).unwrap();
        assert!(out[..n] == expected, "{n} bytes, {grows_to}");
        assert_eq!(read(&other, &file, 100, KNOWN), expected[100..]);
    }
}

/// Goal: what was never written is zeros for everybody, and is asked about only where no lease says that nobody has cut the file.
#[test]
fn holes_cost_nothing_under_a_lease() {
    let cluster = cluster();
    let (plain, (lane, ear)) = (mount(&cluster), holder(&cluster));
    let made = beside(make(&plain, b"f"), &[&ear]).unwrap();
    write(&plain, &made, 0, &content()[..100]);
    write(&plain, &made, 200_000, &content()[..100]);
    block_on(plain.flush(made.handle, 0)).unwrap();
    let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
    let reads = || {
        let before = cluster.borrow().count(GetAttr::KIND);
        assert!(read(&lane, &file, 100, 100_000) == alloc::vec![0; 100_000]);
        assert!(read(&lane, &file, 199_900, 1_000) == [&[0; 100], &content()[..100]].concat());
        cluster.borrow().count(GetAttr::KIND) - before
    };
    assert!((1..=3).contains(&reads()), "others may be cutting it");
    block_on(plain.flush(made.handle, 0)).unwrap();
    block_on(plain.release(made.handle));
    block_on(plain.housekeeping());
    hears_again((&lane, &ear));
    block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
    reads();
    assert_eq!(reads(), 0);
}

/// Goal: what is read ahead while another mount cuts the file has no zeros of what was cut either.
#[test]
fn what_is_cut_is_not_read_ahead_as_a_hole() {
    let cluster = cluster();
    let (file, (lane, ear), plain) = begun(&cluster);
    cluster.borrow_mut().now += AHEAD_FOR_MS;
    for at in [50_000, 50_000 + PIECE] {
        assert_eq!(read(&lane, &file, at as u64, PIECE), content()[at..][..PIECE]);
    }
    let mut out = [7; PIECE];
    let mut reads = Box::pin(lane.read(file.handle, 52_000, &mut out));
    assert!(step(reads.as_mut()).is_pending(), "the window is on its way");
    let set = SetAttr { size: Some(52_100), ..SetAttr::default() };
    beside(plain.setattr(file.attr.ino, set), &[&ear]).unwrap();
    let n = block_on(reads).unwrap();
    assert!(out[..n] == content()[52_000..52_100], "{n} bytes");
    assert!(read(&lane, &file, 52_100, PIECE).is_empty());
}

/// What was done took longer than leases last.
fn hears_again((lane, ear): (&FakeLane, &FakeLane)) {
    block_on(ear.housekeeping());
    block_on(lane.getattr(Ino::ROOT)).unwrap();
    listens(ear);
}

/// A mount whose kernel is told names, and its ear.
fn teller(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane) {
    holder_with(cluster, Limits { validity: true, names: true, ..leased() })
}

/// The kernel of `lane` looks for the file.
fn is_told(lane: &FakeLane, ino: Ino) {
    let attr = block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
    assert_eq!(attr.ino, ino);
    assert!(lane.name_valid_for(Ino::ROOT, b"f", &attr, AttrsBy::Look).name > 0);
}

fn close(lane: &FakeLane, file: &Opened) {
    block_on(lane.flush(file.handle, 0)).unwrap();
    block_on(lane.release(file.handle));
}

/// Reads so many pieces from there on, each of them at another time. How many were read ahead?
fn reads_in_order(lane: &FakeLane, cluster: &RefCell<Cluster>, file: &Opened, pieces: [usize; 2]) -> u64 {
    let before = lane.shared.borrow().spared.reads;
    for at in (pieces[0]..pieces[1]).map(|piece| piece * PIECE) {
        let end = (at + PIECE).min(SIZE);
        assert!(read(lane, file, at as u64, PIECE) == content()[at..end], "{at}");
        cluster.borrow_mut().now += 1;
    }
    lane.shared.borrow().spared.reads - before
}

/// Goal: a file that this mount has just written is read ahead soon, though it was opened again before its shard had heard
/// that it was closed: that is said with the open, and housekeeping asks for the cover. While this mount writes nothing is asked.
#[test]
fn what_was_just_written_is_read_ahead() {
    let cluster = cluster();
    let (lane, _) = teller(&cluster);
    let made = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &made, 0, &content());
    is_told(&lane, made.attr.ino);
    let looks = cluster.borrow().count(Lookup::KIND);
    let beside = block_on(lane.open(made.attr.ino, READ)).unwrap();
    assert_eq!(reads_in_order(&lane, &cluster, &beside, [0, 9]), 0);
    block_on(lane.release(beside.handle));
    assert_eq!((cluster.borrow().count(Lookup::KIND), cluster.borrow().shard.written.len()), (looks, 1));
    close(&lane, &made);
    let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
    assert!(cluster.borrow().shard.written.is_empty());
    assert_eq!(reads_in_order(&lane, &cluster, &file, [0, 9]), 0);
    assert_eq!(cluster.borrow().count(Lookup::KIND), looks, "no read asks");
    block_on(lane.housekeeping());
    assert_eq!(cluster.borrow().count(Lookup::KIND), looks + 1);
    assert!(reads_in_order(&lane, &cluster, &file, [9, 99]) > 50);
    // Who is gone by then asks nothing, nor who reads what is left at once.
    cluster.borrow_mut().now += T + AHEAD_FOR_MS;
    for (from, pieces) in [(0, 9), (SIZE / PIECE - 2, 2)] {
        let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
        reads_in_order(&lane, &cluster, &file, [from, from + pieces]);
        if from == 0 {
            block_on(lane.release(file.handle));
        }
        block_on(lane.housekeeping());
    }
    assert_eq!(cluster.borrow().count(Lookup::KIND), looks + 1);
}

/// Goal: while another mount writes it is asked for once a second at most, whatever comes of that, and no read fails or waits for
/// it; when it is closed the next question has it read ahead, without being opened again.
#[test]
fn what_others_write_is_asked_for_seldom() {
    let cluster = cluster();
    let (plain, (lane, ear)) = (mount(&cluster), teller(&cluster));
    let made = beside(make(&plain, b"f"), &[&ear]).unwrap();
    write(&plain, &made, 0, &content()[..SIZE / 2]);
    block_on(plain.flush(made.handle, 0)).unwrap();
    hears_again((&lane, &ear));
    is_told(&lane, made.attr.ino);
    let file = block_on(lane.open(made.attr.ino, READ)).unwrap();
    write(&plain, &made, SIZE as u64 / 2, &content()[SIZE / 2..]);
    block_on(plain.flush(made.handle, 0)).unwrap();
    let (looks, begun) = (cluster.borrow().count(Lookup::KIND), cluster.borrow().now);
    let seconds = 3 * crate::limits::LATE_MS / 1_000;
    while cluster.borrow().now < begun + seconds * 1_000 {
        assert_eq!(reads_in_order(&lane, &cluster, &file, [0, 100]), 0);
        listens(&ear);
        let fault = [Fault::LoseRequest, Fault::Unreachable, Fault::Refuse(Status::BUSY)];
        let at = cluster.borrow().now as usize % 3;
        cluster.borrow_mut().fail(Lookup::KIND, &[fault[at]]);
        block_on(lane.housekeeping());
        cluster.borrow_mut().faults.clear();
    }
    let asked = (cluster.borrow().count(Lookup::KIND) - looks) as u64;
    assert!((seconds - 3..=seconds + 3).contains(&asked), "{asked} in {seconds} s");
    close(&plain, &made);
    block_on(plain.housekeeping());
    cluster.borrow_mut().now += AHEAD_ASK_MAX_MS;
    let (looks, places) = (cluster.borrow().count(Lookup::KIND), cluster.borrow().count(ReadInline::KIND));
    reads_in_order(&lane, &cluster, &file, [0, 9]);
    listens(&ear);
    block_on(lane.housekeeping());
    assert!(reads_in_order(&lane, &cluster, &file, [9, 300]) > 200);
    assert_eq!(cluster.borrow().count(Lookup::KIND), looks + 1);
    // It has grown since it was opened: where it is now is asked for once.
    assert_eq!(cluster.borrow().count(ReadInline::KIND), places + 1);
}
