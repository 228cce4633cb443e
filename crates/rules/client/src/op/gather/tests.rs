//! Small writes that wait for one another.

use crate::limits::{GATHER_RUN, GATHER_WRITE_MAX, HOLD_TELL_MS};
use crate::op::hold::tests::{asked, beside, holding_with, mode, on_shard};
use crate::op::recalls::tests::{T, cluster, leased, listens, make};
use crate::state::Put;
use crate::testing::{BOTH, Cluster, FakeLane, Fault, block_on, lane_beside, mount, read, step, write};
use crate::{Limits, Opened, WriteHow};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use core::task::Poll;
use skep_types::{Errno, Ino, Millis, SetAttr, SetTime, TargetId, Timestamp};
use skep_wire::meta::Tell;
use skep_wire::storage::{SyncChunks, WriteChunk};
use skep_wire::{Message, Status};

/// So long that it is in chunks.
pub(super) const BEGUN: usize = 9_000;
pub(super) const PIECE: usize = 512;

/// A mount that lets small writes wait, who hears for it, who tells, and a file of it with chunks.
pub(super) fn gathering(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane, FakeLane, Opened) {
    cluster.borrow_mut().targets.promises = Some(64 << 20);
    cluster.borrow_mut().shard.holds.keeps = true;
    let (lane, ear, teller) = holding_with(cluster, Limits { gathers: true, ..leased() });
    let file = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &file, 0, &[1; BEGUN]);
    (lane, ear, teller, file)
}

/// Writes so many pieces behind what is there; gives all that is in the file then.
pub(super) fn pieces(lane: &FakeLane, file: &Opened, count: usize) -> Vec<u8> {
    for number in 0..count {
        write(lane, file, (BEGUN + number * PIECE) as u64, &[2; PIECE]);
    }
    [[1; BEGUN].to_vec(), [2; PIECE].repeat(count)].concat()
}

pub(super) fn writes(cluster: &RefCell<Cluster>) -> usize {
    asked(cluster, &[WriteChunk::KIND])
}

/// All bytes that targets have of the first chunk file.
pub(super) fn on_targets(cluster: &RefCell<Cluster>) -> usize {
    cluster.borrow().targets.chunks.values().map(Vec::len).sum()
}

pub(super) fn waits(lane: &FakeLane, ino: Ino) -> usize {
    let run = lane.shared.borrow().inodes.get(ino).and_then(|inode| inode.run());
    run.map_or(0, |(from, end)| (end - from) as usize)
}

/// Goal: small writes in order cost no request each, and are seen by programs of the mount at once; the close brings them to
/// their target in one, and tells the file.
#[test]
fn small_writes_go_together() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let before = cluster.borrow().total();
    let all = pieces(&lane, &file, 10);
    assert_eq!((cluster.borrow().total(), on_targets(&cluster)), (before, BEGUN));
    let shown = block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!(shown.size, all.len() as u64);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!((cluster.borrow().total(), on_targets(&cluster)), (before + 2, all.len()));
    assert_eq!(on_shard(&cluster, file.attr.ino).size, all.len() as u64);
    assert!(read(&lane, &file, 0, 1 << 20) == all);
    block_on(lane.release(file.handle));
    assert!(lane.shared.borrow().inodes.get(file.attr.ino).is_none_or(|inode| inode.run.is_none()));
}

