//! A bench of the metadata server's rounds as the daemon runs them: the rules over the real row store and the
//! real command log, whose disk loses power. Limits are drawn tiny, so that every run meets them.

use skep_disk::disk::{CrashMode, FaultDisk};
use skep_disk::log::{CommandLog, Head, LogOptions, Notify, Record, SyncPolicy, SyncThread};
use skep_disk::rows::{BeforeRead, ReadNotify, RowOptions, RowStore};
use skep_disk::shards::{Shards, replay};
use skep_meta::limit::Limits;
use skep_meta::{Config, Group, Input, PeerIdentity, Request};
use skep_rows::Store;
use skep_types::codec::Bytes;
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::mgmt::{FencesReply, MapReply, NodeEntry, ShardEntry, ShardState};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const OWN: NodeId = NodeId(1);
const LIMIT: Duration = Duration::from_secs(60);
const OVERLAY: usize = 64 << 10;
/// Bytes of a group of the log.
const GROUP: usize = 16 << 10;

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    }
}

struct Bench {
    rows: tempfile::TempDir,
    disk: FaultDisk,
    config: Config,
    group_bytes: usize,
    shards: Option<Shards>,
    sync: Option<SyncThread>,
    now: Millis,
    next: u64,
    seqs: BTreeMap<u64, u64>,
    /// The newest client that asked something.
    newest: u64,
    /// Most bytes of rows that waited for a checkpoint.
    peak: usize,
    busy: u64,
    /// Who reads for requests that can wait; `None`: nobody, all rows are read in place.
    readers: Option<(ReadNotify, BeforeRead)>,
}

impl Bench {
    fn new(config: Config, group_bytes: usize) -> Self {
        let mut bench = Self {
            rows: tempfile::tempdir().unwrap(),
            disk: FaultDisk::new(),
            config,
            group_bytes,
            shards: None,
            sync: None,
            now: Millis(1_000),
            next: 1,
            seqs: BTreeMap::new(),
            newest: 0,
            peak: 0,
            busy: 0,
            readers: None,
        };
        bench.start(&[]);
        bench
    }

    fn start(&mut self, living: &[u64]) {
        let mut options = LogOptions::new(ClusterId::default());
        options.segment_bytes = 64 << 10;
        let (log, found) = CommandLog::open(Arc::new(self.disk.clone()), Path::new("/log"), options).unwrap();
        let silent: Notify = Box::new(|_, _| ());
        let sync =
            SyncThread::start(log.syncer(), SyncPolicy::Every(Duration::from_millis(2)), silent).unwrap();
        let options =
            RowOptions { overlay_bytes: OVERLAY, cache_bytes: 256 << 10, block_cache_bytes: 1 << 20 };
        let mut rows =
            RowStore::open(self.rows.path(), options, Arc::new(sync.handle()), Box::new(|| ())).unwrap();
        rows.check_log(found.first, found.last).unwrap();
        if let Some((notify, before)) = &self.readers {
            rows.start_readers(notify, Some(before)).unwrap();
        }
        let mut rules = Group::new(self.config.clone(), rows).unwrap();
        replay(&mut rules, &log, found.last).unwrap();
        let mut shards = Shards::new(rules, log, sync.handle()).with_groups_of(self.group_bytes);
        shards.start();
        (self.shards, self.sync) = (Some(shards), Some(sync));
        // As mgmtd does it: a shard is new until its server says that it has formatted it, and active ever after.
        if found.last == LogSeq(0) {
            self.step(Input::Map { own: OWN, map: map(ShardState::New) });
            self.end_round();
            self.settle();
        }
        self.step(Input::Map { own: OWN, map: map(ShardState::Active) });
        self.step(Input::Fences(fences(living, self.newest)));
        self.end_round();
        self.settle();
        assert!(self.shards().rules().is_ready());
    }

    /// The power goes: the log keeps what was synced, and any part of the rest.
    fn cut(&mut self, seed: u64, living: &[u64]) {
        self.shards = None;
        self.sync = None;
        self.disk = self.disk.crash(CrashMode::Prefix, seed);
        self.start(living);
    }

    fn shards(&mut self) -> &mut Shards {
        self.shards.as_mut().unwrap()
    }

    fn wall(&self) -> Timestamp {
        Timestamp { secs: 1_000_000 + self.now.0 as i64 / 1_000, nanos: 0 }
    }

    fn step(&mut self, input: Input) {
        let (now, wall) = (self.now, self.wall());
        let shards = self.shards.as_mut().unwrap();
        shards.step(now, wall, input).expect("no input ends the server");
        self.peak = self.peak.max(shards.rules().store().dirty_bytes());
    }

