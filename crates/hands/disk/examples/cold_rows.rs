//! What requests whose rows are on disk only cost the others. `cargo run --release -p skep-disk --example cold_rows DIR`
//!
//! Rules, log and row store as in the daemon, with a small row cache, over 100,000 files on the file system of DIR, whose
//! pages are dropped. Stats of 100 files that are in memory come every millisecond, with and without stats of files that
//! are not, with rows read in place and by threads, in turns. Prints how long the former took, from the moment when each
//! was due. Slow the disk down from outside (a block device with a limit of reads per second).

use skep_disk::disk::RealDisk;
use skep_disk::log::{CommandLog, LogOptions, SyncPolicy, SyncThread};
use skep_disk::rows::{ReadNotify, RowOptions, RowStore};
use skep_disk::shards::{Shards, replay};
use skep_meta::{Config, Group, Input, PeerIdentity, Reply, Request};
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::mgmt::{FencesReply, MapReply, NodeEntry, ShardEntry, ShardState};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

const OWN: NodeId = NodeId(1);
const LIMIT: Duration = Duration::from_secs(300);
const FILES: u64 = 100_000;
/// Files of which there are stats all the time.
const WARM: u64 = 100;
const WARM_EVERY: Duration = Duration::from_millis(1);
const COLD_EVERY: Duration = Duration::from_millis(20);
const PHASE: Duration = Duration::from_secs(5);
const ROUNDS: u64 = 3;

struct Server {
    shards: Shards,
    sync: SyncThread,
    told: Receiver<()>,
    /// Keeps `told` open where nobody reads aside.
    _tell: Sender<()>,
    start: Instant,
    next: u64,
}

impl Server {
    fn open(dir: &Path, reads_aside: bool) -> Result<Self, Box<dyn Error>> {
        let options = LogOptions::new(ClusterId::default());
        let (log, found) = CommandLog::open(Arc::new(RealDisk), &dir.join("log"), options)?;
        let sync = SyncThread::start(log.syncer(), SyncPolicy::default(), Box::new(|_, _| ()))?;
        let options = RowOptions { overlay_bytes: 8 << 20, cache_bytes: 4 << 20, block_cache_bytes: 1 << 20 };
        let (tell, told) = channel();
        let mut rows = RowStore::open(&dir.join("rows"), options, Arc::new(sync.handle()), Box::new(|| ()))?;
        if reads_aside {
            let tell = tell.clone();
            let notify: ReadNotify = Arc::new(move || tell.send(()).unwrap_or_default());
            rows.start_readers(&notify, None)?;
        }
        rows.check_log(found.first, found.last)?;
        let mut rules = Group::new(Config::default(), rows)?;
        replay(&mut rules, &log, found.last)?;
        let mut shards = Shards::new(rules, log, sync.handle());
        shards.start();
        let mut server = Self { shards, sync, told, _tell: tell, start: Instant::now(), next: 0 };
        if found.last == LogSeq(0) {
            server.step(Input::Map { own: OWN, map: map(ShardState::New) })?;
            server.settle()?;
        }
        server.step(Input::Map { own: OWN, map: map(ShardState::Active) })?;
        let fences = FencesReply { epoch: FenceEpoch(0), fences: vec![], sessions: vec![], closed: vec![] };
        server.step(Input::Fences(fences))?;
        server.settle()?;
        Ok(server)
    }

    fn clock(&self) -> (Millis, Timestamp) {
        let ms = 1 + self.start.elapsed().as_millis() as u64;
        (Millis(ms), Timestamp { secs: 1_000_000 + (ms / 1_000) as i64, nanos: 0 })
    }

    fn step(&mut self, input: Input) -> Outcome {
        let (now, wall) = self.clock();
        Ok(self.shards.step(now, wall, input)?)
    }

    fn ask(&mut self, message: MetaRequest) -> Result<u64, Box<dyn Error>> {
        self.next += 1;
        let reply_to = self.next;
        let (incarnation, node) = (Incarnation(1), NodeId(0));
        let peer = PeerIdentity { role: Role::Client, client: ClientId(1), incarnation, node };
        let call = ShardCall {
            shard: ShardId(0),
            slot: Slot(0),
            seq: Seq(self.next),
            epoch: 1,
            ..ShardCall::default()
        };
        self.step(Input::Request(Request { reply_to, peer, epoch: FenceEpoch(0), call, message }))?;
        Ok(reply_to)
    }

    fn round(&mut self) -> Result<Vec<Reply>, Box<dyn Error>> {
        let (now, wall) = self.clock();
        self.shards.take_read(now, wall)?;
        if self.shards.rules().next_deadline().is_some_and(|at| at <= now) {
            self.step(Input::Tick)?;
        }
        self.shards.end_round()?;
        self.shards.release()?;
        Ok(std::mem::take(&mut self.shards.out.replies))
    }

