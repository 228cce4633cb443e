//! Who opens what is open already asks nobody; and what no program has open goes when it is in the way.

use crate::op::recalls::tests::{T, beside, cluster, holder, holder_with, leased, listens, make};
use crate::testing::{BOTH, Cluster, FakeLane, Fault, READ, block_on, lane_beside, mount, read, step, write};
use crate::{Limits, NewNode, Opened, RenameHow};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::{Errno, Ino, Kind, SetAttr};
use skep_wire::meta::{Close, Lookup, Open, Rename, Unlink};
use skep_wire::storage::ReadChunk;
use skep_wire::{Message, Status};

const ROOT: Ino = Ino::ROOT;
const DIR: NewNode = NewNode { kind: Kind::Dir, mode: 0o755, umask: 0, uid: 1, gid: 2, rdev: 0 };

fn opens(cluster: &RefCell<Cluster>) -> usize {
    cluster.borrow().shard.opens.len()
}

fn told(cluster: &RefCell<Cluster>) -> usize {
    cluster.borrow().count(Open::KIND)
}

/// A file that nobody has open.
fn made(plain: &FakeLane, name: &[u8], content: &[u8]) -> Ino {
    let file = block_on(make(plain, name)).unwrap();
    write(plain, &file, 0, content);
    block_on(plain.release(file.handle));
    block_on(plain.housekeeping());
    file.attr.ino
}

/// One that a mount has looked at and read once; and that mount, its ear, and who made it.
fn used_once(cluster: &Rc<RefCell<Cluster>>, content: &[u8]) -> (Ino, (FakeLane, FakeLane), FakeLane) {
    let plain = mount(cluster);
    let ino = made(&plain, b"f", content);
    let (lane, ear) = holder(cluster);
    block_on(lane.lookup(ROOT, b"f")).unwrap();
    opens_and_closes(&lane, ino, content);
    assert!(lane.shared.borrow().kept.has(ino));
    (ino, (lane, ear), plain)
}

fn opens_and_closes(lane: &FakeLane, ino: Ino, content: &[u8]) {
    let file: Opened = block_on(lane.open(ino, READ)).unwrap();
    assert_eq!(read(lane, &file, 0, content.len() + 10), content);
    block_on(lane.flush(file.handle, 0)).unwrap();
    block_on(lane.release(file.handle));
}

/// Goal: the second open, and one beside another, is told to nobody, whatever the size of the file; the shard knows all the
/// time that it is open, and of its close when nobody has used it for a while.
#[test]
fn a_warm_open_asks_nobody() {
    for content in [&b"small"[..], &[7; 90_000]] {
        let cluster = cluster();
        let (ino, (lane, ear), _) = used_once(&cluster, content);
        assert_eq!((opens(&cluster), told(&cluster)), (1, 1));
        let asked = || cluster.borrow().total() - cluster.borrow().count(ReadChunk::KIND);
        let before = asked();
        for _ in 0..3 {
            opens_and_closes(&lane, ino, content);
        }
        let first = block_on(lane.open(ino, READ)).unwrap();
        opens_and_closes(&lane, ino, content);
        block_on(lane.release(first.handle));
        assert_eq!((asked(), opens(&cluster)), (before, 1));
        block_on(ear.housekeeping());
        assert_eq!((cluster.borrow().count(Close::KIND), opens(&cluster)), (1, 1), "that of who made it");
        cluster.borrow_mut().now += crate::limits::KEPT_OPENS_MS;
        block_on(ear.housekeeping());
        assert_eq!(opens(&cluster), 0);
    }
}

