//! Tests of what programs are told of losses.

use crate::limits::{SYNC_CLOSED_MS, SYNC_CLOSED_PATIENCE_MS, SYNC_SILENT_MS};
use crate::op::allocate::Allocate;
use crate::testing::{BOTH, Cluster, FakeLane, Fault, READ, block_on, create, mounted, write};
use crate::{OpenHow, WriteHow};
use alloc::format;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::pin::pin;
use core::task::{Context, Waker};
use skep_types::{Errno, Ino, SetAttr, Term};
use skep_wire::Message;
use skep_wire::Status;
use skep_wire::meta::{ReadInline, Sync};
use skep_wire::storage::{CopyChunk, PunchChunk, ReserveChunk, StatChunks, SyncChunks, WriteChunk};

/// Goal: lost writes and lost history fail the next fsync of every handle, once each, and no other.
#[test]
fn losses_are_reported_once_by_each_handle() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let second = block_on(lane.open(file.attr.ino, BOTH)).unwrap();
    let other = create(&lane, b"b");
    write(&lane, &file, 0, &[1; 10_000]);
    cluster.borrow_mut().targets.life = 2;
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO));
    assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
    assert_eq!(block_on(lane.fsync(second.handle)), Err(Errno::EIO));
    assert_eq!(block_on(lane.fsync(second.handle)), Ok(()));
    assert_eq!(block_on(lane.fsync(other.handle)), Ok(()));

    let dir = lane.opendir(Ino::ROOT).unwrap();
    create(&lane, b"c");
    write(&lane, &other, 0, b"lost by a power cut");
    cluster.borrow_mut().shard.lost_term = Some(Term(1));
    assert_eq!(block_on(lane.fsync(other.handle)), Err(Errno::EIO));
    assert_eq!(block_on(lane.fsyncdir(dir)), Err(Errno::EIO));
    assert_eq!(block_on(lane.fsync(file.handle)), Ok(()), "it had changed nothing since its fsync");
    assert_eq!(block_on(lane.fsyncdir(dir)), Ok(()));
}

/// Goal: space taken or given back through a descriptor that syncs each change is told to be lost when it is.
#[test]
fn a_synchronous_fallocate_tells_of_losses() {
    for lose in [
        |cluster: &mut Cluster| cluster.targets.life = 2,
        |cluster: &mut Cluster| cluster.shard.lost_term = Some(Term(1)),
    ] {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"a");
        write(&lane, &file, 0, &[1; 10_000]);
        let synchronous = block_on(lane.open(file.attr.ino, OpenHow { sync: true, ..BOTH })).unwrap();
        lose(&mut cluster.borrow_mut());
        let punched = block_on(lane.fallocate(synchronous.handle, Allocate::Punch, 0, 4_096));
        assert_eq!(punched, Err(Errno::EIO));
        let told = [synchronous.handle, file.handle].map(|handle| block_on(lane.fsync(handle)));
        assert_eq!(told, [Ok(()), Err(Errno::EIO)], "and whoever else has it open");
    }
}

/// Goal: what a power cut took is told also to who opens after the mount has learned of it, if nobody was told before, and once:
/// the fsync of a directory that is opened after a name was moved or removed, or of a file after its mode was set by the path, would be good
/// though that is gone (`xtask power`, seed 2027).
#[test]
fn a_loss_is_told_to_who_opens_after_it() {
    let (cluster, lane) = mounted();
    let (file, other, _) = (create(&lane, b"file"), create(&lane, b"other"), create(&lane, b"gone"));
    let sync_dir = || {
        let dir = lane.opendir(Ino::ROOT).unwrap();
        let synced = block_on(lane.fsyncdir(dir));
        lane.releasedir(dir);
        synced
    };
    assert_eq!(sync_dir(), Ok(()));
    block_on(lane.unlink(Ino::ROOT, b"gone")).unwrap();
    block_on(lane.setattr(file.attr.ino, SetAttr { mode: Some(0o600), ..SetAttr::default() })).unwrap();
    block_on(lane.release(file.handle));
    cluster.borrow_mut().shard.lost_term = Some(Term(1));
    // Another program's.
    assert_eq!(block_on(lane.fsync(other.handle)), Ok(()), "nothing of it was changed");
    assert_eq!((sync_dir(), sync_dir()), (Err(Errno::EIO), Ok(())));
    let only_reads = block_on(lane.open(file.attr.ino, READ)).unwrap();
    assert_eq!(block_on(lane.flush(only_reads.handle, 0)), Ok(()), "a close tells what came after its open");
    let [first, second] = [0; 2].map(|_| block_on(lane.open(file.attr.ino, BOTH)).unwrap().handle);
    assert_eq!(block_on(lane.fsync(first)), Err(Errno::EIO));
    assert_eq!(block_on(lane.fsync(second)), Err(Errno::EIO), "open before the first was told");
    let third = block_on(lane.open(file.attr.ino, BOTH)).unwrap().handle;
    assert_eq!([first, second, third].map(|handle| block_on(lane.fsync(handle))), [Ok(()); 3]);
}

