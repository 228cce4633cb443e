//! A metadata server on a bench: its hands are this file. Everything is deterministic.

use crate::check::check_invariants;
use crate::store::{MemoryStore, Store};
use crate::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use skep_types::log::Record;
use skep_types::*;
use skep_wire::meta::*;
use skep_wire::mgmt::{Fence, FencesReply, MapReply, NodeEntry, ShardEntry, ShardState, TargetEntry};
use skep_wire::storage::ChunkStat;
use skep_wire::{Refusal, Status};

pub const OWN: NodeId = NodeId(1);

/// A lane of a client.
#[derive(Debug, Clone, Copy)]
pub struct Who {
    pub client: u64,
    pub slot: u32,
}

/// The first client's first lane.
pub const ME: Who = Who { client: 1, slot: 0 };
/// The second client's first lane.
pub const OTHER: Who = Who { client: 2, slot: 0 };

pub struct Bed {
    pub server: Group<MemoryStore>,
    pub config: Config,
    pub log: Vec<Record>,
    /// Rows as of every log index, for crashes.
    pub snapshots: BTreeMap<u64, MemoryStore>,
    pub keep_snapshots: bool,
    pub now: Millis,
    pub tasks: Vec<Task>,
    pub deleted: BTreeSet<(TargetId, ChunkId)>,
    pub trimmed: Vec<(TargetId, ChunkId, u64)>,
    pub sizes: BTreeMap<ChunkId, u64>,
    pub replies: BTreeMap<u64, (ShardStamp, Result<Vec<u8>, Refusal>)>,
    /// Ticks follow at once while there is something to do at once, as in the daemon.
    pub works_off: bool,
    /// It steps now and then while time passes, as one that works.
    pub strides: bool,
    /// Make the log durable after every step.
    pub auto_sync: bool,
    /// Targets that do not answer.
    pub down: BTreeSet<TargetId>,
    pub courier_works: bool,
    /// Rows are on a disk, and forgotten before each request: so each is broken off where it lacks a row, and run again,
    /// in every test.
    pub forgets: bool,
    /// The disk gives what is read.
    pub disk_works: bool,
    /// Reads that it has not done.
    pub reads: Vec<Read>,
    /// After a restart targets answer before it is known who lives.
    pub targets_first: bool,
    /// Targets that do not seal.
    pub unsealable: BTreeSet<TargetId>,
    /// Limits that they keep.
    pub sealed: BTreeMap<ChunkId, u64>,
    /// What a shard of another server votes; absent: it is away.
    pub elsewhere: Option<Vote>,
    /// How it says that its transactions ended.
    pub outcome: TxnOutcome,
    /// What it was told and asked.
    pub asked: Vec<ShardMessage>,
    pub next_reply: u64,
    seqs: BTreeMap<(u64, u32, u16), u64>,
    pub shards: u16,
    pub fenced: Vec<u64>,
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
    /// A newer map was asked for.
    pub wants_map: bool,
    /// Clients that wish for leases, and how often theirs have lapsed.
    pub wishes: BTreeMap<u64, u64>,
    /// Of those, who wishes to hold what it makes.
    pub holding: BTreeSet<u64>,
    /// The next request says that this is closed.
    pub closing: Option<Closed>,
}

