use crate::Lane;
use crate::port::Cell;
use crate::testing::{
    BOTH, Cluster, FakeLane, Fault, READ, block_on, create, mount, mounted, read, step, write,
};
use crate::{Allocate, Limits, Opened, WriteHow};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};
use skep_types::{Errno, SetAttr};
use skep_wire::meta::{Open, ReserveEnd, SealExtent, WriteInline};
use skep_wire::storage::{CopyChunk, PunchChunk, ReserveChunk, WriteChunk};
use skep_wire::{Message, Refusal, Status};

fn fill(lane: &FakeLane, file: &Opened, offset: u64) -> Vec<u8> {
    block_on(filled(lane, file, offset))
}

async fn filled(lane: &FakeLane, file: &Opened, offset: u64) -> Vec<u8> {
    let mut page = alloc::vec![0xee; 4_096];
    let n = lane.fill(file.handle, offset, &mut page).await.unwrap();
    page.truncate(n);
    page
}

/// First bytes of the drops since last asked.
fn drops(cluster: &Rc<RefCell<Cluster>>) -> Vec<(u64, u64)> {
    cluster.borrow_mut().drops.drain(..).map(|(_, _, from, len)| (from, len)).collect()
}

fn second(lane: &FakeLane) -> FakeLane {
    Lane::new(lane.shared().clone(), |_| lane.port().clone()).unwrap()
}

/// Goal: before a kernel is told that another mount made a file longer, the page that ends where the file ended is
/// dropped, whatever tells it: stat, lookup, fstat of an open file, an own write, an own truncate, fallocate.
#[test]
fn growth_elsewhere_drops_the_last_page() {
    let (cluster, writer) = mounted();
    let reader = mount(&cluster);
    let file = create(&writer, b"log");
    write(&writer, &file, 0, b"line 0\n");
    let seen = block_on(reader.open(file.attr.ino, BOTH)).unwrap();
    let mut end = 7;
    let mut grow = || {
        assert_eq!(fill(&reader, &seen, 0).len(), end, "what was written is seen");
        assert_eq!(drops(&cluster), []);
        write(&writer, &file, end as u64, b"line n\n");
        end += 7;
    };
    grow();
    assert_eq!(block_on(reader.getattr(file.attr.ino)).unwrap().size, 14);
    assert_eq!(drops(&cluster), [(0, 0)]);
    grow();
    block_on(reader.lookup(skep_types::Ino::ROOT, b"log")).unwrap();
    assert_eq!(drops(&cluster), [(0, 0)]);
    grow();
    block_on(reader.setattr(file.attr.ino, SetAttr { mode: Some(0o600), ..SetAttr::default() })).unwrap();
    assert_eq!(drops(&cluster), [(0, 0)]);
    grow();
    block_on(reader.write(seen.handle, 100, b"far", WriteHow::default())).unwrap();
    assert_eq!(drops(&cluster), [(100, 3)], "a gap in the page, with what the other mount wrote in it");
    end = 103;
    let mut page = [0; 4_096];
    assert_eq!(block_on(reader.fill(seen.handle, 0, &mut page)), Ok(end));
    assert_eq!(page[28..35], *b"line n\n");
    write(&writer, &file, 103, b"more");
    block_on(reader.setattr(file.attr.ino, SetAttr { size: Some(500), ..SetAttr::default() })).unwrap();
    assert_eq!(drops(&cluster), [(0, 0)], "a truncate that lengthens");
}

/// Goal: an own truncate or write of a file that nobody else has changed drops nothing but what it must.
#[test]
fn own_growth_keeps_pages() {
    let (cluster, lane) = mounted();
    let file = create(&lane, b"own");
    write(&lane, &file, 0, &[1; 100]);
    assert_eq!(fill(&lane, &file, 0).len(), 100);
    block_on(lane.setattr(file.attr.ino, SetAttr { size: Some(200), ..SetAttr::default() })).unwrap();
    block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!(drops(&cluster), []);
    write(&lane, &file, 8_192, &[1; 100]);
    assert_eq!(drops(&cluster), [(0, 0)], "a gap");
    write(&lane, &file, 8_292, &[1; 100]);
    assert_eq!(drops(&cluster), [], "no page is held");
}

