//! Until when a put counts.

use super::tests::{BEGUN, PIECE, gathering, on_targets, pieces, waits, writes};
use crate::WriteHow;
use crate::op::hold::tests::{asked, holding};
use crate::op::recalls::tests::{T, cluster, listens, make};
use crate::testing::{Cluster, FakeLane, Fault, block_on, lane_beside, read, step, write};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::pin;
use skep_types::{Errno, Ino, Millis, TargetId};
use skep_wire::meta::{Grow, Tell};
use skep_wire::storage::{Clock, WriteChunk};
use skep_wire::{Message, Status};

fn late(cluster: &RefCell<Cluster>) -> usize {
    cluster.borrow().targets.late
}

fn tells(cluster: &RefCell<Cluster>) -> usize {
    asked(cluster, &[Tell::KIND])
}

/// Targets of the first MiB of a file.
fn targets(lane: &FakeLane, ino: Ino) -> Vec<TargetId> {
    let layout = lane.shared.borrow().inodes.get(ino).and_then(|inode| inode.layout.clone()).unwrap();
    layout.pieces(0, 1 << 20).iter().flat_map(|piece| piece.stripe.targets().to_vec()).collect()
}

/// Goal: what comes to its target while the mount counts as heard lands. What comes later does not; it waits on, whole, and goes
/// again when the shard has said that the file is held still, and only then.
#[test]
fn what_comes_too_late_does_not_land() {
    for (on_its_way, is_held) in [(T / 2, true), (T, true), (T, false), (3 * T, true), (3 * T, false)] {
        let cluster = cluster();
        let (lane, ear, _, file) = gathering(&cluster);
        let all = pieces(&lane, &file, 3);
        listens(&ear);
        if !is_held {
            cluster.borrow_mut().shard.holds.by.clear();
        }
        let (before, told) = (writes(&cluster), tells(&cluster));
        cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Held(on_its_way)]);
        let result = block_on(lane.fsync(file.handle));
        let in_time = on_its_way < T;
        assert_eq!((late(&cluster), waits(&lane, file.attr.ino)), (usize::from(!in_time), 0), "{on_its_way}");
        match is_held {
            true => {
                assert_eq!((result, on_targets(&cluster)), (Ok(()), all.len()));
                assert_eq!(writes(&cluster) - before, if in_time { 1 } else { 2 });
                assert_eq!(
                    tells(&cluster) - told,
                    if in_time { 1 } else { 2 },
                    "asked in front of the second"
                );
                assert!(read(&lane, &file, 0, 1 << 20) == all);
            }
            false => {
                assert_eq!((result, on_targets(&cluster)), (Err(Errno::EIO), BEGUN));
                assert_eq!(writes(&cluster), before + 1, "it is not tried again");
            }
        }
    }
}

/// Goal: an answer that was long on its way does not have a put count for longer. Method: the clock of these targets is that of the
/// mount.
#[test]
fn a_clock_counts_from_when_it_was_read() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    cluster.borrow_mut().targets.clock = Some(Clock { run: 2, ms: 0 });
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Held(T / 2)]);
    let how = WriteHow { direct: true, ..WriteHow::default() };
    block_on(lane.write(file.handle, 3, &[1], how)).unwrap();
    let target = targets(&lane, file.attr.ino)[0];
    let end = cluster.borrow().now + 100;
    let until = lane.shared.borrow().gathering.counts_until(target, Millis(end));
    assert!(until.run == 2 && until.ms <= end && until.ms > end - 10, "{until:?} {end}");
}

/// Goal: a target whose daemon was started again takes nothing that was meant for its last run, before the shard was asked.
#[test]
fn another_run_of_the_daemon_is_asked_for() {
    for is_held in [true, false] {
        let cluster = cluster();
        let (lane, _, _, file) = gathering(&cluster);
        let all = pieces(&lane, &file, 3);
        cluster.borrow_mut().targets.clock = Some(Clock { run: 2, ms: 0 });
        if !is_held {
            cluster.borrow_mut().shard.holds.by.clear();
        }
        let expected = if is_held { (Ok(()), all.len()) } else { (Err(Errno::EIO), BEGUN) };
        assert_eq!((block_on(lane.fsync(file.handle)), on_targets(&cluster)), expected);
        assert_eq!(late(&cluster), 1);
    }
}

/// Goal: what is sent again by the same try says the same: when the mount was heard since, it is refused, and goes round with the
/// newer clock. Nothing is lost by that.
#[test]
fn a_try_that_lasts_goes_round() {
    let cluster = cluster();
    let (lane, ear, _, file) = gathering(&cluster);
    let all = pieces(&lane, &file, 3);
    listens(&ear);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Unreachable; 15]);
    let before = writes(&cluster);
    let mut syncs = pin!(lane.fsync(file.handle));
    while late(&cluster) == 0 {
        assert!(step(syncs.as_mut()).is_pending() && writes(&cluster) < before + 20);
        listens(&ear);
    }
    assert_eq!((block_on(syncs), on_targets(&cluster)), (Ok(()), all.len()));
}

