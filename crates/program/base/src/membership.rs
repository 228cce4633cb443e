//! A daemon's place in the cluster: joining, heartbeats, the newest map and fences.
//!
//! One thread talks to mgmtd. It never gives up: a management service that is away must not stop
//! a daemon that serves files.

use crate::caller::{CallError, Caller};
use crate::daemon::Stop;
use crate::identity::Memory;
use crate::metrics::MGMTD;
use skep_net::{Endpoint, Keyring, machine_id};
use skep_types::{
    Capacity, ClusterId, Errno, FenceEpoch, Incarnation, LogSeq, MapVersion, Millis, NodeId, Role,
    ServiceKind, Uuid,
};
use skep_wire::mgmt::{
    Address, ClusterView, FencesReply, GetFences, GetMap, Heartbeat, MapReply, RegisterNode,
    RegisterNodeReply, RegistryAge, ShardAt, TargetReport,
};
use skep_wire::{Hello, Refusal, Status, VERSION_MAX, Welcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time that one question to mgmtd may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Attempts in a row that mgmtd must end in the handshake before that is final: a key or version that does not fit looks so,
/// and so does once a mgmtd that is just ending.
const HOPELESS: u32 = 3;
/// Pause between attempts while mgmtd cannot be reached.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// What a heartbeat may be late on a busy machine before a process counts as having been stopped.
const VIGIL_MARGIN: Duration = Duration::from_secs(1);
/// Pause between looks while a process that was stopped waits for its next heartbeat.
const VIGIL_PAUSE: Duration = Duration::from_millis(10);
/// A daemon that cannot reach mgmtd says so this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);

/// What a daemon has to tell at a heartbeat.
#[derive(Default)]
pub struct Report {
    /// State of its targets.
    pub targets: Vec<TargetReport>,
    /// Space of its state directory.
    pub capacity: Capacity,
    /// What its log holds on stable storage; 0 = it keeps none.
    pub index: LogSeq,
    /// Shards that it formatted and that its map still calls new.
    pub formatted: Vec<ShardAt>,
}

/// What a daemon tells mgmtd, and what it does with the answers.
pub trait Member: Send + Sync + 'static {
    /// How it is.
    fn report(&self) -> Report;
    /// A newer map, whole.
    fn map(&self, map: MapReply);
    /// A newer fence list.
    fn fences(&self, fences: FencesReply);
    /// mgmtd has accepted a heartbeat that was sent then, and its map and fences were given.
    fn vouched(&self, _sent: Millis) {}
}

/// What a daemon is, as mgmtd wants to know it.
pub struct Introduction {
    /// From the state directory.
    pub uuid: Uuid,
    pub service: ServiceKind,
    /// Wished alias.
    pub alias: String,
    pub addresses: Vec<Address>,
    /// What fails together with it; empty: its machine.
    pub domain: String,
    /// Where its log ends; 0 = it keeps none, or has none yet.
    pub index: LogSeq,
    /// An administrator says that this older copy of its directory is all there is.
    pub restored: bool,
}

/// Who a metadata or storage server is, to those who connect.
pub struct Greeter<'a> {
    /// From mgmtd.
    pub place: &'a RegisterNodeReply,
    pub incarnation: Incarnation,
    /// For session tokens.
    pub keyring: &'a Keyring,
    pub service: ServiceKind,
    /// Fence epoch that it knows.
    pub epoch: FenceEpoch,
}

impl Greeter<'_> {
    /// Takes in peers of its own cluster; a client must prove its session.
    pub fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal> {
        let cluster = self.place.cluster;
        if hello.cluster != ClusterId::default() && hello.cluster != cluster {
            let text = format!(
                "this is {} of cluster {cluster}, you belong to cluster {}; check the addresses of mgmtd",
                self.place.alias, hello.cluster
            );
            return Err(Refusal::with(Status::errno(Errno::EREMOTEIO), text));
        }
        let proven = hello.role != Role::Client
            || self.keyring.is_insecure()
            || self.keyring.verify_token(hello.client, hello.incarnation, &hello.token);
        if !proven {
            return Err(Refusal::with(Status::FENCED, "no session of this cluster: mount again"));
        }
        Ok(Welcome {
            version: VERSION_MAX.min(hello.version_max),
            features: 0,
            service: self.service,
            node: self.place.node,
            incarnation: self.incarnation,
            cluster,
            epoch: self.epoch,
        })
    }
}

/// A joined daemon's connection to mgmtd.
pub struct Membership {
    caller: Caller,
    introduction: Introduction,
    /// What mgmtd said.
    pub place: RegisterNodeReply,
    memory: Arc<Memory>,
    /// Once heartbeats are sent.
    vigil: Option<Vigil>,
}

