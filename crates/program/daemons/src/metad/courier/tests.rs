use super::pool::{FURTHER_THREADS_MAX, QUEUE_MAX};
use super::*;
use skep_meta::ShardMessage;
use skep_net::{
    Answer, Endpoint, EventLimits, EventServer, Handler, Listener, Log, Payload, Peer, PeerInfo, StopHandle,
    StreamLimits, StreamServer,
};
use skep_types::{
    Capacity, CapacityClass, ChunkId, Consistency, Encode, Generation, Ino, MapVersion, PoolId, Reachability,
    ServiceKind, Term,
};
use skep_wire::meta::{Decide, ShardStamp, TxnId};
use skep_wire::mgmt::{Address, NodeEntry, ShardState, TargetEntry};
use skep_wire::storage::{ChunkReply, DeleteChunks, ShardTerm, TrimChunk};
use skep_wire::{Empty, Header, Message, Refusal, Welcome};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const AWAY: NodeId = NodeId(9);
const SHARD: ShardId = ShardId(3);
/// No test waits for longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn map(version: u64, base: u64) -> MapReply {
    let node = NodeEntry {
        node: AWAY,
        service: ServiceKind::Storaged,
        alias: String::new(),
        addresses: Vec::new(),
        machine: machine_id(),
        reachability: Reachability::Online,
        incarnation: Incarnation(1),
        domain: String::new(),
    };
    MapReply {
        version: MapVersion(version),
        base: MapVersion(base),
        nodes: vec![node],
        command_level: 1,
        ..MapReply::default()
    }
}

/// Goal: a map that is older, or that says only what changed, never makes a target look removed.
#[test]
fn older_maps_are_not_believed() {
    assert!(is_newer(None, &map(3, 0)));
    assert!(is_newer(Some(&map(3, 0)), &map(3, 0)) && is_newer(Some(&map(3, 0)), &map(4, 0)));
    assert!(!is_newer(Some(&map(3, 0)), &map(2, 0)), "older");
    assert!(!is_newer(Some(&map(3, 0)), &map(4, 3)) && !is_newer(None, &map(4, 3)), "a difference");
}

/// A request as the destination saw it: its kind, the line, the number of the connection.
type Seen = (u16, u32, u64);

#[derive(Default)]
struct Told {
    seen: Vec<Seen>,
    /// Requests in work, and the most that there were at once, of stalled kinds.
    in_work: usize,
    most: usize,
    /// Requests of these kinds are not answered.
    stalled: BTreeSet<u16>,
    connections: usize,
}

/// A destination that answers everything but what it is told not to.
#[derive(Default)]
struct Fake {
    told: Mutex<Told>,
    changed: Condvar,
}

impl Fake {
    fn change<T>(&self, change: impl FnOnce(&mut Told) -> T) -> T {
        let changed = change(&mut self.told.lock().unwrap());
        self.changed.notify_all();
        changed
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Told) -> bool) {
        let told = self.told.lock().unwrap();
        let waited = self.changed.wait_timeout_while(told, PATIENCE, |told| !is_so(told)).unwrap();
        assert!(!waited.1.timed_out(), "{what}: {:?}", waited.0.seen);
    }
}

struct Shared(Arc<Fake>);

impl Handler for Shared {
    fn hello(&self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        self.0.change(|told| told.connections += 1);
        Ok(Welcome {
            version: hello.version_max,
            features: 0,
            service: ServiceKind::Storaged,
            node: AWAY,
            incarnation: Incarnation(1),
            cluster: hello.cluster,
            epoch: FenceEpoch(0),
        })
    }