/// Goal: where one of two targets has its part of a run and the other's came too late, nothing is taken back, and all of it from
/// there on goes again when the file is held still; else what has landed is the file's.
#[test]
fn a_part_that_landed_goes_again() {
    let (lands, late) = (Fault::Held(0), Fault::Refuse(Status::TOO_LATE));
    let full = Fault::Refuse(Status::errno(Errno::ENOSPC));
    for (faults, is_held) in [
        ([lands, late], true),
        ([late, lands], true),
        ([late, lands], false),
        ([late, full], true),
        ([full, late], true),
    ] {
        let cluster = cluster();
        let (lane, _, _, file) = gathering(&cluster);
        // All targets are known, and a run lies on two of them.
        let two = 64 << 10;
        (0..16).for_each(|number| write(&lane, &file, number << 16, &[1; PIECE]));
        assert_eq!(read(&lane, &file, 0, 1), [1], "and they are with them");
        write(&lane, &file, two - PIECE as u64, &[2; PIECE]);
        write(&lane, &file, two, &[3; PIECE]);
        assert_eq!(waits(&lane, file.attr.ino), 2 * PIECE);
        if !is_held {
            cluster.borrow_mut().shard.holds.by.clear();
        }
        let before = cluster.borrow().kinds();
        cluster.borrow_mut().fail(WriteChunk::KIND, &faults);
        let result = block_on(lane.fsync(file.handle));
        let sent = |kind| cluster.borrow().count(kind) - before.get(&kind).copied().unwrap_or(0);
        assert_eq!(sent(skep_wire::storage::PunchChunk::KIND), 0, "{faults:?}");
        assert_eq!(waits(&lane, file.attr.ino), 0);
        // In front of what was late nothing goes again.
        let goes_again = 2 - usize::from(faults == [lands, late]);
        let expected = if is_held { (Ok(()), 2 + goes_again) } else { (Err(Errno::EIO), 2) };
        assert_eq!((result, sent(WriteChunk::KIND)), expected, "{faults:?}");
        if is_held {
            let all = read(&lane, &file, two - PIECE as u64, 2 * PIECE);
            assert!(all == [[2; PIECE], [3; PIECE]].concat(), "{faults:?}");
        }
    }
}

/// Goal: for a target that tells no clock (it is of an older release) nothing stays; what stayed before it was one goes there, once.
#[test]
fn an_older_target_keeps_nothing_waiting() {
    let cluster = cluster();
    cluster.borrow_mut().targets.clock = None;
    let (lane, _, _, file) = gathering(&cluster);
    let before = writes(&cluster);
    let all = pieces(&lane, &file, 3);
    assert_eq!((writes(&cluster), waits(&lane, file.attr.ino)), (before + 3, 0));
    // Upgraded, and back.
    cluster.borrow_mut().targets.clock = Some(Clock { run: 5, ms: 0 });
    write(&lane, &file, all.len() as u64, &[3; PIECE]);
    write(&lane, &file, (all.len() + PIECE) as u64, &[3; PIECE]);
    assert_eq!((writes(&cluster), waits(&lane, file.attr.ino)), (before + 4, PIECE));
    cluster.borrow_mut().targets.clock = None;
    assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
    assert_eq!((writes(&cluster), on_targets(&cluster)), (before + 5, all.len() + 2 * PIECE));
    let (ino, known) = (file.attr.ino, &lane.shared);
    assert!(
        targets(&lane, ino)
            .iter()
            .all(|target| { known.borrow().gathering.counts_until(*target, Millis(9)) == Clock::default() })
    );
}

/// Goal: a put to a target whose clock is not known lands nowhere before one is: it is refused, which brings the clock, and then
/// lands. One that is of an older release lets it in.
#[test]
fn a_clock_that_is_not_known_is_brought() {
    for is_older in [false, true] {
        let cluster = cluster();
        let (lane, _, _, file) = gathering(&cluster);
        let all = pieces(&lane, &file, 3);
        let now = Millis(cluster.borrow().now);
        for target in targets(&lane, file.attr.ino) {
            lane.shared.borrow_mut().gathering.found_late(target, None, now);
        }
        if is_older {
            cluster.borrow_mut().targets.clock = None;
        }
        assert_eq!((block_on(lane.fsync(file.handle)), on_targets(&cluster)), (Ok(()), all.len()));
        assert_eq!(late(&cluster), usize::from(!is_older));
    }
}