    /// As the daemon does: a request that comes while there is no room is told to come again.
    fn ask(&mut self, client: u64, message: MetaRequest) {
        if !self.shards().has_room() && skep_meta::changes(&message) {
            self.busy += 1;
            return;
        }
        self.newest = self.newest.max(client);
        let seq = self.seqs.entry(client).or_default();
        *seq += 1;
        let call =
            ShardCall { shard: ShardId(0), slot: Slot(0), seq: Seq(*seq), epoch: 1, ..ShardCall::default() };
        let (incarnation, node) = (Incarnation(1), NodeId(0));
        let peer = PeerIdentity { role: Role::Client, client: ClientId(client), incarnation, node };
        self.next += 1;
        let reply_to = self.next;
        self.step(Input::Request(Request { reply_to, peer, epoch: FenceEpoch(0), call, message }));
    }

    fn end_round(&mut self) -> Vec<skep_meta::Reply> {
        self.now.0 += 1;
        let due = self.shards().rules().next_deadline().is_some_and(|at| at <= self.now);
        if due {
            self.step(Input::Tick);
        }
        let (now, wall) = (self.now, self.wall());
        self.shards().take_read(now, wall).expect("no row ends the server");
        self.shards().end_round().expect("no round ends the server");
        self.shards().release().unwrap();
        std::mem::take(&mut self.shards().out.replies)
    }

    /// Rounds until nothing is left to do and all is durable.
    fn settle(&mut self) {
        loop {
            let durable = self.sync.as_ref().unwrap().handle().wait_all(LIMIT).unwrap();
            self.step(Input::Durable(durable));
            self.end_round();
            let last = self.shards().rules().last_seq();
            if last == durable
                && self.shards().has_room()
                && self.shards().rules().next_deadline().is_none_or(|at| at > self.now)
            {
                return;
            }
        }
    }

