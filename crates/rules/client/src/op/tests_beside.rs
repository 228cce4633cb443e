//! Tests of writes beside other operations: truncates of their own mount, and what other mounts write.

use crate::testing::{
    BOTH, FakeLane, Fault, TRUNCATE, block_on, create, lane_beside, mount, mounted, read, step, write,
};
use crate::{Listed, WriteHow};
use alloc::vec;
use alloc::vec::Vec;
use core::pin::pin;
use skep_types::{Attr, Errno, Ino, SetAttr};
use skep_wire::meta::{ChangeAttr, Commit, GetAttr, Open, ReserveEnd};
use skep_wire::storage::{StatChunks, WriteChunk};
use skep_wire::{Message, Status};

const APPEND: WriteHow =
    WriteHow { kill_suidgid: false, sync: false, append: true, from_pages: false, direct: false };

/// Goal: an open that truncates waits for an append of its mount that has begun, and both end: the record stood before,
/// and is gone. It used to stand at its old place, or at a new one, or at both.
#[test]
fn a_truncating_open_waits_for_appends() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"log");
    write(&lane, &file, 0, &[1; 20_000]);
    let mut append = pin!(lane.write(file.handle, 0, &[2; 5_000], APPEND));
    while cluster.borrow().count(ReserveEnd::KIND) == 0 {
        assert!(step(append.as_mut()).is_pending());
    }
    let opened = cluster.borrow().count(Open::KIND);
    let mut cut = pin!(beside.open(file.attr.ino, TRUNCATE));
    for _ in 0..100 {
        assert!(step(cut.as_mut()).is_pending());
    }
    assert_eq!(cluster.borrow().count(Open::KIND), opened, "not sent beside the append");
    assert_eq!(block_on(append), Ok(5_000));
    let again = block_on(cut).unwrap();
    assert!(read(&beside, &again, 0, 50_000).is_empty());
}

/// Goal: an append begins when a truncating open of its mount has ended, also one that waits for another append: its
/// record is there once, at the new end.
#[test]
fn an_append_waits_for_truncating_opens() {
    let (cluster, lane) = mounted();
    let (beside, third) = (lane_beside(&cluster, &lane), lane_beside(&cluster, &lane));
    let file = create(&lane, b"log");
    write(&lane, &file, 0, &[1; 20_000]);
    let mut first = pin!(lane.write(file.handle, 0, &[2; 5_000], APPEND));
    while cluster.borrow().count(ReserveEnd::KIND) == 0 {
        assert!(step(first.as_mut()).is_pending());
    }
    let mut cut = pin!(beside.open(file.attr.ino, TRUNCATE));
    assert!(step(cut.as_mut()).is_pending());
    let mut second = pin!(third.write(file.handle, 0, &[3; 7_000], APPEND));
    for _ in 0..100 {
        assert!(step(second.as_mut()).is_pending());
    }
    assert_eq!(block_on(first), Ok(5_000));
    let again = block_on(cut).unwrap();
    assert_eq!(block_on(second), Ok(7_000));
    assert!(read(&beside, &again, 0, 50_000) == [3; 7_000]);
}

/// Goal: who gives up a truncate that waits for an append keeps no append waiting.
#[test]
fn a_truncate_that_is_given_up_leaves_nothing() {
    let (cluster, lane) = mounted();
    let (beside, third) = (lane_beside(&cluster, &lane), lane_beside(&cluster, &lane));
    let file = create(&lane, b"log");
    write(&lane, &file, 0, &[1; 20_000]);
    let mut append = pin!(lane.write(file.handle, 0, &[2; 5_000], APPEND));
    while cluster.borrow().count(ReserveEnd::KIND) == 0 {
        assert!(step(append.as_mut()).is_pending());
    }
    let mut cut = pin!(beside.open(file.attr.ino, TRUNCATE));
    assert!(step(cut.as_mut()).is_pending());
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(cut), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    assert_eq!(block_on(append), Ok(5_000));
    assert_eq!(block_on(third.write(file.handle, 0, &[3; 7_000], APPEND)), Ok(7_000));
    assert_eq!(read(&third, &file, 20_000, 50_000).len(), 12_000);
}