/// Goal: whatever needs the bytes has them: reads, syncs, changes, other writes, who asks.
#[test]
fn whoever_needs_the_bytes_has_them() {
    type Does = fn(&FakeLane, &Opened);
    let cases: [(&str, Does); 10] = [
        ("read", |lane, file| drop(read(lane, file, 0, 10))),
        ("fsync", |lane, file| block_on(lane.fsync(file.handle)).unwrap()),
        ("fsync by another handle", |lane, file| {
            let other = block_on(lane.open(file.attr.ino, BOTH)).unwrap();
            block_on(lane.fsync(other.handle)).unwrap();
        }),
        ("a synchronous write", |lane, file| {
            let how = WriteHow { sync: true, ..WriteHow::default() };
            block_on(lane.write(file.handle, 0, &[1], how)).unwrap();
        }),
        ("a direct write", |lane, file| {
            let how = WriteHow { direct: true, ..WriteHow::default() };
            block_on(lane.write(file.handle, 0, &[1], how)).unwrap();
        }),
        ("a write over its beginning", |lane, file| write(lane, file, BEGUN as u64 - 1, &[1, 2])),
        ("append", |lane, file| {
            let how = WriteHow { append: true, sync: true, ..WriteHow::default() };
            block_on(lane.write(file.handle, 0, b"more", how)).unwrap();
        }),
        ("truncate", |lane, file| {
            let set = SetAttr { size: Some(9_100), ..SetAttr::default() };
            block_on(lane.setattr(file.attr.ino, set)).unwrap();
        }),
        ("rename", |lane, _| {
            block_on(lane.rename(Ino::ROOT, b"f", Ino::ROOT, b"g", crate::RenameHow::default())).unwrap();
        }),
        ("seek", |lane, file| assert!(block_on(lane.seek(file.handle, 0, crate::Seek::Hole)).is_ok())),
    ];
    for (what, does) in cases {
        let cluster = cluster();
        let (lane, _, _, file) = gathering(&cluster);
        let mut all = pieces(&lane, &file, 3);
        let before = writes(&cluster);
        assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE, "{what}");
        does(&lane, &file);
        assert!(waits(&lane, file.attr.ino) == 0 && writes(&cluster) > before, "{what}");
        match what {
            "append" => all.extend(b"more"),
            "truncate" => all.truncate(9_100),
            _ => {}
        }
        assert!(read(&lane, &file, 0, 1 << 20) == all, "{what}");
        block_on(lane.flush(file.handle, 0)).unwrap();
        assert_eq!(on_shard(&cluster, file.attr.ino).size, all.len() as u64, "{what}");
    }
}

/// Goal: another mount that looks is shown all that was written; from then on each write goes to its target at once.
#[test]
fn others_see_what_was_written() {
    let cluster = cluster();
    let (lane, ear, teller, file) = gathering(&cluster);
    let other = mount(&cluster);
    let all = pieces(&lane, &file, 3);
    let seen = beside(other.lookup(Ino::ROOT, b"f"), &ear, &teller).unwrap();
    assert_eq!((seen.size as usize, on_targets(&cluster)), (all.len(), all.len()));
    let before = writes(&cluster);
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    assert_eq!((writes(&cluster), waits(&lane, file.attr.ino)), (before + 1, 0));
}

/// Goal: a time that a program gives behind its writes stays the time of the file, however late these are put.
#[test]
fn a_given_time_stays() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    let given = Timestamp { secs: 77, nanos: 0 };
    let set = SetAttr { mtime: Some(SetTime::At(given)), ..SetAttr::default() };
    block_on(lane.setattr_open(file.handle, file.attr.ino, set)).unwrap();
    cluster.borrow_mut().now += 5;
    block_on(lane.flush(file.handle, 0)).unwrap();
    block_on(lane.release(file.handle));
    assert_eq!(on_shard(&cluster, file.attr.ino).mtime, given);
}

