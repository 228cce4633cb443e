//! Tests of operations over the fake cluster: what is sent, how often, and what programs see.

use crate::testing::{BOTH, Fault, READ, TRUNCATE, block_on, create, mount, mounted, read, write};
use crate::{Allocate, Lane, Listed, OpenHow, WriteHow};
use alloc::vec;
use alloc::vec::Vec;
use skep_types::{Errno, Ino, SetAttr, SetTime, TargetId, Timestamp};
use skep_wire::meta::{Commit, Create, Grow, ReadInline, SealExtent, Sync, Unlink, WriteInline};
use skep_wire::mgmt::{GetMap, RenewSession};
use skep_wire::storage::{ReadChunk, StatChunks, SyncChunks, WriteChunk};
use skep_wire::{Message, Status};

/// Goal: create + write + close of a small file waits for two requests, open + read for one; who reads on behind its end asks
/// whether that is still there.
#[test]
fn small_files_take_few_requests() {
    let (cluster, lane) = mounted();
    let before = cluster.borrow().total();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, b"hello");
    block_on(lane.flush(file.handle, 0)).unwrap();
    block_on(lane.release(file.handle));
    assert_eq!(cluster.borrow().total() - before, 2);
    let before = cluster.borrow().total();
    let file = block_on(lane.open(file.attr.ino, READ)).unwrap();
    assert_eq!(block_on(lane.fill(file.handle, 0, &mut [0; 4_096])), Ok(5));
    assert_eq!(read(&lane, &file, 3, 1), b"l");
    assert_eq!(cluster.borrow().total() - before, 1);
    assert_eq!(read(&lane, &file, 0, 100), b"hello");
    assert_eq!(cluster.borrow().total() - before, 1);
    assert!(read(&lane, &file, 5, 100).is_empty());
    assert_eq!(cluster.borrow().total() - before, 2);
    block_on(lane.release(file.handle));
    block_on(lane.housekeeping());
    assert!(cluster.borrow().shard.opens.is_empty(), "the close was told");
}

/// Goal: pages are kept only while nobody else changed the file.
#[test]
fn pages_are_dropped_after_a_foreign_change() {
    let (cluster, lane) = mounted();
    let other = mount(&cluster);
    let file = create(&lane, b"a");
    write(&lane, &file, 0, b"one");
    let seen = block_on(other.open(file.attr.ino, BOTH)).unwrap();
    let mut page = [0; 4_096];
    assert_eq!(block_on(other.fill(seen.handle, 0, &mut page)), Ok(3));
    block_on(other.open(file.attr.ino, BOTH)).unwrap();
    assert_eq!(cluster.borrow().drops, [], "nobody wrote since");
    write(&lane, &file, 0, b"two");
    let again = block_on(other.open(file.attr.ino, BOTH)).unwrap();
    assert_eq!(cluster.borrow_mut().drops.drain(..).collect::<Vec<_>>(), [(2, file.attr.ino, 0, 0)]);
    assert_eq!(read(&other, &again, 0, 10), b"two");
    block_on(other.open(file.attr.ino, READ)).unwrap();
    assert_eq!(cluster.borrow().drops, [], "none is held any more");
    assert_eq!(block_on(other.fill(seen.handle, 0, &mut page)), Ok(3));
    write(&other, &again, 0, b"TWO");
    assert_eq!(cluster.borrow_mut().drops.drain(..).count(), 1, "a write past the pages");
    assert_eq!(block_on(other.fill(seen.handle, 0, &mut page)), Ok(3));
    block_on(other.open(file.attr.ino, READ)).unwrap();
    assert_eq!(cluster.borrow().drops, [], "own writes keep them");
}

