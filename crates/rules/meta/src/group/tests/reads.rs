//! Requests whose rows a disk is to give, while others pass.

use super::*;
use crate::key::{Table, inode, of_ino, writer};
use crate::limit::{Limits, READ_TRIES_MAX, RECOVERY_READS_MAX, WAIT_DEADLINE_MS};
use crate::store::{Store, Wanted};
use alloc::collections::BTreeSet;
use skep_wire::mgmt::NodeEntry;

/// A directory with these files, none of which is in memory, behind a disk that gives nothing.
fn cold(limits: Limits, files: u32) -> (Bed, Ino) {
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    let dir = bed.mkdir(Ino::ROOT, "d");
    for n in 0..files {
        bed.create(ME, dir, &format!("{n}"));
    }
    bed.server.store().forget();
    (bed.forgets, bed.disk_works) = (false, false);
    (bed, dir)
}

fn lookup(parent: Ino, text: &str) -> Lookup {
    Lookup { parent, name: name(text), as_told: None }
}

/// The disk gives what was asked for first.
fn give_one(bed: &mut Bed) -> usize {
    let read = bed.reads.remove(0);
    bed.server.store().bring(&read.wanted);
    bed.step(Input::Read(read.id));
    read.wanted.len()
}

/// Goal: who asks for what is on disk waits, once for each row that the one before names; who asks for something else does
/// not. No record is written, and no sync asked for, on behalf of those who wait.
#[test]
fn a_cold_request_is_passed() {
    let (mut bed, dir) = cold(Limits::default(), 2);
    let cold = bed.send(ME, lookup(dir, "0"));
    let last = bed.last();
    bed.disk_works = true;
    bed.reads.clear();
    bed.lookup(dir, "1").unwrap();
    bed.disk_works = false;
    for _ in 0..100 {
        bed.lookup(dir, "1").unwrap();
    }
    assert!(!bed.replies.contains_key(&cold) && bed.last() == last);
    let mut again = 0;
    let asked = bed.send(OTHER, lookup(dir, "0"));
    while !bed.replies.contains_key(&asked) {
        give_one(&mut bed);
        again += 1;
    }
    assert_eq!(again, 2, "its entry, its inode");
    assert!(!bed.replies.contains_key(&cold), "what it waits for was dropped by the bench");
}

/// Goal: a listing asks for its range, and then for all of its inodes together.
#[test]
fn a_listing_waits_twice() {
    let (mut bed, dir) = cold(Limits::default(), 50);
    bed.server.store().bring(&[Wanted::Row(inode(dir))]);
    let list = bed.send(ME, List { dir, after: 0, max: 100, with_attr: true, as_told: None });
    assert_eq!([give_one(&mut bed), give_one(&mut bed)], [1, 50]);
    let entries = bed.reply::<ListReply>(list).unwrap().unwrap().entries;
    assert_eq!(entries.iter().filter(|entry| entry.attr.is_some()).count(), 50);
}

/// Goal: a changing request that waits is done once, however often it came meanwhile, and a lane that has gone on without
/// it is not set back.
#[test]
fn a_lane_does_once_what_waits() {
    let (mut bed, dir) = cold(Limits::default(), 3);
    let unlink = |text| Unlink { parent: dir, name: name(text) };
    let first = bed.send(ME, unlink("0"));
    let again = bed.resend(ME, unlink("0"));
    let before = bed.last();
    bed.disk_works = true;
    bed.run_disk();
    assert!(bed.reply::<Empty>(first).unwrap().is_ok() && bed.reply::<Empty>(again).unwrap().is_ok());
    assert_eq!(bed.last().0, before.0 + 1, "done once");
    bed.server.store().forget();
    bed.disk_works = false;
    let older = bed.send(OTHER, unlink("1"));
    let left = core::mem::take(&mut bed.reads);
    bed.disk_works = true;
    bed.call(OTHER, unlink("2")).unwrap();
    bed.reads = left;
    bed.run_disk();
    assert_eq!(bed.reply::<Empty>(older), Some(Err(Status::OLD_SEQUENCE)));
    assert!(bed.lookup(dir, "1").is_ok());
    bed.check();
}