/// Goal: who fills a run brings it to its targets, and goes on with the next.
#[test]
fn a_full_run_goes() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let runs = |lane: &FakeLane| lane.shared.borrow().gathering.runs;
    let mut at = BEGUN as u64;
    while at < GATHER_RUN - 4_000 {
        write(&lane, &file, at, &[2; 4_000]);
        at += 4_000;
    }
    // In front of each stretch of targets that had promised nothing yet; there are five.
    let before = runs(&lane);
    assert!(before <= 5 && waits(&lane, file.attr.ino) > 900_000, "{before}");
    for _ in 0..3 {
        write(&lane, &file, at, &[2; 4_000]);
        at += 4_000;
    }
    assert_eq!(runs(&lane), before + 1);
    let left = waits(&lane, file.attr.ino);
    assert!(left > 0 && on_targets(&cluster) + left == at as usize);
    // Long ones go by themselves, behind what waits.
    write(&lane, &file, at, &alloc::vec![3; GATHER_WRITE_MAX + 1]);
    assert_eq!((runs(&lane), waits(&lane, file.attr.ino)), (before + 2, 0));
}

/// Goal: without room that is promised each write is answered by its target.
#[test]
fn without_room_nothing_waits() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 1);
    assert_eq!(waits(&lane, file.attr.ino), PIECE);
    cluster.borrow_mut().targets.promises = None;
    assert!(read(&lane, &file, 0, 10) == [1; 10], "it was put, and room was asked for anew");
    let before = writes(&cluster);
    pieces(&lane, &file, 2);
    assert_eq!((writes(&cluster), waits(&lane, file.attr.ino)), (before + 2, 0));
    cluster.borrow_mut().targets.promises = Some(1 << 20);
    pieces(&lane, &file, 1);
    pieces(&lane, &file, 1);
    assert_eq!(waits(&lane, file.attr.ino), PIECE);
}

/// Goal: a file that goes on being written goes on being held, and is told once a second; one that is left alone is not.
#[test]
fn a_hold_goes_on() {
    let cluster = cluster();
    let (lane, _, teller, file) = gathering(&cluster);
    let mut all = pieces(&lane, &file, 3);
    block_on(lane.setattr(file.attr.ino, mode(0o602))).unwrap();
    assert_ne!(on_shard(&cluster, file.attr.ino).mode, 0o602, "nobody else has been shown the file");
    for second in 1..4 {
        cluster.borrow_mut().now += HOLD_TELL_MS;
        block_on(teller.tell_held());
        assert_eq!(on_shard(&cluster, file.attr.ino).size, all.len() as u64);
        assert_eq!((asked(&cluster, &[Tell::KIND]), waits(&lane, file.attr.ino)), (second, 0));
        write(&lane, &file, all.len() as u64, &[3; PIECE]);
        all.extend([3; PIECE]);
        assert_eq!(waits(&lane, file.attr.ino), PIECE, "held still");
        assert_eq!(on_shard(&cluster, file.attr.ino).mode, 0o602, "told with the rest");
    }
    for _ in 0..2 {
        cluster.borrow_mut().now += HOLD_TELL_MS;
        block_on(teller.tell_held());
    }
    assert!(cluster.borrow().shard.holds.by.is_empty());
    let before = writes(&cluster);
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    assert_eq!(writes(&cluster), before + 1);
    assert!(lane.shared.borrow().nodes_of_holds().next().is_none());
}

/// Goal: what cannot be written is lost, and said: by who fills the run, and by the next fsync, once; the file ends where its
/// targets say.
#[test]
fn what_does_not_fit_is_said() {
    for by_fsync in [true, false] {
        let cluster = cluster();
        let (lane, _, _, file) = gathering(&cluster);
        pieces(&lane, &file, 3);
        let full = (1..=9).map(|target| (TargetId(target), 0)).collect();
        cluster.borrow_mut().targets.capacity = full;
        let told = match by_fsync {
            true => block_on(lane.fsync(file.handle)),
            false => block_on(lane.flush(file.handle, 0)),
        };
        assert_eq!(told, Err(Errno::ENOSPC), "{by_fsync}");
        assert_eq!((waits(&lane, file.attr.ino), lane.shared.borrow().gathering.waiting()), (0, 0));
        assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO), "{by_fsync}");
        assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
        assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, BEGUN as u64);
        block_on(lane.flush(file.handle, 0)).unwrap();
        assert_eq!(on_shard(&cluster, file.attr.ino).size, BEGUN as u64);
    }
}