    fn handle(&self, peer: &Peer, header: &Header, _body: &[u8], _payload: &mut Payload) -> Answer {
        let kind = header.kind;
        self.0.change(|told| told.seen.push((kind, peer.hello.group, peer.hello.connection)));
        self.0.change(|told| {
            told.in_work += usize::from(told.stalled.contains(&kind));
            told.most = told.most.max(told.in_work);
        });
        let told = self.0.told.lock().unwrap();
        let was_stalled = told.stalled.contains(&kind);
        drop(self.0.changed.wait_while(told, |told| told.stalled.contains(&kind)).unwrap());
        self.0.change(|told| told.in_work -= usize::from(was_stalled));
        match kind {
            TrimChunk::KIND => Answer::done(&ChunkReply { size: 0, blocks: 7, life: 1 }),
            DeleteChunks::KIND => Answer::done(&Empty {}),
            _ => Answer {
                status: 0,
                body: [ShardStamp::default().to_bytes(), Empty {}.to_bytes()].concat(),
                payload: 0,
            },
        }
    }

    fn closed(&self, _peer: &Peer) {
        self.0.change(|told| told.connections -= 1);
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

struct Bed {
    fake: Arc<Fake>,
    courier: Courier,
    mailbox: Arc<Mailbox>,
    results: Vec<(u64, Result<JobReply, JobFailure>)>,
    map: MapReply,
    next: u64,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Bed {
    /// A courier and one destination with 16 targets and a shard.
    fn new(times: Times) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = Endpoint::Unix(dir.path().join("s"));
        let (keyring, log) = (Keyring::insecure(), Log::new(|_| {}));
        let listeners = vec![Listener::bind(&at).unwrap()];
        let server =
            StreamServer::new(listeners, keyring.clone(), StreamLimits::default(), log.clone()).unwrap();
        let (stop, fake) = (server.stop_handle(), Arc::new(Fake::default()));
        let shared = Shared(fake.clone());
        let thread = std::thread::spawn(move || server.run(&shared).unwrap());
        let loop_of_owner =
            EventServer::new(Vec::new(), keyring.clone(), EventLimits::default(), log).unwrap();
        let mailbox = Arc::new(Mailbox::new(loop_of_owner.waker(), dir.path().into()));
        let mut courier = Courier::new(Arc::new(keyring), NodeId(4), Incarnation(5), mailbox.clone());
        courier.times = times;
        let mut map = map(1, 0);
        map.nodes[0].addresses = vec![Address { text: at.to_string(), nic: String::new(), preference: 0 }];
        map.targets = (0..16).map(target).collect();
        let (members, leader, state) = (vec![AWAY], AWAY, ShardState::Active);
        map.shards =
            vec![ShardEntry { shard: SHARD, members, leader, epoch: 2, state, era: 0, newer_are_lost: None }];
        courier.set_map(map.clone());
        let (results, thread) = (Vec::new(), Some(thread));
        Self { fake, courier, mailbox, results, map, next: 1, stop, thread, _dir: dir }
    }

    fn send(&mut self, job: Job) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send_as(id, job);
        id
    }

    fn send_as(&mut self, id: u64, job: Job) {
        let by = ShardTerm { shard: SHARD, term: Term(1) };
        self.courier.send(Task { id, by, job }, FenceEpoch(0));
    }

    fn result(&mut self, id: u64) -> Result<JobReply, JobFailure> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.results.extend(self.mailbox.take().results);
            if let Some(at) = self.results.iter().position(|(task, _)| *task == id) {
                return self.results.swap_remove(at).1;
            }
            assert!(Instant::now() < until, "task {id} has no result");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stall(&self, kinds: &[u16]) {
        self.fake.change(|told| told.stalled = kinds.iter().copied().collect());
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stall(&[]);
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

fn target(id: u32) -> TargetEntry {
    TargetEntry {
        target: TargetId(id),
        alias: String::new(),
        node: AWAY,
        consistency: Consistency::Good,
        capacity: Capacity::default(),
        pool: PoolId(1),
        class: CapacityClass::Normal,
        filesystem: 0,
        failures: 0,
        decisions: 0,
        served: true,
    }
}

fn chunk(ino: u64) -> ChunkId {
    ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
}

fn delete(target: u32) -> Job {
    Job::Delete { target: TargetId(target), chunks: vec![chunk(1)] }
}

fn trim(target: u32, ino: u64) -> Job {
    Job::Trim { target: TargetId(target), chunk: chunk(ino), size: 0, keeps_reserved: false }
}

fn tell() -> Job {
    let (txid, floor, commit) = (TxnId::default(), TxnId::default(), true);
    Job::Shard { shard: SHARD, message: ShardMessage::Decide(Decide { txid, floor, commit }) }
}

const TIMES: Times = Times { job: PATIENCE, idle: PATIENCE };

/// Goal: a destination that stalls deletions delays neither truncates nor messages of shards; as many deletions as there are
/// lines are under way, no more; all are done in the end.
#[test]
fn classes_do_not_wait_for_each_other() {
    let mut bed = Bed::new(TIMES);
    bed.stall(&[DeleteChunks::KIND]);
    let deletions: Vec<u64> = (0..16).map(|on| bed.send(delete(on))).collect();
    bed.fake.wait("deletions", |told| told.in_work == Class::Deletions.lines() as usize);
    let trims: Vec<u64> = (0..16).map(|on| bed.send(trim(on, 1))).collect();
    let told = bed.send(tell());
    assert_eq!(bed.result(told), Ok(JobReply::Done));
    for id in trims {
        assert_eq!(bed.result(id), Ok(JobReply::Trimmed(7)));
    }
    bed.fake.wait("deletions", |told| told.most == Class::Deletions.lines() as usize);
    bed.stall(&[]);
    for id in deletions {
        assert_eq!(bed.result(id), Ok(JobReply::Done));
    }
    assert_eq!(bed.fake.change(|told| told.most), Class::Deletions.lines() as usize);
}

/// Goal: messages to shards are under way together, up to the bound; a target that hangs leaves the others of its server
/// their lines.
#[test]
fn several_are_under_way_at_once() {
    let mut bed = Bed::new(TIMES);
    bed.stall(&[Decide::KIND, TrimChunk::KIND]);
    let told: Vec<u64> = (0..20).map(|_| bed.send(tell())).collect();
    bed.fake.wait("messages", |told| told.in_work == Class::Messages.lines() as usize);
    let trims: Vec<u64> = (0..20).map(|ino| bed.send(trim(0, ino))).collect();
    bed.fake.wait("truncates", |told| told.in_work == Class::Messages.lines() as usize + 2);
    bed.fake.change(|told| told.stalled.remove(&TrimChunk::KIND));
    trims.into_iter().for_each(|id| drop(bed.result(id).unwrap()));
    let lines: BTreeSet<u32> = bed.fake.change(|told| {
        told.seen.iter().filter(|(kind, ..)| *kind == TrimChunk::KIND).map(|(_, line, _)| *line).collect()
    });
    assert_eq!(lines.len(), 2, "of one target");
    bed.stall(&[]);
    told.into_iter().for_each(|id| drop(bed.result(id).unwrap()));
}

/// Goal: what waits in a line is bounded, and one task more is handed back with the reason.
#[test]
fn queues_are_bounded() {
    let mut bed = Bed::new(TIMES);
    bed.stall(&[DeleteChunks::KIND]);
    let mut all = vec![bed.send(delete(0))];
    bed.fake.wait("a deletion", |told| told.in_work == 1);
    all.extend((0..QUEUE_MAX).map(|_| bed.send(delete(0))));
    let late = bed.send(delete(0));
    let JobFailure(why) = bed.result(late).unwrap_err();
    assert!(why.contains("256 tasks wait"), "{why}");
    bed.stall(&[]);
    all.into_iter().for_each(|id| drop(bed.result(id).unwrap()));
}

/// Goal: a truncate that was not answered goes by the same line when it is sent again, on a newer connection: so the server
/// has done with the first one before it begins the second, and hears no more of it.
#[test]
fn what_is_sent_again_silences_what_was_sent_before() {
    let mut bed = Bed::new(Times { job: Duration::from_secs(1), ..TIMES });
    bed.stall(&[TrimChunk::KIND]);
    let id = bed.send(trim(3, 8));
    assert!(bed.result(id).is_err(), "time is over");
    bed.stall(&[]);
    for _ in 0..3 {
        bed.send_as(id, trim(3, 8));
        bed.result(id).unwrap();
    }
    let seen = bed.fake.change(|told| told.seen.clone());
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.iter().all(|(_, line, _)| *line == seen[0].1), "{seen:?}");
    assert!(seen[1].2 > seen[0].2 && seen[2] == seen[1], "{seen:?}");
}

/// Goal: threads and connections end when there is nothing to do, and when the destination begins another life, whose
/// connections have higher numbers; what waited then is handed back.
#[test]
fn threads_end() {
    let mut bed = Bed::new(Times { idle: Duration::from_millis(20), ..TIMES });
    for _ in 0..2 {
        let all: Vec<u64> = (0..16).map(|on| bed.send(trim(on, 1))).collect();
        all.into_iter().for_each(|id| drop(bed.result(id).unwrap()));
        bed.fake.wait("all connections end", |told| told.connections == 0);
        assert_eq!(bed.courier.further.load(Relaxed), 0);
    }
    bed.stall(&[DeleteChunks::KIND]);
    let (hangs, waits) = (bed.send(delete(0)), bed.send(delete(0)));
    bed.fake.wait("a deletion", |told| told.in_work == 1);
    let before = bed.fake.change(|told| told.seen.last().copied().unwrap());
    bed.map.version.0 += 1;
    bed.map.nodes[0].incarnation = Incarnation(2);
    bed.courier.set_map(bed.map.clone());
    assert!(bed.result(waits).is_err());
    bed.stall(&[]);
    bed.result(hangs).unwrap();
    let next = bed.send(delete(0));
    bed.result(next).unwrap();
    let after = bed.fake.change(|told| told.seen.last().copied().unwrap());
    assert!(after.1 == before.1 && after.2 > before.2, "{before:?} {after:?}");
    bed.fake.wait("all connections end", |told| told.connections == 0);
}

/// Goal: threads that a burst needed end also while there is a little to do all the time: one that waits does not get its
/// turn for the sake of turns.
#[test]
fn threads_end_under_a_light_load() {
    let mut bed = Bed::new(Times { idle: Duration::from_millis(300), ..TIMES });
    bed.stall(&[TrimChunk::KIND]);
    let burst: Vec<u64> = (0..8).map(|n| bed.send(trim(n / 2, u64::from(n)))).collect();
    bed.fake.wait("a burst", |told| told.in_work == Class::Trims.lines() as usize);
    bed.stall(&[]);
    burst.into_iter().for_each(|id| drop(bed.result(id).unwrap()));
    assert_eq!(bed.courier.further.load(Relaxed), 7);
    let until = Instant::now() + PATIENCE;
    // A second one may take what comes before the first one is back.
    while bed.courier.further.load(Relaxed) > 1 {
        assert!(Instant::now() < until, "{} threads have turns", bed.courier.further.load(Relaxed));
        let id = bed.send(trim(0, 0));
        bed.result(id).unwrap();
    }
}

/// Goal: when the courier has as many threads as it may have, each pool still has one, which serves its lines in turn.
#[test]
fn one_thread_serves_all_lines() {
    let mut bed = Bed::new(TIMES);
    bed.courier.further.store(FURTHER_THREADS_MAX, Relaxed);
    bed.stall(&[DeleteChunks::KIND]);
    let deletions: Vec<u64> = (0..16).map(|on| bed.send(delete(on))).collect();
    bed.fake.wait("a deletion", |told| told.in_work == 1);
    let told = bed.send(tell());
    bed.result(told).unwrap();
    bed.stall(&[]);
    deletions.into_iter().for_each(|id| drop(bed.result(id).unwrap()));
    assert_eq!(bed.fake.change(|told| told.most), 1);
    assert_eq!(bed.courier.further.load(Relaxed), FURTHER_THREADS_MAX);
}
