//! Who reads in order asks seldom, and reads nothing that has changed meanwhile.

use crate::op::recalls::tests::{T, beside, cluster, holder, listens, make};
use crate::testing::{BOTH, Cluster, FakeLane, Fault, READ, block_on, mount, read, write};
use crate::{Opened, WriteHow};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::{Errno, Ino, SetAttr};
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
    cluster.borrow_mut().now += crate::limits::AHEAD_FOR_MS;
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
    cluster.borrow_mut().now += crate::limits::AHEAD_FOR_MS;
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
    cluster.borrow_mut().now += crate::limits::AHEAD_FOR_MS;
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
        cluster.borrow_mut().now += crate::limits::AHEAD_FOR_MS;
    }
    assert_eq!(cluster.borrow().now, now + 3 * crate::limits::AHEAD_FOR_MS);
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
        // All of that took longer than leases last.
        block_on(ear.housekeeping());
        block_on(lane.getattr(Ino::ROOT)).unwrap();
        listens(&ear);
        block_on(lane.lookup(Ino::ROOT, b"f")).unwrap();
        assert!(read(&lane, &file, at as u64, PIECE).is_empty());
        let before = cluster.borrow().total();
        assert!(read(&lane, &file, at as u64, PIECE).is_empty());
        assert_eq!(cluster.borrow().total(), before, "it is known");
    }
}