/// Goal: a program that is killed while its target hangs loses nothing of what it wrote: it is put by who comes next.
#[test]
fn who_gives_up_leaves_the_run() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let all = pieces(&lane, &file, 3);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Unreachable]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.flush(file.handle, 0)), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE);
    let beside = lane_beside(&cluster, &lane);
    assert!(read(&beside, &file, 0, 1 << 20) == all);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(on_shard(&cluster, file.attr.ino).size, all.len() as u64);
}

/// Goal: a mount that was not heard asks whether it holds the file still before it writes anything: nothing older is written over
/// what others wrote meanwhile, and that it is lost is said.
#[test]
fn who_was_not_heard_asks_first() {
    for (is_held, is_heard_again) in [(true, true), (true, false), (false, true), (false, false)] {
        let cluster = cluster();
        let (lane, ear, _, file) = gathering(&cluster);
        let all = pieces(&lane, &file, 3);
        cluster.borrow_mut().now += 2 * T;
        if is_heard_again {
            listens(&ear);
        }
        if !is_held {
            cluster.borrow_mut().shard.holds.by.clear();
        }
        let before = writes(&cluster);
        let result = block_on(lane.fsync(file.handle));
        match is_held {
            true => assert_eq!((result, on_targets(&cluster)), (Ok(()), all.len())),
            false => {
                assert_eq!(
                    (result, writes(&cluster), on_targets(&cluster)),
                    (Err(Errno::EIO), before, BEGUN)
                );
                assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, BEGUN as u64);
            }
        }
        assert_eq!(waits(&lane, file.attr.ino), 0);
        listens(&ear);
    }
}

/// Goal: the end of a session takes what waits with it, and the next fsync says so.
#[test]
fn it_goes_with_the_session() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    lane.shared.borrow_mut().begin_again();
    assert_eq!((waits(&lane, file.attr.ino), lane.shared.borrow().gathering.waiting()), (0, 0));
    assert!(lane.shared.borrow_mut().untold.owes(file.attr.ino, 0));
}

/// Goal: what waits is synced by the end of the mount.
#[test]
fn it_is_put_before_the_mount_ends() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let all = pieces(&lane, &file, 3);
    block_on(lane.sync_all());
    assert_eq!((on_targets(&cluster), on_shard(&cluster, file.attr.ino).size), (all.len(), all.len() as u64));
    assert!(asked(&cluster, &[SyncChunks::KIND]) > 0);
}

/// Goal: a run whose target is away for longer than the mount is heard does not arrive late, over what others wrote meanwhile.
#[test]
fn it_does_not_arrive_late() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    cluster.borrow_mut().shard.holds.by.clear();
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Unreachable; 64]);
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO));
    assert!(cluster.borrow().now >= T && on_targets(&cluster) == BEGUN && waits(&lane, file.attr.ino) == 0);
}

/// Goal: a restart of the metadata server, behind which targets are asked where files end, does not cut off what waits to be with
/// them; the file is held still.
#[test]
fn a_restart_cuts_nothing_off() {
    let cluster = cluster();
    let (lane, ear, _, file) = gathering(&cluster);
    let all = pieces(&lane, &file, 3);
    cluster.borrow_mut().restarts();
    block_on(ear.housekeeping());
    assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE);
    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, all.len() as u64);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!((on_targets(&cluster), on_shard(&cluster, file.attr.ino).size), (all.len(), all.len() as u64));
    assert!(read(&lane, &file, 0, 1 << 20) == all);
}