/// The cluster's key of names.
pub const NAMES: NamesKey = NamesKey([5; 16]);

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn map(shards: u16, targets: u32) -> MapReply {
    let node = |node: u32, service| NodeEntry {
        domain: String::new(),
        node: NodeId(node),
        service,
        alias: String::new(),
        addresses: vec![],
        machine: Uuid::default(),
        reachability: Reachability::Online,
        incarnation: Incarnation(1),
    };
    let capacity = Capacity { bytes: 1 << 40, bytes_free: 1 << 39, inodes: 9, inodes_free: 9 };
    MapReply {
        names: NAMES,
        base: MapVersion(0),
        gone: skep_wire::mgmt::Gone::default(),
        pools: Vec::new(),
        version: MapVersion(1),
        cluster: ClusterId::default(),
        nodes: vec![
            node(1, ServiceKind::Metad),
            node(2, ServiceKind::Storaged),
            node(3, ServiceKind::Storaged),
        ],
        targets: (1..=targets)
            .map(|id| TargetEntry {
                class: skep_types::CapacityClass::Normal,
                filesystem: 0,
                failures: 0,
                decisions: 0,
                served: true,
                pool: skep_types::PoolId(1),
                target: TargetId(id),
                alias: String::new(),
                node: NodeId(2 + id % 2),
                consistency: Consistency::Good,
                capacity,
            })
            .collect(),
        shards: (0..shards)
            .map(|id| {
                let (shard, state) = (ShardId(id), ShardState::Active);
                ShardEntry {
                    shard,
                    members: vec![OWN],
                    leader: OWN,
                    epoch: 1,
                    state,
                    era: 0,
                    newer_are_lost: None,
                }
            })
            .collect(),
        command_level: 1,
    }
}

impl Bed {
    pub fn new() -> Self {
        Self::with(Config::default(), 1)
    }

    pub fn with(config: Config, shards: u16) -> Self {
        let server = Group::new(config.clone(), MemoryStore::on_disk()).unwrap();
        let mut bed = Self {
            server,
            config,
            log: vec![],
            snapshots: BTreeMap::new(),
            keep_snapshots: false,
            now: Millis(1_000),
            tasks: vec![],
            deleted: BTreeSet::new(),
            trimmed: vec![],
            sizes: BTreeMap::new(),
            replies: BTreeMap::new(),
            works_off: true,
            strides: false,
            auto_sync: true,
            down: BTreeSet::new(),
            courier_works: true,
            forgets: true,
            disk_works: true,
            reads: vec![],
            targets_first: false,
            unsealable: BTreeSet::new(),
            sealed: BTreeMap::new(),
            elsewhere: None,
            outcome: TxnOutcome::Undecided,
            asked: vec![],
            next_reply: 1,
            seqs: BTreeMap::new(),
            shards,
            fenced: vec![],
            notes: vec![],
            warnings: vec![],
            wants_map: false,
            wishes: BTreeMap::new(),
            holding: BTreeSet::new(),
            closing: None,
        };
        bed.start(&[]);
        bed
    }

    /// Starts the server; sessions in `living` have a grace period.
    fn start(&mut self, living: &[u64]) {
        self.server.start();
        // As mgmtd does it: shards are new until their server says that it has formatted them.
        let mut fresh = map(self.shards, 5);
        fresh.shards.iter_mut().for_each(|entry| entry.state = ShardState::New);
        self.step(Input::Map { own: OWN, map: fresh });
        if self.targets_first {
            self.sync();
            self.run_courier();
        }
        let fences = self.fences(living);
        self.step(Input::Fences(fences));
        assert!(!self.server.is_ready(), "before mgmtd knows that its shards are formatted");
        self.sync();
        assert_eq!(self.server.formatted().len(), usize::from(self.shards));
        self.step(Input::Map { own: OWN, map: map(self.shards, 5) });
        self.sync();
        assert!(self.server.is_ready());
    }

    pub fn fences(&self, living: &[u64]) -> FencesReply {
        FencesReply {
            epoch: FenceEpoch(self.fenced.len() as u64),
            fences: self
                .fenced
                .iter()
                .map(|id| Fence { client: ClientId(*id), epoch: FenceEpoch(*id) })
                .collect(),
            sessions: living.iter().map(|id| ClientId(*id)).collect(),
            closed: vec![],
        }
    }

    /// Term of the first shard.
    pub fn term(&self) -> Term {
        self.standing().term
    }

    /// Index of its newest record.
    pub fn last(&self) -> LogIndex {
        self.standing().index
    }

    fn standing(&self) -> ShardStamp {
        self.server.standing(ShardId(0)).unwrap()
    }