/// Goal: a request that waits goes with its connection, and after a time it is told to come again.
#[test]
fn who_waits_for_a_disk_may_go() {
    let (mut bed, dir) = cold(Limits::default(), 2);
    let gone = bed.send(ME, Unlink { parent: dir, name: name("0") });
    let late = bed.send(OTHER, lookup(dir, "0"));
    bed.step(Input::Gone(gone));
    bed.tick(WAIT_DEADLINE_MS + 1);
    assert_eq!(bed.reply::<EntryReply>(late), Some(Err(Status::BUSY)));
    bed.disk_works = true;
    bed.run_disk();
    assert!(!bed.replies.contains_key(&gone));
    assert!(bed.lookup(dir, "0").is_ok());
}

/// Goal: what a request that is gone waited for is not read, whether its connection, its time or its term ended, and another
/// one waits in its place.
#[test]
fn reads_of_requests_that_are_gone_are_given_up() {
    let (mut bed, dir) = cold(Limits { reads: 1, ..Limits::default() }, 3);
    let gone = bed.send(ME, lookup(dir, "0"));
    assert_eq!(bed.reads.len(), 1);
    bed.step(Input::Gone(gone));
    assert!(bed.reads.is_empty(), "its connection ended");
    let late = bed.send(ME, lookup(dir, "1"));
    assert!(!bed.replies.contains_key(&late) && bed.reads.len() == 1, "in its place");
    bed.tick(WAIT_DEADLINE_MS + 1);
    assert_eq!(bed.reply::<EntryReply>(late), Some(Err(Status::BUSY)));
    assert!(bed.reads.is_empty(), "its time is over");
    let cut = bed.send(ME, lookup(dir, "2"));
    assert!(!bed.replies.contains_key(&cut) && bed.reads.len() == 1);
    bed.restart_term(ShardId(0));
    assert_eq!(bed.reply::<EntryReply>(cut), Some(Err(Status::NOT_READY)));
    assert!(bed.reads.is_empty(), "its term ended");
    assert!(bed.server.host.held.is_empty(), "{:?}", bed.server.host.held);
}

/// Goal: a request that waits for one row after the other waits for all of them no longer than for one.
#[test]
fn all_waits_of_a_request_end_together() {
    let (mut bed, dir) = cold(Limits::default(), 1);
    let asked = bed.send(ME, lookup(dir, "0"));
    bed.tick(WAIT_DEADLINE_MS - 1_000);
    // What was read is gone again.
    let read = bed.reads.remove(0);
    bed.step(Input::Read(read.id));
    assert!(!bed.replies.contains_key(&asked) && bed.reads.len() == 1);
    bed.tick(1_000);
    assert_eq!(bed.reply::<EntryReply>(asked), Some(Err(Status::BUSY)));
}

/// Goal: with as many requests waiting as may, the next one reads in place; so does one whose rows are always gone again
/// before it is run.
#[test]
fn waiting_for_rows_has_bounds() {
    let (mut bed, dir) = cold(Limits { reads: 2, ..Limits::default() }, 3);
    let asked: vec::Vec<u64> = (0..3).map(|n| bed.send(ME, lookup(dir, &format!("{n}")))).collect();
    let answered: vec::Vec<bool> = asked.iter().map(|to| bed.replies.contains_key(to)).collect();
    assert_eq!(answered, [false, false, true]);
    let tries = (0..1_000).take_while(|_| {
        if let Some(read) = (!bed.reads.is_empty()).then(|| bed.reads.remove(0)) {
            bed.step(Input::Read(read.id));
        }
        !bed.replies.contains_key(&asked[0])
    });
    assert_eq!(tries.count(), 2 * usize::from(READ_TRIES_MAX) - 2, "two of them, one after the other");
    let counters = bed.call(ME, GroupStats {}).unwrap().counters;
    let counted = |name: &str| counters.iter().find(|counter| counter.name == name).unwrap().value;
    assert!(counted("held_back") >= 2 * u64::from(READ_TRIES_MAX) && counted("rows_read_ahead") > 0);
}