/// Goal: an open whose program has not yet dropped old pages hides them from nobody: a lock that is granted, and a
/// second open, drop them as well.
#[test]
fn an_open_under_way_vouches_for_nothing() {
    let (cluster, writer) = mounted();
    let reader = mount(&cluster);
    let other = second(&reader);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, b"old");
    let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
    assert_eq!(fill(&reader, &seen, 0), b"old");
    write(&writer, &file, 0, b"new");
    let mut opening = pin!(reader.open(file.attr.ino, READ));
    let mut context = Context::from_waker(Waker::noop());
    // Its answer has come; its drop is under way.
    while !reader.shared().with(|s| s.inodes.get(file.attr.ino).unwrap().attr.as_ref().unwrap().change > 2) {
        assert!(opening.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(drops(&cluster), []);
    block_on(other.look_again(file.attr.ino));
    assert_eq!(drops(&cluster), [(0, 0)]);
    assert_eq!(fill(&other, &seen, 0), b"new");
    block_on(opening).unwrap();
    block_on(other.look_again(file.attr.ino));
    assert_eq!(drops(&cluster).len(), 1, "the open's own");
}

/// Goal: a page that is filled while a write past the page cache is on its way has the written bytes.
#[test]
fn a_fill_beside_a_write_has_its_bytes() {
    let (cluster, lane) = mounted();
    let other = second(&lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 5_000]);
    assert_eq!(fill(&lane, &file, 0).len(), 4_096);
    let before = cluster.borrow().count(WriteInline::KIND);
    let mut writing = pin!(lane.write(file.handle, 2_000, b"abcd", WriteHow::default()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(writing.as_mut().poll(&mut context).is_pending());
    assert_eq!(cluster.borrow().count(WriteInline::KIND), before, "its pages go first");
    assert_eq!(fill(&other, &file, 0)[1_999..2_005], *b"\x01abcd\x01");
    assert_eq!(block_on(writing), Ok(4));
    assert_eq!(fill(&other, &file, 0)[1_999..2_005], *b"\x01abcd\x01");
}

/// Goal: FORGET of a name's inode, which lives on and has pages, does not make the mount forget those: the next open drops
/// them when another mount has written meanwhile. Housekeeping drops them, and forgets the inode then.
#[test]
fn pages_are_not_forgotten() {
    let (cluster, writer) = mounted();
    let reader = mount(&cluster);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, b"old");
    let looks = |expected: &[u8]| {
        let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
        assert_eq!(fill(&reader, &seen, 0), expected);
        block_on(reader.release(seen.handle));
    };
    looks(b"old");
    reader.forget(file.attr.ino, 1);
    write(&writer, &file, 0, b"new");
    looks(b"new");
    assert_eq!(drops(&cluster), [(0, 0)]);
    reader.forget(file.attr.ino, 1);
    block_on(reader.housekeeping());
    assert_eq!(drops(&cluster), [(0, 0)]);
    assert!(reader.shared().with(|s| s.inodes.get(file.attr.ino).is_none()));
}

/// Goal: an idle inode whose pages did not go is not forgotten, and its pages are dropped by a later housekeeping.
#[test]
fn pages_that_stay_are_dropped_later() {
    let (cluster, writer) = mounted();
    let reader = mount(&cluster);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, b"old");
    let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
    assert_eq!(fill(&reader, &seen, 0), b"old");
    block_on(reader.release(seen.handle));
    reader.forget(file.attr.ino, 1);
    let knows = || reader.shared().with(|s| s.inodes.get(file.attr.ino).is_some());
    for stays in [true, false] {
        cluster.borrow_mut().cancelled = stays;
        block_on(reader.drop_idle_pages());
        assert_eq!((drops(&cluster), knows()), (alloc::vec![(0, 0)], stays));
    }
}

/// Goal: content that comes late, behind the news that another mount has changed it, fills no page: it would pass for the
/// newest, and stay under the next lock.
#[test]
fn content_that_comes_late_fills_no_page() {
    let (cluster, writer) = mounted();
    let reader = mount(&cluster);
    let other = second(&reader);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, b"old");
    let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
    cluster.borrow_mut().fail(Open::KIND, &[Fault::LateAnswer]);
    let mut opening = pin!(other.open(file.attr.ino, READ));
    let before = cluster.borrow().count(Open::KIND);
    while cluster.borrow().count(Open::KIND) == before {
        poll(&mut opening);
    }
    write(&writer, &file, 0, b"new");
    block_on(reader.getattr(file.attr.ino)).unwrap();
    block_on(opening).unwrap();
    assert_eq!(fill(&reader, &seen, 0), b"new");
}

