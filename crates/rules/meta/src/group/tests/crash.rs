//! Random histories: rebuilt from any older rows and the log, a server has the same rows.

use crate::store::{MemoryStore, Store};
use crate::testing::*;
use crate::*;
use alloc::format;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::*;
use skep_wire::meta::*;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn rows(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    store
        .scan(&[], &[0xff; 32], &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            true
        })
        .unwrap();
    rows
}

/// One random request, of any kind that changes something.
fn random_request(dice: &mut Dice, inos: &[Ino], n: u64) -> MetaRequest {
    let ino = inos[dice.roll(inos.len() as u64) as usize];
    let parent = inos[dice.roll(inos.len().min(4) as u64) as usize];
    let to_parent = inos[dice.roll(inos.len().min(4) as u64) as usize];
    let (text, other) = (format!("{}", dice.roll(6)), format!("{}", dice.roll(6)));
    let mode = [OpenMode::Read, OpenMode::Write][dice.roll(2) as usize];
    match dice.roll(24) {
        0..=2 => Create {
            open: (dice.roll(2) == 0).then_some(mode),
            open_seq: n,
            truncate: dice.roll(4) == 0,
            ..create(parent, &text)
        }
        .into(),
        3 | 4 => node(parent, &text, if dice.roll(4) == 0 { Kind::Fifo } else { Kind::Dir }).into(),
        5 => MakeSymlink { parent, name: name(&text), target: Bytes(b"t".to_vec()), uid: 1, gid: 1 }.into(),
        6 => Link { ino, parent, name: name(&text) }.into(),
        7 | 8 => Unlink { parent, name: name(&text) }.into(),
        9 => RemoveDir { parent, name: name(&text) }.into(),
        10 | 11 => Rename {
            exchange: dice.roll(4) == 0,
            no_replace: dice.roll(4) == 0,
            ..rename(parent, &text, to_parent, &other)
        }
        .into(),
        12 => random_open(dice, ino, n).into(),
        13 => Close { opens: alloc::vec![Closed { ino, open_seq: n }] }.into(),
        14 => {
            let size = Some([0, 3, 100_000, 1 << 40][dice.roll(4) as usize]);
            ChangeAttr { ino, set: SetAttr { size, ..SetAttr::default() } }.into()
        }
        15 => WriteInline {
            append: dice.roll(2) == 0,
            ino,
            offset: dice.roll(50),
            data: Bytes(alloc::vec![7; 9]),
            kill_suidgid: false,
            within: n.is_multiple_of(2).then_some(true),
        }
        .into(),
        16 => Grow { like: None, ino, end: 1 << (10 + dice.roll(25)) }.into(),
        17 => Switch {
            ino,
            generation: Generation(dice.roll(3) as u32),
            inline_version: dice.roll(6),
            copied: dice.roll(9),
        }
        .into(),
        18 => SetXattr {
            kill_sgid: false,
            ino,
            name: Bytes(b"user.a".to_vec()),
            value: Bytes(alloc::vec![1; n as usize % 9]),
            create: false,
            replace: false,
        }
        .into(),
        19..=22 => attribute_request(dice, ino, parent, n),
        _ => Commit {
            ino,
            generation: Generation(1),
            size: dice.roll(1 << 30),
            mtime: Timestamp::default(),
            blocks: None,
            kill_suidgid: false,
            cuts: dice.roll(4),
            time_sets: dice.roll(3),
            held: None,
        }
        .into(),
    }
}

fn random_open(dice: &mut Dice, ino: Ino, n: u64) -> Open {
    let mode = [OpenMode::Read, OpenMode::Write][dice.roll(2) as usize];
    let (truncate, shared) = (dice.roll(3) == 0, dice.roll(3) == 0);
    Open { ino, mode, truncate, shared, kill_suidgid: false, open_seq: n }
}

/// What has to do with ACLs, capabilities and nameless files.
fn attribute_request(dice: &mut Dice, ino: Ino, parent: Ino, n: u64) -> MetaRequest {
    let acl = |perm: u8| {
        let entry = |tag: u8| [tag, 0, perm, 0, 255, 255, 255, 255];
        Bytes([&[2, 0, 0, 0][..], &entry(1), &entry(4), &entry(0x10), &entry(0x20)].concat())
    };
    let set = |text: &[u8], value| SetXattr {
        kill_sgid: false,
        ino,
        name: Bytes(text.to_vec()),
        value,
        create: false,
        replace: false,
    };
    match dice.roll(6) {
        0 => set(crate::acl::ACCESS, acl(dice.roll(8) as u8)).into(),
        1 => set(crate::acl::DEFAULT, acl(dice.roll(8) as u8)).into(),
        2 => set(b"security.capability", Bytes(alloc::vec![1; 20])).into(),
        3 => {
            let mode = Some(dice.roll(0o10000) as u32);
            ChangeAttr { ino, set: SetAttr { mode, ..SetAttr::default() } }.into()
        }
        4 => {
            let name =
                [crate::acl::ACCESS, crate::acl::DEFAULT, b"security.capability"][dice.roll(3) as usize];
            RemoveXattr { ino, name: Bytes(name.to_vec()) }.into()
        }
        _ => {
            let open = OpenMode::Write;
            CreateTemp { parent, mode: 0o666, umask: 0o022, uid: 1, gid: 1, open, open_seq: n }.into()
        }
    }
}

