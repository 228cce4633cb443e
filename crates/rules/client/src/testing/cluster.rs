//! The fake cluster and the port to it.

use super::shard::Shard;
use super::target::Targets;
use crate::port::{Answer, Call, Dropped, MGMTD, Outcome, Port};
use crate::state::{Ended, Mounting, Shared};
use crate::{Lane, Limits};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use skep_types::{
    Capacity, ClientId, Consistency, Decode, Encode, FenceEpoch, Incarnation, Ino, MapVersion, Millis,
    NodeId, Reachability, Reader, ServiceKind, ShardId, TargetId, Timestamp, Uuid,
};
use skep_wire::meta::{Events, MetaRequest, Recalled, ShardCall};
use skep_wire::mgmt::{
    HeartbeatReply, MapReply, MgmtRequest, NodeEntry, OpenSessionReply, RegistryAge, ShardEntry, ShardState,
    SpaceReply, TargetEntry, TargetSpace,
};
use skep_wire::storage::{Clock, StorageRequest};
use skep_wire::{Empty, Lead, Message, Refusal, Status, View};

/// The metadata server.
pub const METAD: NodeId = NodeId(1);
/// Another one: it has the shards when they were given to it, or the shard beside when that is apart.
pub const METAD_2: NodeId = NodeId(4);
/// The storage daemon of all targets.
pub const STORAGED: NodeId = NodeId(2);
/// Has the targets that are elsewhere.
pub const STORAGED_2: NodeId = NodeId(3);
/// Of all servers. A mount has another one, unless it says so.
pub const MACHINE: Uuid = Uuid([7; 16]);

/// What goes wrong with the next call of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Executed, but the answer is lost.
    LoseAnswer,
    /// Lost before it was executed.
    LoseRequest,
    /// No connection.
    Unreachable,
    /// No answer for so many milliseconds, and then it is given up.
    Silent(u64),
    Refuse(Status),
    /// It is on its way for so many milliseconds before it is executed.
    Held(u64),
    /// Refused with ELSEWHERE, by one that knows this map.
    Elsewhere(View),
    /// Executed, and the answer comes at the next poll.
    LateAnswer,
    /// Executed, and the answer cannot be understood.
    Garble,
}