/// Goal: what failed half-way leaves no old pages: the kernel drops them after a success only. What was changed before
/// the failure is synced by the next fsync.
#[test]
fn failures_leave_no_old_pages() {
    let (cluster, lane) = mounted();
    let full = Refusal::from(Errno::ENOSPC).status;
    let (from, file) = (create(&lane, b"from"), create(&lane, b"f"));
    write(&lane, &from, 0, &[2; 70_000]);
    write(&lane, &file, 0, &[1; 70_000]);
    block_on(lane.fsync(file.handle)).unwrap();
    assert_eq!(fill(&lane, &file, 0).len(), 4_096);
    drops(&cluster);
    cluster.borrow_mut().fail(SealExtent::KIND, &[Fault::Refuse(full), Fault::Refuse(full)]);
    cluster.borrow_mut().fail(ReserveChunk::KIND, &[Fault::Refuse(full), Fault::Refuse(full)]);
    assert_eq!(block_on(lane.fallocate(file.handle, Allocate::Zero, 0, 66_000)), Err(Errno::ENOSPC));
    assert_eq!(drops(&cluster), [(0, 66_000)]);
    assert_eq!(fill(&lane, &file, 0)[..10], [0; 10]);
    let unsynced =
        |lane: &FakeLane| lane.shared().with(|s| !s.inodes.entry(file.attr.ino).unsynced.is_empty());
    assert!(unsynced(&lane));
    cluster.borrow_mut().fail(CopyChunk::KIND, &[Fault::Refuse(full)]);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(full)]);
    assert_eq!(block_on(lane.copy((from.handle, 0), (file.handle, 0), 66_000)), Err(Errno::ENOSPC));
    assert_eq!(drops(&cluster), [(0, 66_000)]);
}

