//! Leases on directories: what answers lend, and what changes take back before they happen.

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

impl Bed {
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
        let mut heard = vec![];
        while let Some(told) = bed.reply::<EventsReply>(self.to) {
            let told = told.unwrap();
            self.received = told.number;
            heard.extend(told.events.0.into_iter().filter_map(|event| match event {
                Event::Recall(recall) => Some(recall),
                _ => None,
            }));
            self.ask(bed);
        }
        heard
    }

    fn confirm(&self, bed: &mut Bed, recalls: &[Recall]) {
        for recall in recalls {
            let word =
                Recalled { term: recall.term, confirmed: vec![recall.number], back: vec![], anew: None };
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
    Lookup { parent, name: name(text) }
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
        (List { dir: Ino::ROOT, after: 0, max: 9, with_attr: true }.into(), vec![Ino::ROOT]),
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
    bed.forgets = true;
    let to = bed.send(ME, create(Ino::ROOT, "f"));
    assert_eq!(other.obey(&mut bed), 1);
    assert!(bed.replies[&to].1.is_ok());
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
            assert_eq!(&bed.admin(GetAttr { ino: attr.ino }).unwrap().attr, attr, "{text}");
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

/// Goal: attributes of an entry are covered while nobody writes to it and nothing is to come of it: whoever opens it for
/// writing has those who know them told, once, and not with each commit; a repeated open of which a restart took the memory,
/// and a seal by a stranger, as well.
#[test]
fn entries_are_covered_until_somebody_writes() {
    let (mut bed, _, mut other, dir) = bed();
    let (old, layout) = bed.grown("f", 1 << 20);
    bed.close(ME, old, 9);
    other.obey(&mut bed);
    let covered = |bed: &mut Bed| {
        let list = bed.call(OTHER, List { dir: Ino::ROOT, after: 0, max: 9, with_attr: true }).unwrap();
        let flags = |entry: &DirEntry| entry.attr.as_ref().map_or(0, |attr| attr.flags);
        let of: BTreeMap<Ino, bool> =
            list.entries.iter().map(|entry| (entry.ino, flags(entry) & Attr::COVERED != 0)).collect();
        assert!(!of[&dir], "a directory has a lease of its own");
        of[&old]
    };
    let told = |other: &mut Ear, bed: &mut Bed| {
        let told = other.hear(bed);
        other.confirm(bed, &told);
        told.iter().map(|recall| (recall.ino, recall.kind, recall.entry)).collect::<Vec<_>>()
    };
    let entry = (Ino::ROOT, RecallKind::Entry, Some(old));
    assert!(covered(&mut bed));
    let open = |open_seq| Open {
        ino: old,
        mode: OpenMode::Write,
        truncate: false,
        shared: false,
        kill_suidgid: false,
        open_seq,
    };
    let to = bed.send(ME, open(10));
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(told(&mut other, &mut bed), [entry]);
    assert!(bed.replies.contains_key(&to) && !covered(&mut bed));
    bed.call(ME, commit_of(&bed, old, &layout)).unwrap();
    assert_eq!(bed.truncate(ME, old, 5).unwrap().size, 5);
    assert!(told(&mut other, &mut bed).is_empty());
    bed.close(ME, old, 11);
    assert!(covered(&mut bed));
    let to = bed.send(ME, ChangeAttr { ino: old, set: SetAttr { size: Some(0), ..SetAttr::default() } });
    assert_eq!(told(&mut other, &mut bed), [entry]);
    assert!(bed.replies[&to].1.is_ok());
    // The answer to an open that makes the content anew is lost, and asked for once more.
    assert!(covered(&mut bed));
    let create =
        Create { open: Some(OpenMode::Write), open_seq: 12, truncate: true, ..create(Ino::ROOT, "f") };
    bed.send(ME, create.clone());
    assert_eq!(told(&mut other, &mut bed), [entry]);
    bed.close(ME, old, 13);
    assert!(covered(&mut bed));
    let to = bed.resend(ME, Create { open_seq: 14, ..create });
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(told(&mut other, &mut bed), [entry]);
    assert!(bed.replies[&to].1.is_ok() && !covered(&mut bed));
    bed.check();
}

/// Goal: what is renamed or linked is taken back by its inode too, from those who know it by the directory that it leaves.
#[test]
fn what_moves_is_taken_back_where_it_was() {
    let (mut bed, _, mut other, dir) = bed();
    let to_dir = bed.mkdir(Ino::ROOT, "e");
    other.obey(&mut bed);
    for at in 0..3 {
        let text = format!("f{at}");
        let ino = make(&mut bed, &mut other, dir, &text);
        bed.call(OTHER, GetAttr { ino: to_dir }).unwrap();
        let found = bed.call(OTHER, find(dir, &text)).unwrap();
        assert!(found.attr.unwrap().flags & Attr::COVERED != 0);
        let message: MetaRequest = match at {
            0 => rename(dir, &text, to_dir, &text).into(),
            1 => Link { ino, parent: to_dir, name: name(&text) }.into(),
            _ => Unlink { parent: dir, name: name(&text) }.into(),
        };
        let to = bed.send(ME, message);
        let told = other.hear(&mut bed);
        let mut of: Vec<_> =
            told.iter().map(|recall| (recall.ino, recall.kind as u8, recall.entry)).collect();
        of.sort_unstable();
        let (named, entry) = (RecallKind::Name as u8, RecallKind::Entry as u8);
        let expected = match at {
            0 => vec![(dir, named, Some(ino)), (to_dir, named, None)],
            1 => vec![(dir, entry, Some(ino)), (to_dir, named, None)],
            _ => vec![(dir, named, Some(ino))],
        };
        assert_eq!(of, expected);
        other.confirm(&mut bed, &told);
        assert!(bed.replies[&to].1.is_ok());
    }
    bed.check();
}

/// What a holder of a lease on a directory knows: its attributes, its listing, its parent, and the attributes of the entries
/// that the lease covers.
#[derive(Debug, PartialEq)]
struct Known {
    attr: Attr,
    names: Vec<(Name, Ino)>,
    parent: Ino,
    covered: BTreeMap<Ino, Attr>,
}

impl Known {
    /// `None`: it is not lent.
    fn new(bed: &mut Bed, dir: Ino) -> Option<Self> {
        let attr = bed.call(OTHER, GetAttr { ino: dir }).ok()?.attr;
        let to = bed.send(OTHER, List { dir, after: 0, max: 1_000, with_attr: true });
        let list = bed.reply::<ListReply>(to)?.ok()?;
        if !granted(bed, to).contains(&dir) {
            return None;
        }
        let names = list.entries.iter().map(|entry| (entry.name.clone(), entry.ino)).collect();
        let attrs = list.entries.into_iter().filter_map(|entry| entry.attr);
        let covered = attrs.filter(|attr| attr.flags & Attr::COVERED != 0).map(|attr| (attr.ino, attr));
        Some(Self { attr, names, parent: list.parent, covered: covered.collect() })
    }

    /// The same as somebody sees it who has no lease.
    fn seen(&self, bed: &mut Bed, dir: Ino) -> Option<Self> {
        let attr = bed.admin(GetAttr { ino: dir }).ok()?.attr;
        let list = bed.admin(List { dir, after: 0, max: 1_000, with_attr: false }).ok()?;
        let names = list.entries.into_iter().map(|entry| (entry.name, entry.ino)).collect();
        let mut covered = BTreeMap::new();
        for ino in self.covered.keys() {
            let mut attr = bed.admin(GetAttr { ino: *ino }).ok()?.attr;
            attr.flags |= Attr::COVERED;
            covered.insert(*ino, attr);
        }
        Some(Self { attr, names, parent: list.parent, covered })
    }
}

fn any_change(draw: &mut impl FnMut(u64) -> u64, dirs: &[Ino], files: &[Ino], step: u64) -> MetaRequest {
    let mut at = |of: &[Ino]| of[draw(of.len() as u64) as usize];
    let (from, to, file) = (at(dirs), at(dirs), at(files));
    let (a, b) = (format!("n{}", draw(5)), format!("n{}", draw(5)));
    let set = |ino, set| ChangeAttr { ino, set };
    match draw(15) {
        0 | 1 => create(from, &a).into(),
        2 => node(from, &a, Kind::Fifo).into(),
        3 => Unlink { parent: from, name: name(&a) }.into(),
        4 => RemoveDir { parent: from, name: name(&a) }.into(),
        5 => rename(from, &a, to, &b).into(),
        6 => Rename { exchange: draw(2) == 0, no_replace: true, ..rename(from, &a, to, &b) }.into(),
        7 => set(from, SetAttr { uid: Some(draw(3) as u32), ..SetAttr::default() }).into(),
        8 => MakeNode { mode: 0o755, ..node(from, &a, Kind::Dir) }.into(),
        9 => set(file, SetAttr { mode: Some(draw(8) as u32), ..SetAttr::default() }).into(),
        10 => set(file, SetAttr { size: Some(draw(90)), ..SetAttr::default() }).into(),
        11 => Link { ino: file, parent: to, name: name(&b) }.into(),
        12 => Close { opens: vec![Closed { ino: file, open_seq: 2 * step + 1 }] }.into(),
        13 => Open {
            ino: file,
            mode: if draw(2) == 0 { OpenMode::Read } else { OpenMode::Write },
            truncate: false,
            shared: false,
            kill_suidgid: false,
            open_seq: 2 * step,
        }
        .into(),
        _ => Create {
            open: Some(OpenMode::Write),
            open_seq: 2 * step,
            truncate: draw(2) == 0,
            ..create(from, &a)
        }
        .into(),
    }
}

/// Goal: whatever operation comes, nothing that others know by a lease is seen to change before they were told.
#[test]
fn no_operation_changes_what_others_use() {
    let (mut bed, _, mut other, dir) = bed();
    let mut state = 7_u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let (mut dirs, mut files) = (vec![Ino::ROOT, dir], vec![bed.lookup(dir, "old").unwrap()]);
    let (mut took_back, mut covered) = (0, 0);
    for step in 0..700 {
        let mut known = BTreeMap::new();
        dirs.retain(|dir| bed.attr(*dir).is_ok_and(|attr| attr.nlink > 0));
        files.retain(|ino| bed.attr(*ino).is_ok());
        files.push(make(&mut bed, &mut other, dirs[0], &format!("keeps{step}")));
        for dir in &dirs {
            known.extend(Known::new(&mut bed, *dir).map(|known| (*dir, known)));
        }
        assert!(other.hear(&mut bed).is_empty());
        // What changes too often is lent to nobody.
        bed.now.0 += 2_000;
        let message = any_change(&mut draw, &dirs, &files, step);
        let text = format!("{step}: {message:?}");
        let to = bed.send(ME, message);
        let mut told = other.hear(&mut bed);
        for (dir, known) in &known {
            assert_eq!(
                known.seen(&mut bed, *dir).as_ref(),
                Some(known),
                "{text}, before {told:?} was confirmed"
            );
            covered += known.covered.len();
        }
        took_back += told.len();
        while !told.is_empty() {
            assert!(!bed.replies.contains_key(&to), "{text}");
            other.confirm(&mut bed, &told);
            told = other.hear(&mut bed);
        }
        let reply = bed.replies[&to].1.clone();
        if let Ok(body) = reply
            && let Ok(entry) = EntryReply::from_bytes(&body)
            && entry.kind == Kind::Dir
            && dirs.len() < 6
        {
            dirs.push(entry.ino);
        }
        if step > 20 {
            let oldest = name(&format!("keeps{}", step - 20));
            let _ = change(&mut bed, &mut other, Unlink { parent: Ino::ROOT, name: oldest });
        }
    }
    assert!(took_back > 200 && covered > 1_500, "{took_back} {covered}");
    assert!(bed.server.gauges().contains(&("leases_broken", 0)));
    bed.check();
}
