//! New files: what is kept of them, and told before anybody else may look.

mod ends;

use crate::limits::HOLD_TELL_MS;
use crate::op::hold::mode_of_acl;
use crate::op::recalls::tests::{cluster, holder_with, leased, listens, make};
use crate::testing::{BOTH, Cluster, FakeLane, Fault, READ, block_on, lane_beside, mount, read, step, write};
use crate::{Limits, Opened, RenameHow, XattrHow};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use core::task::Poll;
use skep_types::{Attr, Errno, Ino, Millis, SetAttr, SetTime, Timestamp};
use skep_wire::meta::{
    ChangeAttr, Close, Commit, Create, GetAttr, Grow, Lookup, SetXattr, Switch, Tell, WriteInline,
};
use skep_wire::storage::WriteChunk;
use skep_wire::{Message, Status};

const ROOT: Ino = Ino::ROOT;
const ACL: &[u8] = b"system.posix_acl_access";
/// Bytes of content that may be kept.
const ROOM: u32 = 1_000;

pub(crate) fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn given(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 5 }
}

fn times(secs: i64) -> SetAttr {
    let time = Some(SetTime::At(given(secs)));
    SetAttr { atime: time, mtime: time, ..SetAttr::default() }
}

/// A mount that holds new files, who hears for it, and who tells what is asked for.
pub(crate) fn holding(cluster: &Rc<RefCell<Cluster>>) -> (FakeLane, FakeLane, FakeLane) {
    holding_with(cluster, leased())
}

pub(crate) fn holding_with(cluster: &Rc<RefCell<Cluster>>, limits: Limits) -> (FakeLane, FakeLane, FakeLane) {
    cluster.borrow_mut().shard.holds.room = Some(ROOM);
    let (lane, ear) = holder_with(cluster, Limits { holds: true, ..limits });
    // Its names are known.
    block_on(lane.lookup(ROOT, b"none")).unwrap_err();
    let teller = lane_beside(cluster, &lane);
    (lane, ear, teller)
}

pub(crate) fn asked(cluster: &RefCell<Cluster>, kinds: &[u16]) -> usize {
    kinds.iter().map(|kind| cluster.borrow().count(*kind)).sum()
}

pub(crate) fn on_shard(cluster: &RefCell<Cluster>, ino: Ino) -> Attr {
    cluster.borrow().shard.files[&ino].attr.clone()
}

/// Goes on with `work` while the mount hears what is asked, and tells it.
pub(crate) fn beside<T>(work: impl Future<Output = T>, ear: &FakeLane, teller: &FakeLane) -> T {
    let mut work = pin!(work);
    for _ in 0..1_000 {
        if let Poll::Ready(done) = step(work.as_mut()) {
            return done;
        }
        listens(ear);
        block_on(teller.tell_held());
    }
    panic!("it waits for ever");
}

/// Goal: what `tar` does to a file costs two requests, the close included, whether it is small or in chunks (then besides what
/// its chunks cost); its programs see each step at once, and the shard has it all after the close.
#[test]
fn a_new_file_is_told_once() {
    for len in [500, 9_000] {
        let cluster = cluster();
        let (lane, _, _) = holding(&cluster);
        let all =
            [ChangeAttr::KIND, WriteInline::KIND, Commit::KIND, GetAttr::KIND, Lookup::KIND, Tell::KIND];
        let before = asked(&cluster, &all);
        let file = block_on(make(&lane, b"f")).unwrap();
        let ino = file.attr.ino;
        write(&lane, &file, 0, &alloc::vec![7; len]);
        let owner = SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() };
        block_on(lane.setattr_open(file.handle, ino, owner)).unwrap();
        block_on(lane.setattr(ino, mode(0o640))).unwrap();
        let shown = block_on(lane.setattr(ino, times(77))).unwrap();
        assert_eq!((shown.mode, shown.uid, shown.gid, shown.size), (0o640, 5, 6, len as u64));
        assert_eq!((shown.mtime, shown.atime), (given(77), given(77)));
        assert_eq!(block_on(lane.getattr(ino)).unwrap(), shown);
        let found = block_on(lane.lookup(ROOT, b"f")).unwrap();
        assert_eq!(Attr { flags: shown.flags, ..found }, shown);
        assert_eq!(read(&lane, &file, 0, 20_000), alloc::vec![7; len]);
        assert_eq!((asked(&cluster, &all), on_shard(&cluster, ino).mode), (before, 0o644));
        block_on(lane.flush(file.handle, 0)).unwrap();
        assert_eq!((asked(&cluster, &all), asked(&cluster, &[Tell::KIND])), (before + 1, 1));
        block_on(lane.release(file.handle));
        let told = on_shard(&cluster, ino);
        assert_eq!((told.mode, told.uid, told.gid, told.size), (0o640, 5, 6, len as u64));
        assert_eq!((told.mtime, told.ctime), (given(77), shown.ctime));
        // From now on it is a file like others.
        block_on(lane.setattr(ino, mode(0o600))).unwrap();
        assert_eq!((asked(&cluster, &all), asked(&cluster, &[Tell::KIND])), (before + 2, 1));
        let again = block_on(lane.open(ino, READ)).unwrap();
        assert_eq!(read(&lane, &again, 0, 20_000), alloc::vec![7; len]);
    }
}