/// Polls once; what is done needs more.
fn poll<T>(future: &mut core::pin::Pin<&mut impl Future<Output = T>>) {
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Goal: a page that is filled while an append is on its way to its place has its bytes, not zeros that another append
/// behind it left: the kernel may write the whole page back.
#[test]
fn a_fill_beside_an_append_has_its_bytes() {
    let (cluster, lane) = mounted();
    let other = second(&lane);
    let file = create(&lane, b"f");
    let append = WriteHow { append: true, ..WriteHow::default() };
    write(&lane, &file, 0, &[1; 70_000]);
    assert_eq!(fill(&lane, &file, 69_632).len(), 368);
    let mut first = pin!(lane.write(file.handle, 0, b"first!", append));
    while cluster.borrow().count(ReserveEnd::KIND) == 0 {
        poll(&mut first);
    }
    let before = cluster.borrow().count(WriteChunk::KIND);
    poll(&mut first);
    assert_eq!(cluster.borrow().count(WriteChunk::KIND), before, "its pages go first");
    assert_eq!(block_on(other.write(file.handle, 0, b"second", append)), Ok(6));
    assert_eq!(fill(&other, &file, 69_632)[367..], *b"\x01first!second");
    assert_eq!(block_on(first), Ok(6));
    assert_eq!(fill(&other, &file, 69_632)[367..], *b"\x01first!second");
}

/// Goal: a page that is filled while a range of it becomes zeros has them, in the metadata and in chunks.
#[test]
fn a_fill_beside_a_hole_has_its_zeros() {
    for (len, kind) in [(5_000, WriteInline::KIND), (70_000, PunchChunk::KIND)] {
        for what in [Allocate::Punch, Allocate::ZeroKeepSize] {
            let (cluster, lane) = mounted();
            let other = second(&lane);
            let file = create(&lane, b"f");
            write(&lane, &file, 0, &alloc::vec![1; len]);
            assert_eq!(fill(&lane, &file, 0).len(), 4_096);
            let before = cluster.borrow().count(kind);
            let mut clearing = pin!(lane.fallocate(file.handle, what, 2_000, 1 << 20));
            poll(&mut clearing);
            assert_eq!(cluster.borrow().count(kind), before, "its pages go first");
            let zeros = |page: &[u8]| page[1_999] == 1 && page[2_000..] == [0; 2_096];
            assert!(zeros(&fill(&other, &file, 0)));
            assert_eq!(fill(&other, &file, len as u64 / 4_096 * 4_096).len(), len % 4_096, "no longer");
            block_on(clearing).unwrap();
            assert!(zeros(&fill(&other, &file, 0)));
        }
    }
}

/// Goal: a page that is filled beside a copy has what was copied: before the copy it is dropped, during the copy it waits.
#[test]
fn a_fill_beside_a_copy_has_its_bytes() {
    let (cluster, lane) = mounted();
    let other = second(&lane);
    let (from, file) = (create(&lane, b"from"), create(&lane, b"f"));
    write(&lane, &from, 0, &[2; 70_000]);
    write(&lane, &file, 0, &[1; 70_000]);
    assert_eq!(fill(&lane, &file, 0), [1; 4_096]);
    let mut copying = pin!(lane.copy((from.handle, 0), (file.handle, 0), 66_000));
    poll(&mut copying);
    assert_eq!(fill(&other, &file, 0), [1; 4_096], "the drop may wait for it");
    while cluster.borrow().count(CopyChunk::KIND) == 0 {
        poll(&mut copying);
    }
    assert_eq!(drops(&cluster), [(0, 66_000), (0, 66_000)], "it was filled again");
    let waits = || other.shared().with(|s| s.inodes.entry(file.attr.ino).pages.fill_waits(0, 4_096));
    assert!(waits());
    assert_eq!(block_on(copying), Ok(66_000));
    assert!(!waits());
    assert_eq!(fill(&other, &file, 0), [2; 4_096]);
}

/// Goal: a page that is filled after each drop keeps no copy from its end, and has its bytes all the same.
#[test]
fn pages_that_come_again_delay_no_copy() {
    let (cluster, lane) = mounted();
    let other = second(&lane);
    let (from, file) = (create(&lane, b"from"), create(&lane, b"f"));
    write(&lane, &from, 0, &[2; 70_000]);
    write(&lane, &file, 0, &[1; 70_000]);
    fill(&lane, &file, 0);
    let mut copying = pin!(lane.copy((from.handle, 0), (file.handle, 0), 66_000));
    let (mut context, mut last) = (Context::from_waker(Waker::noop()), Vec::new());
    let before = cluster.borrow().count(WriteChunk::KIND);
    let copied = loop {
        if let core::task::Poll::Ready(copied) = copying.as_mut().poll(&mut context) {
            break copied;
        }
        last = fill(&other, &file, 0);
    };
    assert_eq!(copied, Ok(66_000));
    assert_eq!(last, [2; 4_096]);
    assert!(
        cluster.borrow().count(WriteChunk::KIND) > before && cluster.borrow().count(CopyChunk::KIND) == 0
    );
}

/// A write or a punched range of bytes of the first page.
async fn change(lane: &FakeLane, file: &Opened, offset: u64, content: Option<&[u8; 4]>) {
    match content {
        Some(data) => {
            let written = lane.write(file.handle, offset, data, WriteHow::default()).await;
            assert_eq!(written, Ok(4));
        }
        None => lane.fallocate(file.handle, Allocate::Punch, offset, 4).await.unwrap(),
    }
}

/// Goal: of two changes of the same bytes at once a page that is filled beside them, and that nothing drops afterwards,
/// has what the targets have in the end, whichever they carry out last.
#[test]
fn changes_at_once_leave_pages_as_they_leave_the_file() {
    let both = [(Some(b"aaaa"), Some(b"bbbb")), (Some(b"aaaa"), None), (None, Some(b"bbbb"))];
    for ((first, then), turned) in both.into_iter().flat_map(|pair| [(pair, false), (pair, true)]) {
        let (cluster, lane) = mounted();
        let (beside, filling) = (second(&lane), second(&lane));
        let file = create(&lane, b"f");
        write(&lane, &file, 0, &[1; 70_000]);
        fill(&lane, &file, 0);
        let mut one = pin!(change(&lane, &file, 2_000, first));
        let mut two = pin!(change(&beside, &file, 2_002, then));
        // The pages go, then they are sent.
        for _ in 0..2 {
            poll(&mut one);
        }
        drops(&cluster);
        let sent = cluster.borrow().total();
        for _ in 0..2 {
            poll(&mut two);
        }
        assert_eq!(cluster.borrow().total(), sent);
        let page = fill(&filling, &file, 0);
        drops(&cluster);
        let mut context = Context::from_waker(Waker::noop());
        let (mut one_ends, mut two_ends) = (false, false);
        for turn in (0..).map(|turn| turn % 2 == usize::from(turned)) {
            match turn {
                true => two_ends = two_ends || two.as_mut().poll(&mut context).is_ready(),
                false => one_ends = one_ends || one.as_mut().poll(&mut context).is_ready(),
            }
            if one_ends && two_ends {
                break;
            }
        }
        let shown = if drops(&cluster).is_empty() { page } else { fill(&filling, &file, 0) };
        let there = read(&lane, &file, 0, 4_096);
        assert!(
            shown == there,
            "{first:?}, {then:?}: {:?} of {:?}",
            &shown[2_000..2_006],
            &there[2_000..2_006]
        );
    }
}

/// A mount whose kernel asks before it reads from a page.
fn checked(cluster: &Rc<RefCell<Cluster>>) -> FakeLane {
    let limits = mount(cluster).shared().with(|s| s.limits);
    crate::testing::mount_with(cluster, Limits { checks: true, ..limits })
}

/// Inodes whose attributes the kernel was to drop since last asked.
fn outdated(cluster: &Rc<RefCell<Cluster>>) -> usize {
    cluster.borrow_mut().attr_drops.drain(..).count()
}

/// Goal: who reads through pages, and asks before, is answered when no page is older than that: where the file is another one, and,
/// by that very answer, each time where others may be writing. Who asks otherwise drops nothing.
#[test]
fn who_asks_before_a_read_finds_no_old_page() {
    let (cluster, writer) = mounted();
    let reader = checked(&cluster);
    let file = create(&writer, b"f");
    let put = |byte| {
        write(&writer, &file, 0, &[byte; 90_000]);
        block_on(writer.fsync(file.handle)).unwrap();
    };
    put(1);
    let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
    let past = block_on(reader.open(file.attr.ino, READ)).unwrap();
    reader.write_through_pages(seen.handle);
    let asks = |handle| block_on(reader.getattr_open(handle)).unwrap().size;
    let first = || fill(&reader, &seen, 0)[0];
    assert_eq!((first(), asks(seen.handle)), (1, 90_000));
    assert_eq!(drops(&cluster), [], "it is as it was");
    put(2);
    // (The shard of these tests counts no commit that moves no end.)
    block_on(writer.setattr(file.attr.ino, SetAttr { mode: Some(0o640), ..SetAttr::default() })).unwrap();
    block_on(reader.getattr(file.attr.ino)).unwrap();
    assert_eq!((asks(past.handle), drops(&cluster)), (90_000, Vec::new()));
    assert_eq!((asks(seen.handle), drops(&cluster)), (90_000, alloc::vec![(0, 0)]));
    assert_eq!(first(), 2);
    assert_eq!((asks(seen.handle), drops(&cluster)), (90_000, Vec::new()));
    cluster.borrow_mut().shard.live = true;
    for _ in 0..2 {
        assert_eq!(first(), 2);
        reader.shared().with(|s| s.inodes.entry(file.attr.ino).live = false);
        assert_eq!((asks(seen.handle), drops(&cluster)), (90_000, alloc::vec![(0, 0)]));
    }
    assert_eq!((asks(seen.handle), drops(&cluster)), (90_000, Vec::new()), "no page is there");
}

/// Goal: by an answer that shows another time, or a larger size, no page goes that this mount may have stored into, and nobody waits:
/// its question is outdated before. One that shows the same as before costs nothing.
#[test]
fn what_the_kernel_would_compare_is_outdated() {
    let (cluster, writer) = mounted();
    let reader = checked(&cluster);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, &[1; 7_000]);
    let seen = block_on(reader.open(file.attr.ino, BOTH)).unwrap();
    assert_eq!(fill(&reader, &seen, 0).len(), 4_096);
    block_on(reader.getattr(file.attr.ino)).unwrap();
    assert_eq!((outdated(&cluster), drops(&cluster)), (0, Vec::new()));
    let time = skep_types::Timestamp { secs: 77, nanos: 0 };
    let set = SetAttr { mtime: Some(skep_types::SetTime::At(time)), ..SetAttr::default() };
    block_on(writer.setattr(file.attr.ino, set)).unwrap();
    for look in 0..2 {
        let looked = match look {
            0 => block_on(reader.getattr(file.attr.ino)),
            _ => block_on(reader.lookup(skep_types::Ino::ROOT, b"f")),
        };
        assert_eq!(looked.unwrap().mtime, time, "who looks is shown the time");
        assert_eq!(
            (outdated(&cluster), drops(&cluster)),
            (1, Vec::new()),
            "the kernel has the old one still"
        );
    }
    block_on(reader.drop_changed(file.attr.ino, 0, 0));
    assert_eq!(drops(&cluster), [(0, 0)]);
    block_on(reader.getattr(file.attr.ino)).unwrap();
    assert_eq!(fill(&reader, &seen, 0).len(), 4_096);
    block_on(reader.getattr(file.attr.ino)).unwrap();
    assert_eq!(
        (outdated(&cluster), drops(&cluster)),
        (0, Vec::new()),
        "it believes what it was told without pages"
    );
}