/// Wakes the heartbeat thread: fences or map are wanted now.
#[derive(Clone, Default)]
pub struct Nudge(Arc<(Mutex<bool>, Condvar)>);

impl Nudge {
    /// Cheap; many nudges are one.
    pub fn nudge(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_one();
    }

    /// Waits for a nudge, at most `limit`; true when there was one.
    fn wait(&self, limit: Duration) -> bool {
        let nudged = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(nudged, limit, |nudged| !*nudged);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Tells a process that it was stopped or starved for a while. Another one may have taken its place meanwhile, so
/// it answers nobody before mgmtd was asked once more (one that is away forbids nothing, as ever).
#[derive(Clone)]
pub struct Vigil {
    inner: Arc<(Instant, AtomicU64)>,
    longest: Duration,
    stop: Stop,
}

impl Vigil {
    /// Of a daemon with heartbeats this far apart, which ends when `stop` is set.
    pub fn new(every: Duration, stop: Stop) -> Self {
        let inner = Arc::new((Instant::now(), AtomicU64::new(0)));
        Self { inner, longest: every + ANSWER_LIMIT + VIGIL_MARGIN, stop }
    }

    /// mgmtd was asked, with whatever result.
    fn asked(&self) {
        let (base, asked) = &*self.inner;
        asked.store(base.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Is it longer since mgmtd was asked than it can be in a process that runs?
    pub fn was_away(&self, now: Instant) -> bool {
        let (base, asked) = &*self.inner;
        let asked = *base + Duration::from_millis(asked.load(Ordering::Relaxed));
        now.saturating_duration_since(asked) > self.longest
    }

    /// Waits until mgmtd was asked; false when the process is to end.
    pub fn wait(&self) -> bool {
        while self.was_away(Instant::now()) {
            if self.stop.wait(VIGIL_PAUSE) {
                return false;
            }
        }
        !self.stop.is_set()
    }
}

impl Membership {
    /// Registers the daemon; waits for mgmtd as long as it takes, unless told to stop.
    pub fn join(
        keyring: Arc<Keyring>,
        mgmtd: Vec<Endpoint>,
        introduction: Introduction,
        memory: Arc<Memory>,
        stop: &Stop,
    ) -> Result<Self, String> {
        let hello =
            skep_wire::Hello { incarnation: memory.incarnation, ..crate::caller::hello(Role::Server) };
        let caller = Caller::new(keyring, mgmtd, hello);
        let place = RegisterNodeReply {
            node: NodeId(0),
            alias: String::new(),
            cluster: Uuid::default(),
            epoch: FenceEpoch(0),
            registry: RegistryAge::default(),
        };
        let mut membership = Self { caller, introduction, place, memory, vigil: None };
        membership.patiently(stop, Self::register)?;
        Ok(membership)
    }

    fn register(&mut self) -> Result<(), CallError> {
        let introduction = &self.introduction;
        let message = RegisterNode {
            domain: introduction.domain.clone(),
            uuid: introduction.uuid,
            service: introduction.service,
            alias: introduction.alias.clone(),
            addresses: introduction.addresses.clone(),
            machine: machine_id(),
            incarnation: self.memory.incarnation,
            mark: self.memory.mark,
            confirmed: self.memory.confirmed(),
            index: introduction.index,
            restored: introduction.restored,
            registry: self.memory.seen(),
        };
        let place = self.caller.call(&message, Instant::now() + ANSWER_LIMIT)?;
        if self.place.cluster != Uuid::default() && place.cluster != self.place.cluster {
            let text = format!(
                "it is of cluster {}, this daemon of {}; check the mgmtd addresses",
                place.cluster, self.place.cluster
            );
            return Err(CallError::Refused(Refusal::with(Status::errno(Errno::EREMOTEIO), text)));
        }
        self.memory.registered(place.registry);
        self.place = place;
        self.caller.hello.node = self.place.node;
        Ok(())
    }

    /// Repeats a question until it is answered. A refusal is an answer, and final.
    pub fn patiently<T>(
        &mut self,
        stop: &Stop,
        mut ask: impl FnMut(&mut Self) -> Result<T, CallError>,
    ) -> Result<T, String> {
        let mut complained: Option<Instant> = None;
        let mut hopeless = 0;
        loop {
            let answer = ask(self);
            hopeless = match &answer {
                Err(CallError::Net(e)) if e.is_permanent() => hopeless + 1,
                _ => 0,
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(CallError::Refused(refusal)) if !refusal.status.is_transient() => {
                    return Err(format!("mgmtd refuses this daemon: {refusal}"));
                }
                Err(CallError::Net(e)) if hopeless >= HOPELESS => return Err(format!("mgmtd: {e}")),
                Err(e) => {
                    if complained.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY) {
                        warning!("mgmtd does not answer, trying on: {e}");
                        complained = Some(Instant::now());
                    }
                }
            }
            if stop.wait(RETRY_PAUSE) {
                return Err("stopped before mgmtd answered".to_owned());
            }
        }
    }

    /// Asks mgmtd one question with the usual deadline.
    pub fn ask<M: skep_wire::Message>(&mut self, message: &M) -> Result<M::Reply, CallError> {
        let answer = self.caller.call(message, Instant::now() + ANSWER_LIMIT);
        if !matches!(&answer, Err(CallError::Refused(refusal)) if is_superseded(refusal)) {
            self.vigil.iter().for_each(Vigil::asked);
        }
        answer
    }

    /// Signs off without ever having served.
    pub fn leave(mut self) -> Result<(), CallError> {
        let beat = self.heartbeat(Report::default(), &Known::default());
        self.ask(&Heartbeat { leaving: true, ..beat }).map(|_| ())
    }

    /// Starts the heartbeats. Map and fences come to `member` once at the start and whenever they
    /// change; `nudge` makes it ask at once. When told to stop, the daemon signs off. A process that another one
    /// has superseded is told to stop, and the thread gives the reason.
    pub fn keep(
        mut self,
        member: Arc<impl Member>,
        every: Duration,
        nudge: Nudge,
        vigil: Vigil,
    ) -> std::io::Result<JoinHandle<Result<(), String>>> {
        let stop = vigil.stop.clone();
        self.vigil = Some(vigil);
        std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            let mut known = Known::default();
            let mut silent = false;
            while !stop.is_set() {
                let beat = self.beat(&*member, &mut known);
                if beat.is_ok() {
                    MGMTD.answered()
                } else {
                    MGMTD.failed()
                };
                match beat {
                    Ok(()) if silent => {
                        info!("mgmtd answers again");
                        silent = false;
                    }
                    Ok(()) => {}
                    Err(CallError::Refused(refusal)) if is_superseded(&refusal) => {
                        stop.set();
                        return Err(refusal.detail);
                    }
                    Err(e) => {
                        if !silent {
                            warning!("heartbeat to mgmtd failed, going on without: {e}");
                            silent = true;
                        }
                    }
                }
                nudge.wait(if silent { every.min(RETRY_PAUSE) } else { every });
            }
            let beat = self.heartbeat(member.report(), &known);
            let _ = self.ask(&Heartbeat { leaving: true, ..beat });
            Ok(())
        })
    }

    fn heartbeat(&self, report: Report, known: &Known) -> Heartbeat {
        let Report { targets, capacity, index, formatted } = report;
        Heartbeat {
            node: self.place.node,
            incarnation: self.memory.incarnation,
            targets,
            capacity,
            map: known.map.version(),
            index,
            formatted,
            registry: self.memory.seen(),
            leaving: false,
            mark: Some(self.memory.mark),
        }
    }

    fn beat(&mut self, member: &impl Member, known: &mut Known) -> Result<(), CallError> {
        let sent = skep_net::now();
        let report = member.report();
        self.introduction.index = self.introduction.index.max(report.index);
        let reply = match self.ask(&self.heartbeat(report, known)) {
            // mgmtd was set up anew from an older state, or missed our registration.
            Err(CallError::Refused(refusal)) if refusal.status == Status::errno(Errno::ENOENT) => {
                warning!("mgmtd does not know this daemon any more ({refusal}): registering again");
                return self.register();
            }
            other => other?,
        };
        self.memory.saw(reply.registry);
        if known.fences != Some((reply.epoch, reply.ended)) {
            let fences = self.ask(&GetFences {})?;
            known.fences = Some((reply.epoch, reply.ended));
            self.caller.hello.epoch = fences.epoch;
            member.fences(fences);
        }
        if known.map.version() != reply.map {
            let told = self.ask(&GetMap { known: known.map.version() })?;
            if known.map.take(told).is_err() {
                // Whatever it is a difference to, it is nothing that is held here.
                let whole = self.ask(&GetMap { known: MapVersion(0) })?;
                known
                    .map
                    .take(whole)
                    .map_err(|gap| CallError::Refused(Refusal::with(Status::MALFORMED, gap.to_string())))?;
            }
            member.map(known.map.map().clone());
        }
        member.vouched(sent);
        Ok(())
    }
}

/// Was the process told that another one has taken its place? Then it must not come back.
fn is_superseded(refusal: &Refusal) -> bool {
    refusal.status == Status::errno(Errno::ESTALE)
}

#[derive(Default)]
struct Known {
    fences: Option<(FenceEpoch, u64)>,
    map: ClusterView,
}

#[cfg(test)]
mod tests;