/// Goal: a truncate by another mount takes the place of an append whose bytes are on their way: it gets another one, and
/// writes over nothing that was appended since (seed 2397 of the simulator). A target's count that moves without a truncate
/// of the file, as a restart makes it, leaves the place.
#[test]
fn a_place_ends_with_a_truncate_elsewhere() {
    for truncates in [true, false] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"log");
        write(&first, &file, 0, &[1; 20_000]);
        block_on(first.flush(file.handle, 0)).unwrap();
        let other = block_on(second.open(file.attr.ino, BOTH)).unwrap();
        let mut append = pin!(first.write(file.handle, 0, &[2; 5_000], APPEND));
        while cluster.borrow().count(ReserveEnd::KIND) == 0 {
            assert!(step(append.as_mut()).is_pending());
        }
        let mut expected = vec![1; 20_000];
        if truncates {
            let set = SetAttr { size: Some(10_000), ..SetAttr::default() };
            block_on(second.setattr(file.attr.ino, set)).unwrap();
            block_on(second.write(other.handle, 0, &[3; 7_000], APPEND)).unwrap();
            block_on(second.flush(other.handle, 0)).unwrap();
            expected.truncate(10_000);
            expected.extend([3; 7_000]);
        } else {
            cluster.borrow_mut().targets.cuts += 1;
        }
        assert_eq!(block_on(append), Ok(5_000));
        expected.extend([2; 5_000]);
        block_on(first.flush(file.handle, 0)).unwrap();
        let seen = block_on(second.open(file.attr.ino, BOTH)).unwrap();
        assert!(read(&second, &seen, 0, 100_000) == expected, "truncates: {truncates}");
    }
}

/// Goal: attributes that a server told before it ended are not believed once the next one has been told what is open: its
/// change counters may have gone back, and nothing it says would be taken (seed 1257 of the simulator: a file that could not
/// be read any more).
#[test]
fn attributes_of_an_ended_life_are_not_kept() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 20_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    cluster.borrow_mut().shard.live = true;
    // The shard has answered, the targets have not.
    let asked = cluster.borrow().count(GetAttr::KIND);
    let mut slow = pin!(lane.getattr(file.attr.ino));
    while cluster.borrow().count(GetAttr::KIND) == asked {
        assert!(step(slow.as_mut()).is_pending());
    }
    beside.shared().borrow_mut().lost_history(file.attr.ino.shard(), skep_types::Term(1));
    assert_eq!(block_on(slow).map(|attr| attr.size), Ok(20_000));
    let known = lane.shared().borrow().inodes.get(file.attr.ino).and_then(|inode| inode.attr.clone());
    assert_eq!(known.map(|attr| attr.change), Some(0));
}

/// Goal: a listing over a restart of the server tells no size without what this mount has written and not committed: the
/// kernel would believe it.
#[test]
fn a_listing_over_a_restart_keeps_own_writes() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 20_000]);
    let dir = lane.opendir(Ino::ROOT).unwrap();
    cluster.borrow_mut().restarts();
    block_on(beside.lookup(Ino::ROOT, b"f")).unwrap();
    let told = cluster.borrow().shard.reclaims;
    let mut sizes = Vec::new();
    block_on(lane.readdir(dir, 0, true, &mut |line: Listed<'_>| {
        sizes.extend(line.attr.filter(|attr| attr.ino == file.attr.ino).map(|attr| attr.size));
        true
    }))
    .unwrap();
    assert_eq!(cluster.borrow().shard.reclaims, told + 1, "told within this very question");
    assert!(sizes.iter().all(|size| *size == 20_000), "{sizes:?}");
}