/// Goal: who opens a file for writing, and is alone with it, finds no pages that each write would have to drop; beside others they
/// stay.
#[test]
fn a_writer_alone_has_no_pages() {
    let (cluster, writer) = mounted();
    let reader = checked(&cluster);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, &[1; 7_000]);
    let ino = file.attr.ino;
    let seen = block_on(reader.open(ino, READ)).unwrap();
    assert_eq!(fill(&reader, &seen, 0).len(), 4_096);
    let beside = block_on(reader.open(ino, BOTH)).unwrap();
    assert_eq!(drops(&cluster), []);
    block_on(reader.release(beside.handle));
    block_on(reader.release(seen.handle));
    let alone = block_on(reader.open(ino, BOTH)).unwrap();
    assert_eq!(drops(&cluster), [(0, 0)]);
    write(&reader, &alone, 100, b"x");
    assert_eq!(drops(&cluster), []);
}

/// Goal: where another mount has cut a file no page is filled up to the new end before the kernel knows that, and once is enough;
/// what it cannot be made to know is an error, and no zeros.
#[test]
fn an_end_is_known_before_it_is_shown() {
    let (cluster, writer) = mounted();
    let reader = checked(&cluster);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, &[1; 90_000]);
    block_on(writer.fsync(file.handle)).unwrap();
    let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
    reader.write_through_pages(seen.handle);
    assert_eq!(fill(&reader, &seen, 86_016).len(), 90_000 - 86_016);
    assert_eq!(cluster.borrow().settled, 0, "nothing else was ever told");
    let cut = |size| {
        block_on(writer.setattr(file.attr.ino, SetAttr { size: Some(size), ..SetAttr::default() })).unwrap();
        assert_eq!(block_on(reader.getattr_open(seen.handle)).unwrap().size, size);
        cluster.borrow_mut().settled = 0;
    };
    cut(82_000);
    for settled in [1, 1] {
        assert_eq!(fill(&reader, &seen, 81_920).len(), 80);
        assert_eq!(cluster.borrow().settled, settled);
    }
    assert_eq!(fill(&reader, &seen, 0).len(), 4_096);
    cut(5_000);
    cluster.borrow_mut().unsettled = true;
    let mut page = [0; 4_096];
    assert_eq!(block_on(reader.fill(seen.handle, 4_096, &mut page)), Err(skep_types::Errno::EIO));
    assert_eq!(cluster.borrow().settled as u32, crate::limits::SHORTEN_TRIES);
}

