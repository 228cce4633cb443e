//! Full targets and old layouts.

use crate::limits::LEFT_OPEN_MS;
use crate::port::Port;
use crate::testing::{BOTH, Cluster, FakeLane, Fault, READ, block_on, create, mount, mounted, read, write};
use crate::{Allocate, Opened, Seek, WriteHow};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::{Errno, SetAttr, TargetId};
use skep_wire::meta::SealExtent;
use skep_wire::storage::WriteChunk;
use skep_wire::{Message, Status};

const APPEND: WriteHow =
    WriteHow { kill_suidgid: false, sync: false, append: true, from_pages: false, direct: false };

fn room(cluster: &RefCell<Cluster>, each: [usize; 3]) {
    let capacity = each.into_iter().zip(1..).map(|(bytes, target)| (TargetId(target), bytes));
    cluster.borrow_mut().targets.capacity = capacity.collect();
}

fn open(lane: &FakeLane, file: &Opened) -> Opened {
    block_on(lane.open(file.attr.ino, BOTH)).unwrap()
}

fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at % 251) as u8 + 1).collect()
}

fn write_at(lane: &FakeLane, file: &Opened, at: usize, len: usize) -> Result<usize, Errno> {
    block_on(lane.write(file.handle, at as u64, &bytes(at, len), WriteHow::default()))
}

/// Goal: a file grows, in requests of any size, until all targets together are full; only then ENOSPC. Every byte is
/// read, by the writer and by a mount that opens it anew, and holes are known where they are.
#[test]
fn a_file_grows_until_all_targets_are_full() {
    for step in [1_000, 4_096, 10_000, 70_000] {
        let (cluster, lane) = mounted();
        room(&cluster, [30_000, 90_000, 200_000]);
        let file = create(&lane, b"f");
        let mut size = 0;
        let errno = loop {
            match write_at(&lane, &file, size, step) {
                Ok(n) => size += n,
                Err(errno) => break errno,
            }
            assert!(size <= 400_000);
        };
        assert_eq!(errno, Errno::ENOSPC);
        assert!(size + step + 3 * 4_096 >= 320_000, "{step}: {size}");
        assert_eq!(read(&lane, &file, 0, size + 10), bytes(0, size));
        block_on(lane.flush(file.handle, 0)).unwrap();
        let other = mount(&cluster);
        let opened = open(&other, &file);
        assert_eq!(read(&other, &opened, 0, size + 10), bytes(0, size), "{step}");
        assert_eq!(block_on(other.seek(opened.handle, 0, Seek::Hole)), Ok(size as u64), "{step}");
    }
}

/// Goal: a mount with an old layout writes where the newer one says, and reads what stands there.
#[test]
fn an_old_layout_finds_the_new_place() {
    let (cluster, first) = mounted();
    let second = mount(&cluster);
    let file = create(&first, b"f");
    write(&first, &file, 0, &bytes(0, 20_000));
    block_on(first.flush(file.handle, 0)).unwrap();
    let other = open(&second, &file);
    assert_eq!(read(&second, &other, 0, 20_000), bytes(0, 20_000));
    room(&cluster, [0, 0, 1 << 20]);
    for at in (20_000..60_000).step_by(5_000) {
        assert_eq!(write_at(&first, &file, at, 2_500), Ok(2_500));
        assert_eq!(write_at(&second, &other, at + 2_500, 2_500), Ok(2_500), "{at}");
    }
    block_on(first.flush(file.handle, 0)).unwrap();
    block_on(second.flush(other.handle, 0)).unwrap();
    for lane in [&first, &second, &mount(&cluster)] {
        let opened = block_on(lane.open(file.attr.ino, READ)).unwrap();
        assert_eq!(read(lane, &opened, 0, 60_000), bytes(0, 60_000));
    }
}