    /// An inode row.
    pub fn inode(&self, ino: Ino) -> Option<Inode> {
        let row = self.server.store().get(&crate::key::inode(ino)).unwrap();
        row.map(|bytes| Inode::from_bytes(&bytes).unwrap())
    }

    /// The process dies: rows as of `applied` and the log up to `kept` survive.
    pub fn crash(&mut self, applied: u64, kept: u64, living: &[u64]) {
        let store = self.snapshots.get(&applied).cloned().unwrap_or_else(MemoryStore::on_disk);
        assert_eq!(store.applied(), LogSeq(applied));
        self.log.truncate(kept as usize);
        self.snapshots.retain(|index, _| *index <= kept);
        self.tasks.clear();
        self.replies.clear();
        self.reads.clear();
        self.server = Group::new(self.config.clone(), store).unwrap();
        for record in &self.log {
            self.server.replay(record).unwrap();
        }
        self.start(living);
    }

    /// The process dies and loses nothing that was written.
    pub fn restart(&mut self, living: &[u64]) {
        let kept = self.log.len() as u64;
        self.crash(0, kept, living);
    }

    pub fn wall(&self) -> Timestamp {
        Timestamp {
            secs: 1_000_000 + (self.now.0 / 1_000) as i64,
            nanos: (self.now.0 % 1_000) as u32 * 1_000_000,
        }
    }

    pub fn step(&mut self, input: Input) {
        let mut out = Output::default();
        self.now.0 += 1;
        if self.forgets {
            self.server.store().forget();
        }
        self.server.step(self.now, self.wall(), input, &mut out).unwrap();
        self.take(out);
        while self.works_off && self.server.next_deadline() == Some(Millis(0)) {
            let mut out = Output::default();
            self.server.step(self.now, self.wall(), Input::Tick, &mut out).unwrap();
            self.take(out);
        }
    }

    fn take(&mut self, out: Output) {
        for record in out.records {
            assert_eq!(record.seq.0, self.log.len() as u64 + 1);
            self.log.push(record);
            if self.keep_snapshots {
                // Steps log several records at times: only the last one's rows are at hand.
                self.snapshots.insert(self.server.last_seq().0, self.server.store().clone());
            }
        }
        for reply in out.replies {
            assert!(self.replies.insert(reply.to, (reply.stamp, reply.result)).is_none(), "answered twice");
        }
        self.notes.extend(out.notes);
        self.warnings.extend(out.warnings);
        self.wants_map |= out.fetch_map;
        self.tasks.extend(out.tasks);
        self.reads.extend(out.reads);
        self.reads.retain(|read| !out.reads_given_up.contains(&read.id));
        self.run_disk();
        if self.auto_sync {
            self.sync();
            self.run_courier();
        }
    }

    /// The disk gives what was asked for.
    pub fn run_disk(&mut self) {
        while self.disk_works && !self.reads.is_empty() {
            let read = self.reads.remove(0);
            self.server.store().bring(&read.wanted);
            let mut out = Output::default();
            self.server.step(self.now, self.wall(), Input::Read(read.id), &mut out).unwrap();
            self.take(out);
        }
    }

    /// The term of one shard ends, and the next one begins.
    pub fn restart_term(&mut self, shard: ShardId) {
        let mut out = Output::default();
        self.server.restart_term(self.now, self.wall(), shard, &mut out).unwrap();
        self.take(out);
    }

    pub fn sync(&mut self) {
        if self.server.last_seq().0 > 0 {
            let mut out = Output::default();
            let index = self.server.last_seq();
            self.server.step(self.now, self.wall(), Input::Durable(index), &mut out).unwrap();
            let auto = core::mem::replace(&mut self.auto_sync, false);
            self.take(out);
            self.auto_sync = auto;
            if self.server.last_seq() > index && auto {
                self.sync();
            }
        }
    }