/// Goal: a file that outgrows the metadata keeps its content; its copy is durable before the switch.
#[test]
fn growth_copies_the_inline_content() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 6000]);
    write(&lane, &file, 6000, &[2; 50_000]);
    let content = read(&lane, &file, 0, 100_000);
    assert_eq!(content.len(), 56_000);
    assert!(content[..6000].iter().all(|b| *b == 1) && content[6000..].iter().all(|b| *b == 2));
    block_on(lane.flush(file.handle, 0)).unwrap();
    let shard = &cluster.borrow().shard.files[&file.attr.ino];
    assert_eq!((shard.attr.size, shard.inline.len()), (56_000, 0));
    assert!(shard.attr.blocks >= 56_000 / 512);
}

/// Goal: what a copy takes on the targets is counted, also when nothing is written after it: a program that finds no
/// blocks takes the file for a hole (tar does).
#[test]
fn copies_take_blocks() {
    for daemons_copy in [true, false] {
        let (cluster, lane) = mounted();
        cluster.borrow_mut().targets.copies = daemons_copy;
        let (source, copy) = (create(&lane, b"a"), create(&lane, b"b"));
        write(&lane, &source, 0, &[1; 56_000]);
        assert_eq!(block_on(lane.copy((source.handle, 0), (copy.handle, 0), 56_000)), Ok(56_000));
        block_on(lane.flush(copy.handle, 0)).unwrap();
        assert!(cluster.borrow().shard.files[&copy.attr.ino].attr.blocks >= 56_000 / 512);
    }
}

/// Goal: an empty file goes to chunks without a copy, in one request before the data.
#[test]
fn a_big_first_write_needs_no_copy() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[7; 10_000]);
    let cluster = cluster.borrow();
    assert_eq!((cluster.count(Grow::KIND), cluster.count(WriteInline::KIND)), (1, 0));
    assert_eq!(cluster.count(WriteChunk::KIND), 1);
}

/// Goal: lost requests and lost answers are repeated, and the shard executes each change once.
#[test]
fn lost_messages_are_repeated_and_executed_once() {
    let (cluster, lane) = mounted();
    let faults = [
        Fault::LoseAnswer,
        Fault::LoseRequest,
        Fault::Unreachable,
        Fault::Refuse(Status::NOT_READY),
        Fault::Refuse(Status::GRACE),
        Fault::Refuse(Status::BUSY),
        Fault::Refuse(Status::STALE_MAP),
        Fault::Refuse(Status::NOT_LEADER),
        Fault::Refuse(Status::ELSEWHERE),
    ];
    for kind in [Create::KIND, WriteInline::KIND, Unlink::KIND, WriteChunk::KIND, Grow::KIND, Commit::KIND] {
        cluster.borrow_mut().fail(kind, &faults);
    }
    let file = create(&lane, b"a");
    write(&lane, &file, 0, b"hello");
    write(&lane, &file, 5, &[3; 20_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    block_on(lane.unlink(Ino::ROOT, b"a")).unwrap();
    // create, write, grow, switch, commit, unlink
    assert_eq!(cluster.borrow().shard.executed, 6);
    assert_eq!(block_on(lane.unlink(Ino::ROOT, b"a")), Err(Errno::ENOENT));
}

/// Goal: the retry limit ends in EIO with a line that says what to do; a signal ends in EINTR, and
/// the next change of the lane is not mistaken for the abandoned one.
#[test]
fn waiting_ends_at_the_limit_or_by_a_signal() {
    let (cluster, lane) = mounted();
    cluster.borrow_mut().fail(Unlink::KIND, &[Fault::Unreachable; 10_000]);
    assert_eq!(block_on(lane.unlink(Ino::ROOT, b"a")), Err(Errno::EIO));
    assert!(cluster.borrow().now >= 600_000 && cluster.borrow().now < 700_000);
    let lines = cluster.borrow().lines.join("\n");
    assert!(lines.contains("waiting for node-1") && lines.contains("skep health"), "{lines}");
    cluster.borrow_mut().faults.clear();

    let file = create(&lane, b"b");
    cluster.borrow_mut().fail(WriteInline::KIND, &[Fault::LoseRequest]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.write(file.handle, 0, b"x", WriteHow::default())), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    write(&lane, &file, 0, b"yz");
    assert_eq!(read(&lane, &file, 0, 9), b"yz");
}

/// Goal: what a removed target held gives EIO as soon as mgmtd confirms it, while a target that is only
/// silent is waited for; without mgmtd nobody can know.
#[test]
fn a_removed_target_is_not_waited_for() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[7; 20_000]);
    assert_eq!(read(&lane, &file, 0, 20_000), [7; 20_000]);
    cluster.borrow_mut().removed = (1..=3).map(TargetId).collect();
    cluster.borrow_mut().fail(ReadChunk::KIND, &[Fault::Refuse(Status::STALE_MAP); 10_000]);
    cluster.borrow_mut().fail(GetMap::KIND, &[Fault::Unreachable; 5]);
    let before = cluster.borrow().now;
    let mut into = [0; 100];
    assert_eq!(block_on(lane.read(file.handle, 0, &mut into)), Err(Errno::EIO));
    let waited = cluster.borrow().now - before;
    assert!((1..60_000).contains(&waited), "{waited} ms");
    assert!(cluster.borrow().count(GetMap::KIND) > 5, "mgmtd was waited for");
}