    /// All is durable.
    fn settle(&mut self) -> Result<Vec<Reply>, Box<dyn Error>> {
        let mut replies = self.round()?;
        loop {
            let durable = self.sync.handle().wait_all(LIMIT)?;
            self.step(Input::Durable(durable))?;
            replies.extend(self.round()?);
            if self.shards.rules().last_seq() == durable {
                return Ok(replies);
            }
        }
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
    let shard = ShardEntry {
        shard: ShardId(0),
        members: vec![OWN],
        leader: OWN,
        epoch: 1,
        state,
        era: 0,
        newer_are_lost: None,
    };
    MapReply {
        version: MapVersion(1),
        nodes: vec![node],
        shards: vec![shard],
        command_level: 1,
        ..MapReply::default()
    }
}

/// Makes the files; their inodes.
fn make(dir: &Path) -> Result<Vec<Ino>, Box<dyn Error>> {
    let mut server = Server::open(dir, false)?;
    let mut inos = Vec::new();
    while (inos.len() as u64) < FILES {
        for n in 0..500 {
            let name = Name::new(format!("file {}", inos.len() + n).as_bytes()).map_err(|_| "a bad name")?;
            server.ask(
                Create {
                    umask: 0,
                    parent: Ino::ROOT,
                    name,
                    mode: 0o644,
                    uid: 1,
                    gid: 1,
                    exclusive: false,
                    truncate: false,
                    open: None,
                    open_seq: 0,
                    policy: None,
                }
                .into(),
            )?;
        }
        for reply in server.settle()? {
            let body = reply.result.map_err(|refusal| refusal.to_string())?;
            inos.push(OpenReply::from_bytes(&body)?.attr.ino);
        }
    }
    server.shards.flush(LIMIT)?;
    Ok(inos)
}

/// What the kernel keeps of the rows in memory goes.
fn drop_pages(dir: &Path) -> Outcome {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            drop_pages(&entry.path())?;
        } else {
            let file = std::fs::File::open(entry.path())?;
            rustix::fs::fadvise(file.as_fd(), 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// How long the stats of files in memory took, how many others were answered, and what the rules say of it.
fn phase(dir: &Path, inos: &[Ino], aside: bool, cold: bool, seed: u64) -> Result<String, Box<dyn Error>> {
    drop_pages(&dir.join("rows"))?;
    let mut server = Server::open(dir, aside)?;
    let warm = |n: u64| inos[(n % WARM * 997) as usize];
    let mut asked = BTreeSet::new();
    for n in 0..WARM {
        asked.insert(server.ask(GetAttr { ino: warm(n) }.into())?);
    }
    let end = Instant::now() + LIMIT;
    while !asked.is_empty() && Instant::now() < end {
        for reply in server.round()? {
            asked.remove(&reply.to);
        }
        let _ = server.told.recv_timeout(Duration::from_millis(1));
    }
    let mut state = seed;
    let start = Instant::now();
    let (mut warm_due, mut cold_due) = (start, start);
    let (mut waits, mut times, mut cold_done) = (BTreeMap::new(), Vec::new(), 0u64);
    let mut count = 0;
    while start.elapsed() < PHASE {
        let now = Instant::now();
        if cold && cold_due <= now {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let ino = inos[(state >> 33) as usize % inos.len()];
            server.ask(GetAttr { ino }.into())?;
            cold_due += COLD_EVERY;
        }
        while warm_due <= now {
            count += 1;
            waits.insert(server.ask(GetAttr { ino: warm(count) }.into())?, warm_due);
            warm_due += WARM_EVERY;
        }
        for reply in server.round()? {
            match waits.remove(&reply.to) {
                Some(due) => times.push(due.elapsed()),
                None => cold_done += 1,
            }
        }
        let _ = server.told.recv_timeout(warm_due.saturating_duration_since(Instant::now()));
    }
    times.sort_unstable();
    let at =
        |permille: usize| times.get(times.len() * permille / 1_000).map_or(0.0, |t| t.as_secs_f64() * 1e3);
    let (own, way) = (if cold { "with" } else { "without" }, if aside { "aside" } else { "in place" });
    Ok(format!(
        "read {way:<8} {own:>7} cold stats: {:>5} warm, p50 {:>7.3} ms, p99 {:>8.3} ms, p99.9 {:>8.3} ms, longest {:>8.3} ms; \
         {cold_done} cold",
        times.len(),
        at(500),
        at(990),
        at(999),
        times.last().map_or(0.0, |t| t.as_secs_f64() * 1e3),
    ))
}

fn main() -> Outcome {
    let root = std::env::args_os().nth(1).map(PathBuf::from).ok_or("which directory?")?;
    let root = root.join(format!("skep-cold-rows-{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    let inos = make(&root)?;
    for round in 0..ROUNDS {
        for (aside, cold) in [(false, false), (true, false), (false, true), (true, true)] {
            println!("{}", phase(&root, &inos, aside, cold, round * 7 + 1)?);
        }
    }
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