/// Goal: what is written, changed, or not covered by a lease any more is opened by asking; and so is what is opened for writing.
#[test]
fn what_may_be_another_is_asked_for() {
    type Does = fn((&FakeLane, &FakeLane), &FakeLane, &RefCell<Cluster>, Ino);
    let cases: [(&str, Does); 6] = [
        ("in between nobody was to be told", |(lane, _), _, _, ino| {
            lane.shared.borrow_mut().names.forget_attr(ino);
            block_on(lane.lookup(ROOT, b"f")).unwrap();
        }),
        ("others change it", |(_, ear), plain, _, ino| {
            let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            beside(plain.setattr(ino, mode), &[ear]).unwrap();
        }),
        ("it changes it", |(lane, _), _, _, ino| {
            let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            block_on(lane.setattr(ino, mode)).unwrap();
        }),
        ("time is over", |_, _, cluster, _| cluster.borrow_mut().now += T),
        ("it is to be written", |(lane, _), _, _, ino| {
            let file = block_on(lane.open(ino, BOTH)).unwrap();
            block_on(lane.release(file.handle));
        }),
        ("others write", |(_, ear), plain, _, ino| {
            let file = beside(plain.open(ino, BOTH), &[ear]).unwrap();
            write(plain, &file, 0, b"other");
        }),
    ];
    for (what, does) in cases {
        let cluster = cluster();
        let (ino, (lane, ear), plain) = used_once(&cluster, b"bytes");
        does((&lane, &ear), &plain, &cluster, ino);
        let before = told(&cluster);
        let file = block_on(lane.open(ino, READ)).unwrap();
        assert_eq!(told(&cluster), before + 1, "{what}");
        let now: &[u8] = if what == "others write" { b"other" } else { b"bytes" };
        assert_eq!(read(&lane, &file, 0, 10), now, "{what}");
    }
}

/// Goal: what another mount is about to change or remove is closed at once, so that a removed file does not stay; what is in use
/// stays open.
#[test]
fn what_others_change_is_closed() {
    for in_use in [false, true] {
        let cluster = cluster();
        let (ino, (lane, ear), plain) = used_once(&cluster, b"bytes");
        let file = in_use.then(|| block_on(lane.open(ino, READ)).unwrap());
        beside(plain.unlink(ROOT, b"f"), &[&ear]).unwrap();
        block_on(ear.housekeeping());
        assert_eq!(opens(&cluster), usize::from(in_use));
        if let Some(file) = file {
            assert_eq!(read(&lane, &file, 0, 10), b"bytes");
            block_on(lane.release(file.handle));
            block_on(ear.housekeeping());
            assert_eq!(opens(&cluster), 0);
        }
    }
}

/// Goal: what no lease covers any more is closed soon, whatever the reason: nobody would say that it is removed.
#[test]
fn what_is_not_covered_is_closed() {
    for is_recalled in [true, false] {
        let cluster = cluster();
        let (_, (lane, ear), _) = used_once(&cluster, b"bytes");
        block_on(ear.housekeeping());
        assert_eq!(opens(&cluster), 1);
        if is_recalled {
            let shard = &mut cluster.borrow_mut().shard;
            let mount = *shard.leases.held.keys().map(|(mount, _)| mount).next().unwrap();
            let event = shard.leases.recall_all(mount, ROOT);
            shard.locks.tell(mount, event);
        } else {
            cluster.borrow_mut().now += T;
        }
        listens(&ear);
        block_on(ear.housekeeping());
        assert_eq!((opens(&cluster), lane.shared.borrow().kept.count()), (0, 0), "{is_recalled}");
    }
}

/// Goal: an answer to an open says nothing when what it is about was taken back, and covered anew, before it came.
#[test]
fn a_late_answer_to_an_open_is_not_kept() {
    let cluster = cluster();
    let plain = mount(&cluster);
    let ino = made(&plain, b"f", b"x");
    let (lane, _ear) = holder(&cluster);
    block_on(lane.lookup(ROOT, b"f")).unwrap();
    cluster.borrow_mut().fail(Open::KIND, &[Fault::LateAnswer]);
    let beside = lane_beside(&cluster, &lane);
    let mut work = pin!(lane.open(ino, READ));
    assert!(step(work.as_mut()).is_pending() && step(work.as_mut()).is_pending());
    lane.shared.borrow_mut().names.forget_attr(ino);
    // As of a later record.
    block_on(beside.make_node(ROOT, b"d", DIR)).unwrap();
    block_on(beside.lookup(ROOT, b"f")).unwrap();
    let file = block_on(work).unwrap();
    block_on(lane.release(file.handle));
    assert!(!lane.shared.borrow().kept.has(ino));
}

