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
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert_eq!((granted(&bed, to), bed.replies[&to].0.renews), (vec![], None));
    bed.wishes.insert(1, 0);
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert!(granted(&bed, to).is_empty(), "it does not listen");
    assert!(bed.replies[&to].0.renews.is_some_and(|time| (time.ms, time.ended) == (4_000, 0)));
    let _ear = Ear::new(&mut bed, ME);
    bed.auto_sync = false;
    let to = bed.send(ME, find(Ino::ROOT, "d"));
    assert!(granted(&bed, to).is_empty());
    bed.sync();
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

/// Goal: each operation that changes a directory, its names, or what is known of it, takes that back from others; one that
/// changes nothing, or only files, takes back nothing; of a rename both directories.
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
            7 => (set(old, 0o700).into(), vec![]),
            8 => (acl(dir).into(), vec![dir]),
            9 => (acl(old).into(), vec![]),
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

/// Goal: with the next term changes wait until nobody can use anything any more that the last one lent; questions, files, and
/// shards that never lent anything, do not.
#[test]
fn a_new_term_waits_for_what_was_lent() {
    let (mut bed, _, _, dir) = bed();
    let old = bed.lookup(dir, "old").unwrap();
    bed.send(OTHER, find(dir, "old"));
    bed.restart(&[1, 2]);
    let to = bed.send(Who { slot: 1, ..ME }, create(dir, "new"));
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(bed.lookup(dir, "old"), Ok(old));
    bed.write(old, 0, b"x").unwrap();
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

/// What somebody who looks sees of a directory: its attributes, its listing, its parent.
type Seen = (Attr, Vec<(Name, Ino)>, Ino);

fn seen(bed: &mut Bed, dir: Ino) -> Option<Seen> {
    let attr = bed.admin(GetAttr { ino: dir }).ok()?.attr;
    let list = bed.admin(List { dir, after: 0, max: 1_000, with_attr: false }).ok()?;
    Some((attr, list.entries.into_iter().map(|entry| (entry.name, entry.ino)).collect(), list.parent))
}

/// Goal: whatever operation comes, nothing of a directory is seen to change before whoever else has a lease on it was told.
#[test]
fn no_operation_changes_what_others_use() {
    let (mut bed, _, mut other, dir) = bed();
    let mut state = 7_u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut dirs = vec![Ino::ROOT, dir];
    let mut took_back = 0;
    for step in 0..600 {
        let mut known = BTreeMap::new();
        dirs.retain(|dir| bed.call(OTHER, GetAttr { ino: *dir }).is_ok());
        for dir in &dirs {
            known.insert(*dir, seen(&mut bed, *dir));
        }
        assert!(other.hear(&mut bed).is_empty());
        let mut at = || dirs[draw(dirs.len() as u64) as usize];
        let (from, to) = (at(), at());
        let (a, b) = (format!("n{}", draw(5)), format!("n{}", draw(5)));
        let message: MetaRequest = match draw(9) {
            0 | 1 => create(from, &a).into(),
            2 => node(from, &a, Kind::Fifo).into(),
            3 => Unlink { parent: from, name: name(&a) }.into(),
            4 => RemoveDir { parent: from, name: name(&a) }.into(),
            5 => rename(from, &a, to, &b).into(),
            6 => Rename { exchange: draw(2) == 0, no_replace: true, ..rename(from, &a, to, &b) }.into(),
            7 => ChangeAttr { ino: from, set: SetAttr { uid: Some(draw(3) as u32), ..SetAttr::default() } }
                .into(),
            _ => MakeNode { mode: 0o755, ..node(from, &a, Kind::Dir) }.into(),
        };
        let text = format!("{step}: {message:?}");
        let to = bed.send(ME, message);
        let mut told = other.hear(&mut bed);
        for (dir, before) in &known {
            assert_eq!(&seen(&mut bed, *dir), before, "{text}, before {told:?} was confirmed");
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
    }
    assert!(took_back > 150, "{took_back}");
    bed.check();
}