/// Everything behind the port.
pub struct Cluster {
    pub shard: Shard,
    /// Another one of the same server, if there is one.
    pub beside: Option<Shard>,
    /// That one has a server of its own.
    pub apart: bool,
    pub targets: Targets,
    pub now: u64,
    /// Free bytes, as mgmtd says when it is asked for them.
    pub free: u64,
    pub incarnation: u64,
    pub faults: BTreeMap<u16, VecDeque<Fault>>,
    pub counts: BTreeMap<u16, usize>,
    /// Kinds of which the port was told that they change something.
    pub changing: BTreeSet<u16>,
    pub cancelled: bool,
    /// So often those who tell what is held were woken.
    pub woken: usize,
    /// So often the kernel was made to ask about a file; and whether it does not.
    pub settled: usize,
    pub unsettled: bool,
    /// See [`Port::caller`].
    pub caller: u32,
    pub lines: Vec<String>,
    pub sessions: u64,
    /// Targets on a server of their own.
    pub elsewhere: Vec<TargetId>,
    /// A target that answers no read for so many milliseconds.
    pub hangs: Option<(TargetId, u64)>,
    /// Targets that an administrator took out.
    pub removed: Vec<TargetId>,
    /// Who answers for the shards, in which epoch.
    pub seat: Lead,
    /// The same, and their state, as mgmtd tells it.
    pub told: (Lead, ShardState),
    /// So many requests more find that the other server has just taken the shards over.
    pub flees: u32,
    /// The epoch that the last request for a shard carried.
    pub epoch_seen: u64,
    /// How often mounts rang for who hears.
    pub bells: usize,
    /// An answer is on its way.
    late: bool,
    /// For how long the answer to what is asked now is wanted.
    wanted_for: Option<u64>,
    /// The same of what was asked for events, or told of leases.
    pub waits: Vec<(u16, Option<u64>)>,
    /// Pages that kernels were told to drop: the mount, the file, the first byte, the number of bytes.
    pub drops: Vec<(u64, Ino, u64, u64)>,
    /// Attributes that kernels were told to drop, each with the requests that there had been by then.
    pub attr_drops: Vec<(Ino, usize)>,
    /// So many times more a kernel does not know what it is to drop.
    pub unknown_drops: usize,
    /// Names that kernels were told to drop.
    pub name_drops: Vec<Vec<u8>>,
    /// What becomes of the next ones of those; behind these they are dropped.
    pub name_answers: VecDeque<Dropped>,
    /// How often they were told to drop all names, and whether something is mounted.
    pub bumps: usize,
    pub has_mounts: bool,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            shard: Shard::new(ShardId(0)),
            beside: None,
            apart: false,
            targets: Targets::default(),
            now: 0,
            free: 40,
            incarnation: 1,
            faults: BTreeMap::new(),
            woken: 0,
            counts: BTreeMap::new(),
            changing: BTreeSet::new(),
            cancelled: false,
            caller: 1,
            lines: Vec::new(),
            sessions: 0,
            elsewhere: Vec::new(),
            hangs: None,
            removed: Vec::new(),
            seat: Lead { node: METAD, epoch: 1 },
            told: (Lead { node: METAD, epoch: 1 }, ShardState::Active),
            flees: 0,
            epoch_seen: 0,
            bells: 0,
            late: false,
            settled: 0,
            unsettled: false,
            wanted_for: None,
            waits: Vec::new(),
            drops: Vec::new(),
            attr_drops: Vec::new(),
            unknown_drops: 0,
            name_drops: Vec::new(),
            name_answers: VecDeque::new(),
            bumps: 0,
            has_mounts: false,
        }
    }
}

impl Cluster {
    /// The metadata server begins a new life, with all its shards.
    pub fn restarts(&mut self) {
        self.incarnation += 1;
        self.shard.begins();
        self.beside.iter_mut().for_each(Shard::begins);
    }

    /// The next calls of message number `kind` go wrong.
    pub fn fail(&mut self, kind: u16, faults: &[Fault]) {
        self.faults.entry(kind).or_default().extend(faults);
    }

    /// How often message number `kind` was sent.
    pub fn count(&self, kind: u16) -> usize {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// How often each message was sent, by number.
    pub fn kinds(&self) -> BTreeMap<u16, usize> {
        self.counts.clone()
    }

    /// All requests so far.
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }

    fn handle(&mut self, mount: u64, call: &mut Call<'_>) -> Outcome {
        *self.counts.entry(call.kind).or_default() += 1;
        if call.changing {
            self.changing.insert(call.kind);
        }
        let fault = self.faults.get_mut(&call.kind).and_then(VecDeque::pop_front);
        let (status, body, payload) = match fault {
            Some(Fault::Unreachable) => return Outcome::Unreachable,
            Some(Fault::LoseRequest) => return Outcome::Lost,
            Some(Fault::Silent(ms)) => {
                self.now += ms;
                return Outcome::Lost;
            }
            Some(Fault::Refuse(status)) => {
                let clock = self.targets.clock.map(|clock| Box::new(Clock { ms: self.now, ..clock }));
                let clock = clock.filter(|_| status == Status::TOO_LATE);
                self.refuse(call.node, &Refusal { clock, ..Refusal::new(status) })
            }
            Some(Fault::Elsewhere(view)) => {
                let refusal = Refusal { view: Some(Box::new(view)), ..Refusal::new(Status::ELSEWHERE) };
                self.refuse(call.node, &refusal)
            }
            Some(Fault::Held(ms)) => {
                self.now += ms;
                self.execute(mount, call)
            }
            None | Some(Fault::LoseAnswer | Fault::LateAnswer) => self.execute(mount, call),
            Some(Fault::Garble) => (self.execute(mount, call).0, Vec::from([0xff]), 0),
        };
        self.late |= fault == Some(Fault::LateAnswer);
        if fault == Some(Fault::LoseAnswer) {
            return Outcome::Lost;
        }
        Outcome::Answer(Answer {
            status,
            body,
            payload_len: payload,
            incarnation: Incarnation(self.incarnation),
            epoch: FenceEpoch(0),
        })
    }

