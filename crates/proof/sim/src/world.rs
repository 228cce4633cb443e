//! The whole cluster in one thread: 1 mgmtd, 1 to 3 metads with 4 shards, 2 storage daemons with 2 targets
//! each, 3 clients with 2 lanes for programs and 1 for housekeeping. One seed decides everything.

mod copies;
mod daemons;
mod detour;
mod end;
mod held;
mod idle;
mod lent;
mod mishaps;
mod process;
mod reads;
mod seats;
mod still;
mod upkeep;

pub use end::INODE_TABLE;
pub use lent::is_hearer;
pub use seats::{HEARERS, TELLER};

use crate::hub::{CallId, Hub, HubRef, LaneId, METADS_MAX};
use crate::metad::{Faulty, Metad};
use crate::mgmtd::{Mgmtd, uuid};
use crate::network::Network;
use crate::queue::{Event, Queue};
use crate::storaged::Storaged;
use crate::task::Task;
use crate::{Options, Report};
use mishaps::Mood;
use seats::Seat;
use skep_client::MGMTD;
use skep_storage::ChunkFaults;
use skep_types::{Capacity, Encode, Incarnation, LogSeq, NodeId, ServiceKind, TargetId};
use skep_wire::Message;
use skep_wire::mgmt::{Address, RegisterNode, RegisterTarget, RegistryAge};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use upkeep::{Purpose, Upkeep};

/// Shards of all metadata servers together.
pub const SHARDS: u16 = 4;
const CLIENTS: usize = 3;
/// Lanes of each client that run programs.
pub const LANES: usize = 2;
/// Storage daemons.
const STORAGEDS: usize = 2;
/// Targets of each.
const TARGETS: usize = 2;
/// Deleted generations that a target remembers: as many as a daemon does, few, none.
const TOMBSTONES: [usize; 4] = [skep_storage::TOMBSTONES_MAX, skep_storage::TOMBSTONES_MAX, 2, 0];
/// Events after which a run counts as hanging.
const EVENTS_MAX: u64 = 3_000_000;
/// Milliseconds after the end of chaos in which everything must heal.
const HEALING_MAX: u64 = 900_000;

pub struct World {
    hub: HubRef,
    options: Options,
    queue: Queue,
    network: Network,
    mgmtd: Mgmtd,
    metads: Vec<Metad>,
    storageds: Vec<Storaged>,
    /// Where a target is.
    homes: BTreeMap<TargetId, NodeId>,
    upkeep: BTreeMap<NodeId, Upkeep>,
    /// What each daemon keeps on its disk of the age of mgmtd's registry.
    ages: BTreeMap<NodeId, RegistryAge>,
    /// Metadata servers of which an administrator says that their directory was put back from a backup.
    restored: BTreeSet<NodeId>,
    /// Why a daemon asked another one.
    purposes: BTreeMap<CallId, (NodeId, u64, Purpose)>,
    seats: Vec<Seat>,
    tasks: BTreeMap<LaneId, Task>,
    mood: Mood,
    /// A shard on its way over two servers.
    detour: Option<detour::Detour>,
    /// The disks of these metadata servers are nearly full until then.
    low_until: BTreeMap<NodeId, u64>,
    last_life: u64,
    last_client: u32,
    client_limits: skep_client::Limits,
    calm_at: Option<u64>,
    events: u64,
    stage: end::Stage,
    /// No file is open any more.
    closed: bool,
}

