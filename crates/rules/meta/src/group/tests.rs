//! Tests of the server: lanes, waits, sessions, grace, deletions, crashes.

mod acls;
mod age;
mod bounds;
mod crash;
mod leases;
mod locking;
mod oracle;
mod places;
mod reads;
mod sealing;
mod terms;
mod transactions;
mod travel;

use crate::testing::*;
use crate::*;
use alloc::format;
use alloc::vec;
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::{Empty, Status};

fn unlink(text: &str) -> Unlink {
    Unlink { parent: Ino::ROOT, name: name(text) }
}

/// Goal: a repeated request is done once and gets its first answer, also after a restart; an older
/// number is refused; a gap is fine.
#[test]
fn exactly_once() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "a");
    let to = bed.resend(ME, create(Ino::ROOT, "a"));
    assert_eq!(bed.reply::<OpenReply>(to).unwrap().unwrap().attr.ino, ino, "the first answer");
    bed.unlink(ME, Ino::ROOT, "a").unwrap();
    bed.create(OTHER, Ino::ROOT, "a");
    bed.restart(&[]);
    let to = bed.resend(ME, unlink("a"));
    assert_eq!(bed.reply::<Empty>(to), Some(Ok(Empty {})), "done once, before the restart");
    assert!(bed.lookup(Ino::ROOT, "a").is_ok());
    let to = bed.send_as(ME, ShardId(0), 1, unlink("a").into());
    assert_eq!(bed.reply::<Empty>(to), Some(Err(Status::OLD_SEQUENCE)));
    let to = bed.send_as(ME, ShardId(0), 1_000, unlink("a").into());
    assert_eq!(bed.reply::<Empty>(to), Some(Ok(Empty {})));
    bed.check();
}

/// Goal: the canary runs a retry twice, and that shows.
#[test]
fn the_canary_can_be_seen() {
    let mut bed = Bed::with(Config { canary_runs_retries: true, ..Config::default() }, 1);
    bed.create(ME, Ino::ROOT, "a");
    let to = bed.resend(ME, create(Ino::ROOT, "a"));
    assert_eq!(bed.reply::<OpenReply>(to), Some(Err(errno(Errno::EEXIST))));
}

/// Goal: a refused request stays refused when repeated, and takes no place in the log; one that
/// was refused for the moment is run again.
#[test]
fn refusals_are_remembered() {
    let mut bed = Bed::new();
    let records = bed.log.len();
    assert_eq!(bed.call(ME, unlink("a")).err(), Some(errno(Errno::ENOENT)));
    assert_eq!(bed.log.len(), records);
    bed.create(OTHER, Ino::ROOT, "a");
    let to = bed.resend(ME, unlink("a"));
    assert_eq!(bed.reply::<Empty>(to), Some(Err(errno(Errno::ENOENT))), "the answer it had");
    let to = bed.send_as(ME, ShardId(0), 0, unlink("a").into());
    assert_eq!(bed.reply::<Empty>(to), Some(Err(Status::MALFORMED)), "a change needs a number");
    let ino = bed.create(ME, Ino::ROOT, "b");
    bed.write(ino, 0, b"x").unwrap();
    bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
    assert_eq!(bed.call(ME, Grow { like: None, ino, end: 1 }).err(), Some(Status::BUSY));
    bed.tick(crate::limit::GROWTH_AGE_MIN_MS);
    let to = bed.resend(ME, Grow { like: None, ino, end: 1 });
    assert!(bed.reply::<GrowReply>(to).unwrap().is_ok());
}