    fn refuse(&self, node: NodeId, refusal: &Refusal) -> (Status, Vec<u8>, usize) {
        let body = match node {
            METAD | METAD_2 => self.shard.stamped(refusal),
            _ => refusal.to_bytes(),
        };
        (refusal.status, body, 0)
    }

    fn execute(&mut self, mount: u64, call: &mut Call<'_>) -> (Status, Vec<u8>, usize) {
        let mut r = Reader::new(call.body);
        match call.node {
            MGMTD => {
                let request = MgmtRequest::decode(call.kind, &mut r).unwrap().unwrap();
                (Status(0), self.manage(&request), 0)
            }
            METAD | METAD_2 => {
                let shard_call = ShardCall::decode(&mut r).unwrap();
                self.epoch_seen = shard_call.epoch;
                if call.node == self.seat.node && self.flees > 0 {
                    self.flees -= 1;
                    let node = if call.node == METAD { METAD_2 } else { METAD };
                    self.seat = Lead { node, epoch: self.seat.epoch + 1 };
                }
                let is_apart = self.apart && shard_call.shard > ShardId(0);
                if call.node != if is_apart { METAD_2 } else { self.seat.node } {
                    let refusal = Refusal { lead: Some(self.seat), ..Refusal::new(Status::NOT_LEADER) };
                    return self.refuse(call.node, &refusal);
                }
                let request = MetaRequest::decode(call.kind, &mut r).unwrap().unwrap();
                let shard = match &mut self.beside {
                    Some(beside) if beside.id == shard_call.shard => beside,
                    _ => &mut self.shard,
                };
                shard.leases.now = self.now;
                match shard.request((mount, shard_call), &request, &mut self.targets) {
                    Ok(body) => (Status(0), body, 0),
                    Err(refusal) => (refusal.status, shard.stamped(&refusal), 0),
                }
            }
            _ => {
                let request = StorageRequest::decode(call.kind, &mut r).unwrap().unwrap();
                if let (StorageRequest::ReadChunk(read), Some((target, ms))) = (&request, self.hangs)
                    && read.target == target
                {
                    self.now += ms;
                }
                if let Some(clock) = &mut self.targets.clock {
                    clock.ms = self.now;
                }
                match self.targets.request(&request, call.payload, call.into) {
                    Ok((body, payload)) => (Status(0), body, payload),
                    Err(refusal) => (refusal.status, refusal.to_bytes(), 0),
                }
            }
        }
    }

    fn manage(&mut self, request: &MgmtRequest) -> Vec<u8> {
        match request {
            MgmtRequest::GetMap(_) => map(self).to_bytes(),
            MgmtRequest::GetSpace(_) => {
                let targets = map(self).targets;
                let free = |first| if first { self.free } else { 0 };
                let of = |(at, entry): (usize, &TargetEntry)| TargetSpace {
                    target: entry.target,
                    capacity: Capacity { bytes_free: free(at == 0), ..entry.capacity },
                };
                SpaceReply { targets: targets.iter().enumerate().map(of).collect() }.to_bytes()
            }
            MgmtRequest::OpenSession(_) => {
                self.sessions += 1;
                OpenSessionReply {
                    client: ClientId(self.sessions),
                    incarnation: Incarnation(1),
                    token: [0; 32],
                    cluster: Uuid([1; 16]),
                    epoch: FenceEpoch(0),
                    timeout_ms: 60_000,
                }
                .to_bytes()
            }
            MgmtRequest::RenewSession(_) => {
                let (map, registry) = (map(self).version, RegistryAge::default());
                HeartbeatReply { map, epoch: FenceEpoch(0), ended: 0, registry }.to_bytes()
            }
            _ => Empty {}.to_bytes(),
        }
    }
}

