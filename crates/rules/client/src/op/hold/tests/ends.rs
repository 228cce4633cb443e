//! How holds end: answers that are lost, handles that go, lanes beside each other.

use super::*;

/// Tells what is kept of the file, and gives up before the answer, which is lost.
fn tells_in_vain(cluster: &RefCell<Cluster>, lane: &FakeLane, file: &Opened) {
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LoseAnswer]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.flush(file.handle, 0)), Err(Errno::EINTR));
    cluster.borrow_mut().cancelled = false;
}

/// Goal: what is written after it was told, of which nobody here knows, is told as well; and so are changes of attributes.
#[test]
fn what_comes_behind_a_lost_answer_is_told() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    write(&lane, &file, 0, &[1; 9_000]);
    block_on(lane.setattr(ino, mode(0o600))).unwrap();
    tells_in_vain(&cluster, &lane, &file);
    write(&lane, &file, 9_000, &[2; 9_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert_eq!((on_shard(&cluster, ino).size, on_shard(&cluster, ino).mode), (18_000, 0o600));
    let next = block_on(make(&lane, b"g")).unwrap();
    write(&lane, &next, 0, b"told");
    tells_in_vain(&cluster, &lane, &next);
    block_on(lane.setattr(next.attr.ino, mode(0o640))).unwrap();
    write(&lane, &next, 4, b" and more");
    let told = on_shard(&cluster, next.attr.ino);
    assert_eq!((told.mode, told.size), (0o640, 13), "nothing more is kept");
    assert_eq!(read(&lane, &next, 0, 20), b"told and more");
}

/// Goal: who holds a file no longer, as far as is known, shows nothing by what it keeps: another mount may have changed it.
#[test]
fn an_ended_hold_answers_nothing() {
    let cluster = cluster();
    let ((lane, _, _), other) = (holding(&cluster), mount(&cluster));
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    write(&lane, &file, 0, b"first");
    tells_in_vain(&cluster, &lane, &file);
    let theirs = block_on(other.open(ino, BOTH)).unwrap();
    write(&other, &theirs, 0, b"later");
    block_on(other.setattr(ino, mode(0o600))).unwrap();
    assert_eq!(read(&lane, &file, 0, 9), b"later");
    assert_eq!(block_on(lane.lookup(ROOT, b"f")).unwrap().mode, 0o600);
    assert_eq!(block_on(lane.getattr(ino)).unwrap().mode, 0o600);
    // Nor is anything kept, or shown, for longer than a second, however busy who tells is.
    let next = block_on(make(&lane, b"g")).unwrap();
    block_on(lane.setattr(next.attr.ino, mode(0o600))).unwrap();
    cluster.borrow_mut().now += 1_000;
    block_on(lane.setattr(next.attr.ino, mode(0o640))).unwrap();
    assert_eq!(on_shard(&cluster, next.attr.ino).mode, 0o640);
}

/// Goal: what is done to a file by its path while its last handle goes is told.
#[test]
fn nothing_is_kept_of_what_is_being_closed() {
    let cluster = cluster();
    let (lane, _, other_lane) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let ino = file.attr.ino;
    let lock = crate::op::lock::tests::wish(1, crate::op::lock::tests::WRITE, 0, 9);
    block_on(lane.set_lock(file.handle, lock)).unwrap();
    let mut release = pin!(lane.release(file.handle));
    assert!(step(release.as_mut()).is_pending(), "it gives up its lock");
    block_on(other_lane.setattr(ino, mode(0o600))).unwrap();
    block_on(release);
    assert_eq!(on_shard(&cluster, ino).mode, 0o600);
    let again = block_on(lane.open(ino, BOTH)).unwrap();
    assert_eq!(block_on(lane.fsync(again.handle)), Ok(()), "nothing is lost");
}

/// Goal: a copy into a new file, beside which content was kept, does not come before that content.
#[test]
fn a_copy_comes_behind_what_was_written() {
    let cluster = cluster();
    let (lane, _, other_lane) = holding(&cluster);
    let source = block_on(make(&lane, b"source")).unwrap();
    write(&lane, &source, 0, &[1; 30_000]);
    block_on(lane.flush(source.handle, 0)).unwrap();
    let file = block_on(make(&lane, b"f")).unwrap();
    cluster.borrow_mut().fail(Grow::KIND, &[Fault::LateAnswer]);
    let before = asked(&cluster, &[Grow::KIND]);
    let mut copy = pin!(lane.copy((source.handle, 0), (file.handle, 0), 30_000));
    while asked(&cluster, &[Grow::KIND]) == before {
        assert!(step(copy.as_mut()).is_pending());
    }
    write(&other_lane, &file, 0, b"written before");
    assert_eq!(block_on(copy), Ok(30_000));
    assert!(read(&lane, &file, 0, 40_000) == [1; 30_000]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    let other = mount(&cluster);
    let there = block_on(other.open(file.attr.ino, READ)).unwrap();
    assert!(read(&other, &there, 0, 40_000) == [1; 30_000]);
}

/// Goal: what is written to chunks while a given time is being told comes behind that time.
#[test]
fn a_write_beside_a_given_time_comes_behind_it() {
    let cluster = cluster();
    let (lane, _, other_lane) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &file, 0, &[1; 9_000]);
    block_on(lane.setattr(file.attr.ino, times(77))).unwrap();
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    let mut flush = pin!(lane.flush(file.handle, 0));
    while asked(&cluster, &[Tell::KIND]) == 0 {
        assert!(step(flush.as_mut()).is_pending());
    }
    let how = crate::WriteHow::default();
    let mut late = pin!(other_lane.write(file.handle, 0, b"behind", how));
    assert!(step(late.as_mut()).is_pending());
    block_on(flush).unwrap();
    block_on(late).unwrap();
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert!(on_shard(&cluster, file.attr.ino).mtime != given(77));
}

/// Goal: the shard says how many names a file has, also one that is held.
#[test]
fn names_of_a_held_file_are_counted_by_its_shard() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    block_on(lane.unlink(ROOT, b"f")).unwrap();
    cluster.borrow_mut().shard.file(file.attr.ino).unwrap().attr.nlink = 0;
    let shown = block_on(lane.getattr(file.attr.ino)).unwrap();
    assert_eq!((shown.nlink, shown.mode), (0, 0o600));
}