/// Goal: a lane of a newer life of the client starts anew, and the older life is refused.
#[test]
fn lives_of_a_client() {
    let mut bed = Bed::new();
    bed.create(ME, Ino::ROOT, "a");
    let mut ask = |incarnation, seq, text: &str| {
        let to = bed.next_reply;
        bed.next_reply += 1;
        let peer = PeerIdentity {
            role: Role::Client,
            client: ClientId(1),
            incarnation: Incarnation(incarnation),
            node: NodeId(0),
        };
        let call =
            ShardCall { shard: ShardId(0), slot: Slot(0), seq: Seq(seq), epoch: 0, ..ShardCall::default() };
        let message = create(Ino::ROOT, text).into();
        bed.step(Input::Request(Request { reply_to: to, peer, epoch: FenceEpoch(0), call, message }));
        bed.reply::<OpenReply>(to).unwrap().map(|_| ())
    };
    assert_eq!(ask(2, 1, "b"), Ok(()));
    assert_eq!(ask(1, 9, "c"), Err(Status::FENCED));
}

/// Goal: roles are kept apart; other shards, newer fences and a server that is starting send the
/// client elsewhere or make it wait.
#[test]
fn admission() {
    let mut bed = Bed::new();
    let remote = Decide { txid: TxnId::default(), floor: TxnId::default(), commit: true };
    let to = bed.send_as(ME, ShardId(0), 0, remote.into());
    assert_eq!(bed.reply::<Empty>(to), Some(Err(Status::ROLE)));
    let to = bed.send_as(ME, ShardId(9), 0, GetAttr { ino: Ino::ROOT }.into());
    assert_eq!(bed.reply::<AttrReply>(to), Some(Err(Status::ELSEWHERE)));
    let mut out = Output::default();
    let peer = PeerIdentity {
        role: Role::Client,
        client: ClientId(1),
        incarnation: Incarnation(1),
        node: NodeId(0),
    };
    let request = Request {
        reply_to: 900,
        peer,
        epoch: FenceEpoch(5),
        call: ShardCall::default(),
        message: GetAttr { ino: Ino::ROOT }.into(),
    };
    bed.server.step(bed.now, bed.wall(), Input::Request(request.clone()), &mut out).unwrap();
    assert!(out.fetch_fences);
    assert_eq!(out.replies[0].result.clone().unwrap_err().status, Status::NOT_READY);
    let mut starting = Group::new(Config::default(), store::MemoryStore::default()).unwrap();
    let mut out = Output::default();
    let request = Request { epoch: FenceEpoch(0), ..request };
    starting.step(Millis(0), Timestamp::default(), Input::Request(request), &mut out).unwrap();
    assert_eq!(out.replies[0].result.clone().unwrap_err().status, Status::NOT_READY);
}

/// Goal: `Sync` is answered when durable; a stamp of a tail that a power cut took is LOST_HISTORY,
/// though the new log has grown past it.
#[test]
fn sync_never_lies() {
    let mut bed = Bed::new();
    bed.create(ME, Ino::ROOT, "a");
    let durable = bed.log.len() as u64;
    bed.auto_sync = false;
    let to = bed.send(ME, create(Ino::ROOT, "b"));
    let stamp = bed.replies[&to].0.clone();
    assert!(stamp.durable < stamp.index, "answered from the page cache, and it says so");
    let wait = bed.send(ME, Sync { term: stamp.term, index: stamp.index });
    assert!(!bed.replies.contains_key(&wait));
    bed.sync();
    assert_eq!(bed.reply::<Empty>(wait), Some(Ok(Empty {})));
    // The same once more, but the power fails before the sync.
    bed.auto_sync = true;
    bed.crash(0, durable, &[]);
    for n in 0..5 {
        bed.create(OTHER, Ino::ROOT, &format!("{n}"));
    }
    assert!(bed.last() > stamp.index);
    let lost = bed.call(ME, Sync { term: stamp.term, index: stamp.index });
    assert_eq!(lost.err(), Some(Status::LOST_HISTORY));
    let known = bed.call(ME, Sync { term: stamp.term, index: LogIndex(durable) });
    assert!(known.is_ok(), "what was durable is not lost");
    let future = bed.call(ME, Sync { term: bed.term(), index: LogIndex(9_999) });
    assert_eq!(future.err(), Some(Status::LOST_HISTORY));
}