/// Goal: a restarted metadata server is told once what is open, before the next request.
#[test]
fn a_restart_is_answered_by_reclaim() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let closed = create(&lane, b"b");
    block_on(lane.release(closed.handle));
    cluster.borrow_mut().restarts();
    cluster.borrow_mut().shard.opens.clear();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!(cluster.borrow().shard.reclaims, 0, "only that answer showed the new life");
    block_on(lane.getattr(file.attr.ino)).unwrap();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!(cluster.borrow().shard.reclaims, 1);
    assert_eq!(cluster.borrow().shard.opens.keys().copied().collect::<Vec<_>>(), [file.attr.ino]);
}

/// Goal: fsync syncs chunks, commits, and syncs the shard; what is durable is not synced again.
#[test]
fn fsync_makes_everything_durable() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 70_000]);
    block_on(lane.fsync(file.handle)).unwrap();
    let counts = |kind| cluster.borrow().count(kind);
    assert_eq!(counts(SyncChunks::KIND), 3, "one request for each target");
    assert_eq!((counts(Commit::KIND), counts(Sync::KIND)), (1, 1));
    assert_eq!(cluster.borrow().shard.durable, cluster.borrow().shard.index);
    block_on(lane.fsync(file.handle)).unwrap();
    assert_eq!((counts(SyncChunks::KIND), counts(Commit::KIND), counts(Sync::KIND)), (3, 1, 1));
}

/// Goal: O_SYNC is durable at every write.
#[test]
fn a_sync_handle_syncs_every_write() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let sync = block_on(lane.open(file.attr.ino, OpenHow { sync: true, ..BOTH })).unwrap();
    for (offset, len) in [(0, 100), (100, 20_000)] {
        write(&lane, &sync, offset, &vec![5; len]);
        assert_eq!(cluster.borrow().shard.durable, cluster.borrow().shard.index);
    }
    assert_eq!(cluster.borrow().shard.files[&file.attr.ino].attr.size, 20_100);
}

/// Goal: a file that another mount truncated and rewrote is found again by its new layout.
#[test]
fn a_stale_layout_is_fetched_again() {
    let (cluster, lane) = mounted();
    let other = mount(&cluster);
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 30_000]);
    let theirs = block_on(other.open(file.attr.ino, TRUNCATE)).unwrap();
    write(&other, &theirs, 0, &[2; 40_000]);
    block_on(other.flush(theirs.handle, 0)).unwrap();
    write(&lane, &file, 100, &[3; 10]);
    let content = read(&lane, &file, 0, 40_000);
    assert_eq!((content[0], content[100], content[39_999], content.len()), (2, 3, 2, 40_000));
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, 40_000);
}