/// A lane has a file grow, and another one takes over.
fn take_over(bed: &mut Bed, who: Who, ino: Ino) {
    let data = Bytes(b"data".to_vec());
    bed.send(who, WriteInline { append: true, ino, offset: 0, data, kill_suidgid: false, within: None });
    bed.send(who, Grow { like: None, ino, end: 1 });
    bed.tick(crate::limit::GROWTH_AGE_MIN_MS);
    bed.send(Who { client: 3 - who.client, ..who }, Grow { like: None, ino, end: 1 });
}

fn history(seed: u64, steps: u64, shards: u16) -> Bed {
    let mut dice = Dice(seed);
    let mut bed = Bed::with(Config::default(), shards);
    bed.keep_snapshots = true;
    bed.auto_sync = dice.roll(2) == 0;
    let mut inos: Vec<Ino> = alloc::vec![Ino::ROOT];
    for n in 1..=steps {
        let who = Who { client: 1 + dice.roll(2), slot: dice.roll(2) as u32 };
        let message = random_request(&mut dice, &inos, n);
        let to = bed.send(who, message);
        if let Some((_, Ok(body))) = bed.replies.get(&to) {
            let made = OpenReply::from_bytes(body)
                .map(|r| r.attr.ino)
                .or_else(|_| EntryReply::from_bytes(body).map(|r| r.ino));
            inos.extend(made.ok());
        }
        if shards > 1 && dice.roll(12) == 0 {
            let parent = inos[dice.roll(inos.len() as u64) as usize];
            let (text, on) = (format!("{}", dice.roll(6)), ShardId(dice.roll(u64::from(shards)) as u16));
            bed.admin_send(MakeDirOn {
                parent,
                name: name(&text),
                mode: 0o755,
                umask: 0,
                uid: 0,
                gid: 0,
                on,
            });
        }
        if dice.roll(10) == 0 {
            take_over(&mut bed, who, inos[dice.roll(inos.len() as u64) as usize]);
        }
        if dice.roll(5) == 0 {
            bed.sync();
            bed.run_courier();
        }
        bed.check();
    }
    bed
}

/// Goal: replaying the log over rows of any age gives exactly the rows that the server had, for
/// every table; and those rows are sound after every step.
#[test]
fn replay_is_exact() {
    for seed in 0..40 {
        let bed = history(seed, 120, 1 + (seed % 3) as u16);
        let expected = rows(bed.server.store());
        let mut dice = Dice(seed);
        for _ in 0..4 {
            let at = *bed.snapshots.keys().nth(dice.roll(bed.snapshots.len() as u64) as usize).unwrap();
            let mut again = Group::new(bed.config.clone(), bed.snapshots[&at].clone()).unwrap();
            for record in &bed.log {
                again.replay(record).unwrap();
            }
            assert!(rows(again.store()) == expected, "seed {seed}: rows differ after a replay from {at}");
            assert_eq!(again.store().applied(), bed.server.store().applied());
        }
    }
}

/// Goal: after a power cut that takes any part of the log, the server starts, its rows are sound,
/// and everything under way comes to its end.
#[test]
fn any_prefix_of_the_log_is_a_sound_start() {
    for seed in 100..130 {
        let mut bed = history(seed, 80, 1 + (seed % 3) as u16);
        let mut dice = Dice(seed);
        let kept = 1 + dice.roll(bed.log.len() as u64);
        let applied = bed.snapshots.range(..=kept).next_back().map_or(0, |(index, _)| *index);
        bed.crash(applied, kept, &[1, 2]);
        bed.auto_sync = true;
        bed.check();
        for round in 0..40 {
            bed.sync();
            let deadline = bed.server.next_deadline();
            if bed.fenced.is_empty() && (round == 10 || deadline.is_none()) {
                // Until then they may have orphans open.
                bed.fenced.extend([1, 2]);
                let fences = bed.fences(&[]);
                bed.step(Input::Fences(fences));
                continue;
            }
            let Some(deadline) = deadline else { break };
            bed.tick(deadline.since(bed.now) + 1);
            bed.check();
        }
        assert_eq!(bed.transactions(), 0, "seed {seed}");
        for shard in bed.server.shards().collect::<Vec<_>>() {
            for table in [crate::key::Table::Trim, crate::key::Table::Orphan, crate::key::Table::Deletion] {
                let (from, until) = crate::key::table(shard, table);
                bed.server
                    .store()
                    .scan(&from, &until, &mut |_, _| panic!("seed {seed}: {table:?} has rows left"))
                    .unwrap();
            }
        }
    }
}

/// Goal: a log that does not continue the rows, or holds a command that was never done, is refused
/// with advice instead of guessed at.
#[test]
fn a_foreign_log_is_refused() {
    let bed = history(7, 20, 1);
    let mut server = Group::new(Config::default(), MemoryStore::default()).unwrap();
    let e = server.replay(&bed.log[3]).unwrap_err();
    assert!(format!("{e}").contains("not of one server"));
    let mut damaged = bed.log[0].clone();
    damaged.bytes.truncate(5);
    assert!(server.replay(&damaged).is_err());
}