/// Goal: a run that is broken off for rows takes nothing: where targets are taken in turn, files whose rows are cold get
/// one after the other.
#[test]
fn a_run_that_is_broken_off_takes_no_turn() {
    let config = Config { chooser: Chooser::RoundRobin, stripe_targets: 1, ..Config::default() };
    let mut bed = Bed::with(config, 1);
    let mut taken: vec::Vec<TargetId> = vec![];
    for n in 0..4 {
        let ino = bed.create(ME, Ino::ROOT, &format!("f{n}"));
        let layout = bed.call(ME, Grow { like: None, ino, end: 1 }).unwrap().layout;
        taken.push(layout.extents[0].stripes[0].first());
    }
    let follow = |pair: &[TargetId]| pair[1].0 == pair[0].0 + 1 || pair[1].0 < pair[0].0;
    assert!(bed.forgets && taken.windows(2).all(follow), "{taken:?}");
    let different: BTreeSet<TargetId> = taken[..3].iter().copied().collect();
    assert_eq!(different.len(), 3, "{taken:?}");
}

/// The root is in memory, and who asks for it is answered at once.
fn others_pass(bed: &mut Bed) {
    let ino = Ino::ROOT;
    bed.server.store().bring(&[Wanted::Row(inode(ino))]);
    for _ in 0..10 {
        bed.call(ME, GetAttr { ino }).unwrap();
    }
}

/// Goal: where directories are dealt to shards, one that is made in a directory whose row is on disk waits as any other
/// request, and the others pass.
#[test]
fn a_directory_waits_for_its_parent() {
    let (mut bed, dir) = cold(Limits::default(), 0);
    let mut two = map(2, 5);
    let own = two.nodes[0].clone();
    two.nodes.push(NodeEntry { node: NodeId(9), reachability: Reachability::Offline, ..own });
    (two.version, two.shards[1].leader) = (MapVersion(2), NodeId(9));
    bed.step(Input::Map { own: OWN, map: two });
    bed.server.store().take_read_in_place();
    let made = bed.send(OTHER, node(dir, "sub", Kind::Dir));
    assert_eq!(bed.server.store().take_read_in_place(), 0, "everybody waited for a disk");
    assert_eq!(bed.reads[0].wanted, [Wanted::Row(inode(dir))]);
    others_pass(&mut bed);
    assert!(!bed.replies.contains_key(&made));
    bed.disk_works = true;
    bed.run_disk();
    assert!(bed.reply::<EntryReply>(made).unwrap().is_ok());
    bed.check();
}