/// Goal: while others write, the size is what the chunk files say.
#[test]
fn live_sizes_come_from_the_targets() {
    let (cluster, lane) = mounted();
    let other = mount(&cluster);
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 70_001]);
    cluster.borrow_mut().shard.live = true;
    let theirs = block_on(other.open(file.attr.ino, READ)).unwrap();
    assert_eq!(theirs.attr.size, 0, "nothing is committed");
    assert_eq!(read(&other, &theirs, 70_000, 10), [1]);
    assert_eq!(block_on(other.getattr(file.attr.ino)).unwrap().size, 70_001);
    assert!(cluster.borrow().count(StatChunks::KIND) > 0);
}

/// Goal: truncates forget older marks, and time that is set stays set.
#[test]
fn setattr_orders_itself_behind_own_writes() {
    let (_cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let ino = file.attr.ino;
    write(&lane, &file, 0, &[1; 30_000]);
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    assert_eq!(block_on(lane.setattr(ino, size(20_000))).unwrap().size, 20_000);
    assert_eq!(block_on(lane.setattr(ino, size(25_000))).unwrap().size, 25_000);
    assert_eq!(read(&lane, &file, 19_999, 3), [1, 0, 0]);
    let past = SetTime::At(Timestamp { secs: 5, nanos: 6 });
    write(&lane, &file, 0, &[2; 3]);
    let set = SetAttr { mtime: Some(past), ..SetAttr::default() };
    assert_eq!(block_on(lane.setattr(ino, set)).unwrap().mtime.secs, 5);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(block_on(lane.getattr(ino)).unwrap().mtime.secs, 5);
    assert_eq!(block_on(lane.setattr(ino, size(u64::MAX))), Err(Errno::EFBIG));
}

/// Goal: suid is gone before the first byte of an ordinary user lands.
#[test]
fn suid_goes_before_the_data() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 30_000]);
    let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    block_on(lane.setattr(file.attr.ino, set)).unwrap();
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::errno(Errno::EIO))]);
    let how = WriteHow { kill_suidgid: true, ..WriteHow::default() };
    assert_eq!(block_on(lane.write(file.handle, 0, b"x", how)), Err(Errno::EIO));
    assert_eq!(cluster.borrow().shard.files[&file.attr.ino].attr.mode, 0o755);
}

/// Goal: when a later piece fails, the writer learns how much was written; when the first one does,
/// he gets its error.
#[test]
fn a_full_target_gives_a_short_write() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 200_000]);
    let full = Fault::Refuse(Status::errno(Errno::ENOSPC));
    cluster.borrow_mut().faults.clear();
    let ok = Fault::Refuse(Status::BUSY);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[ok, full, ok]);
    cluster.borrow_mut().fail(SealExtent::KIND, &[full]);
    let at = 204_800; // a chunk border
    let n = block_on(lane.write(file.handle, at, &[2; 3 * 4096], WriteHow::default())).unwrap();
    assert_eq!(n, 4096);
    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, at + 4096);
    let set = SetAttr { size: Some(at + 3 * 4096), ..SetAttr::default() };
    block_on(lane.setattr(file.attr.ino, set)).unwrap();
    assert_eq!(read(&lane, &file, at + 4096, 2 * 4096), [0; 2 * 4096], "the stray piece does not show");
}

/// Goal: an open that the shard refused leaves no open behind; a handle of the wrong kind is EBADF.
#[test]
fn refused_opens_and_wrong_handles() {
    let (cluster, lane) = mounted();
    assert_eq!(block_on(lane.open(Ino(5555), READ)).unwrap_err(), Errno::ENOENT);
    let file = create(&lane, b"a");
    let reader = block_on(lane.open(file.attr.ino, READ)).unwrap();
    assert_eq!(block_on(lane.write(reader.handle, 0, b"x", WriteHow::default())), Err(Errno::EBADF));
    assert_eq!(block_on(lane.fsyncdir(reader.handle)), Err(Errno::EBADF));
    assert_eq!(block_on(lane.flush(999, 0)), Err(Errno::EBADF));
    block_on(lane.release(reader.handle));
    block_on(lane.housekeeping());
    assert_eq!(cluster.borrow().shard.opens.len(), 1, "one handle is left");
    block_on(lane.release(file.handle));
    block_on(lane.housekeeping());
    assert!(cluster.borrow().shard.opens.is_empty());
}

