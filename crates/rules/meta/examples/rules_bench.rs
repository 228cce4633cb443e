//! Time that the rules take for one request, log encoding included, over rows in memory.
//!
//! Requests come in rounds, and what a round logged is durable before the next, as in the server. The figure is that
//! of the middle round: rounds in which something else had the core do not count.
//!
//! Where the heap happens to lie moves a single figure by up to 40 %. Two builds are better compared by their
//! instructions: `valgrind --tool=callgrind`, with 5,000 files.
//!
//! Run pinned: `taskset -c 1 cargo run --release -p skep-meta --example rules_bench`, with a number of files behind
//! `--` for other than 100,000. Budgets: at most 3 us for lookup and getattr, 10 us for create and unlink.

use skep_meta::store::MemoryStore;
use skep_meta::{Config, Group, Input, Output, PeerIdentity, Request};
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::mgmt::{FencesReply, MapReply, NodeEntry, ShardEntry, ShardState};
use std::time::Instant;

/// Most shards of a cluster.
const SHARDS: u16 = limits::SHARDS_MAX;
/// Requests between two syncs of the log.
const ROUND: u64 = 100;

struct Bench {
    files: u64,
    server: Group<MemoryStore>,
    out: Output,
    now: u64,
    seq: u64,
    log_bytes: usize,
    records: usize,
}

impl Bench {
    fn new(files: u64) -> Self {
        Self::with(files, 1).0
    }

    /// With so many shards, and the map that has them.
    fn with(files: u64, shards: u16) -> (Self, MapReply) {
        let mut bench = Self {
            files,
            server: Group::new(Config::default(), MemoryStore::default()).expect("rows in memory"),
            out: Output::default(),
            now: 1,
            seq: 0,
            log_bytes: 0,
            records: 0,
        };
        bench.server.start();
        let node = NodeEntry {
            domain: String::new(),
            node: NodeId(1),
            service: ServiceKind::Metad,
            alias: String::new(),
            addresses: vec![],
            machine: Uuid::default(),
            reachability: Reachability::Online,
            incarnation: Incarnation(1),
        };
        let all = |state| {
            let shard = |id| ShardEntry {
                shard: ShardId(id),
                members: vec![NodeId(1)],
                leader: NodeId(1),
                epoch: 1,
                state,
                era: 0,
                newer_are_lost: None,
            };
            (0..shards).map(shard).collect()
        };
        let mut map = MapReply {
            version: MapVersion(1),
            nodes: vec![node],
            shards: all(ShardState::New),
            command_level: 1,
            ..MapReply::default()
        };
        bench.step(Input::Map { own: NodeId(1), map: map.clone() });
        let fences = FencesReply { epoch: FenceEpoch(0), fences: vec![], sessions: vec![], closed: vec![] };
        bench.step(Input::Fences(fences));
        bench.sync();
        map.shards = all(ShardState::Active);
        bench.step(Input::Map { own: NodeId(1), map: map.clone() });
        (bench, map)
    }

    /// A step of its own, in which everybody waits.
    fn measure_map(&mut self, what: &str, map: &mut MapReply, change: impl Fn(&mut MapReply)) {
        let mut steps: Vec<u128> = (0..11)
            .map(|_| {
                map.version.0 += 1;
                change(map);
                let input = Input::Map { own: NodeId(1), map: map.clone() };
                let start = Instant::now();
                self.step(input);
                let took = start.elapsed().as_nanos();
                self.sync();
                took
            })
            .collect();
        steps.sort_unstable();
        println!("{what:<40} {:>7.2} ms", steps[steps.len() / 2] as f64 / 1_000_000.0);
    }

    fn step(&mut self, input: Input) {
        self.now += 1;
        let wall = Timestamp { secs: self.now as i64, nanos: 0 };
        self.server.step(Millis(self.now), wall, input, &mut self.out).expect("step");
        for record in self.out.records.drain(..) {
            self.log_bytes += record.bytes.len();
            self.records += 1;
        }
    }

    fn sync(&mut self) {
        self.step(Input::Durable(self.server.last_seq()));
    }