/// Goal: of several programs that changed a directory each is told, whoever is first; who was killed in its fsync was told
/// nothing.
#[test]
fn each_program_is_told_of_its_own_losses() {
    let (cluster, lane) = mounted();
    let sync_as = |caller, ino| {
        cluster.borrow_mut().caller = caller;
        let dir = lane.opendir(ino).unwrap();
        let synced = block_on(lane.fsyncdir(dir));
        lane.releasedir(dir);
        synced
    };
    for (caller, name) in [(1, b"a"), (2, b"b")] {
        cluster.borrow_mut().caller = caller;
        create(&lane, name);
    }
    cluster.borrow_mut().shard.lost_term = Some(Term(1));
    let told = [1, 3, 2, 2].map(|caller| sync_as(caller, Ino::ROOT));
    assert_eq!(told, [Err(Errno::EIO), Ok(()), Err(Errno::EIO), Ok(())]);

    let file = create(&lane, b"c");
    cluster.borrow_mut().shard.lost_term = Some(Term(1));
    sync_as(2, Ino::ROOT).unwrap_err();
    write(&lane, &file, 0, &[1; 70_000]);
    cluster.borrow_mut().fail(SyncChunks::KIND, &[Fault::Unreachable; 3]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    assert_eq!([0; 2].map(|_| block_on(lane.fsync(file.handle))), [Err(Errno::EIO), Ok(())]);
}

/// Goal: what is remembered of changes that are not durable is bounded: the shard is asked to sync before one more.
#[test]
fn changes_not_durable_are_bounded() {
    let (cluster, lane) = mounted();
    lane.shared().borrow_mut().limits.changed_max = 8;
    for number in 0..100 {
        create(&lane, format!("{number}").as_bytes());
        let kept = lane.shared().borrow().stamps.changed(Ino::ROOT.shard());
        assert!(kept <= 8 + 1, "{kept} of them");
    }
    let syncs = cluster.borrow().count(Sync::KIND);
    assert!((10..=30).contains(&syncs), "{syncs} syncs");
}

/// Goal: what this mount wrote to a chunk file that is gone is told by the next fsync, when a copy finds that out too, and
/// when nobody can be asked whether somebody cut it: the next write makes it anew. Method: the target refuses once,
/// as one does whose chunk file was removed beneath it; the shard knows, or does not answer.
#[test]
fn a_loss_is_told_though_nobody_can_be_asked() {
    for (copies, answers) in [(false, true), (false, false), (true, true), (true, false)] {
        let (cluster, lane) = mounted();
        let (file, other) = (create(&lane, b"a"), create(&lane, b"b"));
        write(&lane, &other, 0, &[2; 20_000]);
        write(&lane, &file, 0, &[1; 10_000]);
        cluster.borrow_mut().targets.chunks.retain(|(_, chunk), _| chunk.ino != file.attr.ino);
        let lost = [Fault::Refuse(Status::LOST_CHUNK)];
        cluster.borrow_mut().fail(if copies { CopyChunk::KIND } else { WriteChunk::KIND }, &lost);
        if !answers {
            cluster.borrow_mut().fail(StatChunks::KIND, &[Fault::Refuse(Status::errno(Errno::EIO)); 3]);
        }
        let copied = match copies {
            true => block_on(lane.copy((other.handle, 0), (file.handle, 0), 10_000)).map(drop),
            false => block_on(lane.write(file.handle, 0, &[3; 10_000], WriteHow::default())).map(drop),
        };
        assert_eq!(copied, Err(Errno::EIO), "copies {copies}, answers {answers}");
        cluster.borrow_mut().faults.clear();
        cluster.borrow_mut().targets.chunks.retain(|(_, chunk), _| chunk.ino != file.attr.ino);
        if !answers {
            write(&lane, &file, 0, &[4; 10_000]);
        }
        assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO), "copies {copies}, answers {answers}");
    }
}

/// A file that was written and closed, is due for its background sync, and whose chunk files are gone.
fn lost_behind_a_close() -> (Rc<RefCell<Cluster>>, FakeLane, Ino) {
    let (cluster, lane) = mounted();
    cluster.borrow_mut().now = 10_000;
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 10_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    block_on(lane.release(file.handle));
    cluster.borrow_mut().targets.chunks.clear();
    cluster.borrow_mut().now += SYNC_CLOSED_MS;
    (cluster, lane, file.attr.ino)
}

/// Goal: a chunk file that goes between a close and its background sync is told to the next who syncs the file, though a
/// write has made it anew by then; also when that could not be looked into at the time, and the kernel has
/// forgotten the file since.
#[test]
fn a_loss_after_a_close_is_told() {
    for answers in [true, false] {
        let (cluster, lane, ino) = lost_behind_a_close();
        if !answers {
            cluster.borrow_mut().fail(StatChunks::KIND, &[Fault::Refuse(Status::errno(Errno::EIO)); 3]);
        }
        block_on(lane.sync_closed());
        cluster.borrow_mut().faults.clear();
        lane.forget(ino, 1);
        let again = block_on(lane.open(ino, BOTH)).unwrap();
        if answers {
            write(&lane, &again, 5_000, &[2; 10]);
        }
        assert_eq!(block_on(lane.fsync(again.handle)), Err(Errno::EIO), "answers: {answers}");
        assert_eq!(block_on(lane.fsync(again.handle)), Ok(()));
    }
}