async fn both_of<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut done, mut also) = (None, None);
    core::future::poll_fn(move |context| {
        if done.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(context)
        {
            done = Some(value);
        }
        if also.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(context)
        {
            also = Some(value);
        }
        match (done.take(), also.take()) {
            (Some(done), Some(also)) => Poll::Ready((done, also)),
            (one, other) => {
                (done, also) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// Does both, by turns.
fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let mut both = pin!(both_of(one, other));
    for _ in 0..10_000 {
        if let Poll::Ready(done) = step(both.as_mut()) {
            return done;
        }
    }
    panic!("they wait for ever");
}

/// Goal: what is done to a file while it is told does not end the hold: it goes on, with one request.
#[test]
fn a_hold_goes_on_beside_others() {
    for what in ["write", "getattr", "read"] {
        let cluster = cluster();
        let (lane, _, teller, file) = gathering(&cluster);
        let all = pieces(&lane, &file, 3);
        cluster.borrow_mut().now += HOLD_TELL_MS;
        cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
        let mut tells = pin!(teller.tell_held());
        while asked(&cluster, &[Tell::KIND]) == 0 {
            assert!(step(tells.as_mut()).is_pending());
        }
        let beside = async {
            let how = WriteHow::default();
            match what {
                "write" => drop(lane.write(file.handle, all.len() as u64, &[3; PIECE], how).await.unwrap()),
                "getattr" => assert_eq!(lane.getattr(file.attr.ino).await.unwrap().size, all.len() as u64),
                _ => drop(lane.read(file.handle, 0, &mut [0; 10]).await.unwrap()),
            }
        };
        both(beside, tells);
        assert_eq!((asked(&cluster, &[Tell::KIND]), cluster.borrow().shard.holds.by.len()), (1, 1), "{what}");
        let end = block_on(lane.getattr(file.attr.ino)).unwrap().size;
        write(&lane, &file, end, &[4; PIECE]);
        assert!(waits(&lane, file.attr.ino) >= PIECE, "{what}");
        block_on(lane.flush(file.handle, 0)).unwrap();
        assert_eq!(on_shard(&cluster, file.attr.ino).size, end + PIECE as u64, "{what}");
    }
}

/// Goal: of two lanes that need the bytes of a mount that was not heard one asks, and the other waits for what comes of it.
#[test]
fn one_of_two_asks() {
    let cluster = cluster();
    let (lane, _, teller, file) = gathering(&cluster);
    let all = pieces(&lane, &file, 3);
    let beside = lane_beside(&cluster, &lane);
    cluster.borrow_mut().now += 2 * T;
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer; 3]);
    let mut content = [0; 20_000];
    let reads = beside.read(file.handle, 0, &mut content);
    let ((told, n), _) = both(async { both_of(lane.fsync(file.handle), reads).await }, teller.tell_held());
    assert_eq!((told, n, on_targets(&cluster)), (Ok(()), Ok(all.len()), all.len()));
    assert!(content[..all.len()] == all);
}

/// Goal: who comes back and is not lent anything yet asks again; one who is killed meanwhile, or a lane whose time is over, loses
/// nothing; in the end it is lost, and said.
#[test]
fn who_comes_back_asks_again() {
    for (denies, is_killed) in [(3, false), (3, true), (1_000, false)] {
        let cluster = cluster();
        let (lane, _, _, file) = gathering(&cluster);
        let all = pieces(&lane, &file, 3);
        cluster.borrow_mut().now += 2 * T;
        cluster.borrow_mut().shard.holds.denies = denies;
        if is_killed {
            cluster.borrow_mut().cancelled = true;
            assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EINTR));
            cluster.borrow_mut().cancelled = false;
            assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE);
        }
        let expected = if denies == 3 { (Ok(()), all.len()) } else { (Err(Errno::EIO), BEGUN) };
        assert_eq!(
            (block_on(lane.fsync(file.handle)), on_targets(&cluster)),
            expected,
            "{denies} {is_killed}"
        );
    }
}