fn map(Cluster { removed, elsewhere, beside, told, apart, .. }: &Cluster) -> MapReply {
    let node = |node, service| NodeEntry {
        domain: String::new(),
        node,
        service,
        alias: format!("node-{node}"),
        addresses: Vec::new(),
        machine: MACHINE,
        reachability: Reachability::Online,
        incarnation: Incarnation(1),
    };
    let target = |target| TargetEntry {
        class: skep_types::CapacityClass::Normal,
        filesystem: 0,
        failures: 0,
        decisions: 0,
        served: true,
        pool: skep_types::PoolId(1),
        target: TargetId(target),
        alias: format!("target-{target}"),
        node: if elsewhere.contains(&TargetId(target)) { STORAGED_2 } else { STORAGED },
        consistency: Consistency::Good,
        capacity: Capacity { bytes: 100, bytes_free: 40, inodes: 10, inodes_free: 5 },
    };
    let shard = |shard| ShardEntry {
        shard: ShardId(shard),
        members: Vec::from([if *apart && shard > 0 { METAD_2 } else { told.0.node }]),
        leader: if *apart && shard > 0 { METAD_2 } else { told.0.node },
        epoch: told.0.epoch,
        state: told.1,
        era: 0,
        newer_are_lost: None,
    };
    MapReply {
        version: MapVersion((removed.len() + elsewhere.len()) as u64 + told.0.epoch),
        cluster: Uuid([1; 16]),
        nodes: Vec::from([
            node(METAD, ServiceKind::Metad),
            node(METAD_2, ServiceKind::Metad),
            node(STORAGED, ServiceKind::Storaged),
            node(STORAGED_2, ServiceKind::Storaged),
        ]),
        targets: (1..=3).map(target).filter(|entry| !removed.contains(&entry.target)).collect(),
        shards: (0..=u16::from(beside.is_some())).map(shard).collect(),
        command_level: 1,
        ..MapReply::default()
    }
}