    fn rows(&mut self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all = BTreeMap::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            all.insert(key.to_vec(), value.to_vec());
            true
        };
        self.shards().rules().store().scan(&[], &[0xff; 30], visit).unwrap();
        all
    }

    fn check(&mut self) {
        let hash = self.config.hash;
        let problems = skep_meta::check::check_invariants(self.shards().rules().store(), hash).unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

fn map(state: ShardState) -> MapReply {
    let node = NodeEntry {
        domain: String::new(),
        node: OWN,
        service: ServiceKind::Metad,
        alias: String::new(),
        addresses: vec![],
        machine: Uuid::default(),
        reachability: Reachability::Online,
        incarnation: Incarnation(1),
    };
    MapReply {
        version: MapVersion(1),
        nodes: vec![node],
        shards: vec![ShardEntry {
            shard: ShardId(0),
            members: vec![OWN],
            leader: OWN,
            epoch: 1,
            state,
            era: 0,
            newer_are_lost: None,
        }],
        command_level: 1,
        ..MapReply::default()
    }
}

/// Of the clients up to `newest` only these live.
fn fences(living: &[u64], newest: u64) -> FencesReply {
    let sessions = living.iter().map(|id| ClientId(*id)).collect();
    FencesReply { epoch: FenceEpoch(0), fences: vec![], sessions, closed: vec![ClientId(newest)] }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn create(text: &str, open: bool) -> MetaRequest {
    Create {
        umask: 0,
        parent: Ino::ROOT,
        name: name(text),
        mode: 0o644,
        uid: 1,
        gid: 1,
        exclusive: false,
        truncate: false,
        open: open.then_some(OpenMode::Read),
        open_seq: 1,
        policy: None,
    }
    .into()
}

fn unlink(text: &str) -> MetaRequest {
    Unlink { parent: Ino::ROOT, name: name(text) }.into()
}

fn config(limits: Limits) -> Config {
    Config { limits, ..Config::default() }
}

/// Many orphans that one session has open; how much waited for checkpoints while they were purged.
fn purge(config: Config) -> usize {
    let mut bench = Bench::new(config, GROUP);
    for first in (0..3_000).step_by(50) {
        // A create waits until inode numbers are reserved: its name is there when it is durable.
        let names: Vec<String> = (first..first + 50).map(|n| n.to_string()).collect();
        names.iter().for_each(|name| bench.ask(2, create(name, true)));
        bench.settle();
        names.iter().for_each(|name| bench.ask(1, unlink(name)));
        bench.settle();
    }
    assert_eq!(bench.busy, 0);
    bench.settle();
    bench.peak = 0;
    let before = bench.rows().len();
    bench.step(Input::Fences(fences(&[1], 2)));
    bench.settle();
    let after = bench.rows().len();
    assert!(after + 3_000 < before, "the orphans are gone: {before} rows before, {after} after");
    bench.check();
    bench.peak
}

/// Goal: orphans that weigh more than all the room for rows are purged without a wait for oneself and
/// within that room; all of them in one step are not.
#[test]
fn a_big_purge_stays_within_the_room_for_rows() {
    // As long as a checkpoint runs, rows wait up to twice the size at which one begins, and a group of the log more;
    // then all that waits goes into the next one, and as much again may wait behind it.
    let room = 2 * (2 * OVERLAY + GROUP);
    let peak = purge(config(Limits { chores_per_step: 2, ..Limits::default() }));
    assert!(peak <= room, "{peak} bytes of {room}");
    let canary = Config { canary_one_big_step: true, ..config(Limits::default()) };
    let peak = purge(canary);
    assert!(peak > room, "the bench does not see one big step: {peak} bytes");
}

/// Goal: a round of more records than the log takes as one group ends no server, and all of it is there.
#[test]
fn a_round_may_be_larger_than_a_group_of_the_log() {
    let mut bench = Bench::new(Config::default(), skep_disk::shards::GROUP_BYTES);
    bench.ask(1, create("f", false));
    bench.settle();
    let record = 60 << 10;
    let count = skep_disk::log::GROUP_MAX / record + 20;
    let ino = Ino(2);
    for n in 0..count as u64 {
        let set = SetXattr {
            ino,
            name: Bytes(b"user.big".to_vec()),
            value: Bytes(vec![n as u8; record]),
            create: false,
            replace: false,
            kill_sgid: false,
        };
        bench.ask(n % 7, set.into());
    }
    let answers = bench.end_round();
    assert_eq!(answers.len() + bench.busy as usize, count);
    bench.settle();
    bench.check();
}

/// Goal: whatever the rounds, the groups, the checkpoints and the power cuts, rows and log agree: what was
/// durable is there, and what is there is sound.
#[test]
fn power_cuts_between_rounds() {
    for seed in 1..=12 {
        let mut dice = Dice(seed * 7_919);
        let limits = Limits {
            chores_per_step: 1 + dice.below(3) as usize,
            chore_looks: 1 + dice.below(8) as usize,
            errands_due: 1 + dice.below(4) as usize,
            resumed_per_step: 1 + dice.below(4) as usize,
            purge_batch: 1 + dice.below(4) as usize,
            deleted_batch: 1 + dice.below(4) as usize,
            travel_rows: 1_024,
            deletions_loaded: 2 + dice.below(8) as usize,
            txns_ahead: 1 + dice.below(4),
            term_rows: 4 + dice.below(4) as usize,
            txns_due: 1 + dice.below(4) as usize,
            deletion_looks: 1 + dice.below(8) as usize,
            remembered: 1 + dice.below(4) as usize,
            closes_remembered: 1 + dice.below(4) as usize,
            recoveries: 1 + dice.below(2) as usize,
            waits: 4 + dice.below(64) as usize,
            reads: 1 + dice.below(4) as usize,
            recovery_reads: 1 + dice.below(2) as usize,
            waits_over: 1 + dice.below(4) as usize,
            report_rows: 1 + dice.below(4) as usize,
            shards_told: 1 + dice.below(2) as usize,
            ..Limits::default()
        };
        let mut bench = Bench::new(config(limits), 256 << dice.below(6));
        // From the first cut on, requests wait for rows.
        bench.readers = Some((Arc::new(|| ()), Arc::new(|_| ())));
        let mut next_client = 10;
        for _ in 0..12 {
            let mut living = BTreeSet::new();
            for _ in 0..dice.below(12) {
                for _ in 0..dice.below(60) {
                    let client = next_client + dice.below(3);
                    living.insert(client);
                    let file = format!("{}", dice.below(200));
                    let message = match dice.below(5) {
                        0 | 1 => create(&file, true),
                        2 => unlink(&file),
                        3 => Lookup { parent: Ino::ROOT, name: name(&file), as_told: None }.into(),
                        _ => create(&file, false),
                    };
                    bench.ask(client, message);
                }
                bench.end_round();
            }
            bench.settle();
            let durable = bench.rows();
            for _ in 0..dice.below(40) {
                let client = next_client + dice.below(3);
                bench.ask(client, create(&format!("late{}", dice.below(50)), false));
            }
            bench.end_round();
            bench.check();
            // Nobody is left: everything open becomes an orphan and goes.
            next_client += 3;
            bench.seqs.clear();
            bench.cut(dice.below(1 << 40), &[]);
            bench.check();
            let entries = |rows: &BTreeMap<Vec<u8>, Vec<u8>>| {
                rows.keys().filter(|key| key[2] == 3).cloned().collect::<BTreeSet<_>>()
            };
            let lost: Vec<_> = entries(&durable).difference(&entries(&bench.rows())).cloned().collect();
            assert!(lost.is_empty(), "seed {seed}: {} durable names are gone", lost.len());
        }
        assert!(bench.rows().keys().all(|key| key[2] != 7), "seed {seed}: an orphan stays for ever");
    }
}

/// Goal: a record whose place another one of a higher term has taken is not replayed, nor what was behind it: what they did
/// is not there, and the shard goes on behind the other one.
#[test]
fn superseded_records_are_not_replayed() {
    let mut bench = Bench::new(Config::default(), GROUP);
    bench.ask(1, create("kept", false));
    bench.settle();
    let stands = bench.shards().rules().standing(ShardId(0)).unwrap();
    bench.ask(1, create("lost", false));
    bench.settle();
    (bench.shards, bench.sync) = (None, None);
    let mut options = LogOptions::new(ClusterId::default());
    options.segment_bytes = 64 << 10;
    let disk = Arc::new(bench.disk.clone());
    let (mut log, found) = CommandLog::open(disk, Path::new("/log"), options).unwrap();
    let (term, index) = (Term(stands.term.0 + 1), LogIndex(stands.index.0 + 1));
    let head = Head { shard: ShardId(0), term, index };
    log.append(&[Record::terms(LogSeq(found.last.0 + 1), &[head])]).unwrap();
    log.syncer().sync().unwrap();
    drop(log);
    // Rows on disk hold nothing that can be superseded.
    bench.rows = tempfile::tempdir().unwrap();
    bench.start(&[]);
    let now = bench.shards().rules().standing(ShardId(0)).unwrap();
    assert!(now.term.0 == term.0 + 1 && now.index > index);
    let rows = bench.rows();
    let has = |name: &[u8]| rows.values().any(|row| row.windows(name.len()).any(|part| part == name));
    assert!(has(b"kept") && !has(b"lost"));
    bench.check();
}

/// Goal: a request whose rows a slow disk is to give holds up nobody: a hundred others are answered before it, and it is
/// when they are there. One whose connection ends meanwhile does not happen.
#[test]
fn warm_requests_pass_a_cold_one() {
    let mut bench = Bench::new(Config::default(), GROUP);
    for text in ["warm", "cold", "gone"] {
        bench.ask(1, create(text, false));
        bench.settle();
    }
    bench.shards().flush(LIMIT).unwrap();
    bench.shards = None;
    bench.sync = None;
    // The disk gives nothing before the test says so.
    let slow = Arc::new((Mutex::new(false), Condvar::new()));
    let gate = slow.clone();
    let before: BeforeRead = Arc::new(move |_| {
        let shut = gate.0.lock().unwrap();
        drop(gate.1.wait_while(shut, |open| !*open).unwrap());
    });
    let (tell, told) = std::sync::mpsc::channel();
    let notify: ReadNotify = Arc::new(move || tell.send(()).unwrap_or_default());
    bench.readers = Some((notify, before));
    bench.start(&[]);
    let answered = |bench: &mut Bench, reply: u64| {
        bench.end_round().into_iter().find(|answer| answer.to == reply).map(|answer| answer.result)
    };
    let lookup = |text: &str| Lookup { parent: Ino::ROOT, name: name(text), as_told: None }.into();
    let open_disk = |is_open: bool| {
        *slow.0.lock().unwrap() = is_open;
        slow.1.notify_all();
    };
    let until_answered = |bench: &mut Bench, reply: u64| loop {
        if let Some(result) = answered(bench, reply) {
            return result;
        }
        told.recv_timeout(LIMIT).unwrap();
    };
    // Once it was read it is warm.
    open_disk(true);
    bench.ask(2, lookup("warm"));
    let warm = bench.next;
    until_answered(&mut bench, warm).unwrap();
    open_disk(false);
    bench.ask(3, lookup("cold"));
    let cold = bench.next;
    bench.ask(4, unlink("gone"));
    let gone = bench.next;
    assert_eq!(answered(&mut bench, cold), None);
    for _ in 0..100 {
        bench.ask(2, lookup("warm"));
        let warm = bench.next;
        assert!(answered(&mut bench, warm).is_some_and(|result| result.is_ok()), "it waits for the cold one");
    }
    bench.step(Input::Gone(gone));
    open_disk(true);
    until_answered(&mut bench, cold).unwrap();
    bench.ask(5, lookup("gone"));
    let still = bench.next;
    until_answered(&mut bench, still).expect("nobody waited for its removal any more");
    bench.settle();
    bench.check();
}