/// Goal: a listing that is read in small parts while names come and go gives every untouched name once.
#[test]
fn listings_neither_skip_nor_repeat() {
    let (_cluster, lane) = mounted();
    for number in 0..3_000 {
        let file = create(&lane, alloc::format!("f{number}").as_bytes());
        block_on(lane.release(file.handle));
    }
    for with_attr in [false, true] {
        let dir = lane.opendir(Ino::ROOT).unwrap();
        let (mut names, mut offset) = (Vec::new(), 0);
        for round in 0.. {
            let (mut room, before, from) = (37, names.len(), offset);
            let mut sink = |line: Listed<'_>| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                offset = line.next;
                assert!(!with_attr || line.attr.is_some() || line.name.starts_with(b"."));
                names.push(line.name.to_vec());
                true
            };
            block_on(lane.readdir(dir, from, with_attr, &mut sink)).unwrap();
            if names.len() == before {
                break;
            }
            if round % 3 == 0 {
                let name = alloc::format!("new{with_attr}{round}");
                let file = create(&lane, name.as_bytes());
                block_on(lane.release(file.handle));
            }
        }
        for number in 0..3_000 {
            let name = alloc::format!("f{number}").into_bytes();
            assert_eq!(names.iter().filter(|seen| **seen == name).count(), 1, "f{number}");
        }
        assert_eq!(names[..2], [b".".to_vec(), b"..".to_vec()]);
    }
}

/// Goal: fallocate reserves, grows or punches, in the metadata and in chunks.
#[test]
fn fallocate_keeps_its_promises() {
    let (_cluster, lane) = mounted();
    for len in [5_000usize, 100_000] {
        let file = create(&lane, alloc::format!("f{len}").as_bytes());
        write(&lane, &file, 0, &vec![9; len]);
        block_on(lane.fallocate(file.handle, Allocate::Punch, 1_000, 3_000)).unwrap();
        let mut expected = vec![9; len];
        expected[1_000..4_000].fill(0);
        assert_eq!(read(&lane, &file, 0, len + 10), expected);
        let end = len as u64 + 2_000;
        block_on(lane.fallocate(file.handle, Allocate::KeepSize, 0, end)).unwrap();
        assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, len as u64);
        block_on(lane.fallocate(file.handle, Allocate::Extend, 0, end)).unwrap();
        assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, end);
        assert_eq!(block_on(lane.fallocate(file.handle, Allocate::Extend, 0, 0)), Err(Errno::EINVAL));
    }
}

/// Goal: the session is renewed in time, and a dead mgmtd does not stop anything else.
#[test]
fn housekeeping_renews() {
    let (cluster, lane) = mounted();
    assert_eq!(block_on(lane.housekeeping()), 15_000);
    assert_eq!(cluster.borrow().count(RenewSession::KIND), 0);
    cluster.borrow_mut().now += 15_000;
    cluster.borrow_mut().fail(RenewSession::KIND, &[Fault::Unreachable]);
    let file = create(&lane, b"a");
    block_on(lane.release(file.handle));
    assert_eq!(block_on(lane.housekeeping()), 1_000, "again soon");
    assert!(cluster.borrow().shard.opens.is_empty(), "the close went out all the same");
    block_on(lane.housekeeping());
    assert_eq!(cluster.borrow().count(RenewSession::KIND), 2);
}