impl World {
    /// A formatted cluster whose daemons are about to start.
    pub fn new(seed: u64, options: Options) -> Self {
        let mut hub = Hub::new(seed, &options);
        let metas = 1 + (seed / 2) as usize % METADS_MAX;
        let mut mgmtd = Mgmtd::format(uuid(7), SHARDS, metas, &hub);
        let (mut storageds, mut homes) = (Vec::new(), BTreeMap::new());
        let faults = ChunkFaults {
            sync_does_nothing: options.bug() == Some(crate::Canary::NoChunkSync),
            ignores_seals: options.bug() == Some(crate::Canary::WritesBehindTheCut),
            lands_late: options.bug() == Some(crate::Canary::LandsLate),
            ..ChunkFaults::default()
        };
        let admission = skep_storage::Config {
            tombstones_max: hub.rng.pick(&TOMBSTONES),
            canary_reads_dead: options.bug() == Some(crate::Canary::ZeroForDead),
        };
        for number in 0..STORAGEDS {
            let node = register(&mut mgmtd, ServiceKind::Storaged, 1 + number as u64, &mut hub);
            let targets: Vec<TargetId> = (0..TARGETS)
                .map(|target| register_target(&mut mgmtd, node, (number * TARGETS + target) as u64, &mut hub))
                .collect();
            homes.extend(targets.iter().map(|target| (*target, node)));
            let mut storaged = Storaged::new(node, &targets, faults, admission);
            for (target, at) in targets.iter().zip((number * TARGETS) as u64..) {
                let room = crate::narrow::room(seed, at, (STORAGEDS * TARGETS) as u64);
                room.into_iter().for_each(|room| storaged.set_room(*target, room));
            }
            storageds.push(storaged);
        }
        let faulty = Faulty::of(options.bug());
        let processes = process::deal(metas, &mut hub);
        let metads = processes.into_iter().enumerate().map(|(number, process)| {
            let uuid = (1 + STORAGEDS + number) as u64;
            let node = register(&mut mgmtd, ServiceKind::Metad, uuid, &mut hub);
            Metad::new(node, (number, process), seed, (faulty, &hub.lending))
        });
        let metads = metads.collect();
        let mood = Mood::draw(seed, &mut hub);
        hub.calm_from = mood.calm_at;
        Self {
            hub: Rc::new(RefCell::new(hub)),
            queue: Queue::default(),
            network: Network::default(),
            mgmtd,
            metads,
            storageds,
            homes,
            upkeep: BTreeMap::new(),
            ages: BTreeMap::new(),
            restored: BTreeSet::new(),
            purposes: BTreeMap::new(),
            seats: Vec::new(),
            tasks: BTreeMap::new(),
            mood,
            detour: None,
            low_until: BTreeMap::new(),
            last_life: 0,
            last_client: 0,
            client_limits: seats::client_limits(seed, &options),
            calm_at: None,
            events: 0,
            stage: end::Stage::default(),
            closed: false,
            options,
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Report {
        self.begin();
        while self.go_on() {
            let Some((time, event)) = self.queue.pop() else {
                self.hub.borrow_mut().fail("nothing is left to happen, and the clients wait".into());
                break;
            };
            self.hub.borrow_mut().now = time;
            self.events += 1;
            self.event(event);
            self.flush();
            self.look_at_held();
            self.look_at_leases();
        }
        self.report()
    }

    fn begin(&mut self) {
        for node in self.servers() {
            self.start_daemon(node);
        }
        for number in 0..CLIENTS {
            self.seat_client(number);
        }
        let calm = self.mood.calm_at;
        self.at(calm, Event::Calm);
        let first = self.mood.pause(&mut self.hub.borrow_mut());
        self.at(first, Event::Mishap);
    }

    /// Every server, in the order in which they are started.
    fn servers(&self) -> Vec<NodeId> {
        let metads = self.metads.iter().map(|metad| metad.node);
        let storageds = self.storageds.iter().map(|storaged| storaged.node);
        std::iter::once(MGMTD).chain(metads).chain(storageds).collect()
    }

    /// The metadata server that is this node.
    fn metad_at(&self, node: NodeId) -> Option<usize> {
        self.metads.iter().position(|metad| metad.node == node)
    }

    /// The metadata server that lives this life.
    fn metad_in(&self, life: u64) -> Option<usize> {
        self.metads.iter().position(|metad| self.network.life(metad.node) == Some(life))
    }

    fn at(&mut self, time: u64, event: Event) {
        let hub = &mut *self.hub.borrow_mut();
        self.queue.at(time.max(hub.now), &mut hub.rng, event);
    }

    fn after(&mut self, ms: u64, event: Event) {
        let now = self.now();
        self.at(now + ms, event);
    }

    fn now(&self) -> u64 {
        self.hub.borrow().now
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Wake(lane) => self.poll(lane),
            Event::Arrive(call) => self.arrive(call),
            Event::Closed(end) => self.connection_ended(end),
            Event::Land(call, lane, landed) => {
                if self.network.lives(lane.life) {
                    self.hub.borrow_mut().landed.insert(call, landed);
                    self.poll(lane);
                }
            }
            Event::LandAtNode(call, result) => self.land_at_node(call, result),
            Event::NoServer(life, task) => self.no_server(life, task),
            Event::Tick(node, life) => self.tick(node, life),
            Event::Deadline(life) => self.deadline(life),
            Event::Sync(life) => self.sync(life),
            Event::RowsRead(life, read) => self.rows_read(life, &read),
            Event::Synced(life, index) => self.synced(life, index),
            Event::AppendLate(life) => {
                if let Some(at) = self.metad_in(life) {
                    self.metads[at].append_late();
                }
            }
            Event::Restart(node) => self.start_daemon(node),
            Event::Deposed(node) => self.deposed(node),
            Event::PutBack(node) => self.put_back(node),
            Event::Mishap => self.mishap(),
            Event::EndConnections(looks) => self.end_connections(looks),
            Event::Provoked => self.provoked(),
            Event::Calm => self.calm(),
            Event::GoOn(host) => self.host_goes_on(host),
            Event::TakeOver(seat) => self.take_over(seat),
            Event::Look => self.look(),
        }
    }

    fn poll(&mut self, lane: LaneId) {
        if self.is_frozen(lane) {
            return;
        }
        if let Some(task) = self.tasks.get_mut(&lane) {
            task.poll();
        }
    }

    /// What the futures left in the hub goes on its way.
    fn flush(&mut self) {
        loop {
            let (calls, abandoned, timers, work) = {
                let hub = &mut *self.hub.borrow_mut();
                let work = std::mem::take(&mut hub.work);
                (
                    std::mem::take(&mut hub.calls),
                    std::mem::take(&mut hub.abandoned),
                    std::mem::take(&mut hub.timers),
                    work,
                )
            };
            self.evict();
            self.stop_asked();
            self.kill_asked();
            self.end_asked_term();
            let provoked = self.hub.borrow_mut().provoked.take();
            if let Some(due) = provoked {
                self.at(due, Event::Provoked);
            }
            if calls.is_empty() && abandoned.is_empty() && timers.is_empty() && work.is_empty() {
                return;
            }
            let hub = self.hub.clone();
            let hub = &mut *hub.borrow_mut();
            for id in abandoned {
                self.network.abandon(id, hub, &mut self.queue);
            }
            for call in calls {
                self.network.send(call, hub, &mut self.queue);
            }
            for (due, lane) in timers {
                self.queue.at(due, &mut hub.rng, Event::Wake(lane));
            }
            for life in work {
                let lane = LaneId { life, lane: LANES as u32 };
                hub.nudged.insert(life);
                self.queue.at(hub.now + 50, &mut hub.rng, Event::Wake(lane));
            }
        }
    }

    fn go_on(&mut self) -> bool {
        if self.hub.borrow().failure.is_some() {
            return false;
        }
        let now = self.now();
        let overdue = self.calm_at.is_some_and(|calm| now > calm + HEALING_MAX);
        if self.events > EVENTS_MAX || overdue {
            let waiting = self.unfinished();
            let what = format!(
                "the cluster did not heal: {} events, {} s after the end of chaos, {:?}; waiting: {waiting}",
                self.events,
                (now - self.calm_at.unwrap_or(now)) / 1_000,
                self.stage
            );
            self.hub.borrow_mut().fail(what);
            return false;
        }
        !self.is_over()
    }

    fn report(self) -> Report {
        let Self { hub, seats, tasks, events, .. } = self;
        drop((seats, tasks));
        match Rc::try_unwrap(hub) {
            Ok(hub) => {
                let hub = hub.into_inner();
                let (hash, lines) = (hub.trace.hash(), hub.trace.count());
                Report {
                    failure: hub.failure,
                    coverage: hub.coverage,
                    hash,
                    lines,
                    events,
                    virtual_ms: hub.now,
                    trace: hub.trace.into_lines(),
                }
            }
            // Only if a future leaked its hub; the run is worthless then.
            Err(_) => Report { failure: Some("the hub is still shared".into()), ..Report::default() },
        }
    }
}

/// Space of every target.
pub fn capacity() -> Capacity {
    Capacity { bytes: 1 << 40, bytes_free: 1 << 39, inodes: 1 << 30, inodes_free: 1 << 29 }
}

/// The registration of a daemon in one of its lives.
pub fn registration(service: ServiceKind, number: u64, life: u64, index: LogSeq) -> RegisterNode {
    let address = Address { text: format!("sim:{number}"), nic: String::new(), preference: 0 };
    RegisterNode {
        domain: String::new(),
        uuid: uuid(number),
        service,
        alias: String::new(),
        addresses: vec![address],
        machine: uuid(number),
        incarnation: Incarnation(life),
        // Directories are not copied here.
        mark: 1,
        confirmed: 1,
        index,
        restored: false,
        registry: RegistryAge::default(),
    }
}

fn register(mgmtd: &mut Mgmtd, service: ServiceKind, number: u64, hub: &mut Hub) -> NodeId {
    let body = registration(service, number, 0, LogSeq(0)).to_bytes();
    let answer = mgmtd.answer(skep_types::ClientId(0), RegisterNode::KIND, &body, hub);
    let reply = answer.ok().and_then(|body| {
        skep_types::Decode::from_bytes(&body).ok().map(|reply: skep_wire::mgmt::RegisterNodeReply| reply.node)
    });
    reply.unwrap_or_default()
}

fn register_target(mgmtd: &mut Mgmtd, node: NodeId, number: u64, hub: &mut Hub) -> TargetId {
    let request = RegisterTarget {
        node,
        uuid: uuid(100 + number),
        target: TargetId(0),
        alias: String::new(),
        capacity: capacity(),
        mark: 1,
        confirmed: 0,
        restored: false,
    };
    let answer = mgmtd.answer(skep_types::ClientId(0), RegisterTarget::KIND, &request.to_bytes(), hub);
    let reply = answer.ok().and_then(|body| {
        skep_types::Decode::from_bytes(&body)
            .ok()
            .map(|reply: skep_wire::mgmt::RegisterTargetReply| reply.target)
    });
    reply.unwrap_or_default()
}