/// Goal: whoever else asks is told nothing before the mount has told, and then all of it; a file of which nothing is to be told
/// is given up as well.
#[test]
fn others_are_shown_what_was_told() {
    for has_news in [true, false] {
        let cluster = cluster();
        let ((lane, ear, teller), other) = (holding(&cluster), mount(&cluster));
        let file = block_on(make(&lane, b"f")).unwrap();
        let ino = file.attr.ino;
        if has_news {
            write(&lane, &file, 0, b"bytes");
            block_on(lane.setattr(ino, mode(0o600))).unwrap();
        }
        let seen = beside(other.lookup(ROOT, b"f"), &ear, &teller).unwrap();
        let (told_mode, size) = if has_news { (0o600, 5) } else { (0o644, 0) };
        assert_eq!((seen.mode, seen.size), (told_mode, size));
        assert!(cluster.borrow().shard.holds.by.is_empty() && asked(&cluster, &[Tell::KIND]) == 1);
        write(&lane, &file, 5, b" more");
        block_on(lane.setattr(ino, mode(0o640))).unwrap();
        assert_eq!((on_shard(&cluster, ino).mode, on_shard(&cluster, ino).size), (0o640, 10), "at once");
    }
}

/// Goal: a question that comes before the answer to the create finds a mount that holds nothing: what is done then is told at
/// once. One that comes when nothing is on its way means nothing for what is made later.
#[test]
fn a_question_may_overtake_the_answer() {
    let cluster = cluster();
    let ((lane, ear, teller), other) = (holding(&cluster), mount(&cluster));
    let mut create = pin!(make(&lane, b"f"));
    cluster.borrow_mut().fail(Create::KIND, &[Fault::LateAnswer]);
    while cluster.borrow().shard.names.is_empty() {
        assert!(step(create.as_mut()).is_pending());
    }
    let seen = beside(other.lookup(ROOT, b"f"), &ear, &teller).unwrap();
    assert_eq!(seen.mode, 0o644);
    let file = block_on(create).unwrap();
    block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    assert_eq!(on_shard(&cluster, file.attr.ino).mode, 0o600);
    let next = block_on(make(&lane, b"g")).unwrap();
    block_on(lane.setattr(next.attr.ino, mode(0o600))).unwrap();
    assert_eq!(on_shard(&cluster, next.attr.ino).mode, 0o644, "it is held");
}