    /// Targets do what the courier brings.
    pub fn run_courier(&mut self) {
        if !self.courier_works {
            return;
        }
        for task in core::mem::take(&mut self.tasks) {
            let result = self.job(&task.job);
            self.step(Input::Courier { task: task.id, result });
        }
    }

    fn job(&mut self, job: &Job) -> Result<JobReply, JobFailure> {
        let away = |target: &TargetId, down: &BTreeSet<TargetId>| {
            if down.contains(target) { Err(JobFailure("away".into())) } else { Ok(()) }
        };
        match job {
            Job::Delete { target, chunks } => {
                away(target, &self.down)?;
                self.deleted.extend(chunks.iter().map(|chunk| (*target, *chunk)));
                Ok(JobReply::Done)
            }
            Job::Trim { target, chunk, size, .. } => {
                away(target, &self.down)?;
                self.trimmed.push((*target, *chunk, *size));
                self.sizes.entry(*chunk).and_modify(|length| *length = (*length).min(*size));
                Ok(JobReply::Trimmed(0))
            }
            Job::Seal { target, chunk, floor } => {
                away(target, &self.down)?;
                if self.unsealable.contains(target) {
                    return Ok(JobReply::NotSealed("its disk failed".into()));
                }
                let end = self.sizes.get(chunk).copied().unwrap_or(0).max(*floor);
                let limit =
                    *self.sealed.entry(*chunk).and_modify(|limit| *limit = end.min(*limit)).or_insert(end);
                Ok(JobReply::Sealed(limit))
            }
            Job::Stat { target, chunks } => {
                away(target, &self.down)?;
                let stat = |chunk| ChunkStat {
                    size: self.sizes.get(chunk).copied().unwrap_or(0),
                    blocks: 1,
                    ..ChunkStat::default()
                };
                Ok(JobReply::Stats(chunks.iter().map(stat).collect()))
            }
            Job::Fetch { .. } => Err(JobFailure("the other server is away".into())),
            Job::Shard { message, .. } => {
                self.asked.push(message.clone());
                let vote =
                    self.elsewhere.clone().ok_or_else(|| JobFailure("the other server is away".into()))?;
                Ok(match message {
                    ShardMessage::Prepare(_) => JobReply::Voted(vote),
                    ShardMessage::Decide(_) => JobReply::Done,
                    ShardMessage::AskOutcome(_) => JobReply::Outcome(self.outcome),
                    ShardMessage::AskHistory(_) => JobReply::History(false),
                })
            }
        }
    }

    /// The request with a number of its own in the lane; its reply address.
    pub fn send(&mut self, who: Who, message: impl Into<MetaRequest>) -> u64 {
        let message = message.into();
        let shard = home(&message);
        let seq = self.seqs.entry((who.client, who.slot, shard.0)).or_default();
        *seq += 1;
        let seq = *seq;
        self.send_as(who, shard, seq, message)
    }

    /// The request with its last number once more.
    pub fn resend(&mut self, who: Who, message: impl Into<MetaRequest>) -> u64 {
        let message = message.into();
        let shard = home(&message);
        let seq = self.seqs[&(who.client, who.slot, shard.0)];
        self.send_as(who, shard, seq, message)
    }

    pub fn send_as(&mut self, who: Who, shard: ShardId, seq: u64, message: MetaRequest) -> u64 {
        self.send_role(Role::Client, who, shard, seq, message)
    }

    fn send_role(&mut self, role: Role, who: Who, shard: ShardId, seq: u64, message: MetaRequest) -> u64 {
        let to = self.next_reply;
        self.next_reply += 1;
        let peer = PeerIdentity {
            role,
            client: ClientId(if role == Role::Client { who.client } else { 0 }),
            incarnation: Incarnation(1),
            node: NodeId(0),
        };
        let lapses = self.wishes.get(&who.client).copied().filter(|_| role == Role::Client);
        let hold = if self.holding.contains(&who.client) { Wish::HOLD } else { 0 };
        let wish = lapses.map(|_| Wish::SHARED | hold);
        let closed = self.closing.take();
        let call = ShardCall { shard, slot: Slot(who.slot), seq: Seq(seq), epoch: 1, wish, lapses, closed };
        self.step(Input::Request(Request { reply_to: to, peer, epoch: FenceEpoch(0), call, message }));
        to
    }