/// Goal: an answer that a lane remembers from an older term says nothing of that term's tail, which
/// may be lost (seed 1776 of the simulator: an fsync answered success).
#[test]
fn an_old_answer_vouches_for_itself_only() {
    let mut bed = Bed::new();
    bed.create(ME, Ino::ROOT, "a");
    bed.restart(&[]);
    for n in 0..5 {
        bed.create(OTHER, Ino::ROOT, &format!("{n}"));
    }
    let to = bed.resend(ME, create(Ino::ROOT, "a"));
    let stamp = bed.replies[&to].0.clone();
    assert!(stamp.term < bed.term() && bed.last() > stamp.index);
    assert_eq!(stamp.durable, stamp.index);
}

/// Goal: no inode number is given out twice, whatever a power cut takes.
#[test]
fn numbers_are_never_reused() {
    let mut bed = Bed::new();
    let mut seen = alloc::collections::BTreeSet::new();
    for round in 0..6 {
        bed.auto_sync = true;
        bed.create(ME, Ino::ROOT, &format!("first{round}"));
        let durable = bed.log.len() as u64;
        bed.auto_sync = false;
        for n in 0..50 {
            let to = bed.send(ME, create(Ino::ROOT, &format!("{round}.{n}")));
            let ino = bed.reply::<OpenReply>(to).unwrap().unwrap().attr.ino;
            assert!(seen.insert(ino), "{ino:?} twice");
        }
        let kept = if round % 2 == 0 { durable } else { bed.log.len() as u64 };
        bed.auto_sync = true;
        bed.crash(0, kept, &[]);
        bed.check();
    }
}

/// Goal: when a block runs out, creates wait for the next reservation to be durable and go on.
#[test]
fn blocks_are_durable_before_use() {
    let mut bed = Bed::new();
    bed.auto_sync = false;
    let mut parked = vec![];
    for n in 0..(2 * crate::limit::SERIAL_BLOCK) {
        let to = bed.send(ME, create(Ino::ROOT, &format!("{n}")));
        if !bed.replies.contains_key(&to) {
            parked.push(to);
            bed.sync();
            assert!(bed.replies.contains_key(&to), "the sync lets it go on");
        }
    }
    assert!(!parked.is_empty());
    bed.check();
}

/// Goal: after a restart orphans stay until every session has reported; reclaimed ones live on,
/// the others go; truncates treat files as open meanwhile.
#[test]
fn grace_and_reclaim() {
    let mut bed = Bed::new();
    let (kept, layout) = bed.grown("kept", 9);
    let (gone, _) = bed.grown("gone", 9);
    for ino in [kept, gone] {
        bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    }
    bed.unlink(ME, Ino::ROOT, "kept").unwrap();
    bed.unlink(ME, Ino::ROOT, "gone").unwrap();
    let (alone, _) = bed.grown("alone", 9);
    bed.open(OTHER, Ino::ROOT, OpenMode::Read, 1).unwrap();
    bed.restart(&[1, 2]);
    assert!(bed.attr(kept).is_ok() && bed.attr(gone).is_ok());
    bed.truncate(ME, alone, 0).unwrap();
    assert!(!bed.trimmed.is_empty() && bed.deleted.is_empty(), "trimmed: somebody may have it open");
    bed.unlink(ME, Ino::ROOT, "alone").unwrap();
    assert_eq!(bed.attr(alone).unwrap().nlink, 0, "an orphan until grace ends");
    let reclaimed = Reclaimed { reserved: 0, ino: kept, mode: OpenMode::Write, open_seq: 1 };
    bed.call(
        ME,
        Reclaim {
            locks: alloc::vec::Vec::new(),
            opens: vec![reclaimed],
            last: true,
            term: None,
            holds: None,
        },
    )
    .unwrap();
    assert!(bed.attr(gone).is_ok(), "client 2 has not reported");
    bed.call(
        OTHER,
        Reclaim { locks: alloc::vec::Vec::new(), opens: vec![], last: true, term: None, holds: None },
    )
    .unwrap();
    assert!(bed.attr(kept).is_ok());
    for ino in [gone, alone] {
        assert_eq!(bed.attr(ino).err(), Some(errno(Errno::ESTALE)));
    }
    bed.check();
    bed.close(ME, kept, 2);
    assert!(layout.chunks().all(|(chunk, target)| bed.deleted.contains(&(target, chunk))));
    bed.check();
}