/// Goal: records of two mounts stay whole and at one place while targets run full.
#[test]
fn appends_keep_their_places() {
    let (cluster, first) = mounted();
    room(&cluster, [40_000, 60_000, 500_000]);
    let second = mount(&cluster);
    let file = create(&first, b"log");
    let other = open(&second, &file);
    cluster.borrow_mut().shard.live = true;
    let mut expected = Vec::new();
    for number in 0..80u32 {
        let record = vec![number as u8 + 1; 700 + number as usize * 60];
        let (lane, handle) = if number % 3 == 0 { (&second, other.handle) } else { (&first, file.handle) };
        assert_eq!(block_on(lane.write(handle, 0, &record, APPEND)), Ok(record.len()), "{number}");
        expected.extend_from_slice(&record);
    }
    assert!(cluster.borrow().count(SealExtent::KIND) > 0);
    block_on(first.getattr(file.attr.ino)).unwrap();
    assert!(read(&first, &file, 0, expected.len() + 10) == expected);
}

/// Goal: a hole in front of the end of a full target's chunk file gives ENOSPC and stays a hole; what is there may be
/// changed.
#[test]
fn a_hole_of_a_full_target() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 15_000, &bytes(15_000, 1_000));
    // The fake counts lengths: what is not written yet is room, so the chunk file is made short of its end.
    room(&cluster, [0, 1 << 20, 1 << 20]);
    assert_eq!(write_at(&lane, &file, 15_500, 400), Ok(400));
    let set = SetAttr { size: Some(10_000), ..SetAttr::default() };
    block_on(lane.setattr(file.attr.ino, set)).unwrap();
    assert_eq!(write_at(&lane, &file, 12_000, 6_000), Ok(6_000), "it goes on from where it was cut");
    let found = read(&lane, &file, 0, 30_000);
    assert_eq!((found.len(), &found[12_000..]), (18_000, &bytes(12_000, 6_000)[..]));
    assert!(found[..12_000].iter().all(|byte| *byte == 0));
}

/// Goal: a place that a target had no room for, and has again when its chunk file is sealed behind it, is written.
#[test]
fn room_that_came_back_is_used() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[0; 30_000]);
    let full = Fault::Refuse(Status::errno(Errno::ENOSPC));
    cluster.borrow_mut().fail(WriteChunk::KIND, &[full]);
    assert_eq!(write_at(&lane, &file, 9_000, 2_500), Ok(2_500));
    assert_eq!(cluster.borrow().count(SealExtent::KIND), 1);
    assert_eq!(read(&lane, &file, 9_000, 2_500), bytes(9_000, 2_500));
}

/// Goal: a full target that its shard does not reach is no reason to call the file full: it is sealed once it is reached. Nor is
/// it a reason to wait for ever.
#[test]
fn a_chunk_file_that_stays_open_is_sealed_later() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &bytes(0, 20_000));
    room(&cluster, [0, 0, 1 << 20]);
    cluster.borrow_mut().shard.left_open = 3;
    assert_eq!(write_at(&lane, &file, 20_000, 40_000), Ok(40_000));
    assert!(cluster.borrow().count(SealExtent::KIND) > 3);
    assert_eq!(read(&lane, &file, 0, 60_000), bytes(0, 60_000));

    room(&cluster, [0, 1 << 20, 0]);
    cluster.borrow_mut().shard.left_open = usize::MAX;
    let began = lane.port.now();
    assert_eq!(write_at(&lane, &file, 60_000, 40_000), Err(Errno::ENOSPC));
    let waited = lane.port.now().since(began);
    assert!((LEFT_OPEN_MS..2 * LEFT_OPEN_MS).contains(&waited), "{waited}");
}

/// Goal: a chunk file that was closed, is shorter by now (a power cut) and on a full target that its shard does not reach is no
/// reason to call the file full, nor to cut an append short: what lies behind its end is no hole, and is closed once more when
/// the target is reached.
#[test]
fn what_a_closed_chunk_file_has_lost_is_no_hole() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &bytes(0, 14_000));
    room(&cluster, [0, 1 << 20, 1 << 20]);
    assert_eq!(write_at(&lane, &file, 14_000, 10_000), Ok(10_000));
    let set = SetAttr { size: Some(13_000), ..SetAttr::default() };
    block_on(lane.setattr(file.attr.ino, set)).unwrap();
    cluster.borrow_mut().shard.left_open = 3;
    let seals = cluster.borrow().count(SealExtent::KIND);
    assert_eq!(block_on(lane.write(file.handle, 0, &bytes(13_000, 900), APPEND)), Ok(900));
    assert!(cluster.borrow().count(SealExtent::KIND) > seals + 3);
    assert_eq!(read(&lane, &file, 0, 20_000), bytes(0, 13_900));
}