/// Goal: everything else that is done to a file finds at its shard what was kept before: nothing that was kept comes later, over it.
#[test]
fn what_is_sent_at_once_comes_behind() {
    type Does = fn(&FakeLane, &crate::Opened);
    let cases: [(&str, Does); 8] = [
        ("truncate", |lane, file| {
            let cut = SetAttr { size: Some(2), ..SetAttr::default() };
            block_on(lane.setattr(file.attr.ino, cut)).unwrap();
        }),
        ("set-id bits", |lane, file| {
            block_on(lane.setattr(file.attr.ino, mode(0o4755))).unwrap();
        }),
        ("append", |lane, file| {
            let append = crate::WriteHow { append: true, ..crate::WriteHow::default() };
            block_on(lane.write(file.handle, 0, b"more", append)).unwrap();
        }),
        ("longer than may be kept", |lane, file| write(lane, file, 0, &[1; ROOM as usize + 1])),
        ("allocate", |lane, file| {
            block_on(lane.fallocate(file.handle, crate::Allocate::Punch, 0, 2)).unwrap();
        }),
        ("fsync", |lane, file| block_on(lane.fsync(file.handle)).unwrap()),
        ("open to empty it", |lane, file| {
            let emptied = block_on(lane.open(file.attr.ino, crate::testing::TRUNCATE)).unwrap();
            block_on(lane.release(emptied.handle));
        }),
        ("seek", |lane, file| {
            assert_eq!(block_on(lane.seek(file.handle, 0, crate::Seek::Hole)), Ok(5));
        }),
    ];
    for (what, does) in cases {
        let cluster = cluster();
        let (lane, _, _) = holding(&cluster);
        let file = block_on(make(&lane, b"f")).unwrap();
        write(&lane, &file, 0, b"bytes");
        block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
        does(&lane, &file);
        let told = on_shard(&cluster, file.attr.ino);
        assert!(what == "set-id bits" || told.mode == 0o600, "{what}: {told:?}");
        assert_eq!(asked(&cluster, &[Tell::KIND]), 1, "{what}");
        let shown = block_on(lane.getattr(file.attr.ino)).unwrap();
        let content = read(&lane, &file, 0, 40_000);
        assert_eq!(content.len() as u64, shown.size, "{what}");
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
        let again = block_on(lane.open(file.attr.ino, BOTH)).unwrap();
        assert!(read(&lane, &again, 0, 40_000) == content, "{what}");
        assert_eq!(asked(&cluster, &[Tell::KIND]), 1, "{what}: once");
    }
}

/// Goal: a file that outgrows the metadata while it is held has its content brought to its chunks, without the shard, and is told
/// once. A failure on the way is told to who writes; what was kept is there all the same, and goes with the next try.
#[test]
fn what_outgrows_the_metadata_is_told_once() {
    for fails in [false, true] {
        let cluster = cluster();
        let (lane, _, _) = holding(&cluster);
        let file = block_on(make(&lane, b"f")).unwrap();
        let ino = file.attr.ino;
        write(&lane, &file, 0, b"bytes");
        block_on(lane.setattr(ino, mode(0o600))).unwrap();
        block_on(lane.setattr(ino, times(77))).unwrap();
        if fails {
            let refused = Fault::Refuse(Status::errno(Errno::EIO));
            cluster.borrow_mut().fail(WriteChunk::KIND, &[refused]);
            let written = block_on(lane.write(file.handle, 3, &[1; 30_000], crate::WriteHow::default()));
            assert_eq!(written, Err(Errno::EIO));
            let shown = block_on(lane.getattr(ino)).unwrap();
            assert_eq!(
                (read(&lane, &file, 0, 9), shown.size, shown.mtime),
                (b"bytes".to_vec(), 5, given(77))
            );
            block_on(lane.flush(file.handle, 0)).unwrap();
            let told = on_shard(&cluster, ino);
            assert_eq!((told.size, told.mode, told.mtime), (5, 0o600, given(77)));
        }
        write(&lane, &file, 3, &[1; 30_000]);
        let content = [&b"byt"[..], &[1; 30_000]].concat();
        assert!(read(&lane, &file, 0, 40_000) == content);
        if !fails {
            assert_eq!(asked(&cluster, &[Tell::KIND]), 0);
        }
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
        let told = on_shard(&cluster, ino);
        assert_eq!((told.size, told.mode, told.mtime == given(77)), (30_003, 0o600, false));
        assert_eq!((asked(&cluster, &[Tell::KIND]), asked(&cluster, &[Switch::KIND])), (1, 0));
        let other = mount(&cluster);
        let there = block_on(other.open(ino, READ)).unwrap();
        assert!(read(&other, &there, 0, 40_000) == content);
    }
}