    fn ask(&mut self, message: MetaRequest) -> Vec<u8> {
        self.seq += 1;
        let peer = PeerIdentity {
            role: Role::Client,
            client: ClientId(1),
            incarnation: Incarnation(1),
            node: NodeId(0),
        };
        let call = ShardCall {
            shard: ShardId(0),
            slot: Slot(0),
            seq: Seq(self.seq),
            epoch: 1,
            ..ShardCall::default()
        };
        let request = Request { reply_to: self.seq, peer, epoch: FenceEpoch(0), call, message };
        self.step(Input::Request(request));
        if self.out.replies.is_empty() {
            self.sync();
        }
        self.out.replies.pop().expect("an answer").result.expect("done")
    }

    fn measure(&mut self, what: &str, mut request: impl FnMut(u64) -> MetaRequest) {
        let (bytes, records) = (self.log_bytes, self.records);
        let mut rounds: Vec<u128> = (0..self.files / ROUND)
            .map(|round| {
                let start = Instant::now();
                for n in round * ROUND..(round + 1) * ROUND {
                    self.ask(request(n));
                }
                self.sync();
                start.elapsed().as_nanos()
            })
            .collect();
        rounds.sort_unstable();
        let each = rounds[rounds.len() / 2] as f64 / ROUND as f64 / 1_000.0;
        let logged = (self.log_bytes - bytes) / (self.records - records).max(1);
        println!("{what:<22} {each:>7.2} us   {logged:>5} bytes logged");
    }
}

fn name(n: u64) -> Name {
    Name::new(format!("file.{n:08}").as_bytes()).expect("a name")
}

fn main() {
    let files = std::env::args().nth(1).map_or(100_000, |n| n.parse().expect("a number of files"));
    let files = files.max(ROUND) / ROUND * ROUND;
    let mut bench = Bench::new(files);
    let parent = Ino::ROOT;
    let create = |n: u64, open| Create {
        umask: 0,
        parent,
        name: name(n),
        mode: 0o644,
        uid: 0,
        gid: 0,
        exclusive: true,
        truncate: false,
        open,
        open_seq: n,
        policy: None,
    };
    bench.measure("create, not open", |n| create(n, None).into());
    bench.measure("lookup", |n| Lookup { parent, name: name(n), as_told: None }.into());
    let first = Lookup { parent, name: name(0), as_told: None }.into();
    let first = EntryReply::decode(&mut Reader::new(&bench.ask(first))).expect("a reply").ino.0;
    bench.measure("getattr", |n| GetAttr { ino: Ino(first + n) }.into());
    bench.measure("write 100 bytes inline", |n| {
        let data = codec::Bytes(vec![7; 100]);
        WriteInline { append: false, ino: Ino(first + n), offset: 0, data, kill_suidgid: false, within: None }
            .into()
    });
    bench.measure("open", |n| {
        let mode = OpenMode::Read;
        Open { ino: Ino(first + n), mode, truncate: false, shared: false, kill_suidgid: false, open_seq: n }
            .into()
    });
    bench.measure("close", |n| Close { opens: vec![Closed { ino: Ino(first + n), open_seq: n + 1 }] }.into());
    bench.measure("rename", |n| {
        let (no_replace, exchange) = (false, false);
        let to_name = name(files + n);
        Rename { parent, name: name(n), to_parent: parent, to_name, no_replace, exchange }.into()
    });
    bench.measure("unlink", |n| Unlink { parent, name: name(files + n) }.into());
    bench.measure("create and open", |n| create(n, Some(OpenMode::Write)).into());
    let (mut bench, mut map) = Bench::with(0, SHARDS);
    bench.measure_map("map of 16,384 shards, as they were", &mut map, |_| ());
    bench.measure_map("map of 16,384 shards, one elsewhere", &mut map, |map| {
        let shard = &mut map.shards[7];
        shard.epoch += 1;
        shard.leader = NodeId(3 - shard.leader.0);
    });
    bench.measure_map("map of 16,384 shards, all of them changed", &mut map, |map| {
        map.shards.iter_mut().for_each(|shard| shard.epoch += 1);
    });
}