/// Goal: what a failed write left is not taken back while the same mount writes there again: a part of that has landed, and
/// is not marked yet.
#[test]
fn strays_spare_own_writes_under_way() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 204_800]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    let (ok, fails) = (Fault::Refuse(Status::BUSY), Fault::Refuse(Status::errno(Errno::EIO)));
    cluster.borrow_mut().fail(WriteChunk::KIND, &[fails, ok]);
    cluster.borrow_mut().fail(StatChunks::KIND, &[fails]);
    let again = [3; 2 * 4096];
    assert_eq!(block_on(lane.write(file.handle, 204_800, &again, WriteHow::default())), Err(Errno::EIO));
    assert_eq!(lane.shared().borrow().strays.len(), 1, "left to housekeeping");
    // Its first part waits, its second lands.
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::BUSY)]);
    let written = cluster.borrow().count(WriteChunk::KIND);
    let mut slow = pin!(beside.write(file.handle, 204_800, &again, WriteHow::default()));
    while cluster.borrow().count(WriteChunk::KIND) < written + 2 {
        assert!(step(slow.as_mut()).is_pending());
    }
    let asked = cluster.borrow().count(StatChunks::KIND);
    block_on(lane.housekeeping());
    assert_eq!(cluster.borrow().count(StatChunks::KIND), asked, "nobody is asked in vain");
    assert_eq!(block_on(slow), Ok(again.len()));
    block_on(lane.housekeeping());
    assert!(read(&lane, &file, 204_800, 20_000) == again);
    assert!(lane.shared().borrow().strays.is_empty());
}

/// Goal: a write beside a truncate of its mount whose answer takes long waits for it, and is no error: it used to be
/// written 200 times, and then EIO.
#[test]
fn a_write_waits_for_a_slow_truncate() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 90_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    let set = SetAttr { size: Some(50_000), ..SetAttr::default() };
    cluster.borrow_mut().fail(ChangeAttr::KIND, &[Fault::Refuse(Status::BUSY); 3]);
    let mut cut = pin!(beside.setattr(file.attr.ino, set));
    while cluster.borrow().count(ChangeAttr::KIND) == 0 {
        assert!(step(cut.as_mut()).is_pending());
    }
    let mut late = pin!(lane.write(file.handle, 60_000, &[2; 10_000], WriteHow::default()));
    let mut written = 0;
    for polled in 0..1_000 {
        assert!(step(late.as_mut()).is_pending());
        if polled == 10 {
            written = cluster.borrow().count(WriteChunk::KIND);
        }
    }
    assert_eq!(
        cluster.borrow().count(WriteChunk::KIND),
        written,
        "written again only when the truncate has ended"
    );
    block_on(cut).unwrap();
    assert_eq!(block_on(late), Ok(10_000));
    assert!(read(&lane, &file, 50_000, 50_000) == [[0; 10_000], [2; 10_000]].concat());
}

/// Goal: what a failed write left behind the end of the file is taken back by its place now, and not at all
/// while another mount writes there.
#[test]
fn strays_of_a_failed_write_spare_others() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    write(&first, &file, 0, &[1; 204_800]);
    block_on(first.flush(file.handle, 0)).unwrap();
    for live in [false, true] {
        let other = block_on(second.open(file.attr.ino, BOTH)).unwrap();
        let at = block_on(second.getattr(file.attr.ino)).unwrap().size;
        write(&second, &other, at, &[2; 3 * 4096]);
        block_on(second.flush(other.handle, 0)).unwrap();
        cluster.borrow_mut().shard.live = live;
        let (ok, fails) = (Fault::Refuse(Status::BUSY), Fault::Refuse(Status::errno(Errno::EIO)));
        cluster.borrow_mut().fail(WriteChunk::KIND, &[ok, fails, ok]);
        let n = block_on(first.write(file.handle, at, &[3; 3 * 4096], WriteHow::default())).unwrap();
        assert_eq!(n, 4096);
        let seen = read(&second, &other, at, 3 * 4096);
        // The failed write landed in its first block, in none of the second, and behind it again: those bytes may be its own, or
        // the other mount's where they were taken back; where it did not reach they are the other mount's.
        assert_eq!(seen[..4096], [3; 4096], "what is told as written");
        assert_eq!(seen[4096..8192], [2; 4096], "the failed write did not reach here");
        assert!(seen[8192..].iter().all(|byte| *byte == 2 || *byte == 3), "no hole in another mount's bytes");
    }
}