/// Goal: a time that was given is that of the file until it is written again; what was kept of times, by the clock of the mount,
/// is what the shard is told.
#[test]
fn the_last_of_write_and_given_time_counts() {
    for (len, writes_last) in [(5, false), (5, true), (9_000, false), (9_000, true)] {
        let cluster = cluster();
        let (lane, _, _) = holding(&cluster);
        let file = block_on(make(&lane, b"f")).unwrap();
        write(&lane, &file, 0, &alloc::vec![1; len]);
        block_on(lane.setattr(file.attr.ino, times(77))).unwrap();
        cluster.borrow_mut().now += 3;
        if writes_last {
            write(&lane, &file, 0, b"x");
        }
        let shown = block_on(lane.getattr(file.attr.ino)).unwrap();
        assert_eq!(shown.mtime == given(77), !writes_last, "{len}");
        cluster.borrow_mut().now += 3;
        block_on(lane.flush(file.handle, 0)).unwrap();
        let told = on_shard(&cluster, file.attr.ino);
        assert_eq!((told.mtime, told.atime), (shown.mtime, given(77)), "{len} {writes_last}");
    }
}

/// Goal: nothing is held for much longer than a second, with something to tell or without.
#[test]
fn a_hold_is_short() {
    for has_news in [true, false] {
        let cluster = cluster();
        let (lane, _, teller) = holding(&cluster);
        let file = block_on(make(&lane, b"f")).unwrap();
        if has_news {
            block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
        }
        let ms = block_on(teller.tell_held());
        assert_eq!((ms, asked(&cluster, &[Tell::KIND])), (HOLD_TELL_MS, 0));
        cluster.borrow_mut().now += ms;
        block_on(teller.tell_held());
        assert!(cluster.borrow().shard.holds.by.is_empty());
        assert_eq!(on_shard(&cluster, file.attr.ino).mode, if has_news { 0o600 } else { 0o644 });
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
        assert_eq!(asked(&cluster, &[Tell::KIND]), 1);
        assert!(lane.shared.borrow().nodes_of_holds().next().is_none());
    }
}

/// Goal: a file that is made and closed, and nothing else, costs one request and its part of the closes.
#[test]
fn a_file_without_news_is_told_by_its_close() {
    let cluster = cluster();
    let (lane, ear, _) = holding(&cluster);
    let before = cluster.borrow().total();
    for name in [b"f", b"g"] {
        let file = block_on(make(&lane, name)).unwrap();
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
    }
    assert_eq!(cluster.borrow().total(), before + 2);
    block_on(ear.housekeeping());
    assert!(cluster.borrow().shard.holds.by.is_empty() && asked(&cluster, &[Close::KIND]) == 1);
}

/// Goal: an answer that is lost, and a program that does not wait for it, harm nothing: it is told again, by who comes next; if
/// the first has told it already the second tells nothing, and what others did meanwhile stays.
#[test]
fn a_lost_answer_is_no_second_telling() {
    let cluster = cluster();
    let ((lane, _, teller), other) = (holding(&cluster), mount(&cluster));
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    write(&lane, &file, 0, b"bytes");
    block_on(lane.setattr(ino, mode(0o600))).unwrap();
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LoseAnswer]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.flush(file.handle, 0)), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    assert_eq!(block_on(lane.getattr(ino)).unwrap().mode, 0o600, "it is not known whether it was told");
    block_on(other.setattr(ino, mode(0o644))).unwrap();
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!(
        (on_shard(&cluster, ino).mode, asked(&cluster, &[Tell::KIND])),
        (0o644, 2),
        "told before it was shown"
    );
    assert_eq!(block_on(lane.getattr(ino)).unwrap().mode, 0o644);
    assert_eq!(read(&lane, &file, 0, 10), b"bytes");
    // The request is lost: told by who comes next.
    let file = block_on(make(&lane, b"g")).unwrap();
    block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LoseRequest]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.flush(file.handle, 0)), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
    cluster.borrow_mut().now += 1_000;
    block_on(teller.tell_held());
    assert_eq!(on_shard(&cluster, file.attr.ino).mode, 0o600);
}

/// Goal: while one lane tells it another one neither keeps more, nor overtakes it.
#[test]
fn two_lanes_keep_the_order() {
    let cluster = cluster();
    let (lane, _, other_lane) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    block_on(lane.setattr(ino, mode(0o600))).unwrap();
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    let mut flush = pin!(lane.flush(file.handle, 0));
    while asked(&cluster, &[Tell::KIND]) == 0 {
        assert!(step(flush.as_mut()).is_pending());
    }
    let mut change = pin!(other_lane.setattr(ino, mode(0o640)));
    for _ in 0..5 {
        assert!(step(change.as_mut()).is_pending());
        assert_eq!(asked(&cluster, &[ChangeAttr::KIND]), 0);
    }
    block_on(flush).unwrap();
    block_on(change).unwrap();
    assert_eq!((on_shard(&cluster, ino).mode, asked(&cluster, &[ChangeAttr::KIND])), (0o640, 1));
}