/// Goal: an answer that is old says nothing: it is asked again.
#[test]
fn an_old_answer_says_nothing() {
    let cluster = cluster();
    let (lane, ear, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    cluster.borrow_mut().now += 2 * T;
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    let before = asked(&cluster, &[Tell::KIND]);
    let mut syncs = pin!(lane.fsync(file.handle));
    while asked(&cluster, &[Tell::KIND]) == before {
        assert!(step(syncs.as_mut()).is_pending());
    }
    // Passed over while its machine stood still, and others have written.
    cluster.borrow_mut().now += 2 * T;
    cluster.borrow_mut().shard.holds.by.clear();
    listens(&ear);
    let writes_before = writes(&cluster);
    assert_eq!(block_on(syncs), Err(Errno::EIO));
    assert_eq!((writes(&cluster), on_targets(&cluster)), (writes_before, BEGUN));
}

/// Goal: what waited is not brought any more once it was given up: the last program has closed the file, and is gone.
#[test]
fn what_is_given_up_does_not_arrive() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    let beside = lane_beside(&cluster, &lane);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Unreachable; 8]);
    let mut content = [0; 9];
    let mut reads = pin!(beside.read(file.handle, 0, &mut content));
    for _ in 0..4 {
        assert!(step(reads.as_mut()).is_pending());
    }
    lane.shared.borrow_mut().end_hold(file.attr.ino);
    let _ = block_on(reads);
    assert_eq!(on_targets(&cluster), BEGUN);
    assert!(lane.shared.borrow_mut().untold.owes(file.attr.ino, 0));
}

/// Goal: what is copied, or looked for, is with its targets up to the end that is known, though the file is written meanwhile.
#[test]
fn copies_have_what_is_written_beside() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let all = pieces(&lane, &file, 3);
    let to = block_on(make(&lane, b"g")).unwrap();
    let beside = lane_beside(&cluster, &lane);
    let copies = lane.copy((file.handle, 0), (to.handle, 0), 1 << 20);
    let writes = async {
        for number in 0..20 {
            let at = (all.len() + number * PIECE) as u64;
            beside.write(file.handle, at, &[2; PIECE], WriteHow::default()).await.unwrap();
        }
    };
    let (copied, ()) = both(copies, writes);
    let copy = read(&lane, &to, 0, 1 << 20);
    assert_eq!(copy.len() as u64, copied.unwrap());
    assert!(copy[..BEGUN] == all[..BEGUN] && copy[BEGUN..].iter().all(|byte| *byte == 2), "holes");
}

/// Goal: one file whose target fails keeps no other from being synced when the mount ends.
#[test]
fn one_that_fails_keeps_no_other() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    let other = block_on(make(&lane, b"g")).unwrap();
    write(&lane, &other, 0, &[1; BEGUN]);
    let inos = [file.attr.ino, other.attr.ino];
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::errno(Errno::EIO))]);
    assert!(block_on(lane.sync_and_tell(&inos, true)).is_err());
    assert!(lane.shared.borrow().inodes.get(other.attr.ino).unwrap().unsynced.is_empty());
}

/// Goal: a target that promises nothing more has nothing more kept for it, also of what had begun; other files of the mount count.
#[test]
fn a_target_that_declines_is_heard() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 2);
    cluster.borrow_mut().targets.promises = None;
    let other = block_on(make(&lane, b"g")).unwrap();
    write(&lane, &other, 0, &[1; BEGUN]);
    write(&lane, &other, BEGUN as u64, &[1; PIECE]);
    let before = writes(&cluster);
    write(&lane, &file, (BEGUN + 2 * PIECE) as u64, &[2; PIECE]);
    assert!(waits(&lane, file.attr.ino) == 0 && writes(&cluster) > before);
}

