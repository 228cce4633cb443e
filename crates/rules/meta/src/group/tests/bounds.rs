//! No step is unbounded, and no limit loses what goes beyond it.

use super::*;
use crate::key::Table;
use crate::limit::{Limits, TERM_ROWS_PER_STEP};
use crate::store::{Batch, MemoryStore, Store};
use crate::testing::{ME, OTHER};
use skep_wire::mgmt::MapReply;

const NOBODY: Who = Who { client: 3, slot: 0 };

fn tiny() -> Config {
    let limits =
        Limits { chores_per_step: 2, chore_looks: 3, purge_batch: 4, recoveries: 1, ..Limits::default() };
    Config { limits, ..Config::default() }
}

/// Orphans that only `who` has open.
fn orphans(bed: &mut Bed, who: Who, count: u64) {
    for n in 0..count {
        let ino = bed.create(who, Ino::ROOT, &format!("orphan{n}"));
        bed.open(who, ino, OpenMode::Read, n + 1).unwrap();
        bed.unlink(ME, Ino::ROOT, &format!("orphan{n}")).unwrap();
    }
}

fn rows(bed: &Bed, table: Table) -> usize {
    let (from, until) = crate::key::table(ShardId(0), table);
    let mut count = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        true
    };
    store::Store::scan(bed.server.store(), &from, &until, visit).unwrap();
    count
}

/// Most records that one tick wrote until nothing was left to do.
fn work_off(bed: &mut Bed) -> usize {
    let mut most = 0;
    for _ in 0..1_000 {
        if bed.server.next_deadline() != Some(Millis(0)) {
            return most;
        }
        let before = bed.log.len();
        bed.tick(0);
        most = most.max(bed.log.len() - before);
    }
    panic!("it never ends");
}

/// Goal: the end of a session and the end of a grace period write a few records in each step, however much
/// there is to do, and nothing is forgotten; a restart in the middle finds the rest.
#[test]
fn ends_of_sessions_and_of_grace_come_in_small_steps() {
    let mut bed = Bed::with(tiny(), 3);
    bed.works_off = false;
    orphans(&mut bed, OTHER, 50);
    bed.fenced.push(OTHER.client);
    let (fences, before) = (bed.fences(&[1]), bed.log.len());
    bed.step(Input::Fences(fences));
    assert!(bed.log.len() - before <= 2, "{} records in the step of the fence list", bed.log.len() - before);
    // A deletion may be confirmed beside them.
    assert!(work_off(&mut bed) <= 3);
    assert_eq!(rows(&bed, Table::Orphan), 0);
    bed.check();

    orphans(&mut bed, NOBODY, 50);
    bed.fenced.push(NOBODY.client);
    bed.restart(&[1]);
    for shard in 0..3 {
        let last = Reclaim { locks: vec![], opens: vec![], last: true, term: None, holds: None };
        bed.send_as(ME, ShardId(shard), 1_000, last.into());
    }
    while rows(&bed, Table::Orphan) == 50 {
        assert_eq!(bed.server.next_deadline(), Some(Millis(0)));
        bed.tick(0);
    }
    assert!((1..50).contains(&rows(&bed, Table::Orphan)), "it is under way");
    bed.restart(&[]);
    assert!(work_off(&mut bed) <= 3);
    assert_eq!(rows(&bed, Table::Orphan), 0);
    bed.check();
}

/// Goal: sizes that find no room to be recovered at once are recovered later, and until then the files count
/// as written by others.
#[test]
fn recoveries_queue() {
    let mut bed = Bed::with(tiny(), 1);
    let mut files = vec![];
    for n in 0..5 {
        let (ino, layout) = bed.grown(&format!("{n}"), 9);
        bed.open(OTHER, ino, OpenMode::Write, n + 1).unwrap();
        bed.sizes.insert(layout.chunks().next().unwrap().0, 100 + n);
        files.push(ino);
    }
    bed.courier_works = false;
    bed.fenced.push(OTHER.client);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    for ino in &files {
        assert!(bed.call(ME, GetAttr { ino: *ino }).unwrap().live.is_some(), "its size is not settled");
    }
    bed.courier_works = true;
    bed.run_courier();
    for (n, ino) in files.iter().enumerate() {
        let reply = bed.call(ME, GetAttr { ino: *ino }).unwrap();
        assert_eq!((reply.attr.size, reply.live), (100 + n as u64, None), "file {n}");
    }
    bed.check();
}