/// Goal: however long it takes to take back what a failed write left behind the end, it takes nothing that another mount
/// wrote there since the shard was asked; it is tried again, and then the end has moved.
#[test]
fn strays_that_others_changed_stay() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    write(&first, &file, 0, &[1; 204_800]);
    block_on(first.flush(file.handle, 0)).unwrap();
    let other = block_on(second.open(file.attr.ino, BOTH)).unwrap();
    let (ok, fails) = (Fault::Refuse(Status::BUSY), Fault::Refuse(Status::errno(Errno::EIO)));
    cluster.borrow_mut().fail(WriteChunk::KIND, &[fails, ok]);
    let mut failing = pin!(first.write(file.handle, 204_800, &[3; 2 * 4096], WriteHow::default()));
    // The target and the shard have been looked at.
    let asked = cluster.borrow().count(GetAttr::KIND);
    while cluster.borrow().count(GetAttr::KIND) == asked {
        assert!(step(failing.as_mut()).is_pending());
    }
    write(&second, &other, 204_800, &[2; 2 * 4096]);
    block_on(second.flush(other.handle, 0)).unwrap();
    assert_eq!(block_on(failing), Err(Errno::EIO));
    block_on(first.housekeeping());
    assert_eq!(read(&second, &other, 204_800, 2 * 4096), [2; 2 * 4096]);
}

/// Goal: who asks for a change that turns out to be none takes no other mount's change for his own (seed 3572 of the
/// simulator: a byte that another mount had written was read as zero): content that is kept, and pages, are as of before it.
#[test]
fn a_change_that_was_none_is_nobody_elses() {
    let no_change = |lane: &FakeLane, ino, set| {
        let change = lane.shared.borrow().inodes.get(ino).unwrap().attr.clone().unwrap().change;
        block_on(lane.setattr(ino, set)).unwrap();
        change
    };
    for set in [
        SetAttr { size: Some(10), grow_only: true, ..SetAttr::default() },
        SetAttr { kill_suidgid: true, ..SetAttr::default() },
    ] {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"f");
        write(&lane, &file, 0, b"begun");
        let other = mount(&cluster);
        let theirs = block_on(other.open(file.attr.ino, BOTH)).unwrap();
        write(&other, &theirs, 99, b"x");
        let change = no_change(&lane, file.attr.ino, set);
        assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().change, change + 1, "it was none");
        assert_eq!(read(&lane, &file, 99, 9), b"x");
    }
}

/// Goal: the same where two programs commit the same writes, and another mount's change comes between.
#[test]
fn a_commit_that_was_none_is_nobody_elses() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 20_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    let opened = block_on(beside.open(file.attr.ino, BOTH)).unwrap();
    block_on(lane.fill(opened.handle, 8_192, &mut [0; 4_096])).unwrap();
    cluster.borrow_mut().now += 1_000;
    write(&lane, &file, 0, b"again");
    let known = lane.shared.borrow().inodes.get(file.attr.ino).unwrap().attr.clone().unwrap().change;
    cluster.borrow_mut().fail(Commit::KIND, &[Fault::LateAnswer, Fault::LateAnswer]);
    let (mut first, mut second) = (pin!(lane.flush(file.handle, 0)), pin!(beside.flush(opened.handle, 0)));
    while cluster.borrow().count(Commit::KIND) < 2 {
        assert!(step(first.as_mut()).is_pending());
    }
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    block_on(mount(&cluster).setattr(file.attr.ino, mode)).unwrap();
    while cluster.borrow().count(Commit::KIND) < 3 {
        assert!(step(second.as_mut()).is_pending());
    }
    block_on(first).unwrap();
    block_on(second).unwrap();
    let mut shared = lane.shared.borrow_mut();
    let inode = shared.inodes.get_mut(file.attr.ino).unwrap();
    assert_eq!(inode.attr.as_ref().unwrap().change, known + 2);
    assert!(!inode.pages.are_as_of(known + 2), "another mount has changed it");
}