/// Goal: a file that cannot be looked at, because a target of it is bad, keeps no other from being looked at: what it lost is told
/// though a write has made it anew. Method: the one that was closed first meets the refusal, pass for pass.
#[test]
fn a_bad_target_hides_no_loss_elsewhere() {
    let (cluster, lane) = mounted();
    cluster.borrow_mut().now = 10_000;
    let [_, second] = [b"a", b"b"].map(|name| {
        let file = create(&lane, name);
        write(&lane, &file, 0, &[1; 10_000]);
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
        file.attr.ino
    });
    cluster.borrow_mut().targets.chunks.clear();
    cluster.borrow_mut().now += SYNC_CLOSED_MS;
    let refused = [Fault::Refuse(Status::errno(Errno::EIO))];
    cluster.borrow_mut().fail(StatChunks::KIND, &refused);
    block_on(lane.sync_closed());
    assert!(cluster.borrow().faults.get(&StatChunks::KIND).is_none_or(|faults| faults.is_empty()));
    let again = block_on(lane.open(second, BOTH)).unwrap();
    write(&lane, &again, 5_000, &[2; 10]);
    assert_eq!(block_on(lane.fsync(again.handle)), Err(Errno::EIO));
}

/// Goal: after a look at which somebody was silent there is none for a while, and then those that were not looked at come first.
#[test]
fn a_silent_target_is_looked_at_last() {
    let (cluster, lane) = mounted();
    cluster.borrow_mut().now = 10_000;
    let inos = [b"a", b"b"].map(|name| {
        let file = create(&lane, name);
        write(&lane, &file, 0, &[1; 10_000]);
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
        file.attr.ino
    });
    cluster.borrow_mut().targets.chunks.clear();
    let pass = |faults: &[Fault], wait: u64| {
        cluster.borrow_mut().now += wait;
        cluster.borrow_mut().fail(StatChunks::KIND, faults);
        block_on(lane.sync_closed());
        cluster.borrow_mut().faults.clear();
        let shared = lane.shared().borrow();
        inos.map(|ino| shared.inodes.get(ino).is_some_and(|inode| inode.is_short()))
    };
    let refused = Fault::Refuse(Status::errno(Errno::EIO));
    let silent = [Fault::Silent(SYNC_CLOSED_PATIENCE_MS), refused];
    assert_eq!(pass(&silent, SYNC_CLOSED_MS), [true, true]);
    assert_eq!(pass(&[], SYNC_CLOSED_MS), [true, true], "not so soon");
    assert_eq!(pass(&silent, SYNC_SILENT_MS), [true, true], "the second now");
    assert_eq!(pass(&[], SYNC_SILENT_MS), [false, false]);
}

/// Goal: a file that is deleted before its background sync is not kept, though nothing of it is found.
#[test]
fn deleted_files_are_forgotten() {
    let (cluster, lane, ino) = lost_behind_a_close();
    block_on(lane.unlink(Ino::ROOT, b"a")).unwrap();
    cluster.borrow_mut().fail(ReadInline::KIND, &[Fault::Refuse(Status::errno(Errno::ESTALE))]);
    block_on(lane.sync_closed());
    lane.forget(ino, 1);
    assert!(lane.shared().borrow().inodes.get(ino).is_none());
}

/// Goal: who has a file open that is deleted, and of which nothing is left, is not told that it is safe.
#[test]
fn an_open_file_that_is_gone_is_not_synced() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 10_000]);
    block_on(lane.unlink(Ino::ROOT, b"a")).unwrap();
    cluster.borrow_mut().targets.chunks.clear();
    cluster.borrow_mut().fail(ReadInline::KIND, &[Fault::Refuse(Status::errno(Errno::ESTALE))]);
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::ESTALE));
}

/// Goal: a fallocate beside which another program of this mount cuts the file is made again, and nobody is told of a loss (the
/// simulator's seed 924: EIO).
#[test]
fn a_fallocate_beside_a_truncate_loses_nothing() {
    for (what, kind) in [(Allocate::Zero, ReserveChunk::KIND), (Allocate::Punch, PunchChunk::KIND)] {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"a");
        write(&lane, &file, 0, &[1; 10_000]);
        block_on(lane.fsync(file.handle)).unwrap();
        cluster.borrow_mut().fail(kind, &[Fault::LateAnswer]);
        let mut allocated = pin!(lane.fallocate(file.handle, what, 5_000, 100));
        let mut context = Context::from_waker(Waker::noop());
        while cluster.borrow().count(kind) == 0 {
            assert!(allocated.as_mut().poll(&mut context).is_pending());
        }
        let nothing = SetAttr { size: Some(0), ..SetAttr::default() };
        block_on(lane.setattr(file.attr.ino, nothing)).unwrap();
        assert_eq!(block_on(allocated), Ok(()), "{what:?}");
        assert_eq!(block_on(lane.fsync(file.handle)), Ok(()), "{what:?}");
    }
}