/// Goal: content beyond the limit of the cache is read from the shard every time, correctly.
#[test]
fn inline_content_that_is_not_kept_is_asked_for() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, b"content");
    lane.shared().borrow_mut().inodes.set_inline(file.attr.ino, None);
    cluster.borrow_mut().shard.files.get_mut(&file.attr.ino).unwrap().attr.size = 9;
    assert_eq!(read(&lane, &file, 4, 100), b"ent\0\0");
    assert_eq!(cluster.borrow().count(ReadInline::KIND), 1);
}

/// Goal: the size of an open file is asked for where no lease says that nobody else has changed it: a program that only reads on
/// at its end learns of it by that alone.
#[test]
fn open_files_know_their_size() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 30_000]);
    let before = cluster.borrow().total();
    assert_eq!(block_on(lane.getattr_open(file.handle)).unwrap().size, 30_000);
    assert_eq!(cluster.borrow().total(), before + 1);
    block_on(lane.release(file.handle));
    assert_eq!(block_on(lane.getattr_open(file.handle)), Err(Errno::EBADF));
}

/// Goal: a slot is given back with its lane, and a mount has no more lanes than slots.
#[test]
fn lanes_are_bounded() {
    let (_cluster, lane) = mounted();
    let mut lanes = Vec::new();
    let error = loop {
        match Lane::new(lane.shared().clone(), |_| lane.port().clone()) {
            Ok(lane) => lanes.push(lane),
            Err(error) => break error,
        }
    };
    assert_eq!((error, lanes.len()), (Errno::EMFILE, 255));
    let freed = lanes.remove(7).slot();
    assert_eq!(Lane::new(lane.shared().clone(), |_| lane.port().clone()).map(|lane| lane.slot()), Ok(freed));
}

/// Goal: a hole is made durable by the next fsync, as a write is (the simulator saw old bytes come
/// back after a power cut).
#[test]
fn fsync_covers_holes() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    write(&lane, &file, 0, &[1; 50_000]);
    block_on(lane.fsync(file.handle)).unwrap();
    let before = cluster.borrow().count(SyncChunks::KIND);
    block_on(lane.fallocate(file.handle, Allocate::Punch, 0, 4_096)).unwrap();
    block_on(lane.fsync(file.handle)).unwrap();
    assert_eq!(cluster.borrow().count(SyncChunks::KIND), before + 1);
}

/// Goal: suid and sgid that are set after a write by an ordinary user stay, also when the write's size
/// is committed later (seed 14 of the simulator).
#[test]
fn a_later_commit_keeps_a_new_mode() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"a");
    let how = WriteHow { kill_suidgid: true, ..WriteHow::default() };
    block_on(lane.write(file.handle, 0, &[1; 50_000], how)).unwrap();
    let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    block_on(lane.setattr(file.attr.ino, set)).unwrap();
    let commits = cluster.borrow().count(Commit::KIND);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!((commits, cluster.borrow().count(Commit::KIND)), (1, 1), "committed before the chmod");
}

/// Goal: what another mount cut off is neither seen nor brought back by the commit of what was written
/// before, and what is written after it counts.
#[test]
fn a_foreign_truncate_is_not_undone() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let other = block_on(second.open(file.attr.ino, BOTH)).unwrap();
    cluster.borrow_mut().shard.live = true;
    write(&first, &file, 0, &[1; 90_000]);
    block_on(first.getattr(file.attr.ino)).unwrap();
    let set = SetAttr { size: Some(20_000), ..SetAttr::default() };
    block_on(second.setattr(file.attr.ino, set)).unwrap();
    assert_eq!(block_on(first.getattr(file.attr.ino)).unwrap().size, 20_000);
    write(&first, &file, 30_000, &[2; 100]);
    block_on(first.flush(file.handle, 0)).unwrap();
    assert_eq!(cluster.borrow().shard.files[&file.attr.ino].attr.size, 30_100);
    write(&first, &file, 60_000, &[3; 100]);
    let set = SetAttr { size: Some(40_000), ..SetAttr::default() };
    block_on(second.setattr(file.attr.ino, set)).unwrap();
    block_on(first.flush(file.handle, 0)).unwrap();
    assert_eq!(cluster.borrow().shard.files[&file.attr.ino].attr.size, 40_000);
    let _ = other;
}