/// Goal: a size that is recovered replaces no time that was given: it may be newer than what was written.
#[test]
fn a_recovered_size_keeps_a_given_time() {
    let given = Timestamp { secs: 7, nanos: 7 };
    for gives in [true, false] {
        let mut bed = Bed::new();
        let (ino, layout) = bed.grown("f", 9);
        bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
        bed.sizes.insert(layout.chunks().next().unwrap().0, 5_000);
        let mtime = gives.then_some(SetTime::At(given));
        let before =
            bed.call(ME, ChangeAttr { ino, set: SetAttr { mtime, ..SetAttr::default() } }).unwrap().attr;
        bed.now.0 += 1_000;
        bed.fenced.push(OTHER.client);
        let fences = bed.fences(&[1]);
        bed.step(Input::Fences(fences));
        bed.run_courier();
        let after = bed.call(ME, GetAttr { ino }).unwrap().attr;
        assert_eq!((before.size, after.size), (9, 5_000));
        assert_eq!(after.mtime == given, gives, "{after:?}");
        assert!(after.ctime > before.ctime);
    }
}

/// Goal: no target is told of a truncate before the truncate's own record is durable, also when an older one
/// of the same file becomes durable first.
#[test]
fn a_trim_waits_for_its_own_record() {
    let mut bed = Bed::new();
    let (ino, _) = bed.grown("f", 1 << 20);
    bed.open(ME, ino, OpenMode::Write, 1).unwrap();
    (bed.auto_sync, bed.courier_works) = (false, false);
    bed.tasks.clear();
    let set = SetAttr { size: Some(100), ..SetAttr::default() };
    bed.send(ME, ChangeAttr { ino, set });
    let first = bed.server.last_seq();
    // The same client empties the file, which ends that truncate, and makes it grow and cuts it once more.
    bed.send(ME, ChangeAttr { ino, set: SetAttr { size: Some(0), ..SetAttr::default() } });
    bed.send(ME, Grow { like: None, ino, end: 1 << 20 });
    let set = SetAttr { size: Some(50), ..SetAttr::default() };
    bed.send(ME, ChangeAttr { ino, set });
    let second = bed.server.last_seq();
    let trims = |bed: &Bed| bed.tasks.iter().filter(|task| matches!(task.job, Job::Trim { .. })).count();
    assert!(rows(&bed, Table::Trim) == 1 && second.0 >= first.0 + 3, "{first} {second}");
    bed.step(Input::Durable(first));
    assert_eq!(trims(&bed), 0, "a trim whose record may be lost was sent");
    bed.step(Input::Durable(second));
    assert!(trims(&bed) > 0);
}

/// Goal: a truncate that makes a file longer leaves what is reserved on its targets, one that does not frees it.
#[test]
fn longer_files_keep_what_is_reserved() {
    for (size, keeps) in [((1 << 20) + 1, true), (1 << 20, false), (100, false)] {
        let mut bed = Bed::new();
        let (ino, _) = bed.grown("f", 1 << 20);
        bed.open(ME, ino, OpenMode::Write, 1).unwrap();
        bed.truncate(ME, ino, 1 << 20).unwrap();
        bed.courier_works = false;
        bed.tasks.clear();
        bed.truncate_later(ino, size);
        let told = |job: &Job| matches!(job, Job::Trim { keeps_reserved, .. } if *keeps_reserved == keeps);
        assert!(!bed.tasks.is_empty() && bed.tasks.iter().all(|task| told(&task.job)), "{size}");
    }
}