/// Goal: grace ends by time, so that locks are given. But what a session has open that still lives and has not reported, a
/// file without a name too, stays until it reports or ends.
#[test]
fn grace_ends_without_reports() {
    for (by_time, reports) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.open(ME, ino, OpenMode::Read, 1).unwrap();
        bed.unlink(ME, Ino::ROOT, "f").unwrap();
        let later = bed.create(ME, Ino::ROOT, "later");
        bed.restart(&[1]);
        if by_time {
            let deadline = bed.server.next_deadline().unwrap();
            bed.tick(deadline.since(bed.now));
            bed.open(OTHER, later, OpenMode::Write, 1).unwrap();
            bed.call(OTHER, locking::set(later, 1, None, 1)).expect("grace is over");
            bed.close(OTHER, later, 1);
            let links = |bed: &mut Bed, ino| bed.call(OTHER, GetAttr { ino }).map(|reply| reply.attr.nlink);
            assert_eq!(links(&mut bed, ino), Ok(0), "client 1 lives, and may have it open");
            bed.unlink(OTHER, Ino::ROOT, "later").unwrap();
            assert_eq!(links(&mut bed, later), Ok(0), "client 1 may have this open too");
        }
        if reports {
            let opens = vec![Reclaimed { reserved: 0, ino, mode: OpenMode::Read, open_seq: 1 }];
            bed.call(ME, Reclaim { locks: vec![], opens, last: true, term: None, holds: None }).unwrap();
            assert!(bed.attr(ino).is_ok());
            bed.close(ME, ino, 1);
        } else {
            bed.fenced.push(1);
            let fences = bed.fences(&[]);
            bed.step(Input::Fences(fences));
        }
        for gone in [Some(ino), by_time.then_some(later)].into_iter().flatten() {
            assert_eq!(bed.call(OTHER, GetAttr { ino: gone }).err(), Some(errno(Errno::ESTALE)));
        }
        bed.check();
    }
}

/// Goal: an evicted client's opens and lanes are gone, the sizes it left uncommitted are found in
/// the chunk files, and its requests are refused.
#[test]
fn eviction_recovers_sizes() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 100);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    let (chunk, _) = layout.chunks().next().unwrap();
    bed.sizes.insert(chunk, 5_000);
    bed.create(OTHER, Ino::ROOT, "g");
    bed.courier_works = false;
    bed.fenced.push(2);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    assert!(bed.call(ME, GetAttr { ino }).unwrap().live.is_some(), "ask the chunks meanwhile");
    bed.courier_works = true;
    bed.run_courier();
    let reply = bed.call(ME, GetAttr { ino }).unwrap();
    assert_eq!((reply.attr.size, reply.live), (5_000, None));
    assert_eq!(bed.call(OTHER, GetAttr { ino }).err(), Some(Status::FENCED));
    bed.check();
}

/// Goal: what an evicted client wrote in the middle of a file no length shows: its change counter moves all the same, so that
/// kernels that have older pages of it drop them at the next open.
#[test]
fn eviction_counts_as_a_change() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 100);
    let before = bed.call(ME, GetAttr { ino }).unwrap().attr;
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    bed.sizes.insert(layout.chunks().next().unwrap().0, 100);
    bed.fenced.push(2);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    bed.run_courier();
    let after = bed.call(ME, GetAttr { ino }).unwrap();
    assert_eq!((after.attr.size, after.attr.mtime, after.live), (100, before.mtime, None));
    assert!(after.attr.change > before.change);
    bed.check();
}

