//! The registry behind an event server: requests in, one synced log append per round, answers out.

use super::journal::Journal;
use skep_base::metrics::Serving;
use skep_instruments::{Host, Instruments, is_instrument};

use skep_cluster::{Answer, Command, Input, Output, Registry};
use skep_disk::log::LogError;
use skep_net::{ConnId, Keyring, Peer, PeerInfo, Replies, Service, StopHandle, may_call, now};
use skep_types::{
    Capacity, ClientId, Decode, Errno, FenceEpoch, Incarnation, LogSeq, Millis, NodeId, Reader, Role,
    ServiceKind, Uuid,
};
use skep_wire::mgmt::{Address, Heartbeat, MgmtRequest, RegisterNode, RegisterNodeReply, RegistryAge};
use skep_wire::{Flags, Header, Hello, Refusal, Status, VERSION_MAX, Welcome};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Silence is looked for this often, at most.
const TICK_MAX_MS: u64 = 500;
/// ... and at least, however short the configured times are.
const TICK_MIN_MS: u64 = 10;
/// The shortest configured time is divided by this to get the tick.
const TICKS_PER_TIMEOUT: u64 = 4;

/// What the service knows of itself.
pub struct Introduction {
    pub incarnation: Incarnation,
    pub addresses: Vec<Address>,
    pub machine: Uuid,
    /// Space of the state directory.
    pub capacity: Box<dyn Fn() -> Capacity>,
}

/// One request and its answer, until the round's changes are on stable storage.
struct Pending {
    conn: ConnId,
    header: Header,
    answer: Result<Answer, Refusal>,
    /// Its answer depends on commands of this round.
    changed: bool,
    since: Instant,
}

/// The management service.
pub struct Mgmtd {
    registry: Registry,
    journal: Journal,
    keyring: Keyring,
    introduction: Introduction,
    node: NodeId,
    stop: StopHandle,
    pending: Vec<Pending>,
    commands: Vec<Command>,
    notes: Vec<String>,
    tick_ms: u64,
    next_tick: Millis,
    fatal: Option<String>,
    serving: Arc<Serving>,
    /// What it measures; once it is registered.
    instruments: Option<Arc<Instruments>>,
}

impl Mgmtd {
    /// Registers itself as a node of the cluster, durably.
    pub fn new(
        registry: Registry,
        journal: Journal,
        keyring: Keyring,
        introduction: Introduction,
        stop: StopHandle,
        shortest_timeout_ms: u64,
        serving: Arc<Serving>,
    ) -> Result<Self, String> {
        let mut mgmtd = Self {
            registry,
            journal,
            keyring,
            introduction,
            node: NodeId(0),
            stop,
            pending: Vec::new(),
            commands: Vec::new(),
            notes: Vec::new(),
            tick_ms: (shortest_timeout_ms / TICKS_PER_TIMEOUT).clamp(TICK_MIN_MS, TICK_MAX_MS),
            next_tick: now(),
            fatal: None,
            serving,
            instruments: None,
        };
        mgmtd.register()?;
        mgmtd.instruments = Some(Instruments::new(Host {
            service: ServiceKind::Mgmtd,
            name: "mgmtd",
            alias: String::new(),
            node: mgmtd.node,
            cluster: mgmtd.journal.identity().cluster,
            addresses: mgmtd.introduction.addresses.clone(),
            keyring: Arc::new(mgmtd.keyring.clone()),
            targets: Vec::new(),
            log: None,
        }));
        Ok(mgmtd)
    }

    /// Why it ended by itself.
    pub fn fatal(&self) -> Option<&str> {
        self.fatal.as_deref()
    }

    fn register(&mut self) -> Result<(), String> {
        let request = RegisterNode {
            domain: String::new(),
            uuid: self.journal.identity().node,
            service: ServiceKind::Mgmtd,
            alias: String::new(),
            addresses: self.introduction.addresses.clone(),
            machine: self.introduction.machine,
            incarnation: self.introduction.incarnation,
            // Its own directory is as old as the registry in it.
            mark: 1,
            confirmed: 1,
            index: LogSeq(0),
            restored: false,
            registry: RegistryAge::default(),
        };
        let mut out = Output::default();
        self.registry.begin(skep_base::identity::random_mark()?, &mut out);
        self.take(out);
        let reply = self.own_request(request.into())?;
        self.node = RegisterNodeReply::from_bytes(&reply).map_err(|e| e.to_string())?.node;
        let commands = std::mem::take(&mut self.commands);
        self.journal.commit(&commands).map_err(|e| e.to_string())
    }