/// Goal: a shard that begins anew is told again what is held, and told it as if nothing had happened.
#[test]
fn holds_outlive_a_restart() {
    let cluster = cluster();
    let ((lane, ear, teller), other) = (holding(&cluster), mount(&cluster));
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    write(&lane, &file, 0, b"bytes");
    block_on(lane.setattr(ino, mode(0o600))).unwrap();
    cluster.borrow_mut().restarts();
    listens(&ear);
    block_on(ear.housekeeping());
    assert_eq!(cluster.borrow().shard.holds.reported, [ino]);
    assert_eq!(block_on(lane.getattr(ino)).unwrap().mode, 0o600);
    assert_eq!(read(&lane, &file, 0, 10), b"bytes");
    let seen = beside(other.lookup(ROOT, b"f"), &ear, &teller).unwrap();
    assert_eq!((seen.mode, seen.size), (0o600, 5));
    assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
}

/// Goal: with its session a mount loses what it had not told, and says so: the file is as it was made.
#[test]
fn an_eviction_loses_what_was_kept() {
    let cluster = cluster();
    let (lane, ear, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    write(&lane, &file, 0, b"bytes");
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::Refuse(Status::FENCED)]);
    cluster.borrow_mut().cancelled = true;
    assert!(block_on(lane.flush(file.handle, 0)).is_err());
    cluster.borrow_mut().cancelled = false;
    cluster.borrow_mut().shard.holds.by.clear();
    for _ in 0..3 {
        block_on(ear.housekeeping());
    }
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO));
    assert_eq!(block_on(lane.getattr(ino)).unwrap().size, 0);
    write(&lane, &file, 0, b"again");
    assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
    assert_eq!(on_shard(&cluster, ino).size, 5);
}

/// Goal: a file that is removed, or renamed, by its own mount while it is held goes on.
#[test]
fn a_held_file_may_lose_its_name() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let (one, two) = (block_on(make(&lane, b"f")).unwrap(), block_on(make(&lane, b"g")).unwrap());
    write(&lane, &one, 0, b"one");
    write(&lane, &two, 0, b"two");
    block_on(lane.rename(ROOT, b"f", ROOT, b"g", RenameHow::default())).unwrap();
    assert_eq!((read(&lane, &one, 0, 9), read(&lane, &two, 0, 9)), (b"one".to_vec(), b"two".to_vec()));
    assert_eq!(block_on(lane.lookup(ROOT, b"g")).unwrap().size, 3);
    for file in [&one, &two] {
        let _ = block_on(lane.flush(file.handle, 0));
        block_on(lane.release(file.handle));
    }
    assert_eq!(on_shard(&cluster, one.attr.ino).size, 3);
}

/// Goal: behind a removal of a name, or a rename, of this mount a held file may have fewer names: what was told of it before is
/// shown no more, from when that is sent on.
#[test]
fn a_held_file_may_have_lost_a_name() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let ino = block_on(make(&lane, b"f")).unwrap().attr.ino;
    block_on(make(&lane, b"g")).unwrap();
    let is_shown = || lane.shared.borrow().held_attr_of_now(ino, Millis(0)).is_some();
    let asks = || {
        let shared = &mut *lane.shared.borrow_mut();
        shared.inodes.get_mut(ino).unwrap().held_as_of(shared.holds.names());
    };
    assert!(is_shown());
    {
        let mut removal = pin!(lane.unlink(ROOT, b"g"));
        assert!(step(removal.as_mut()).is_pending() && !is_shown());
        asks();
        assert!(is_shown());
        block_on(removal).unwrap();
    }
    assert!(!is_shown(), "it may have been asked for before the name went");
    asks();
    block_on(lane.rename(ROOT, b"f", ROOT, b"h", RenameHow::default())).unwrap();
    assert!(!is_shown());
}