/// Goal: lanes of sessions that ended while the server was away are forgotten at its start.
#[test]
fn sessions_that_ended_meanwhile() {
    let mut bed = Bed::new();
    bed.create(ME, Ino::ROOT, "a");
    bed.create(OTHER, Ino::ROOT, "b");
    bed.fenced.push(2);
    bed.restart(&[1]);
    let count = |bed: &Bed, client| {
        let (from, until) = crate::key::slots_of(ShardId(0), ClientId(client));
        let mut count = 0;
        store::Store::scan(bed.server.store(), &from, &until, &mut |_, _| {
            count += 1;
            true
        })
        .unwrap();
        count
    };
    assert_eq!((count(&bed, 1), count(&bed, 2)), (1, 0));
}

/// Goal: chunks are deleted only after the record is durable, again after a failure, and never
/// forgotten by a crash; the queue is empty in the end.
#[test]
fn deletions_survive_everything() {
    let mut bed = Bed::new();
    let (_, layout) = bed.grown("f", 40 << 20);
    let chunks = layout.chunks().count();
    bed.auto_sync = false;
    bed.send(ME, unlink("f"));
    assert!(bed.tasks.is_empty(), "not durable");
    bed.sync();
    assert!(!bed.tasks.is_empty());
    bed.auto_sync = true;
    bed.down = layout.chunks().map(|(_, target)| target).collect();
    bed.run_courier();
    assert!(bed.deleted.is_empty());
    bed.restart(&[]);
    bed.down.clear();
    for _ in 0..3 {
        let deadline = bed.server.next_deadline().unwrap_or(bed.now);
        bed.tick(deadline.since(bed.now));
    }
    assert_eq!(bed.deleted.len(), chunks);
    let (from, until) = crate::key::table(ShardId(0), crate::key::Table::Deletion);
    store::Store::scan(bed.server.store(), &from, &until, &mut |_, _| panic!("the queue is not empty"))
        .unwrap();
}

/// Goal: a target that is away keeps only its own chunks waiting, in bounded memory, and gets them
/// when it is back.
#[test]
fn a_dead_target_blocks_nobody() {
    let mut bed = Bed::new();
    bed.down.insert(TargetId(1));
    let mut chunks = alloc::collections::BTreeSet::new();
    for n in 0..(crate::limit::DELETIONS_LOADED_MAX / 2) {
        let (_, layout) = bed.grown(&format!("{n}"), 9);
        chunks.extend(layout.chunks().map(|(chunk, target)| (target, chunk)));
        bed.unlink(ME, Ino::ROOT, &format!("{n}")).unwrap();
    }
    for _ in 0..200 {
        let Some(deadline) = bed.server.next_deadline() else { break };
        bed.tick(deadline.since(bed.now));
    }
    let alive = chunks.iter().filter(|(target, _)| *target != TargetId(1));
    assert!(alive.clone().count() > 0 && alive.clone().count() < chunks.len());
    assert!(alive.clone().all(|chunk| bed.deleted.contains(chunk)), "the others are not held up");
    bed.down.clear();
    for _ in 0..200 {
        let Some(deadline) = bed.server.next_deadline() else { break };
        bed.tick(deadline.since(bed.now));
    }
    assert_eq!(bed.deleted, chunks);
    assert_eq!(bed.server.next_deadline(), None, "idle: nothing to wake up for");
}

/// Goal: a request that waits for a target that is away is BUSY after its deadline; repeated, it
/// waits again and is answered when the target is back.
#[test]
fn waits_end() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 100);
    bed.open(OTHER, ino, OpenMode::Read, 1).unwrap();
    bed.down = layout.chunks().map(|(_, target)| target).collect();
    let wish = ChangeAttr { ino, set: SetAttr { size: Some(5), ..SetAttr::default() } };
    let to = bed.send(ME, wish.clone());
    assert!(!bed.replies.contains_key(&to));
    bed.tick(crate::limit::WAIT_DEADLINE_MS + 1);
    assert_eq!(bed.reply::<AttrReply>(to), Some(Err(Status::BUSY)));
    let to = bed.resend(ME, wish);
    assert!(!bed.replies.contains_key(&to));
    bed.down.clear();
    bed.tick(crate::limit::RETRY_LAST_MS);
    assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap().attr.size, 5);
    bed.check();
}