    fn own_request(&mut self, request: MgmtRequest) -> Result<Vec<u8>, String> {
        let mut out = Output::default();
        let peer = skep_cluster::Peer::default();
        self.registry.step(now(), Input::Request { reply_to: 0, peer, request }, &mut out);
        let answer = out.answers.pop().map(|(_, answer)| answer);
        self.take(out);
        match answer {
            Some(Ok(Answer::Body(body))) => Ok(body),
            Some(Err(refusal)) => Err(format!("the registry refuses its own service: {refusal}")),
            _ => Err("the registry gave no answer (a bug: please report it)".to_owned()),
        }
    }

    fn take(&mut self, out: Output) {
        self.commands.extend(out.commands);
        self.notes.extend(out.notes);
    }

    fn tick(&mut self) {
        let now = now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now.plus(self.tick_ms);
        self.registry.tell_time(clock());
        let beat = Heartbeat {
            node: self.node,
            incarnation: self.introduction.incarnation,
            targets: Vec::new(),
            capacity: (self.introduction.capacity)(),
            map: self.registry.map_version(),
            index: LogSeq(0),
            formatted: Vec::new(),
            registry: RegistryAge::default(),
            leaving: false,
            mark: None,
        };
        if let Err(e) = self.own_request(beat.into()) {
            error!("{e}");
        }
        let mut out = Output::default();
        self.registry.step(now, Input::Tick, &mut out);
        self.take(out);
    }

    fn decide(&mut self, peer: &Peer, header: &Header, body: &[u8]) -> (Result<Answer, Refusal>, bool) {
        if let (Some(instruments), true) = (&self.instruments, is_instrument(header.kind)) {
            return (instruments.event_answer(peer, header, body).map(Answer::Body), false);
        }
        let request = match decode(peer, header, body) {
            Ok(request) => request,
            Err(refusal) => return (Err(refusal), false),
        };
        let mut out = Output::default();
        let admin = peer.hello.role == Role::Admin;
        let who = skep_cluster::Peer { client: speaks_for(peer), admin };
        self.registry.step(now(), Input::Request { reply_to: 0, peer: who, request }, &mut out);
        let answer =
            out.answers.pop().map_or_else(|| Err(Refusal::new(Status::NOT_READY)), |(_, answer)| answer);
        if let Some(why) = out.outdated.take() {
            self.give_up(why);
        }
        let changed = !out.commands.is_empty();
        self.take(out);
        (answer, changed)
    }

    /// Logs the round's changes. `false`: nothing may be answered any more.
    fn commit(&mut self) -> bool {
        if self.commands.is_empty() {
            return true;
        }
        let commands = std::mem::take(&mut self.commands);
        let began = Instant::now();
        let committed = self.journal.commit(&commands);
        self.serving.log_sync.observe(began.elapsed());
        self.serving.log_records.add(commands.len() as u64);
        self.serving.log_bytes.set(self.journal.log_bytes());
        match committed {
            Ok(()) => true,
            Err(LogError::Full(text)) => self.undo(&text),
            Err(e) => self.give_up(e.to_string()),
        }
    }

    /// The disk is full: the round's changes are taken back and refused.
    fn undo(&mut self, why: &str) -> bool {
        let state = match self.journal.reload() {
            Ok(state) => state,
            Err(e) => return self.give_up(e.to_string()),
        };
        self.registry.roll_back(now(), state);
        error!("changes of the cluster are refused, the log has no room: {why}");
        self.notes.clear();
        for pending in &mut self.pending {
            pending.answer = Err(match pending.changed {
                true => Refusal::with(Status::errno(Errno::ENOSPC), format!("mgmtd has no room: {why}")),
                // It may have seen what was taken back.
                false => Refusal::new(Status::BUSY),
            });
        }
        true
    }

    fn give_up(&mut self, why: String) -> bool {
        error!("{}", skep_base::daemon::literal(&why));
        self.fatal = Some(why);
        self.pending.clear();
        self.stop.stop();
        false
    }