/// Goal: where the kernel asks before it reads from a page, who reads a small file past its pages, which no lease covers, is not shown
/// what is kept of it without a question; where it does not, it is read as of its open, as ever.
#[test]
fn what_is_small_and_not_covered_is_no_older() {
    for checks in [true, false] {
        let (cluster, writer) = mounted();
        let reader = if checks { checked(&cluster) } else { mount(&cluster) };
        let file = create(&writer, b"f");
        write(&writer, &file, 0, b"old");
        let seen = block_on(reader.open(file.attr.ino, READ)).unwrap();
        assert_eq!(read(&reader, &seen, 0, 2), b"ol");
        write(&writer, &file, 0, b"new");
        assert_eq!(read(&reader, &seen, 0, 2), if checks { b"ne" } else { b"ol" });
    }
}

/// Goal: an answer whose server has ended since is not taken in. Where the kernel does not believe it, it is not answered what was
/// known before, either: the file is asked for anew.
#[test]
fn what_was_known_before_an_answer_settles_nothing() {
    let (cluster, writer) = mounted();
    let reader = checked(&cluster);
    let file = create(&writer, b"f");
    write(&writer, &file, 0, b"old");
    let ino = file.attr.ino;
    block_on(reader.open(ino, READ)).unwrap();
    assert_eq!(block_on(reader.getattr(ino)).unwrap().size, 3);
    write(&writer, &file, 3, b" and more");
    let newer = block_on(writer.getattr(ino)).unwrap();
    let asked = reader.asked();
    reader.outdate(ino);
    block_on(reader.answered(&newer, asked)).unwrap();
    assert_eq!(reader.settles(ino, 3).unwrap().size, newer.size);
}