/// Goal: an own unlink or rename closes what it takes the name of in the same request, whatever becomes of that.
#[test]
fn own_removals_close_in_one() {
    for renames in [false, true] {
        for fault in [None, Some(Fault::Refuse(Status::errno(Errno::EIO)))] {
            let cluster = cluster();
            let plain = mount(&cluster);
            let inos = [b"f", b"g"].map(|name| made(&plain, name, b"x"));
            let (lane, ear) = holder(&cluster);
            for (name, ino) in [b"f", b"g"].into_iter().zip(inos) {
                block_on(lane.lookup(ROOT, name)).unwrap();
                opens_and_closes(&lane, ino, b"x");
            }
            assert_eq!(opens(&cluster), 2);
            let kind = if renames { Rename::KIND } else { Unlink::KIND };
            fault.into_iter().for_each(|fault| cluster.borrow_mut().fail(kind, &[fault]));
            let done = match renames {
                true => block_on(lane.rename(ROOT, b"g", ROOT, b"f", RenameHow::default())),
                false => block_on(lane.unlink(ROOT, b"f")),
            };
            assert_eq!(done.is_err(), fault.is_some());
            if fault.is_none() {
                assert_eq!(opens(&cluster), 1, "before housekeeping");
            }
            block_on(ear.housekeeping());
            assert_eq!(opens(&cluster), 1);
        }
    }
}

/// Goal: no more are kept than the limit, the oldest go; where the shard has no room for one more, all go and it is tried again.
#[test]
fn no_more_are_kept_than_there_is_room() {
    let cluster = cluster();
    let plain = mount(&cluster);
    let names = [b"a", b"b", b"c"];
    let inos = names.map(|name| made(&plain, name, b"x"));
    let (lane, ear) = holder_with(&cluster, Limits { kept_max: 2, ..leased() });
    for (name, ino) in names.into_iter().zip(inos) {
        cluster.borrow_mut().now += 1;
        block_on(lane.lookup(ROOT, name)).unwrap();
        opens_and_closes(&lane, ino, b"x");
    }
    block_on(ear.housekeeping());
    assert_eq!(opens(&cluster), 2);
    let before = told(&cluster);
    opens_and_closes(&lane, inos[2], b"x");
    opens_and_closes(&lane, inos[1], b"x");
    assert_eq!(told(&cluster), before);
    cluster.borrow_mut().fail(Open::KIND, &[Fault::Refuse(Status::errno(Errno::ENFILE))]);
    let file = block_on(lane.open(inos[0], READ)).unwrap();
    assert_eq!((told(&cluster), opens(&cluster)), (before + 2, 1));
    // Nothing more can be done.
    cluster.borrow_mut().fail(Open::KIND, &[Fault::Refuse(Status::errno(Errno::ENFILE)); 2]);
    assert_eq!(block_on(lane.open(inos[1], READ)).err(), Some(Errno::ENFILE));
    block_on(lane.release(file.handle));
}

/// Goal: a new term, a new session and a FORGET of the kernel end what is kept, and nothing of it stays open for ever.
#[test]
fn nothing_is_kept_over_a_term_or_a_session() {
    for what in ["term", "session", "forgotten"] {
        let cluster = cluster();
        let (ino, (lane, ear), _) = used_once(&cluster, b"bytes");
        match what {
            "term" => {
                cluster.borrow_mut().restarts();
                assert_eq!(block_on(lane.lookup(ROOT, b"x")), Err(Errno::ENOENT));
            }
            "session" => {
                cluster.borrow_mut().fail(Lookup::KIND, &[Fault::Refuse(Status::FENCED)]);
                let mut looks = pin!(lane.lookup(ROOT, b"x"));
                assert!(step(looks.as_mut()).is_pending() && step(looks.as_mut()).is_pending());
            }
            _ => lane.forget(ino, 1),
        }
        for _ in 0..3 {
            block_on(ear.housekeeping());
        }
        assert_eq!(lane.shared.borrow().kept.count(), 0, "{what}");
        if what == "forgotten" {
            assert_eq!(opens(&cluster), 0);
        }
        let before = told(&cluster);
        opens_and_closes(&lane, ino, b"bytes");
        assert_eq!(told(&cluster), before + 1, "{what}");
    }
}