    /// The answer, when there is one.
    pub fn reply<R: Decode>(&mut self, to: u64) -> Option<Result<R, Status>> {
        let (_, result) = self.replies.get(&to)?;
        Some(match result {
            Ok(body) => Ok(R::from_bytes(body).unwrap()),
            Err(refusal) => Err(refusal.status),
        })
    }

    /// Asks and takes the answer.
    pub fn call<M: skep_wire::Message + Into<MetaRequest>>(
        &mut self,
        who: Who,
        message: M,
    ) -> Result<M::Reply, Status> {
        let to = self.send(who, message);
        self.reply(to).expect("no answer")
    }

    /// As an administrator.
    pub fn admin<M: skep_wire::Message + Into<MetaRequest>>(
        &mut self,
        message: M,
    ) -> Result<M::Reply, Status> {
        let message = message.into();
        let shard = home(&message);
        let to = self.send_role(Role::Admin, ME, shard, 0, message);
        self.reply(to).expect("no answer")
    }

    /// As an administrator, without waiting.
    pub fn admin_send(&mut self, message: impl Into<MetaRequest>) -> u64 {
        let message = message.into();
        let shard = home(&message);
        self.send_role(Role::Admin, ME, shard, 0, message)
    }

    pub fn check(&self) {
        let problems = check_invariants(self.server.store(), self.config.hash).unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
    }

    pub fn create(&mut self, who: Who, parent: Ino, text: &str) -> Ino {
        self.try_create(who, parent, text).unwrap().attr.ino
    }

    pub fn try_create(&mut self, who: Who, parent: Ino, text: &str) -> Result<OpenReply, Status> {
        self.call(who, self::create(parent, text))
    }

    pub fn mkdir(&mut self, parent: Ino, text: &str) -> Ino {
        self.call(ME, node(parent, text, Kind::Dir)).unwrap().ino
    }

    pub fn attr(&mut self, ino: Ino) -> Result<Attr, Status> {
        self.call(ME, GetAttr { ino }).map(|reply| reply.attr)
    }

    pub fn lookup(&mut self, parent: Ino, text: &str) -> Result<Ino, Status> {
        self.call(ME, Lookup { parent, name: name(text), as_told: None }).map(|reply| reply.ino)
    }

    pub fn unlink(&mut self, who: Who, parent: Ino, text: &str) -> Result<(), Status> {
        self.call(who, Unlink { parent, name: name(text) }).map(|_| ())
    }

    pub fn open(&mut self, who: Who, ino: Ino, mode: OpenMode, open_seq: u64) -> Result<OpenReply, Status> {
        self.call(who, Open { ino, mode, truncate: false, shared: false, kill_suidgid: false, open_seq })
    }

    pub fn close(&mut self, who: Who, ino: Ino, open_seq: u64) {
        self.call(who, Close { opens: vec![Closed { ino, open_seq }] }).unwrap();
    }

    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<Attr, Status> {
        let data = codec::Bytes(data.to_vec());
        self.call(ME, WriteInline { append: false, ino, offset, data, kill_suidgid: false, within: None })
            .map(|reply| reply.attr)
    }

    pub fn truncate(&mut self, who: Who, ino: Ino, size: u64) -> Result<Attr, Status> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.call(who, ChangeAttr { ino, set }).map(|reply| reply.attr)
    }

    /// A truncate that nobody waits for.
    pub fn truncate_later(&mut self, ino: Ino, size: u64) -> u64 {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.send(ME, ChangeAttr { ino, set })
    }

    /// A file with chunks and a committed size.
    pub fn grown(&mut self, text: &str, size: u64) -> (Ino, Layout) {
        let ino = self.create(ME, Ino::ROOT, text);
        let grown = self.call(ME, Grow { like: None, ino, end: size }).unwrap();
        assert!(grown.copy.is_none());
        let mtime = self.wall();
        let commit = Commit {
            ino,
            generation: grown.layout.generation,
            size,
            mtime,
            blocks: None,
            kill_suidgid: false,
            cuts: 1,
            time_sets: 0,
            held: None,
        };
        self.call(ME, commit).unwrap();
        (ino, grown.layout)
    }
}