/// Goal: what a client has open is taken back after a restart without others waiting for a disk: its rows are read in parts,
/// the report is taken as a whole when all are there, and what the client tells meanwhile is taken behind it.
#[test]
fn a_report_waits_for_its_rows() {
    let limits = Limits { report_rows: 2, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    let mut opens = vec![];
    for n in 1..=3 {
        let (ino, mode) = (bed.grown(&format!("{n}"), 9).0, OpenMode::Write);
        bed.open(OTHER, ino, mode, n).unwrap();
        opens.push(Reclaimed { ino, mode, open_seq: n, reserved: 0 });
    }
    let [locked, closed] = [opens[0].ino, opens[2].ino];
    bed.restart(&[1, 2]);
    bed.server.store().forget();
    (bed.forgets, bed.disk_works) = (false, false);
    bed.server.store().take_read_in_place();
    let last = bed.last();
    let locks =
        vec![ReclaimedLock { ino: locked, lock: super::locking::set(locked, 1, None, 6).lock, order: 6 }];
    let report = |opens, locks, last| Reclaim { opens, locks, last, term: None, holds: None };
    let told = [
        bed.send(OTHER, report(opens, vec![], false)),
        bed.send(OTHER, report(vec![], locks, true)),
        bed.send(OTHER, Close { opens: vec![Closed { ino: closed, open_seq: 9 }] }),
    ];
    others_pass(&mut bed);
    assert_eq!(bed.server.store().take_read_in_place(), 0, "everybody waited for a disk");
    assert!(told.iter().all(|to| !bed.replies.contains_key(to)));
    assert_eq!((bed.last(), bed.server.host.opens.all(), bed.reads.len()), (last, 0, 1), "no effect yet");
    let mut parts = vec![];
    while !bed.replies.contains_key(&told[2]) {
        parts.push(give_one(&mut bed));
    }
    assert_eq!(parts, [2, 1], "the lock is on a file that is in memory by then");
    assert!(told.iter().all(|to| bed.replies[to].1.is_ok()));
    assert_eq!((bed.server.host.opens.all(), bed.server.host.load.locks), (2, 1));
    let writes = |ino| bed.server.store().get(&writer(ino, ClientId(2))).unwrap().is_some();
    assert!(writes(locked) && !writes(closed), "its close came first");
    bed.check();
}

/// Goal: a part of a report whose connection ends takes no rows away from the parts behind it; one that has waited too long
/// takes those parts with it, which would come too early. A report of many parts has more time than a single wait.
#[test]
fn parts_of_a_report_stand_behind_each_other() {
    let start = || {
        let limits = Limits { report_rows: 2, waits_over: 1, ..Limits::default() };
        let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
        let mut opens = vec![];
        for n in 1..=8 {
            let (ino, mode) = (bed.grown(&format!("{n}"), 9).0, OpenMode::Write);
            bed.open(OTHER, ino, mode, n).unwrap();
            opens.push(Reclaimed { ino, mode, open_seq: n, reserved: 0 });
        }
        bed.restart(&[1, 2]);
        bed.server.store().forget();
        (bed.forgets, bed.disk_works) = (false, false);
        let part = |last| Reclaim { opens: opens.clone(), locks: vec![], last, term: None, holds: None };
        let first = bed.send(OTHER, part(false));
        (bed, first, part(true))
    };
    let is_told = |bed: &Bed, to: u64| bed.replies.get(&to).map(|reply| reply.1.is_ok());

    let (mut bed, first, last) = start();
    let second = bed.send(OTHER, last);
    bed.step(Input::Gone(first));
    while is_told(&bed, second).is_none() {
        give_one(&mut bed);
        bed.tick(WAIT_DEADLINE_MS / 2);
    }
    assert_eq!((is_told(&bed, first), is_told(&bed, second)), (None, Some(true)));
    assert_eq!(bed.server.host.opens.all(), 8);

    let (mut bed, first, last) = start();
    bed.tick(WAIT_DEADLINE_MS / 2);
    let second = bed.send(OTHER, last);
    bed.tick(WAIT_DEADLINE_MS / 2 + 1);
    assert_eq!(
        (is_told(&bed, first), is_told(&bed, second)),
        (None, Some(false)),
        "what is behind goes first"
    );
    bed.tick(0);
    assert_eq!((is_told(&bed, first), is_told(&bed, second)), (Some(false), Some(false)));
}

/// Goal: however many requests have waited too long, a step gives up so many and no more, the rest is due at once, and their
/// reads are given up with them.
#[test]
fn waits_end_in_parts() {
    let (mut bed, dir) = cold(Limits { waits_over: 3, ..Limits::default() }, 10);
    let asked: vec::Vec<u64> = (0..10).map(|n| bed.send(ME, lookup(dir, &format!("{n}")))).collect();
    bed.now.0 += WAIT_DEADLINE_MS;
    let mut ended = vec![];
    while bed.server.next_deadline().is_some_and(|at| at <= bed.now) {
        bed.tick(0);
        ended.push(asked.iter().filter(|to| bed.replies.contains_key(to)).count());
        assert_eq!(bed.server.host.load.waits, 10 - ended.last().unwrap());
    }
    assert_eq!(ended, [3, 6, 9, 10]);
    assert!(bed.reads.is_empty() && asked.iter().all(|to| bed.replies[to].1.is_err()));
}

/// Files for whose sizes targets are asked.
fn asked_sizes(bed: &Bed) -> usize {
    let of = |task: &Task| match &task.job {
        Job::Stat { chunks, .. } => Some(chunks[0].ino),
        _ => None,
    };
    bed.tasks.iter().filter_map(of).collect::<BTreeSet<Ino>>().len()
}

/// Goal: the end of a session that wrote to many files asks for their sizes in small steps, and for none of them do others
/// wait for a disk: rows that are not in memory are read a few at a time.
#[test]
fn many_recoveries_begin_in_small_steps() {
    for is_cold in [false, true] {
        let limits = Limits { resumed_per_step: 3, ..Limits::default() };
        let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
        bed.forgets = false;
        let files: vec::Vec<Ino> = (0..20).map(|n| bed.grown(&format!("{n}"), 9).0).collect();
        for (n, ino) in files.iter().enumerate() {
            bed.open(OTHER, *ino, OpenMode::Write, n as u64 + 1).unwrap();
        }
        (bed.works_off, bed.courier_works, bed.disk_works) = (false, false, !is_cold);
        bed.server.store().forget();
        if !is_cold {
            let rows = |ino: &Ino| [Table::Trim, Table::Inode].map(|of| Wanted::Row(of_ino(of, *ino)));
            bed.server.store().bring(&files.iter().flat_map(rows).collect::<vec::Vec<_>>());
        }
        bed.fenced.push(OTHER.client);
        let fences = bed.fences(&[1]);
        bed.step(Input::Fences(fences));
        let mut before = asked_sizes(&bed);
        while bed.server.next_deadline() == Some(Millis(0)) {
            bed.tick(0);
            // The bench makes the log durable after each step, which is a step too.
            assert!(asked_sizes(&bed) - before <= 6, "{} of {before} at once", asked_sizes(&bed) - before);
            before = asked_sizes(&bed);
        }
        if is_cold {
            assert_eq!((before, bed.reads.len()), (0, RECOVERY_READS_MAX));
            others_pass(&mut bed);
        }
        (bed.works_off, bed.courier_works, bed.disk_works) = (true, true, true);
        bed.run_disk();
        bed.run_courier();
        bed.tick(0);
        let writes = |ino: &Ino| bed.server.store().get(&writer(*ino, ClientId(2))).unwrap();
        assert!(files.iter().all(|ino| writes(ino).is_none()), "its sizes are known");
        bed.check();
    }
}

/// Goal: where requests keep all their places at the disk, the sizes of a session that ended are recovered all the same, and
/// not one of them makes others wait for a disk. Shards take turns at the places of recoveries, and nothing is due while there
/// is none.
#[test]
fn recoveries_have_places_of_their_own() {
    let limits = Limits { reads: 1, recovery_reads: 1, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 2);
    let far = bed.admin(super::transactions::on("far", 1)).unwrap().ino;
    let mut files = vec![];
    for (n, dir) in (1..).zip([Ino::ROOT, Ino::ROOT, far, far]) {
        let ino = bed.create(ME, dir, &format!("f{n}"));
        bed.call(ME, Grow { like: None, ino, end: 9 }).unwrap();
        bed.open(OTHER, ino, OpenMode::Write, n).unwrap();
        files.push(ino);
    }
    bed.server.store().forget();
    (bed.forgets, bed.disk_works, bed.courier_works) = (false, false, false);
    let asked = bed.send(ME, lookup(Ino::ROOT, "f1"));
    bed.fenced.push(OTHER.client);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    let mut turns: vec::Vec<u8> = vec![];
    while bed.reads.len() > 1 {
        assert!(bed.reads.len() == 2 && bed.server.next_deadline() != Some(Millis(0)));
        let read = bed.reads.remove(1);
        assert_eq!(asked_sizes(&bed), turns.len(), "only of what was read aside");
        let Wanted::Row(key) = &read.wanted[0] else { panic!("{read:?}") };
        turns.push(key[1]);
        bed.server.store().bring(&read.wanted);
        bed.step(Input::Read(read.id));
    }
    assert!(turns == [0, 1, 0, 1] || turns == [1, 0, 1, 0], "{turns:?}");
    bed.courier_works = true;
    bed.run_courier();
    let writes = |ino: &Ino| bed.server.store().get(&writer(*ino, ClientId(2))).unwrap();
    assert!(files.iter().all(|ino| writes(ino).is_none()), "its sizes are known");
    assert!(!bed.replies.contains_key(&asked) && bed.reads.len() == 1);
    bed.check();
}