/// Goal: of the lanes that are remembered the oldest go, whoever they belong to.
#[test]
fn lanes_are_forgotten_by_age() {
    let limits = Limits { remembered: 2, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    let lanes = [9, 5, 1].map(|client| Who { client, slot: 0 });
    for who in lanes {
        assert_eq!(bed.unlink(who, Ino::ROOT, "f"), Err(errno(Errno::ENOENT)));
    }
    bed.create(Who { client: 4, slot: 0 }, Ino::ROOT, "f");
    let again = |bed: &mut Bed, who| {
        let to = bed.resend(who, Unlink { parent: Ino::ROOT, name: name("f") });
        bed.reply::<Empty>(to).unwrap().err()
    };
    assert_eq!(again(&mut bed, lanes[1]), Some(errno(Errno::ENOENT)), "the same answer as before");
    assert_eq!(again(&mut bed, lanes[2]), Some(errno(Errno::ENOENT)));
    assert_eq!(again(&mut bed, lanes[0]), None, "the oldest is a new request");
}

/// Goal: what waited for one record is answered a few at a time, and all of it.
#[test]
fn what_waited_comes_in_small_steps() {
    let limits = Limits { resumed_per_step: 4, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    bed.works_off = false;
    bed.forgets = false;
    let (ino, _) = bed.grown("f", 1 << 20);
    bed.open(OTHER, ino, OpenMode::Write, 1).unwrap();
    bed.courier_works = false;
    bed.truncate_later(ino, 100);
    let asked: vec::Vec<u64> =
        (1..=20).map(|slot| bed.send(Who { client: 1, slot }, GetAttr { ino })).collect();
    assert!(asked.iter().all(|to| !bed.replies.contains_key(to)), "they wait for the truncate");
    let answered = |bed: &Bed| asked.iter().filter(|to| bed.replies.contains_key(to)).count();
    bed.courier_works = true;
    bed.run_courier();
    let mut last = answered(&bed);
    assert!(last < 20);
    for _ in 0..20 {
        bed.tick(0);
        // The bench makes the log durable after each step, which is a step too.
        assert!(answered(&bed) - last <= 8);
        last = answered(&bed);
    }
    assert_eq!(last, 20);
}

/// Goal: the files open on one server have a bound; whoever meets it is told what to change.
#[test]
fn opens_of_a_server_are_bounded() {
    let mut bed = Bed::with(Config { opens: 2, ..Config::default() }, 1);
    let ino = bed.create(ME, Ino::ROOT, "f");
    for client in [1, 2] {
        bed.open(Who { client, slot: 0 }, ino, OpenMode::Read, 1).unwrap();
    }
    let wish =
        Open { ino, mode: OpenMode::Read, truncate: false, shared: false, kill_suidgid: false, open_seq: 1 };
    let to = bed.send(NOBODY, wish.clone());
    let refusal = bed.replies[&to].1.clone().unwrap_err();
    assert_eq!(refusal.status, errno(Errno::ENFILE));
    assert!(refusal.detail.contains("max_opens in metad.toml"), "{}", refusal.detail);
    bed.close(ME, ino, 2);
    bed.call(NOBODY, wish).unwrap();
}

/// Goal: records carry the command level in force, not the highest that this release knows.
#[test]
fn records_carry_the_level_in_force() {
    let mut bed = Bed::new();
    let mut older = map(1, 5);
    (older.version, older.command_level) = (MapVersion(2), 0);
    bed.step(Input::Map { own: OWN, map: older });
    bed.create(ME, Ino::ROOT, "f");
    let record = bed.log.last().unwrap();
    assert_eq!(Command::decode(&record.bytes, record.shard, record.index).unwrap().level, 0);
}

/// Goal: who has no session can have nothing open. What was open before is taken back whatever the limit is by now, and
/// counts; new opens are refused beyond it.
#[test]
fn opens_belong_to_sessions() {
    let mut bed = Bed::with(Config { opens_per_client: 2, ..Config::default() }, 1);
    let ino = bed.create(ME, Ino::ROOT, "f");
    let wish =
        Open { ino, mode: OpenMode::Read, truncate: false, shared: false, kill_suidgid: false, open_seq: 1 };
    assert_eq!(bed.admin(wish.clone()).err(), Some(Status::ROLE));
    let open = |n| Reclaimed { reserved: 0, ino: Ino(n), mode: OpenMode::Read, open_seq: 1 };
    let opens = vec![open(5), open(6), open(7)];
    let many = Reclaim { locks: vec![], opens, last: true, term: None, holds: None };
    for _ in 0..2 {
        assert!(bed.call(ME, many.clone()).is_ok(), "a limit that was lowered takes nothing away");
    }
    assert_eq!(bed.call(ME, wish.clone()).err(), Some(errno(Errno::ENFILE)), "that is a new one");
    bed.close(ME, Ino(5), 2);
    bed.close(ME, Ino(6), 2);
    assert!(bed.call(ME, wish).is_ok());
}

/// Goal: a client whose session is newer than the list is waited for in grace also when no more sessions are served: nobody
/// said that it has ended, and its files are not given up.
#[test]
fn a_full_server_gives_up_no_files() {
    let mut bed = Bed::new();
    let ino = bed.create(ME, Ino::ROOT, "f");
    let newcomer = Who { client: crate::limit::SESSIONS_MAX as u64 + 9, slot: 0 };
    bed.open(newcomer, ino, OpenMode::Write, 1).unwrap();
    bed.unlink(ME, Ino::ROOT, "f").unwrap();
    let living: alloc::vec::Vec<u64> = (1..=crate::limit::SESSIONS_MAX as u64).collect();
    bed.restart(&living);
    bed.report(ME);
    bed.tick(1_000);
    assert!(bed.attr(ino).is_ok(), "it was purged");
    let opens = vec![Reclaimed { reserved: 0, ino, mode: OpenMode::Write, open_seq: 1 }];
    bed.call(newcomer, Reclaim { locks: vec![], opens, last: true, term: None, holds: None }).unwrap();
    bed.tick(1_000);
    assert!(bed.attr(ino).is_ok());
    bed.close(newcomer, ino, 2);
    bed.tick(1_000);
    assert_eq!(bed.attr(ino).err(), Some(errno(Errno::ESTALE)));
    bed.check();
}

/// Goal: the locks of a session that ends go in parts, also while there is no room for rows, and whoever waits for the last of
/// them gets it.
#[test]
fn locks_of_an_ended_session_go_in_parts() {
    let mut bed = Bed::with(tiny(), 1);
    let files: vec::Vec<Ino> = (0..10).map(|n| bed.create(OTHER, Ino::ROOT, &format!("{n}"))).collect();
    for (n, ino) in files.iter().enumerate() {
        bed.open(OTHER, *ino, OpenMode::Write, n as u64 + 1).unwrap();
        let set = super::locking::set(*ino, 1, None, 1);
        assert_eq!(bed.call(OTHER, set).unwrap().state, LockState::Done);
    }
    bed.open(ME, files[9], OpenMode::Write, 1).unwrap();
    let wish = super::locking::set(files[9], 2, Some(70), 1);
    assert_eq!(bed.call(ME, wish).unwrap().state, LockState::Waits);
    bed.works_off = false;
    bed.server.hold_chores(true);
    bed.fenced.push(OTHER.client);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    assert_eq!(bed.server.host.load.locks, 7, "three files");
    while bed.server.next_deadline() == Some(Millis(0)) {
        let before = bed.server.host.load.locks;
        bed.tick(0);
        // Two chores of three files each; and one lock is given.
        assert!(before - bed.server.host.load.locks <= 6);
    }
    let load = bed.server.host.load;
    assert_eq!((load.locks, load.lock_waits), (1, 0), "the lock that was waited for");
    assert_eq!(bed.server.host.opens.of(ClientId(OTHER.client)), 10, "rows must wait");
}

/// Goal: a fence list that ends thousands of sessions tells the shards of them in parts.
#[test]
fn many_sessions_end_in_parts() {
    let mut bed = Bed::with(Config::default(), 3);
    let last = Who { client: 3_000, slot: 0 };
    let living: vec::Vec<u64> = (1..=last.client).collect();
    let fences = bed.fences(&living);
    bed.step(Input::Fences(fences));
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.open(last, ino, OpenMode::Write, 1).unwrap();
    bed.works_off = false;
    bed.fenced.push(last.client);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    assert_eq!(bed.server.ended.len(), 2_999 - crate::limit::SHARDS_TOLD_PER_STEP / 3);
    let to = bed.send(last, GetAttr { ino });
    assert_eq!(bed.reply::<AttrReply>(to).unwrap().unwrap_err(), Status::FENCED, "at once");
    assert_eq!(bed.server.host.opens.of(ClientId(last.client)), 1);
    bed.works_off = true;
    bed.tick(0);
    assert_eq!(bed.server.host.opens.of(ClientId(last.client)), 0);
    bed.check();
}

/// Goal: what a sync lets begin begins in parts: truncates are told to targets a few in each step, and all of them.
#[test]
fn what_is_durable_begins_in_parts() {
    let limits = Limits { resumed_per_step: 2, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    let files: vec::Vec<Ino> = (0..7).map(|n| bed.grown(&format!("{n}"), 9).0).collect();
    for (n, ino) in files.iter().enumerate() {
        bed.open(OTHER, *ino, OpenMode::Write, n as u64 + 1).unwrap();
    }
    (bed.auto_sync, bed.courier_works, bed.works_off) = (false, false, false);
    bed.tasks.clear();
    for ino in &files {
        bed.truncate_later(*ino, 3);
    }
    let told = |bed: &Bed| {
        let trims = bed.tasks.iter().filter_map(|task| match &task.job {
            Job::Trim { chunk, .. } => Some(chunk.ino),
            _ => None,
        });
        trims.collect::<alloc::collections::BTreeSet<_>>().len()
    };
    assert_eq!(told(&bed), 0);
    bed.sync();
    let mut before = told(&bed);
    // Two begin at once, and two more with what became possible in that step.
    assert!((1..=4).contains(&before), "{before}");
    while bed.server.next_deadline() == Some(Millis(0)) {
        bed.tick(0);
        assert!(told(&bed) - before <= 2);
        before = told(&bed);
    }
    assert_eq!(before, 7);
}

/// Goal: rows of the deletion queue that find no room in memory are looked for in parts; the look ends, and all go in the end.
#[test]
fn the_deletion_queue_is_looked_over_in_parts() {
    let limits = Limits { deletions_loaded: 1, deletion_looks: 2, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    for n in 0..9 {
        bed.grown(&format!("{n}"), 9);
    }
    bed.down.extend((0..9).map(TargetId));
    for n in 0..9 {
        bed.unlink(ME, Ino::ROOT, &format!("{n}")).unwrap();
    }
    let left = |bed: &Bed| rows(bed, Table::Deletion);
    for _ in 0..4 {
        bed.tick(crate::limit::RESCAN_MS);
    }
    assert_eq!(left(&bed), 9);
    bed.down.clear();
    for _ in 0..40 {
        bed.tick(crate::limit::RESCAN_MS);
    }
    assert_eq!(left(&bed), 0);
    bed.check();
}

/// Goal: the end of a session deletes the rows of all its lanes with one command, so there are not more than a mount has.
#[test]
fn lanes_of_a_session_are_bounded() {
    let mut bed = Bed::new();
    for (slot, refused) in [(255, None), (256, Some(Status::MALFORMED))] {
        let made = bed.try_create(Who { client: 1, slot }, Ino::ROOT, &format!("{slot}"));
        assert_eq!(made.err(), refused);
    }
}

/// Goal: a participant whose term begins anew asks how its transactions ended, a few in each step, and of all of them.
#[test]
fn outcomes_are_asked_for_in_parts() {
    let prepared = 500;
    let mut bed = Bed::with(Config::default(), 2);
    for number in 1..=prepared {
        transactions::made(transactions::ask(
            &mut bed,
            transactions::prepare(number, 1, transactions::make()),
        ));
    }
    bed.restart(&[]);
    bed.courier_works = false;
    bed.now.0 += crate::limit::TXN_ASK_MS;
    let mut asked = 0;
    while bed.server.next_deadline().is_some_and(|at| at <= bed.now) {
        bed.tick(0);
        assert!((1..=crate::limit::TXNS_DUE_PER_STEP).contains(&bed.tasks.len()), "{}", bed.tasks.len());
        asked += bed.tasks.len();
        bed.tasks.clear();
    }
    assert_eq!(asked, 500);
    assert_eq!(bed.transactions(), 500);
    // Nobody has answered: they are asked again, and hear it.
    bed.restart(&[]);
    (bed.courier_works, bed.elsewhere) = (true, Some(Vote::Conflict(Empty {})));
    bed.outcome = TxnOutcome::Aborted;
    bed.now.0 += crate::limit::TXN_ASK_MS;
    while bed.server.next_deadline().is_some_and(|at| at <= bed.now) {
        bed.tick(0);
    }
    assert_eq!(bed.transactions(), 0);
    bed.check();
}

/// Rows of the first shard: 3,000 clients have used four lanes, and one has an unfinished growth and no lane.
fn rows_of_clients(bed: &mut Bed) {
    let ino = bed.create(ME, Ino::ROOT, "f");
    bed.write(ino, 0, b"x").unwrap();
    bed.call(OTHER, Grow { like: None, ino, end: 1 }).unwrap();
    let row = crate::row::slot::SlotRow {
        incarnation: Incarnation(1),
        seq: Seq(1),
        term: bed.term(),
        index: LogIndex(1),
        gate: crate::row::slot::Gate::Open,
        body: codec::Bytes(vec![]),
    };
    let lane = |client, slot| crate::key::slot(ShardId(0), ClientId(client), Slot(slot));
    let lanes = (3..=3_000).flat_map(|client| (0..4).map(move |slot| (client, slot)));
    let mut batch: Batch = lanes.map(|(client, slot)| (lane(client, slot), Some(row.to_bytes()))).collect();
    batch.insert(lane(OTHER.client, OTHER.slot), None);
    let last = bed.server.last_seq();
    bed.server.store_mut().apply(last, &[], batch).unwrap();
}

/// Goal: a shard whose term begins reads what its rows hold of clients in parts, and is served when it has read all; others are
/// served meanwhile. Whoever has left something behind is found, also when it is known later who lives.
#[test]
fn a_term_begins_in_parts() {
    let mut bed = Bed::with(Config::default(), 3);
    rows_of_clients(&mut bed);
    bed.fenced.extend(2..=3_000);
    let fences = bed.fences(&[1]);
    let last = bed.server.last_seq();
    bed.snapshots.insert(last.0, bed.server.store().clone());
    bed.step(Input::Fences(fences));
    bed.works_off = false;
    bed.server.store().take_visited();
    let (term, now) = (bed.term(), bed.now);
    bed.restart_term(ShardId(0));
    let mut most = 0;
    let mut parts = 1;
    loop {
        most = most.max(bed.server.store().take_visited());
        if bed.server.is_ready() {
            break;
        }
        assert!(bed.term() > term && bed.server.next_deadline() == Some(Millis(0)));
        let to = bed.send(ME, GetAttr { ino: Ino::ROOT });
        assert_eq!(bed.reply::<AttrReply>(to), Some(Err(Status::NOT_READY)));
        let to = bed.send(ME, GetAttr { ino: Ino::new(ShardId(1), 77) });
        assert_eq!(bed.reply::<AttrReply>(to), Some(Err(errno(Errno::ESTALE))), "it is served");
        bed.server.store().take_visited();
        bed.tick(0);
        parts += 1;
    }
    assert!(most <= TERM_ROWS_PER_STEP, "{most} rows in one step");
    assert!(parts > 4 * 2_998 / TERM_ROWS_PER_STEP && bed.now > now);
    for begins_late in [false, true] {
        if begins_late {
            bed.log.truncate(last.0 as usize);
            bed.works_off = true;
            bed.crash(last.0, last.0, &[1]);
        }
        bed.works_off = true;
        bed.tick(0);
        assert_eq!(rows(&bed, Table::Slot), 1, "that of the client that lives");
        assert_eq!((rows(&bed, Table::Growth), rows(&bed, Table::DeadGrowth)), (0, 0));
        bed.check();
    }
}

/// Goal: a term that ends while the shard still reads leaves nothing behind: the next one reads from the beginning.
#[test]
fn a_term_ends_before_all_is_read() {
    let limits = Limits { term_rows: 3, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 2);
    rows_of_clients(&mut bed);
    bed.fenced.extend(2..=3_000);
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    bed.works_off = false;
    for version in [2, 4] {
        bed.restart_term(ShardId(0));
        (0..9).for_each(|_| bed.tick(0));
        assert!(!bed.server.is_ready());
        let mut away = map(2, 5);
        (away.version, away.shards[0].leader) = (MapVersion(version), NodeId(9));
        let back = MapReply { version: MapVersion(version + 1), ..map(2, 5) };
        bed.step(Input::Map { own: OWN, map: away });
        (0..9).for_each(|_| bed.tick(0));
        bed.step(Input::Map { own: OWN, map: back });
    }
    bed.works_off = true;
    bed.tick(0);
    assert!(bed.server.is_ready());
    assert_eq!((rows(&bed, Table::Slot), rows(&bed, Table::Growth)), (1, 0));
    bed.check();
}

/// Goal: of many shards that can begin their service at once so many begin it in one step, the others in the next; until then
/// they answer nobody.
#[test]
fn many_shards_begin_their_service_in_parts() {
    let limits = Limits { shards_told: 8, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 20);
    bed.server = Group::new(bed.config.clone(), MemoryStore::on_disk()).unwrap();
    bed.log.iter().for_each(|record| bed.server.replay(record).unwrap());
    bed.server.start();
    bed.step(Input::Map { own: OWN, map: map(20, 5) });
    bed.sync();
    bed.works_off = false;
    bed.server.delivered.clear();
    let fences = bed.fences(&[1]);
    bed.step(Input::Fences(fences));
    for begun in [8, 16, 20] {
        assert_eq!(bed.server.delivered.len(), begun);
        let is_last = begun == 20;
        assert_eq!(bed.server.is_ready(), is_last);
        assert_eq!(bed.server.next_deadline() == Some(Millis(0)), !is_last);
        let nothing = Reclaim { opens: vec![], locks: vec![], last: true, term: None, holds: None };
        let to = bed.send_as(ME, ShardId(19), 0, nothing.into());
        assert_eq!(bed.reply::<ReclaimReply>(to).unwrap().err(), (!is_last).then_some(Status::NOT_READY));
        bed.server.delivered.remove(&ShardId(19));
        bed.tick(0);
    }
}

/// Goal: shards that nobody uses cost nothing while others are used: nothing is delivered to them, and they write and send nothing.
#[test]
fn idle_shards_cost_nothing() {
    let mut bed = Bed::with(Config::default(), 64);
    bed.tick(0);
    bed.server.delivered.clear();
    let records = bed.log.len();
    for number in 0..25 {
        let (ino, _) = bed.grown(&format!("{number}"), 1 << 20);
        bed.truncate(ME, ino, 5).unwrap();
        bed.unlink(ME, Ino::ROOT, &format!("{number}")).unwrap();
        bed.tick(1_000);
    }
    let (used, times) = bed.server.delivered.pop_first().unwrap();
    assert!(used == ShardId(0) && times > 100);
    assert!(bed.server.delivered.is_empty(), "{:?}", bed.server.delivered);
    assert!(bed.log.len() >= records + 100 && bed.log[records..].iter().all(|record| record.shard == used));
    let told =
        bed.trimmed.iter().map(|(_, chunk, _)| chunk).chain(bed.deleted.iter().map(|(_, chunk)| chunk));
    assert!(
        !bed.trimmed.is_empty()
            && !bed.deleted.is_empty()
            && told.clone().all(|chunk| chunk.ino.shard() == used)
    );
}
