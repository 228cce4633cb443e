//! Leases on directories: what answers lend, and what changes take back before they happen.

mod cover;
mod goes_on;
mod held;
mod kept;
mod looks;
mod passed;
mod rows;
mod wished;

use crate::testing::*;
use crate::*;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use skep_types::*;
use skep_wire::meta::*;

const THIRD: Who = Who { client: 3, slot: 0 };
/// Longer than leases are used without being renewed.
const PATIENCE: u64 = 4_140;
/// So often a server steps that works.
const STRIDE_MS: u64 = 400;

impl Bed {
    /// Time passes, and a step for that follows.
    pub fn tick(&mut self, mut ms: u64) {
        while self.strides && ms > STRIDE_MS {
            self.now.0 += STRIDE_MS - 1;
            self.step(Input::Tick);
            ms -= STRIDE_MS;
        }
        self.now.0 += ms;
        self.step(Input::Tick);
    }

    /// Nobody uses any longer what an earlier term has lent.
    pub(super) fn end_hold(&mut self) {
        self.tick(PATIENCE + 10);
    }
}

/// A mount that asks for events.
struct Ear {
    who: Who,
    to: u64,
    received: u64,
}

impl Ear {
    fn new(bed: &mut Bed, who: Who) -> Self {
        bed.wishes.insert(who.client, 0);
        let mut ear = Self { who, to: 0, received: 0 };
        ear.ask(bed);
        ear
    }

    fn ask(&mut self, bed: &mut Bed) {
        let events = Events { received: self.received, wait_ms: 1_000 };
        self.to = bed.send_as(self.who, ShardId(0), 0, events.into());
    }

    /// What it is to drop.
    fn hear(&mut self, bed: &mut Bed) -> Vec<Recall> {
        let recalls = self.hear_all(bed).into_iter().filter_map(|event| match event {
            Event::Recall(recall) => Some(recall),
            _ => None,
        });
        recalls.collect()
    }

    /// What it is to hear.
    fn hear_all(&mut self, bed: &mut Bed) -> Vec<Event> {
        let mut heard = vec![];
        while let Some(told) = bed.reply::<EventsReply>(self.to) {
            let told = told.unwrap();
            self.received = told.number;
            heard.extend(told.events.0);
            self.ask(bed);
        }
        heard
    }

    /// With what is wanted back of that.
    fn confirm(&self, bed: &mut Bed, recalls: &[Recall]) {
        for recall in recalls {
            let back = recall.wants_back.map(|_| (recall.ino, recall.number)).into_iter().collect();
            let word = Recalled { term: recall.term, confirmed: vec![recall.number], back, anew: None };
            bed.send_as(self.who, recall.shard, 0, word.into());
        }
    }

    fn obey(&mut self, bed: &mut Bed) -> usize {
        let recalls = self.hear(bed);
        self.confirm(bed, &recalls);
        recalls.len()
    }
}

/// Changes something of what `other` may use.
fn change(
    bed: &mut Bed,
    other: &mut Ear,
    message: impl Into<MetaRequest>,
) -> Result<Vec<u8>, skep_wire::Refusal> {
    let to = bed.send(ME, message);
    while other.obey(bed) > 0 {}
    bed.replies[&to].1.clone()
}

fn make(bed: &mut Bed, other: &mut Ear, parent: Ino, text: &str) -> Ino {
    let made = change(bed, other, create(parent, text)).unwrap();
    OpenReply::from_bytes(&made).unwrap().attr.ino
}

/// A writer tells how long the file is now.
fn commit_of(bed: &Bed, ino: Ino, layout: &Layout) -> Commit {
    Commit {
        ino,
        generation: layout.generation,
        size: 2 << 20,
        mtime: bed.wall(),
        time_sets: 0,
        blocks: None,
        kill_suidgid: false,
        cuts: 1,
        held: None,
    }
}

fn granted(bed: &Bed, to: u64) -> Vec<Ino> {
    let grants = bed.replies[&to].0.grants.clone().unwrap_or_default();
    grants.into_iter().map(|grant| grant.ino).collect()
}

fn find(parent: Ino, text: &str) -> Lookup {
    Lookup { parent, name: name(text), as_told: None }
}

/// A bed whose rows stay in memory: an answer waits for no disk to lend more.
fn near(shards: u16) -> Bed {
    let mut bed = Bed::with(Config::default(), shards);
    bed.forgets = false;
    bed
}