/// Goal: no page is filled beside a write whose session has ended: others may have changed the same bytes since, so it may not have
/// those of the write; and without them a program could store into it, and have the kernel write all of it back over the write.
#[test]
fn fills_wait_for_a_write_of_an_ended_session() {
    for fails in [false, true] {
        let (cluster, lane) = mounted();
        let other = second(&lane);
        let file = create(&lane, b"f");
        write(&lane, &file, 0, &[1; 20_000]);
        assert_eq!(fill(&lane, &file, 0).len(), 4_096);
        let mut writing = pin!(lane.write(file.handle, 2_000, b"abcd", WriteHow::default()));
        let sent = cluster.borrow().count(WriteChunk::KIND);
        cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::BUSY)]);
        while cluster.borrow().count(WriteChunk::KIND) == sent {
            poll(&mut writing);
        }
        // One has begun to read, the other has not.
        let mut begun = pin!(filled(&other, &file, 0));
        poll(&mut begun);
        lane.shared().with(|s| s.inodes.disbelieve_all());
        let mut later = pin!(filled(&other, &file, 0));
        for _ in 0..100 {
            assert!(step(begun.as_mut()).is_pending() && step(later.as_mut()).is_pending());
        }
        if fails {
            cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::errno(Errno::EIO))]);
        }
        assert_eq!(block_on(writing).is_err(), fails);
        assert_eq!(drops(&cluster), [(2_000, 4); 2], "before it, and behind it");
        let expected = if fails { *b"\x01\x01\x01\x01\x01\x01" } else { *b"\x01abcd\x01" };
        assert_eq!(
            (&block_on(begun)[1_999..2_005], &block_on(later)[1_999..2_005]),
            (&expected[..], &expected[..])
        );
    }
}

/// Goal: the same of a range that becomes zeros.
#[test]
fn fills_wait_for_zeros_of_an_ended_session() {
    let (cluster, lane) = mounted();
    let other = second(&lane);
    let file = create(&lane, b"f");
    write(&lane, &file, 0, &[1; 20_000]);
    assert_eq!(fill(&lane, &file, 0).len(), 4_096);
    let mut punching = pin!(lane.fallocate(file.handle, Allocate::Punch, 2_000, 4));
    cluster.borrow_mut().fail(PunchChunk::KIND, &[Fault::Refuse(Status::BUSY)]);
    while cluster.borrow().count(PunchChunk::KIND) == 0 {
        poll(&mut punching);
    }
    lane.shared().with(|s| s.inodes.disbelieve_all());
    let mut filling = pin!(filled(&other, &file, 0));
    for _ in 0..100 {
        assert!(step(filling.as_mut()).is_pending());
    }
    block_on(punching).unwrap();
    assert_eq!(drops(&cluster), [(2_000, 4); 2], "before it, and behind it");
    assert_eq!(block_on(filling)[1_999..2_005], [1, 0, 0, 0, 0, 1]);
}

/// Goal: a write that waits for its pages to go has one session only, and no fill waits for it: its drop waits for fills.
#[test]
fn a_write_that_waits_for_its_drop_is_not_doubted() {
    let mut pages = crate::state::Pages::default();
    pages.fill_begins(0, 4_096);
    let (number, drop) = pages.write_begins(2_000, b"abcd");
    pages.doubt_writes();
    assert!(!pages.fill_waits(0, 4_096));
    pages.dropped(drop.unwrap(), true, 1);
    pages.write_goes(number);
    assert!(!pages.fill_waits(0, 4_096));
    pages.doubt_writes();
    assert!(pages.fill_waits(0, 4_096) && !pages.fill_waits(4_096, 8_192));
    assert!(pages.write_ends(number, 4) && !pages.fill_waits(0, 4_096));
}