/// Goal: a truncate that a crash interrupted is driven to its end before the file may grow.
#[test]
fn open_trims_go_on_after_a_restart() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 100);
    bed.open(OTHER, ino, OpenMode::Read, 1).unwrap();
    bed.courier_works = false;
    let wish = ChangeAttr { ino, set: SetAttr { size: Some(5), ..SetAttr::default() } };
    bed.send(ME, wish.clone());
    bed.restart(&[]);
    let generation = layout.generation;
    let mtime = bed.wall();
    let grow = Commit {
        ino,
        generation,
        size: 50,
        mtime,
        blocks: None,
        kill_suidgid: false,
        cuts: 2,
        time_sets: 0,
        held: None,
    };
    let grow = bed.send(OTHER, grow);
    let cut = bed.send_as(ME, ShardId(0), 4, wish.into());
    assert!(!bed.replies.contains_key(&grow) && !bed.replies.contains_key(&cut));
    bed.courier_works = true;
    bed.run_courier();
    assert_eq!(bed.reply::<AttrReply>(cut).unwrap().unwrap().attr.size, 5);
    assert_eq!(bed.reply::<AttrReply>(grow).unwrap().unwrap().attr.size, 50);
    bed.check();
}

/// Goal: with the disk nearly full only what frees room goes on.
#[test]
fn low_space() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "a");
    bed.step(Input::LowSpace(true));
    assert_eq!(bed.try_create(ME, Ino::ROOT, "b").err(), Some(errno(Errno::ENOSPC)));
    assert_eq!(bed.write(ino, 0, b"x").err(), Some(errno(Errno::ENOSPC)));
    assert!(bed.truncate(ME, ino, 0).is_ok());
    bed.unlink(ME, Ino::ROOT, "a").unwrap();
    bed.step(Input::LowSpace(false));
    bed.create(ME, Ino::ROOT, "b");
    bed.check();
}

/// Goal: with `sync_always` a change is answered when it is durable, reads at once.
#[test]
fn sync_always() {
    let mut bed = Bed::with(Config { sync_always: true, ..Config::default() }, 1);
    bed.create(ME, Ino::ROOT, "a");
    bed.auto_sync = false;
    let change = bed.send(ME, unlink("a"));
    let again = bed.resend(ME, unlink("a"));
    let read = bed.send(ME, GetAttr { ino: Ino::ROOT });
    assert!(!bed.replies.contains_key(&change) && !bed.replies.contains_key(&again));
    assert!(bed.replies.contains_key(&read));
    bed.sync();
    assert!(bed.replies.contains_key(&change) && bed.replies.contains_key(&again));
}

/// Goal: counters count.
#[test]
fn counters() {
    let mut bed = Bed::new();
    bed.create(ME, Ino::ROOT, "a");
    let _ = bed.lookup(Ino::ROOT, "b");
    let list = bed.call(ME, GroupStats {}).unwrap().counters;
    let value = |text: &str| list.iter().find(|c| c.name == text).map(|c| c.value);
    assert_eq!((value("Create"), value("Lookup"), value("refused")), (Some(1), Some(1), Some(1)));
    assert!(list.windows(2).all(|pair| pair[0].name < pair[1].name));
}