/// A bed with two mounts that wish for leases, and a directory.
fn bed() -> (Bed, Ear, Ear, Ino) {
    let mut bed = near(1);
    let dir = bed.mkdir(Ino::ROOT, "d");
    bed.create(ME, dir, "old");
    let (mut me, mut other) = (Ear::new(&mut bed, ME), Ear::new(&mut bed, OTHER));
    // The first answer begins the row that says that there may be leases.
    bed.send(OTHER, find(Ino::ROOT, "d"));
    assert!(me.hear(&mut bed).is_empty() && other.hear(&mut bed).is_empty());
    (bed, me, other, dir)
}

/// Goal: an answer lends the directories that it tells of, of a name that is not there as well; who does not wish, does not
/// listen, or is an administrator, is lent nothing; the first lease is given when it is durable that there may be some.
#[test]
fn answers_lend_directories() {
    let mut bed = near(1);
    let dir = bed.mkdir(Ino::ROOT, "d");
    bed.create(ME, Ino::ROOT, "file");
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert_eq!((granted(&bed, to), bed.replies[&to].0.renews), (vec![], None));
    let flags = |found: EntryReply| found.attr.unwrap().flags;
    let found = bed.call(ME, find(Ino::ROOT, "file")).unwrap();
    assert_eq!(flags(found) & Attr::COVERED, 0, "nobody wishes");
    bed.wishes.insert(1, 0);
    bed.auto_sync = false;
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert!(bed.replies[&to].0.renews.is_some_and(|time| (time.ms, time.ended) == (4_000, 0)));
    assert!(granted(&bed, to).is_empty(), "not durable");
    bed.sync();
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert_eq!(granted(&bed, to), [Ino::ROOT, dir]);
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert!(granted(&bed, to).is_empty(), "it does not listen");
    let _ear = Ear::new(&mut bed, ME);
    let messages: [(MetaRequest, Vec<Ino>); 6] = [
        (find(Ino::ROOT, "d").into(), vec![Ino::ROOT, dir]),
        (find(dir, "absent").into(), vec![dir]),
        (GetAttr { ino: dir }.into(), vec![dir]),
        (List { dir: Ino::ROOT, after: 0, max: 9, with_attr: true, as_told: None }.into(), vec![Ino::ROOT]),
        (create(dir, "f").into(), vec![dir]),
        (Unlink { parent: dir, name: name("f") }.into(), vec![dir]),
    ];
    for (message, lent) in messages {
        let text = format!("{message:?}");
        let to = bed.send(ME, message);
        bed.sync();
        assert_eq!(granted(&bed, to), lent, "{text}");
    }
    let to = bed.admin_send(find(Ino::ROOT, "d"));
    assert!(granted(&bed, to).is_empty());
    bed.check();
}