pub fn create(parent: Ino, text: &str) -> Create {
    Create {
        umask: 0,
        parent,
        name: name(text),
        mode: 0o644,
        uid: 7,
        gid: 8,
        exclusive: false,
        truncate: false,
        open: None,
        open_seq: 0,
        policy: None,
    }
}

pub fn node(parent: Ino, text: &str, kind: Kind) -> MakeNode {
    MakeNode { umask: 0, parent, name: name(text), kind, mode: 0o755, uid: 7, gid: 8, rdev: 5 }
}

pub fn new_dir() -> NewDir {
    NewDir {
        mode: 0o755,
        uid: 0,
        gid: 0,
        project: ProjectId(0),
        policy: None,
        access_acl: None,
        default_acl: None,
    }
}

pub fn rename(parent: Ino, from: &str, to_parent: Ino, to: &str) -> Rename {
    Rename { parent, name: name(from), to_parent, to_name: name(to), no_replace: false, exchange: false }
}

/// The shard that answers a request.
pub fn home(message: &MetaRequest) -> ShardId {
    match message {
        MetaRequest::Lookup(m) => m.parent.shard(),
        MetaRequest::GetAttr(m) => m.ino.shard(),
        MetaRequest::ChangeAttr(m) => m.ino.shard(),
        MetaRequest::Create(m) => m.parent.shard(),
        MetaRequest::MakeNode(m) => m.parent.shard(),
        MetaRequest::MakeSymlink(m) => m.parent.shard(),
        MetaRequest::ReadLink(m) => m.ino.shard(),
        MetaRequest::Link(m) => m.parent.shard(),
        MetaRequest::Unlink(m) => m.parent.shard(),
        MetaRequest::RemoveDir(m) => m.parent.shard(),
        MetaRequest::Rename(m) => m.parent.shard(),
        MetaRequest::List(m) => m.dir.shard(),
        MetaRequest::Open(m) => m.ino.shard(),
        MetaRequest::Commit(m) => m.ino.shard(),
        MetaRequest::ReadInline(m) => m.ino.shard(),
        MetaRequest::WriteInline(m) => m.ino.shard(),
        MetaRequest::Tell(m) => m.ino.shard(),
        MetaRequest::Grow(m) => m.ino.shard(),
        MetaRequest::Switch(m) => m.ino.shard(),
        MetaRequest::GetXattr(m) => m.ino.shard(),
        MetaRequest::SetXattr(m) => m.ino.shard(),
        MetaRequest::ListXattr(m) => m.ino.shard(),
        MetaRequest::RemoveXattr(m) => m.ino.shard(),
        MetaRequest::SetPolicy(m) => m.ino.shard(),
        MetaRequest::Inspect(m) => m.ino.shard(),
        MetaRequest::Repair(m) => m.ino.shard(),
        MetaRequest::MakeDirOn(m) => m.parent.shard(),
        MetaRequest::CreateTemp(m) => m.parent.shard(),
        MetaRequest::SetLock(m) => m.ino.shard(),
        MetaRequest::GetLock(m) => m.ino.shard(),
        MetaRequest::DropLocks(m) => m.ino.shard(),
        MetaRequest::CancelLock(m) => m.ino.shard(),
        MetaRequest::ReserveEnd(m) => m.ino.shard(),
        MetaRequest::SealExtent(m) => m.ino.shard(),
        _ => ShardId(0),
    }
}

pub fn errno(e: Errno) -> Status {
    Status::errno(e)
}