    fn answer(&self, pending: &Pending, out: &mut Replies<'_>) {
        let took = pending.since.elapsed();
        self.serving.requests.answered(pending.header.kind, took, pending.answer.is_err());
        match &pending.answer {
            Ok(Answer::Body(body)) => {
                out.push(pending.conn, &pending.header.reply(), body, &[]);
            }
            Ok(Answer::Session(reply)) => {
                let token = self.keyring.token(reply.client, reply.incarnation).unwrap_or_default();
                let reply = skep_wire::mgmt::OpenSessionReply { token, ..reply.clone() };
                out.answer(pending.conn, &pending.header, &reply);
            }
            Err(refusal) => {
                out.refuse(pending.conn, &pending.header, refusal);
            }
        }
    }
}

/// Seconds since 1970.
fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A client speaks for the session that its token proves; servers and administrators for any.
fn speaks_for(peer: &Peer) -> ClientId {
    match peer.hello.role {
        // Without a session (it is about to open one) it speaks for none that exists.
        Role::Client if peer.hello.client.0 == 0 => ClientId(u64::MAX),
        Role::Client => peer.hello.client,
        Role::Server | Role::Admin => ClientId(0),
    }
}

fn decode(peer: &Peer, header: &Header, body: &[u8]) -> Result<MgmtRequest, Refusal> {
    may_call(header, peer.hello.role)?;
    let malformed = |what: String| Refusal::with(Status::MALFORMED, what);
    let mut r = Reader::new(body);
    let request = MgmtRequest::decode(header.kind, &mut r).map_err(|e| malformed(e.to_string()))?;
    let request = request.ok_or_else(|| {
        malformed(format!("message {:#06x} is not for mgmtd; check the address of the service", header.kind))
    })?;
    r.finish("request").map_err(|e| malformed(e.to_string()))?;
    Ok(request)
}

impl Service for Mgmtd {
    fn hello(&mut self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        let cluster = self.journal.identity().cluster;
        if hello.cluster != Uuid::default() && hello.cluster != cluster {
            let text = format!(
                "this is mgmtd of cluster {cluster}, you belong to cluster {}; check the address of mgmtd",
                hello.cluster
            );
            return Err(Refusal::with(Status::errno(Errno::EREMOTEIO), text));
        }
        if hello.client.0 != 0 && !self.keyring.verify_token(hello.client, hello.incarnation, &hello.token) {
            let text = format!("client {} does not prove its session: mount again", hello.client);
            return Err(Refusal::with(Status::ROLE, text));
        }
        Ok(Welcome {
            version: VERSION_MAX.min(hello.version_max),
            features: 0,
            service: ServiceKind::Mgmtd,
            node: self.node,
            incarnation: self.introduction.incarnation,
            cluster,
            epoch: self.registry.state().epoch,
        })
    }

    fn opened(&mut self, _conn: ConnId, _peer: &Peer) {
        self.serving.connections.add(1);
    }

    fn closed(&mut self, _conn: ConnId, _peer: &Peer) {
        self.serving.connections.add(-1);
    }

    fn request(&mut self, conn: ConnId, peer: &Peer, header: &Header, body: &[u8], _payload: &[u8]) {
        let since = Instant::now();
        let (answer, changed) = self.decide(peer, header, body);
        if !header.flags.has(Flags::ONE_WAY) {
            self.pending.push(Pending { conn, header: *header, answer, changed, since });
        }
    }

    fn round_end(&mut self, out: &mut Replies<'_>) {
        // What an older registry says must not be heard by anybody.
        if self.fatal.is_some() {
            return;
        }
        self.tick();
        if !self.commit() {
            return;
        }
        for note in self.notes.drain(..) {
            info!("{note}");
        }
        out.set_epoch(self.registry.state().epoch);
        for pending in std::mem::take(&mut self.pending) {
            self.answer(&pending, out);
        }
        match self.journal.snapshot_if_due(self.registry.state()) {
            Ok(true) => info!("snapshot of the registry written"),
            Ok(false) => {}
            // The log goes on without; the next round tries again.
            Err(e) => error!("no snapshot of the registry: {e}"),
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        Some(self.next_tick)
    }

    fn epoch(&self) -> FenceEpoch {
        self.registry.state().epoch
    }
}