/// Goal: a server that does not answer lets nobody wait who asks for files of another lane's turn: one lane at a time tells it
/// something.
#[test]
fn a_silent_server_has_one_lane_waiting() {
    let cluster = cluster();
    let (lane, _, teller) = holding(&cluster);
    let second = lane_beside(&cluster, &lane);
    for name in [b"f", b"g"] {
        let file = block_on(make(&lane, name)).unwrap();
        block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    }
    cluster.borrow_mut().now += 1_000;
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::LateAnswer]);
    let mut first = pin!(teller.tell_held());
    while asked(&cluster, &[Tell::KIND]) == 0 {
        assert!(step(first.as_mut()).is_pending());
    }
    block_on(second.tell_held());
    assert_eq!(asked(&cluster, &[Tell::KIND]), 1, "it is told something already");
    block_on(first);
    assert_eq!(asked(&cluster, &[Tell::KIND]), 2);
}

/// Goal: where the shard does not believe how far a file was written, it is asked, and the targets are, and then it is told: once
/// more, and not without an end.
#[test]
fn a_size_that_is_not_believed_is_asked_for() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &file, 0, &[1; 9_000]);
    block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    cluster.borrow_mut().fail(Tell::KIND, &[Fault::Refuse(Status::STALE_SIZE)]);
    block_on(lane.flush(file.handle, 0)).unwrap();
    let told = on_shard(&cluster, file.attr.ino);
    assert_eq!((told.size, told.mode, asked(&cluster, &[Tell::KIND])), (9_000, 0o600, 2));
}

/// Goal: while it is in doubt where a held file ends nobody is answered by what is known here, which may be what it was when it was
/// made.
#[test]
fn an_end_in_doubt_is_asked_for() {
    let cluster = cluster();
    let (lane, ear, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &file, 0, &[1; 9_000]);
    cluster.borrow_mut().restarts();
    listens(&ear);
    block_on(ear.housekeeping());
    assert_eq!(cluster.borrow().shard.holds.reported, [file.attr.ino]);
    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, 9_000);
    assert_eq!(block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap().size, 9_000);
    assert_eq!(read(&lane, &file, 0, 20_000), [1; 9_000]);
}

/// Goal: what is written to chunks when a given time may have been told comes behind that time.
#[test]
fn a_write_behind_a_time_in_doubt_comes_behind_it() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    write(&lane, &file, 0, &[1; 9_000]);
    block_on(lane.setattr(file.attr.ino, times(77))).unwrap();
    tells_in_vain(&cluster, &lane, &file);
    write(&lane, &file, 0, b"behind");
    block_on(lane.flush(file.handle, 0)).unwrap();
    assert!(on_shard(&cluster, file.attr.ino).mtime != given(77));
}

/// Goal: of two handles that go at the same moment one tells what is left to tell.
#[test]
fn two_last_handles_lose_nothing() {
    let cluster = cluster();
    let (lane, _, other_lane) = holding(&cluster);
    let file = block_on(make(&lane, b"f")).unwrap();
    let second = block_on(other_lane.open(file.attr.ino, BOTH)).unwrap();
    block_on(lane.setattr(file.attr.ino, mode(0o600))).unwrap();
    let (mut one, mut two) = (pin!(lane.release(file.handle)), pin!(other_lane.release(second.handle)));
    let mut ended = [false; 2];
    while ended != [true; 2] {
        ended[0] = ended[0] || step(one.as_mut()).is_ready();
        ended[1] = ended[1] || step(two.as_mut()).is_ready();
    }
    assert_eq!(on_shard(&cluster, file.attr.ino).mode, 0o600);
    let again = block_on(lane.open(file.attr.ino, BOTH)).unwrap();
    assert_eq!(block_on(lane.fsync(again.handle)), Ok(()));
}

/// Goal: a file of which something is committed is held no longer, whatever else there is to tell: nobody waits for a mount that was
/// killed behind an fsync.
#[test]
fn a_commit_ends_the_hold() {
    for len in [0, 500, 9_000] {
        let cluster = cluster();
        let (lane, _, _) = holding(&cluster);
        let file = block_on(make(&lane, b"f")).unwrap();
        if len > 0 {
            write(&lane, &file, 0, &alloc::vec![1; len]);
        }
        block_on(lane.fsync(file.handle)).unwrap();
        assert!(cluster.borrow().shard.holds.by.is_empty());
        assert_eq!(on_shard(&cluster, file.attr.ino).size, len as u64);
        assert_eq!(asked(&cluster, &[Tell::KIND]), 1);
    }
}