/// Goal: an access ACL that says no more than a mode does is kept as that; `cp -a` sets one of each file.
#[test]
fn a_plain_acl_is_a_mode() {
    let acl = |entries: &[(u16, u16)]| {
        let mut value = Vec::from(2u32.to_le_bytes());
        for (tag, perm) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(u32::MAX.to_le_bytes());
        }
        value
    };
    let plain = acl(&[(0x01, 6), (0x04, 4), (0x20, 1)]);
    assert_eq!(mode_of_acl(&plain, 0o100_777), Some(0o100_641));
    let others = [
        acl(&[(0x01, 6), (0x02, 4), (0x04, 4), (0x10, 6), (0x20, 1)]),
        acl(&[(0x01, 6), (0x04, 8), (0x20, 1)]),
        acl(&[(0x01, 6), (0x20, 4), (0x04, 1)]),
        acl(&[]),
        plain[..27].to_vec(),
        [&[3], &plain[1..]].concat(),
        Vec::new(),
    ];
    assert!(others.iter().all(|other| mode_of_acl(other, 0o644).is_none()));
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let set = |value: &[u8]| block_on(lane.setxattr(file.attr.ino, ACL, value, XattrHow::default()));
    set(&plain).unwrap();
    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().mode, 0o641);
    assert_eq!(asked(&cluster, &[SetXattr::KIND, Tell::KIND]), 0);
    // What says more is the shard's affair, behind that.
    let _ = set(&others[0]);
    assert_eq!(asked(&cluster, &[SetXattr::KIND, Tell::KIND]), 2);
    assert_eq!(on_shard(&cluster, file.attr.ino).mode, 0o641);
}

/// Goal: what its shard refuses for good is told to whoever syncs or opens the file next, once, and is not tried again and again.
#[test]
fn what_is_refused_is_lost() {
    let cluster = cluster();
    let (lane, _, teller) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::Refuse(Status::errno(Errno::EINVAL))]);
    cluster.borrow_mut().now += 1_000;
    block_on(teller.tell_held());
    cluster.borrow_mut().now += 1_000;
    block_on(teller.tell_held());
    assert_eq!((asked(&cluster, &[Tell::KIND]), cluster.borrow().lines.len()), (1, 1));
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO));
    assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
}

/// Goal: a mount that is to end, and is used still, tells what it keeps and keeps nothing more, also of what is being made just
/// then: who kills it takes nothing away.
#[test]
fn a_mount_that_is_to_end_keeps_nothing() {
    let cluster = cluster();
    let (lane, _, teller) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    write(&lane, &file, 0, b"bytes");
    block_on(lane.setattr(ino, mode(0o600))).unwrap();
    let mut create = pin!(make(&lane, b"g"));
    cluster.borrow_mut().fail(Create::KIND, &[Fault::LateAnswer]);
    while cluster.borrow().shard.names.len() < 2 {
        assert!(step(create.as_mut()).is_pending());
    }
    assert_eq!((on_shard(&cluster, ino).mode, on_shard(&cluster, ino).size), (0o644, 0), "kept");
    lane.shared.borrow_mut().keeps_no_more();
    block_on(teller.tell_held());
    assert_eq!((on_shard(&cluster, ino).mode, on_shard(&cluster, ino).size), (0o600, 5));
    write(&lane, &file, 5, b" more");
    let late = block_on(create).unwrap();
    for (ino, mode_of) in [(ino, 0o640), (late.attr.ino, 0o604)] {
        block_on(lane.setattr(ino, mode(mode_of))).unwrap();
        assert_eq!(on_shard(&cluster, ino).mode, mode_of, "at once");
    }
    assert_eq!(on_shard(&cluster, ino).size, 10);
}

/// Goal: nothing is held without leases, by who does not wish so, or of what was there.
#[test]
fn only_new_files_are_held() {
    let cluster = cluster();
    cluster.borrow_mut().shard.holds.room = Some(ROOM);
    let plain = mount(&cluster);
    block_on(make(&plain, b"f")).unwrap();
    let (lane, _) = holder_with(&cluster, leased());
    block_on(make(&lane, b"g")).unwrap();
    assert!(cluster.borrow().shard.holds.by.is_empty());
    let (lane, _, _) = holding(&cluster);
    let there = crate::testing::create(&lane, b"f");
    assert!(!there.created && cluster.borrow().shard.holds.by.is_empty());
}