/// Goal: targets do not know of what waits. Asked where the file ends, because that is in doubt, while that is so or just before it
/// lands, they take nothing of it.
#[test]
fn what_waits_counts_where_the_end_is_in_doubt() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let (ino, all) = (file.attr.ino, pieces(&lane, &file, 3));
    for lands in [false, true] {
        let doubt = lane.shared.borrow_mut().inodes.get_mut(ino).and_then(|inode| {
            inode.forget_cuts();
            inode.doubt()
        });
        if lands {
            block_on(lane.put_gathered(ino)).unwrap();
        }
        let shared = &mut *lane.shared.borrow_mut();
        let inode = shared.inodes.get_mut(ino).unwrap();
        inode.settle(doubt.unwrap(), BEGUN as u64);
        assert_eq!(inode.mark.map(|mark| mark.size), Some(all.len() as u64), "{lands}");
    }
}

/// Goal: records that come in turn, each behind a gap that the next ones fill, cost no request each; what comes elsewhere in a large
/// file keeps nothing that is written in order from staying, and does not stay itself.
#[test]
fn records_in_turn_go_together() {
    const RECORD: usize = 100;
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let mut all = pieces(&lane, &file, 1);
    let begin = all.len();
    all.resize(begin + 40 * RECORD, 7);
    let before = cluster.borrow().total();
    for few in 0..10 {
        for record in [1, 3, 0, 2] {
            write(&lane, &file, (begin + (4 * few + record) * RECORD) as u64, &[7; RECORD]);
        }
    }
    assert_eq!((cluster.borrow().total(), waits(&lane, file.attr.ino)), (before, PIECE + 40 * RECORD));
    // Behind a gap that nobody fills, and over what waits.
    write(&lane, &file, (all.len() + 100) as u64, &[8; 10]);
    write(&lane, &file, begin as u64 + 5, &[9; 10]);
    all.resize(all.len() + 100, 0);
    all.extend([8; 10]);
    all[begin + 5..begin + 15].fill(9);
    assert_eq!(cluster.borrow().total(), before);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(cluster.borrow().total(), before + 3, "two pieces, and the file is told");
    assert!(read(&lane, &file, 0, 1 << 20) == all);
    assert_eq!(on_shard(&cluster, file.attr.ino).size, all.len() as u64);
}

/// Goal: a run of which some is with its targets, or may be, takes nothing in front of that: it would never be put, or by an older
/// try.
#[test]
fn what_was_begun_is_not_written_over() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let mut all = pieces(&lane, &file, 3);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::LoseAnswer; 3]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.read(file.handle, 0, &mut [0])), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    cluster.borrow_mut().fail(WriteChunk::KIND, &[]);
    assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE);
    let before = writes(&cluster);
    write(&lane, &file, all.len() as u64, &[4; 10]);
    assert_eq!(writes(&cluster), before, "behind it");
    write(&lane, &file, BEGUN as u64, &[5; 10]);
    assert!(writes(&cluster) > before, "over it");
    all.extend([4; 10]);
    all[BEGUN..BEGUN + 10].fill(5);
    assert!(read(&lane, &file, 0, 1 << 20) == all);
}

/// Goal: what came of a put says nothing of what was written since its run was given up.
#[test]
fn an_old_put_is_not_of_the_next_run() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    let (ino, all) = (file.attr.ino, pieces(&lane, &file, 3));
    let now = Millis(cluster.borrow().now);
    let Put::Run { pieces: old, .. } = lane.shared.borrow_mut().begin_put(ino, now) else { unreachable!() };
    lane.shared.borrow_mut().loses_run(ino);
    // Where it ends is asked first, then it goes on as before.
    block_on(lane.getattr(ino)).unwrap();
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    let waiting = waits(&lane, ino);
    assert!(waiting > 0);
    let shared = &mut *lane.shared.borrow_mut();
    shared.was_put(ino, &old, true);
    shared.was_put(ino, &old, false);
    shared.was_late(ino, &old);
    let run = shared.inodes.get(ino).and_then(|inode| inode.run()).map(|(from, end)| (end - from) as usize);
    assert_eq!((run, shared.has_these(ino, &old)), (Some(waiting), false));
}