/// Goal: a change waits until whoever else has a lease on what it touches has confirmed that it uses that no longer; until
/// it has its answer nobody is lent the directory; the lease stays. Questions do not wait.
#[test]
fn a_change_waits_for_those_who_use_it() {
    let (mut bed, mut me, mut other, dir) = bed();
    bed.send(OTHER, find(dir, "old"));
    let to = bed.send(ME, create(dir, "new"));
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(bed.lookup(dir, "new"), Err(errno(Errno::ENOENT)), "nothing has happened");
    let asked = bed.send(OTHER, find(dir, "old"));
    assert!(bed.replies[&asked].1.is_ok() && granted(&bed, asked).is_empty());
    let told = other.hear(&mut bed);
    let [Recall { ino, kind: RecallKind::Name, name: Some(told_name), .. }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((*ino, told_name), (dir, &name("new")));
    assert!(me.hear(&mut bed).is_empty());
    other.confirm(&mut bed, &told);
    assert!(bed.reply::<OpenReply>(to).unwrap().unwrap().created);
    // It kept its lease: what it is told later counts again, and is taken back again.
    let to = bed.send(ME, Unlink { parent: dir, name: name("new") });
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(other.obey(&mut bed), 1);
    assert!(bed.replies.contains_key(&to));
    assert_eq!(granted(&bed, to), [dir]);
    bed.check();
}

/// Goal: each operation that changes a directory, its names, or an entry that is known by it, takes that back from others; one
/// that changes nothing takes back nothing; of a rename both directories.
#[test]
fn what_each_operation_takes_back() {
    let set = |ino, mode| ChangeAttr { ino, set: SetAttr { mode: Some(mode), ..SetAttr::default() } };
    let acl = |ino| SetXattr {
        ino,
        name: skep_types::codec::Bytes(b"user.x".to_vec()),
        value: skep_types::codec::Bytes(vec![1]),
        create: false,
        replace: false,
        kill_sgid: false,
    };
    for at in 0..12 {
        let (mut bed, mut me, mut other, dir) = bed();
        let sub = bed.mkdir(dir, "sub");
        bed.mkdir(Ino::ROOT, "e");
        let to_dir = bed.lookup(Ino::ROOT, "e").unwrap();
        let old = bed.lookup(dir, "old").unwrap();
        other.obey(&mut bed);
        for ino in [Ino::ROOT, dir, sub, to_dir] {
            bed.call(OTHER, GetAttr { ino }).unwrap();
        }
        let moved = rename(dir, "old", to_dir, "moved");
        let (message, takes): (MetaRequest, Vec<Ino>) = match at {
            0 => (create(dir, "new").into(), vec![dir]),
            1 => (create(dir, "old").into(), vec![]),
            2 => (Unlink { parent: dir, name: name("old") }.into(), vec![dir]),
            3 => (RemoveDir { parent: dir, name: name("sub") }.into(), vec![dir, sub]),
            4 => (moved.into(), vec![dir, to_dir]),
            5 => (rename(dir, "old", dir, "other").into(), vec![dir, dir]),
            6 => (set(dir, 0o700).into(), vec![dir]),
            7 => (set(old, 0o700).into(), vec![dir]),
            8 => (acl(dir).into(), vec![dir]),
            9 => (acl(old).into(), vec![dir]),
            10 => (rename(dir, "sub", to_dir, "sub").into(), vec![dir, sub, to_dir]),
            _ => (node(dir, "fifo", Kind::Fifo).into(), vec![dir]),
        };
        let text = format!("{message:?}");
        let to = bed.send(ME, message);
        assert_eq!(bed.replies.contains_key(&to), takes.is_empty(), "{text}");
        let told = other.hear(&mut bed);
        let mut of: Vec<Ino> = told.iter().map(|recall| recall.ino).collect();
        of.sort_unstable();
        assert_eq!(of, takes, "{text}");
        other.confirm(&mut bed, &told);
        let exists = at == 1;
        assert_eq!(bed.replies[&to].1.is_ok(), !exists, "{text}: {:?}", bed.replies[&to].1);
        assert!(me.hear(&mut bed).is_empty());
        bed.check();
    }
}

/// Goal: who is silent is waited for until his time is over, whoever else has confirmed; his late word changes nothing.
#[test]
fn a_silent_mount_holds_a_change_up_for_a_term() {
    let (mut bed, _, mut other, dir) = bed();
    let mut third = Ear::new(&mut bed, THIRD);
    bed.send(OTHER, find(dir, "old"));
    bed.send(THIRD, find(dir, "old"));
    let to = bed.send(ME, create(dir, "new"));
    assert_eq!(other.obey(&mut bed), 1);
    bed.tick(PATIENCE - 100);
    assert!(!bed.replies.contains_key(&to));
    bed.tick(100);
    assert!(bed.reply::<OpenReply>(to).unwrap().unwrap().created);
    assert_eq!(third.obey(&mut bed), 1);
    let asked = bed.send(THIRD, find(dir, "old"));
    assert_eq!((granted(&bed, asked), bed.replies[&asked].0.renews), (vec![], None));
    bed.wishes.insert(3, 1);
    let asked = bed.send(THIRD, find(dir, "old"));
    assert_eq!(granted(&bed, asked), [dir], "it has dropped everything");
    bed.check();
}

/// Goal: who was passed over, or lapsed over a recall, is lent nothing before it asks for events; having asked once it is, however
/// long it makes a pause.
#[test]
fn who_did_not_hear_is_lent_nothing_before_it_listens() {
    for passed_over in [true, false] {
        let (mut bed, _, mut other, dir) = bed();
        let asked = bed.send(OTHER, find(dir, "old"));
        assert_eq!(granted(&bed, asked), [dir]);
        let to = bed.send(ME, create(dir, "new"));
        if passed_over {
            bed.tick(PATIENCE);
        }
        bed.wishes.insert(2, 1);
        let asked = bed.send(OTHER, find(dir, "old"));
        assert!(granted(&bed, asked).is_empty() && bed.replies[&asked].0.renews.is_some());
        assert!(bed.replies[&to].1.is_ok());
        other.ask(&mut bed);
        bed.tick(3_000);
        let asked = bed.send(OTHER, find(dir, "old"));
        assert_eq!(granted(&bed, asked), [dir], "passed over: {passed_over}");
        bed.check();
    }
}

/// Goal: who gives up, or waits for too long, changes nothing, and is in nobody's way.
#[test]
fn a_request_that_is_given_up_changes_nothing() {
    let (mut bed, _, mut other, dir) = bed();
    bed.send(OTHER, find(dir, "old"));
    let to = bed.send(ME, create(dir, "new"));
    bed.step(Input::Gone(to));
    assert_eq!(other.obey(&mut bed), 1);
    assert_eq!(bed.lookup(dir, "new"), Err(errno(Errno::ENOENT)));
    let to = bed.send(OTHER, find(dir, "old"));
    assert_eq!(granted(&bed, to), [dir]);
    bed.check();
}

/// Goal: a change beside a lease does not wait for a disk where there is no room for that: it looks at the rows that it read.
#[test]
fn what_reads_in_place_takes_back_in_place() {
    let limits = limit::Limits { reads: 0, ..limit::Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    bed.forgets = false;
    bed.create(ME, Ino::ROOT, "brings the row of the root into memory");
    let mut other = Ear::new(&mut bed, OTHER);
    bed.send(OTHER, GetAttr { ino: Ino::ROOT });
    let to = bed.send(OTHER, GetAttr { ino: Ino::ROOT });
    assert_eq!(granted(&bed, to), [Ino::ROOT]);
    // No row is in memory any more, and the disk brings none.
    (bed.forgets, bed.disk_works) = (true, false);
    let to = bed.send(ME, create(Ino::ROOT, "f"));
    assert!(bed.reads.is_empty());
    assert_eq!(other.obey(&mut bed), 1);
    assert!(bed.reads.is_empty() && bed.replies[&to].1.is_ok());
    bed.check();
}

/// Goal: what ended together is taken apart by ticks at once, though nothing else is to be done.
#[test]
fn what_lapsed_is_taken_apart_by_ticks() {
    let (mut bed, _, _, dir) = bed();
    let has = |bed: &Bed, to| granted(bed, to) == [dir];
    let to = bed.send(OTHER, find(dir, "old"));
    assert!(has(&bed, to) && bed.server.next_deadline() != Some(Millis(0)));
    bed.works_off = false;
    bed.wishes.insert(2, 1);
    let to = bed.send(OTHER, find(dir, "old"));
    assert!(has(&bed, to) && !bed.server.host.leases.is_swept());
    assert_eq!(bed.server.next_deadline(), Some(Millis(0)));
    bed.tick(0);
    assert!(bed.server.host.leases.is_swept() && bed.server.next_deadline() != Some(Millis(0)));
    assert!(bed.server.host.leases.has(ClientId(2), dir));
    bed.check();
}

/// Goal: of a directory that goes while it is open nothing stays lent, to nobody.
#[test]
fn what_goes_is_lent_to_nobody() {
    let (mut bed, _, mut other, dir) = bed();
    let before = bed.server.gauges().iter().find(|(name, _)| *name == "leases").unwrap().1;
    for open in [false, true] {
        let made = change(&mut bed, &mut other, MakeNode { mode: 0o755, ..node(dir, "gone", Kind::Dir) });
        let gone = EntryReply::from_bytes(&made.unwrap()).unwrap().ino;
        if open {
            bed.open(THIRD, gone, OpenMode::Read, 1).unwrap();
        }
        bed.call(OTHER, GetAttr { ino: gone }).unwrap();
        let to = bed.send(ME, RemoveDir { parent: dir, name: name("gone") });
        let told = other.hear(&mut bed);
        let of_gone = told.iter().find(|recall| recall.ino == gone).unwrap();
        assert_eq!(of_gone.kind, RecallKind::Everything, "open: {open}");
        other.confirm(&mut bed, &told);
        assert!(bed.replies[&to].1.is_ok());
        let asked = bed.send(OTHER, GetAttr { ino: gone });
        assert!(granted(&bed, asked).is_empty());
    }
    bed.close(THIRD, Ino::ROOT, 2);
    let gauges = bed.server.gauges();
    assert!(gauges.contains(&("leases_broken", 0)));
    assert!(gauges.iter().any(|(name, value)| *name == "leases" && *value <= before + 2), "{gauges:?}");
    bed.check();
}

/// Goal: who removes a directory is not asked to drop it, and that it was lent to him counts for nothing when it is purged.
#[test]
fn the_remover_of_what_is_open_breaks_nothing() {
    let (mut bed, _, mut other, dir) = bed();
    let made = change(&mut bed, &mut other, MakeNode { mode: 0o755, ..node(dir, "gone", Kind::Dir) });
    let gone = EntryReply::from_bytes(&made.unwrap()).unwrap().ino;
    bed.open(THIRD, gone, OpenMode::Read, 1).unwrap();
    let asked = bed.send(ME, GetAttr { ino: gone });
    assert_eq!(granted(&bed, asked), [gone]);
    change(&mut bed, &mut other, RemoveDir { parent: dir, name: name("gone") }).unwrap();
    bed.close(THIRD, gone, 2);
    assert!(bed.server.gauges().contains(&("leases_broken", 0)));
    bed.check();
}

/// Goal: requests that wait for mounts take half of the places at most; who need not wait is not refused for that.
#[test]
fn those_who_wait_for_mounts_leave_room() {
    let limits = limit::Limits { waits: 4, ..limit::Limits::default() };
    let mut bed = Bed::with(Config { limits, ..Config::default() }, 1);
    bed.forgets = false;
    let mut other = Ear::new(&mut bed, OTHER);
    bed.send(OTHER, GetAttr { ino: Ino::ROOT });
    bed.send(OTHER, GetAttr { ino: Ino::ROOT });
    let lane = |slot| Who { slot, ..ME };
    let sent: Vec<u64> =
        (0..3).map(|slot| bed.send(lane(slot), create(Ino::ROOT, &format!("f{slot}")))).collect();
    assert_eq!(bed.reply::<OpenReply>(sent[2]).unwrap().err(), Some(skep_wire::Status::BUSY));
    bed.auto_sync = false;
    let synced = bed.send(lane(9), ChangeAttr { ino: Ino::ROOT, set: SetAttr::default() });
    bed.auto_sync = true;
    bed.sync();
    assert!(bed.replies.contains_key(&synced));
    assert_eq!(other.obey(&mut bed), 2);
    assert!(sent[..2].iter().all(|to| bed.replies[to].1.is_ok()));
    bed.check();
}

/// Goal: the answer to a change tells of all inodes that it touched, as they are then: so nobody has to ask for the directory, or
/// for what lost a name; who does not wish is not told.
#[test]
fn answers_tell_what_a_change_touched() {
    let (mut bed, _, _, dir) = bed();
    let to_dir = bed.mkdir(Ino::ROOT, "e");
    let sub = bed.mkdir(dir, "sub");
    let file = bed.create(ME, dir, "f");
    bed.call(ME, Link { ino: file, parent: to_dir, name: name("g") }).unwrap();
    let changes: [(MetaRequest, Vec<(Ino, u32)>); 5] = [
        (create(dir, "new").into(), vec![(dir, 3)]),
        (Unlink { parent: to_dir, name: name("g") }.into(), vec![(to_dir, 2), (file, 1)]),
        (rename(dir, "f", to_dir, "f").into(), vec![(dir, 3), (to_dir, 2), (file, 1)]),
        (RemoveDir { parent: dir, name: name("sub") }.into(), vec![(dir, 2), (sub, 0)]),
        (Unlink { parent: to_dir, name: name("f") }.into(), vec![(to_dir, 2), (file, 0)]),
    ];
    for (message, expected) in changes {
        let text = format!("{message:?}");
        let to = bed.send(ME, message);
        let told = bed.replies[&to].0.touched.clone().unwrap_or_default();
        let mut of: Vec<(Ino, u32)> = told.iter().map(|attr| (attr.ino, attr.nlink)).collect();
        if text.starts_with("Create") {
            of.retain(|(ino, _)| *ino == dir);
        }
        assert_eq!(of, expected, "{text}");
        for attr in told.iter().filter(|attr| attr.nlink > 0) {
            let plain = Attr { flags: attr.flags & !Attr::COVERED, ..attr.clone() };
            assert_eq!(bed.admin(GetAttr { ino: attr.ino }).unwrap().attr, plain, "{text}");
        }
    }
    bed.wishes.clear();
    let to = bed.send(ME, create(dir, "last"));
    assert_eq!(bed.replies[&to].0.touched, None);
}

/// Goal: with the next term changes wait until nobody can use anything any more that the last one lent; questions, commits of
/// those who were writing, and shards that never lent anything, do not.
#[test]
fn a_new_term_waits_for_what_was_lent() {
    let (mut bed, _, _, dir) = bed();
    let (big, layout) = bed.grown("big", 1 << 20);
    let old = bed.lookup(dir, "old").unwrap();
    bed.send(OTHER, find(dir, "old"));
    bed.restart(&[1, 2]);
    let to = bed.send(Who { slot: 1, ..ME }, create(dir, "new"));
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(bed.lookup(dir, "old"), Ok(old));
    bed.call(ME, commit_of(&bed, big, &layout)).unwrap();
    bed.tick(PATIENCE - 100);
    assert!(!bed.replies.contains_key(&to));
    bed.tick(100);
    assert!(bed.reply::<OpenReply>(to).unwrap().unwrap().created);
    bed.check();
    let mut without = Bed::new();
    without.create(ME, Ino::ROOT, "a");
    without.restart(&[1]);
    without.create(ME, Ino::ROOT, "b");
}

/// Goal: a directory that another shard is to remove is taken back before this one promises it; the names of a transaction are
/// before anybody is asked.
#[test]
fn transactions_take_back_first() {
    let mut bed = near(2);
    let made = bed.admin(super::transactions::on("far", 1)).unwrap().ino;
    assert_eq!(made.shard(), ShardId(1));
    let mut other = Ear::new(&mut bed, OTHER);
    for _ in 0..2 {
        bed.send(OTHER, find(Ino::ROOT, "far"));
        bed.call(OTHER, GetAttr { ino: made }).unwrap();
    }
    let to = bed.send(ME, RemoveDir { parent: Ino::ROOT, name: name("far") });
    let told = other.hear(&mut bed);
    assert_eq!(told.iter().map(|recall| recall.ino).collect::<Vec<_>>(), [Ino::ROOT], "before the vote");
    other.confirm(&mut bed, &told);
    let told = other.hear(&mut bed);
    assert_eq!(
        told.iter().map(|recall| (recall.ino, recall.kind)).collect::<Vec<_>>(),
        [(made, RecallKind::Everything)]
    );
    assert!(!bed.replies.contains_key(&to));
    other.confirm(&mut bed, &told);
    assert!(bed.replies[&to].1.is_ok(), "{:?}", bed.replies[&to].1);
    let to = bed.admin_send(super::transactions::on("again", 1));
    assert!(!bed.replies.contains_key(&to), "the other one has the root still");
    assert_eq!(other.obey(&mut bed), 1);
    assert!(bed.replies[&to].1.is_ok());
    bed.check();
}

/// Goal: where a mount needs long to drop a directory that another one keeps changing, it is lent to nobody after two such
/// waits, and wanted back with the next; from then on changes run at once; a mount that is silent has nobody lent less.
#[test]
fn slow_confirmations_make_busy() {
    for silent in [false, true] {
        let (mut bed, _, mut other, dir) = bed();
        let mut waits = 0;
        for n in 0..10 {
            bed.send(OTHER, find(dir, "old"));
            let to = bed.send(ME, node(dir, &format!("{n}"), Kind::Dir));
            if !bed.replies.contains_key(&to) {
                waits += 1;
                bed.tick(if silent { PATIENCE } else { 750 });
                bed.wishes.insert(2, if silent { n + 1 } else { 0 });
                while other.obey(&mut bed) > 0 {}
            }
            assert!(bed.replies[&to].1.is_ok(), "{n}");
            bed.tick(10);
            other.hear(&mut bed);
        }
        let expected = if silent { (10, 0) } else { (3, 1) };
        assert_eq!((waits, bed.server.lease_counts().busy), expected);
        bed.check();
    }
}