/// Goal: a target that finds everything late (its clock is broken) takes nothing, and nobody waits for ever: who is killed goes,
/// and what waits stays.
#[test]
fn who_is_killed_waits_for_no_clock() {
    let cluster = cluster();
    let (lane, _, _, file) = gathering(&cluster);
    pieces(&lane, &file, 3);
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::TOO_LATE); 3]);
    cluster.borrow_mut().cancelled = true;
    assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EINTR));
    assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE);
    cluster.borrow_mut().cancelled = false;
    cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Refuse(Status::TOO_LATE); 1_000]);
    let beside = lane_beside(&cluster, &lane);
    assert_eq!(block_on(beside.fsync(file.handle)), Err(Errno::EIO));
    assert_eq!(waits(&lane, file.attr.ino), 3 * PIECE);
}

/// Goal: content that was kept, of a file that outgrows the metadata, goes to chunks as a run does: not where others may have been
/// let past, while the file grew or while it was on its way, before the shard has said that the file is held still; else it is lost,
/// and said. Method: the first write finds that the clock is not known, so the second is that which is on its way.
#[test]
fn content_that_comes_too_late_does_not_land() {
    let (now, late_by) = (Fault::Held(0), Fault::Held(3 * T));
    let cases = [
        ("at once", Grow::KIND, &[][..], true),
        ("in time", WriteChunk::KIND, &[now, Fault::Held(T / 2)], true),
        ("late", WriteChunk::KIND, &[now, late_by], true),
        ("late and passed over", WriteChunk::KIND, &[now, late_by], false),
        ("grew late", Grow::KIND, &[late_by], true),
        ("grew late and passed over", Grow::KIND, &[late_by], false),
    ];
    for (case, kind, faults, is_held) in cases {
        let cluster = cluster();
        cluster.borrow_mut().shard.holds.keeps = true;
        let (lane, ear, _) = holding(&cluster);
        let file = block_on(make(&lane, b"f")).unwrap();
        write(&lane, &file, 0, &[1; 100]);
        listens(&ear);
        if !is_held {
            cluster.borrow_mut().shard.holds.by.clear();
        }
        cluster.borrow_mut().fail(kind, faults);
        let written = block_on(lane.write(file.handle, 100, &[2; 9_000], WriteHow::default()));
        let synced = block_on(lane.fsync(file.handle));
        let first = cluster.borrow().targets.chunks.values().next().unwrap()[..100].to_vec();
        if is_held {
            assert_eq!((written, synced, first), (Ok(9_000), Ok(()), [1; 100].to_vec()), "{case}");
        } else {
            assert_eq!((written.and(synced), first), (Err(Errno::EIO), [0; 100].to_vec()), "{case}");
        }
        let is_asked = faults.contains(&late_by);
        let expected = if is_asked { (1, 2) } else { (1, 1) };
        if is_held {
            let on_its_way = usize::from(kind == WriteChunk::KIND && is_asked);
            assert_eq!((late(&cluster) - on_its_way, tells(&cluster)), expected, "{case}");
        }
    }
}

/// Goal: a clock that is not known costs the first file one refused write, and the next none.
#[test]
fn one_refused_write_brings_a_clock() {
    let cluster = cluster();
    let (lane, _, _) = holding(&cluster);
    for name in [b"f", b"g"] {
        let file = block_on(make(&lane, name)).unwrap();
        write(&lane, &file, 0, &[1; 100]);
        write(&lane, &file, 100, &[2; 9_000]);
        assert_eq!((late(&cluster), tells(&cluster)), (1, 0));
    }
}

/// Goal: targets that take long for each piece get a run all the same: what has landed while the file was held is not sent again,
/// and behind what came too late each piece goes by itself.
#[test]
fn a_slow_target_gets_its_run() {
    for part in [8, 2] {
        let cluster = cluster();
        let (lane, ear, _, file) = gathering(&cluster);
        (0..32).for_each(|number| write(&lane, &file, number << 16, &[1; PIECE]));
        assert_eq!(read(&lane, &file, 0, 1), [1], "and they are with them");
        let (from, len) = (1 << 20, 1 << 12);
        let count = 14 * len / PIECE as u64;
        (0..count).for_each(|number| write(&lane, &file, from + number * PIECE as u64, &[3; PIECE]));
        assert_eq!(waits(&lane, file.attr.ino), 14 << 12);
        listens(&ear);
        let before = writes(&cluster);
        cluster.borrow_mut().fail(WriteChunk::KIND, &[Fault::Held(T / part - 10); 1_000]);
        assert_eq!(block_on(lane.fsync(file.handle)), Ok(()), "{part}");
        let sent = writes(&cluster) - before;
        assert!((14..60).contains(&sent), "{part}: {sent}");
        cluster.borrow_mut().faults.clear();
        assert!(read(&lane, &file, from, 14 << 12) == [3; PIECE].repeat((14 << 12) / PIECE));
    }
}