/// Goal: a truncate during the recovery of a size wins: lengths asked for before it mean nothing.
#[test]
fn a_truncate_ends_the_recovery() {
    let mut bed = Bed::new();
    let (ino, layout) = bed.grown("f", 100);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    let (chunk, _) = layout.chunks().next().unwrap();
    bed.sizes.insert(chunk, 5_000);
    bed.courier_works = false;
    bed.fenced.push(2);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    let wish = ChangeAttr { ino, set: SetAttr { size: Some(7), ..SetAttr::default() } };
    bed.send(ME, wish);
    bed.courier_works = true;
    // The oldest task last: the lengths arrive after the truncate is done.
    bed.tasks.rotate_left(1);
    bed.run_courier();
    let reply = bed.call(ME, GetAttr { ino }).unwrap();
    assert_eq!((reply.attr.size, reply.live), (7, None));
    bed.check();
}

/// Goal: the size that an evicted writer left uncommitted is found in the chunk files also when
/// the server was restarted in between, once or in the middle of it, and exactly once.
#[test]
fn eviction_recovers_sizes_over_restarts() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.write(ino, 0, b"inline").unwrap();
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    // Its growth is another client's doing: it counts as a writer all the same.
    let grown = bed.call(ME, Grow { like: None, ino, end: 1 << 20 }).unwrap();
    let (generation, inline_version) = (grown.layout.generation, grown.copy.unwrap().version);
    bed.call(ME, Switch { ino, generation, inline_version, copied: 9 }).unwrap();
    let (chunk, _) = grown.layout.chunks().next().unwrap();
    bed.sizes.insert(chunk, 5_000);
    bed.restart(&[1, 2]);
    assert!(bed.call(ME, GetAttr { ino }).unwrap().live.is_some(), "grace: ask the targets");
    bed.courier_works = false;
    bed.fenced.push(2);
    bed.call(
        ME,
        Reclaim { locks: alloc::vec::Vec::new(), opens: vec![], last: true, term: None, holds: None },
    )
    .unwrap();
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    assert!(bed.call(ME, GetAttr { ino }).unwrap().live.is_some());
    bed.restart(&[1]);
    bed.courier_works = true;
    bed.run_courier();
    bed.call(
        ME,
        Reclaim { locks: alloc::vec::Vec::new(), opens: vec![], last: true, term: None, holds: None },
    )
    .unwrap();
    let reply = bed.call(ME, GetAttr { ino }).unwrap();
    assert_eq!((reply.attr.size, reply.live), (5_000, None));
    bed.check();
    bed.sizes.insert(chunk, 9_000);
    bed.restart(&[1]);
    bed.run_courier();
    assert_eq!(bed.attr(ino).unwrap().size, 5_000, "nobody wrote: nothing to recover");
}

/// Goal: who writes to chunks stands in the rows from the open to the close, and no longer.
#[test]
fn writers_stand_in_the_rows() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 9);
    let rows = |bed: &Bed| {
        let (from, until) = crate::key::table(ShardId(0), crate::key::Table::Writer);
        let mut count = 0;
        let mut count_row = |_: &[u8], _: &[u8]| {
            count += 1;
            true
        };
        store::Store::scan(bed.server.store(), &from, &until, &mut count_row).unwrap();
        count
    };
    bed.open(ME, ino, OpenMode::Read, 1).unwrap();
    bed.close(ME, ino, 2);
    assert_eq!(rows(&bed), 0, "whoever grew it closed it");
    bed.open(ME, ino, OpenMode::ReadWrite, 3).unwrap();
    bed.open(OTHER, ino, OpenMode::Write, 3).unwrap();
    bed.close(ME, ino, 1);
    assert_eq!(rows(&bed), 2);
    bed.close(ME, ino, 4);
    assert_eq!(rows(&bed), 1);
    bed.unlink(ME, Ino::ROOT, "f").unwrap();
    bed.close(OTHER, ino, 4);
    assert_eq!(rows(&bed), 0);
    bed.check();
}

/// Goal: shards that are made together are one line in the log.
#[test]
fn new_shards_are_one_line() {
    let lines = |shards| Bed::with(Config::default(), shards).notes.concat();
    assert_eq!(
        (lines(1), lines(8)),
        ("shard 0 is new: formatted".into(), "8 shards from 0 to 7 are new: formatted".into())
    );
}