/// Goal: what another mount has written since behind a seal is data to one that has an old layout, and ends where it ends.
#[test]
fn an_old_layout_calls_no_data_a_hole() {
    for (what, from) in [(Seek::Data, 30_000), (Seek::Hole, 40_960)] {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"sparse");
        write(&first, &file, 0, &bytes(0, 20_000));
        let set = SetAttr { size: Some(60_000), ..SetAttr::default() };
        block_on(first.setattr(file.attr.ino, set)).unwrap();
        let other = open(&second, &file);
        room(&cluster, [0, 0, 1 << 20]);
        assert_eq!(write_at(&first, &file, 40_960, 2_560), Ok(2_560));
        assert!(cluster.borrow().count(SealExtent::KIND) > 0);
        let found = block_on(second.seek(other.handle, from, what));
        assert_eq!(read(&second, &other, 40_960, 2_560), bytes(40_960, 2_560));
        let third = mount(&cluster);
        let anew = open(&third, &file);
        assert_eq!(found, block_on(third.seek(anew.handle, from, what)), "{what:?}");
        if what == Seek::Data {
            assert_eq!(found, Ok(40_960));
        }
    }
}

/// Goal: space is reserved, ranges are punched and files are copied though a target is full or a layout old.
#[test]
fn what_is_no_write_goes_on_as_well() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &bytes(0, 30_000));
    block_on(lane.flush(file.handle, 0)).unwrap();
    let second = mount(&cluster);
    let other = open(&second, &file);
    room(&cluster, [0, 0, 1 << 20]);
    block_on(lane.fallocate(file.handle, Allocate::Extend, 0, 50_000)).unwrap();
    assert_eq!(write_at(&lane, &file, 30_000, 40_000), Ok(40_000));
    block_on(second.fallocate(other.handle, Allocate::Punch, 28_000, 20_000)).unwrap();
    let mut expected = bytes(0, 70_000);
    expected[28_000..48_000].fill(0);
    assert_eq!(read(&lane, &file, 0, 80_000), expected);
    let copy = create(&lane, b"copy");
    let mut done = 0;
    while done < 70_000 {
        done += block_on(lane.copy((file.handle, done), (copy.handle, done), 70_000 - done)).unwrap();
    }
    assert_eq!(read(&lane, &copy, 0, 80_000), expected);
}

/// Goal: of a reservation that finds no room for all of it, what was reserved is counted as the file's, at once.
#[test]
fn what_a_failed_reservation_keeps_is_counted() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &bytes(0, 30_000));
    block_on(lane.flush(file.handle, 0)).unwrap();
    let blocks = || cluster.borrow().shard.files[&file.attr.ino].attr.blocks;
    let before = blocks();
    room(&cluster, [60_000, 0, 0]);
    let reserved = block_on(lane.fallocate(file.handle, Allocate::KeepSize, 30_000, 100_000));
    assert_eq!(reserved, Err(Errno::ENOSPC));
    assert!(blocks() > before, "{} blocks, {before} before", blocks());
}

/// Goal: content that leaves the metadata for a full target goes to another one.
#[test]
fn a_growth_finds_room() {
    let (cluster, lane) = mounted();
    room(&cluster, [0, 0, 1 << 20]);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &bytes(0, 1_000));
    assert_eq!(write_at(&lane, &file, 1_000, 9_000), Ok(9_000));
    assert_eq!(read(&lane, &file, 0, 20_000), bytes(0, 10_000));
    room(&cluster, [0, 0, 0]);
    assert_eq!(write_at(&lane, &file, 10_000, 9_000), Err(Errno::ENOSPC));
}