/// Goal: what a program has written is seen by the others of its mount also when another lane tells it while they ask the targets for
/// its end: it was not in what the shard had told them, and is in no mark any more (seed 2147 of the simulator).
#[test]
fn a_write_that_is_told_meanwhile_is_seen() {
    let (cluster, lane) = mounted();
    let beside = lane_beside(&cluster, &lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 20_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    write(&lane, &file, 20_000, &[1; 500]);
    let ino = file.attr.ino;
    lane.shared.borrow_mut().inodes.get_mut(ino).unwrap().end_is_in_doubt();
    // It has what the shard knows, and asks the targets.
    let mut looking = pin!(beside.getattr(ino));
    cluster.borrow_mut().fail(StatChunks::KIND, &[Fault::LateAnswer]);
    let asked = cluster.borrow().count(StatChunks::KIND);
    while cluster.borrow().count(StatChunks::KIND) == asked {
        assert!(step(looking.as_mut()).is_pending());
    }
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(block_on(looking).unwrap().size, 20_500);
}

/// Goal: a cut that a mount has heard of, and nothing else of that answer, for a target was silent, is not taken for one that it
/// knows the end behind: its next append would land at the old end, with zeros before it.
#[test]
fn an_append_behind_a_cut_that_was_only_heard_of() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"log");
    write(&first, &file, 0, &[1; 20_000]);
    block_on(first.flush(file.handle, 0)).unwrap();
    block_on(second.setattr(file.attr.ino, SetAttr { size: Some(10_000), ..SetAttr::default() })).unwrap();
    // The file is open for writing elsewhere, so its targets are asked where it ends.
    cluster.borrow_mut().shard.live = true;
    cluster.borrow_mut().fail(StatChunks::KIND, &[Fault::Refuse(Status::errno(Errno::EIO)); 3]);
    assert_eq!(block_on(first.getattr(file.attr.ino)), Err(Errno::EIO));
    cluster.borrow_mut().shard.live = false;
    assert_eq!(block_on(first.write(file.handle, 0, &[3; 7_000], APPEND)), Ok(7_000));
    block_on(first.flush(file.handle, 0)).unwrap();
    let seen = block_on(second.open(file.attr.ino, BOTH)).unwrap();
    assert!(read(&second, &seen, 0, 50_000) == [vec![1; 10_000], vec![3; 7_000]].concat());
}

/// Goal: attributes as their holder told them take back nothing that is known of a file's end: others write to it.
#[test]
fn what_was_told_is_no_news_of_an_end() {
    let (_, lane) = mounted();
    let file = create(&lane, b"f");
    let of = |lane: &FakeLane| {
        let shared = lane.shared.borrow();
        let inode = shared.inodes.get(file.attr.ino).unwrap();
        (inode.live, inode.live_size)
    };
    let known = |lane: &FakeLane| {
        let mut shared = lane.shared.borrow_mut();
        let inode = shared.inodes.get_mut(file.attr.ino).unwrap();
        (inode.live, inode.live_size) = (true, 900);
    };
    known(&lane);
    let told = Attr { flags: file.attr.flags | Attr::AS_TOLD, ..file.attr.clone() };
    let shown = block_on(lane.shown(told, None)).unwrap();
    assert_eq!((of(&lane), shown.flags & Attr::AS_TOLD), ((true, 900), 0));
    block_on(lane.shown(file.attr.clone(), None)).unwrap();
    assert_eq!(of(&lane), (false, 0), "those of now say it");
}