async fn pend_once() {
    let mut pended = false;
    poll_fn(|_| match core::mem::replace(&mut pended, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// A port to the fake cluster. Every call pends once, as a port over real waits does.
#[derive(Clone)]
pub struct FakePort {
    cluster: Rc<RefCell<Cluster>>,
    mount: u64,
}

impl Port for FakePort {
    type Notice = ();

    fn is_asked(&self) {
        self.cluster.borrow_mut().woken += 1;
    }

    async fn call(&self, calls: &mut [Call<'_>]) {
        pend_once().await;
        {
            let cluster = &mut *self.cluster.borrow_mut();
            let shards = core::iter::once(&mut cluster.shard).chain(&mut cluster.beside);
            shards.for_each(|shard| shard.claims_under_way = false);
        }
        for call in calls {
            let cluster = &mut *self.cluster.borrow_mut();
            if [Events::KIND, Recalled::KIND].contains(&call.kind) {
                cluster.waits.push((call.kind, cluster.wanted_for));
            }
            call.outcome = cluster.handle(self.mount, call);
        }
        if core::mem::take(&mut self.cluster.borrow_mut().late) {
            pend_once().await;
        }
    }

    async fn pause(&self, ms: u64) {
        self.cluster.borrow_mut().now += ms;
        // Other lanes go on meanwhile.
        pend_once().await;
    }

    fn now(&self) -> Millis {
        Millis(self.cluster.borrow().now)
    }

    fn wall(&self) -> Timestamp {
        Timestamp { secs: 1_000 + self.cluster.borrow().now as i64, nanos: 0 }
    }

    fn cancelled(&self) -> bool {
        self.cluster.borrow().cancelled
    }

    fn caller(&self) -> u32 {
        self.cluster.borrow().caller
    }

    fn wanted_for(&self, ms: Option<u64>) {
        self.cluster.borrow_mut().wanted_for = ms;
    }

    fn uuid(&self) -> Uuid {
        Uuid([9; 16])
    }

    async fn drop_pages(&self, ino: Ino, from: u64, len: u64, _patience: Option<u64>) -> bool {
        pend_once().await;
        let mut cluster = self.cluster.borrow_mut();
        cluster.drops.push((self.mount, ino, from, len));
        !cluster.cancelled
    }

    async fn settle(&self, _ino: Ino) -> bool {
        pend_once().await;
        let mut cluster = self.cluster.borrow_mut();
        cluster.settled += 1;
        !cluster.unsettled
    }

    fn drop_attributes(&self, ino: Ino) -> Dropped {
        let mut cluster = self.cluster.borrow_mut();
        let total = cluster.total();
        cluster.attr_drops.push((ino, total));
        match cluster.unknown_drops.checked_sub(1) {
            None => Dropped::Done,
            Some(left) => {
                cluster.unknown_drops = left;
                Dropped::Unknown
            }
        }
    }

    fn drop_name(&self, _dir: Ino, name: &[u8]) {
        self.cluster.borrow_mut().name_drops.push(name.to_vec());
    }

    async fn noticed(&self, (): &(), patience: u64) -> Dropped {
        pend_once().await;
        let mut cluster = self.cluster.borrow_mut();
        let answer = cluster.name_answers.pop_front().unwrap_or(Dropped::Done);
        cluster.now += if answer == Dropped::Waits { patience } else { 0 };
        answer
    }

    fn drop_names(&self) -> Dropped {
        self.cluster.borrow_mut().bumps += 1;
        Dropped::Done
    }

    fn has_mounts(&self) -> bool {
        self.cluster.borrow().has_mounts
    }

    fn is_lent(&self) {
        self.cluster.borrow_mut().bells += 1;
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.cluster.borrow_mut().lines.push(format!("{line}"));
    }
}

/// A mount's lane on the fake cluster.
pub type FakeLane = Lane<FakePort, Rc<RefCell<Shared>>>;

/// A cluster with a mount on it.
pub fn mounted() -> (Rc<RefCell<Cluster>>, FakeLane) {
    let cluster = Rc::new(RefCell::new(Cluster::default()));
    let lane = mount(&cluster);
    (cluster, lane)
}

/// One more mount of the cluster.
pub fn mount(cluster: &Rc<RefCell<Cluster>>) -> FakeLane {
    mount_with(cluster, Limits::default())
}

/// The same, with limits of its own.
pub fn mount_with(cluster: &Rc<RefCell<Cluster>>, limits: Limits) -> FakeLane {
    let shared = Rc::new(RefCell::new(Shared::new(limits)));
    let port = FakePort { cluster: cluster.clone(), mount: cluster.borrow().sessions + 1 };
    let lane = Lane::new(shared, |_| port).unwrap();
    block_on(lane.attach(Mounting::default(), 1_000)).unwrap();
    lane
}

/// One more lane of a mount, which works while another one waits.
pub fn lane_beside(cluster: &Rc<RefCell<Cluster>>, lane: &FakeLane) -> FakeLane {
    let port = FakePort { cluster: cluster.clone(), mount: lane.port().mount };
    Lane::new(lane.shared.clone(), |_| port).unwrap()
}

/// One beside it that only hears.
pub fn ear_beside(cluster: &Rc<RefCell<Cluster>>, lane: &FakeLane) -> FakeLane {
    let port = FakePort { cluster: cluster.clone(), mount: lane.port().mount };
    Lane::that_hears(lane.shared.clone(), port)
}

/// Hears what `node` has to tell, and does what that leads to for waits: those that ended.
pub async fn heard(lane: &FakeLane, node: NodeId, wait_ms: u64) -> Vec<Ended> {
    let _ = lane.hear(node, wait_ms).await;
    lane.tend_waits(node).await.0
}

/// Polls once: the operation goes on until it waits for the next answer.
pub fn step<F: Future>(future: core::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls until ready: the whole executor that the core needs.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