/// Goal: the same when the first mount never heard of another writer: the second cuts the file by its path. A
/// `stat` and an append on the first mount go by what is left, and what it writes afterwards counts.
#[test]
fn a_cut_by_path_is_not_undone() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let ino = file.attr.ino;
    let cut = |size| {
        block_on(second.setattr(ino, SetAttr { size: Some(size), ..SetAttr::default() })).unwrap();
    };
    write(&first, &file, 0, &[1; 90_000]);
    cut(20_000);
    assert_eq!(block_on(first.getattr(ino)).unwrap().size, 20_000);
    write(&first, &file, 0, &[1; 90_000]);
    cut(30_000);
    block_on(first.flush(file.handle, 0)).unwrap();
    assert_eq!(cluster.borrow().shard.files[&ino].attr.size, 30_000);
    write(&first, &file, 80_000, &[2; 100]);
    cut(40_000);
    write(&first, &file, 50_000, &[3; 100]);
    assert_eq!(read(&first, &file, 50_000, 100), [3; 100]);
    block_on(first.flush(file.handle, 0)).unwrap();
    assert_eq!(cluster.borrow().shard.files[&ino].attr.size, 50_100);
}

/// Goal: fallocate on a mount that knows an old, small file neither cuts what another mount appended nor takes
/// the file for one in the metadata.
#[test]
fn an_old_size_cuts_nothing() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    write(&first, &file, 0, &[1; 100]);
    let other = block_on(second.open(file.attr.ino, BOTH)).unwrap();
    write(&second, &other, 100, &[2; 70_000]);
    block_on(second.flush(other.handle, 0)).unwrap();
    for end in [2_000, 50_000, 80_000] {
        block_on(first.fallocate(file.handle, Allocate::Extend, 0, end)).unwrap();
        assert_eq!(cluster.borrow().shard.files[&file.attr.ino].attr.size, end.max(70_100));
    }
    assert_eq!(read(&second, &other, 0, 70_100)[100..], [2; 70_000]);
}

/// Goal: a size that the targets gave while others wrote is not believed after the last close, nor after a cut.
#[test]
fn live_sizes_do_not_outlive_their_file() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    let ino = file.attr.ino;
    write(&first, &file, 0, &[1; 90_000]);
    let theirs = block_on(second.open(ino, READ)).unwrap();
    cluster.borrow_mut().shard.live = true;
    assert_eq!(block_on(second.getattr(ino)).unwrap().size, 90_000);
    block_on(second.release(theirs.handle));
    let set = SetAttr { size: Some(5), ..SetAttr::default() };
    block_on(first.setattr(ino, set)).unwrap();
    let again = block_on(second.open(ino, READ)).unwrap();
    assert_eq!(read(&second, &again, 0, 100), [1; 5]);
}

/// Goal: zeroed ranges are zeros, grow the file or not, and are covered by the next fsync.
#[test]
fn zero_ranges() {
    let (_cluster, lane) = mounted();
    for len in [5_000usize, 90_000] {
        let file = create(&lane, alloc::format!("f{len}").as_bytes());
        let mut content = alloc::vec![1; len];
        write(&lane, &file, 0, &content);
        let zero = |what, from: usize, n: usize| {
            block_on(lane.fallocate(file.handle, what, from as u64, n as u64)).unwrap();
        };
        zero(Allocate::Zero, 100, 3_000);
        content[100..3_100].fill(0);
        zero(Allocate::ZeroKeepSize, len - 50, 1_000);
        content[len - 50..].fill(0);
        assert_eq!(read(&lane, &file, 0, 200_000), content);
        zero(Allocate::Zero, len - 20, 70_000);
        content.resize(len - 20 + 70_000, 0);
        assert_eq!(read(&lane, &file, 0, 200_000), content);
    }
}
