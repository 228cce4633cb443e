//! Requests to the storage daemon.

use super::writers::Writers;
use skep_base::membership::{Greeter, Member, Nudge, Report};
use skep_base::metrics::Requests;
use skep_instruments::target::{Target, Work};
use skep_instruments::{Instruments, is_instrument};
use skep_net::{Answer, Handler, Keyring, Payload, Peer, PeerInfo, may_call};
use skep_storage::{Admission, Sender, makes_room, speaker};
use skep_types::{
    ChunkId, ClientId, Consistency, Errno, FenceEpoch, Incarnation, Reader, Role, ServiceKind, TargetId,
};
use skep_wire::mgmt::{FencesReply, MapReply, RegisterNodeReply};
use skep_wire::storage::{
    CopyChunk, DeleteChunks, ShardTerm, StorageRequest, TargetStat, TargetStatsReply, WriteChunk,
};
use skep_wire::{Header, Hello, Refusal, SHARED_MEMORY, Status, Welcome};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Longest wait for changes of evicted clients that a disk holds up. The evicted write nothing new meanwhile; what
/// is in work after that may still land, and the log says so.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of buffer for copies that the kernel does not do.
const COPY_BUFFER: usize = 1 << 20;

/// The daemon as its connections see it.
pub struct Storaged {
    place: RegisterNodeReply,
    incarnation: Incarnation,
    targets: BTreeMap<TargetId, Target>,
    admission: RwLock<Admission>,
    writers: Writers,
    keyring: Arc<Keyring>,
    nudge: Nudge,
    sync_on_write: bool,
    instruments: Arc<Instruments>,
    /// Requests by message.
    pub requests: Requests,
}

impl Storaged {
    /// Serves these targets.
    #[allow(clippy::too_many_arguments)] // The parts of a daemon; they meet here and nowhere else.
    pub fn new(
        place: RegisterNodeReply,
        incarnation: Incarnation,
        targets: Vec<Target>,
        keyring: Arc<Keyring>,
        nudge: Nudge,
        sync_on_write: bool,
        instruments: Arc<Instruments>,
    ) -> Self {
        let targets = targets.into_iter().map(|target| (target.id, target)).collect();
        let admission = RwLock::new(Admission::default());
        let writers = Writers::default();
        let requests = Requests::new(StorageRequest::KINDS.iter().copied());
        Self {
            place,
            incarnation,
            targets,
            admission,
            writers,
            keyring,
            nudge,
            sync_on_write,
            instruments,
            requests,
        }
    }

    /// Every target with its counters.
    pub fn stats(&self) -> Vec<TargetStat> {
        self.targets.values().map(Target::stat).collect()
    }

    /// A sender that knows of newer evictions waits until the fences are here.
    fn admit(&self, sender: &Sender) -> Result<(), Refusal> {
        let admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
        if admission.must_fetch_fences(sender) {
            self.nudge.nudge();
        }
        admission.admit(sender)
    }

    fn target(&self, id: TargetId, request: &StorageRequest) -> Result<&Target, Refusal> {
        let Some(target) = self.targets.get(&id) else {
            let text = format!("target {id} is not served by {}: fetch the map", self.place.alias);
            return Err(Refusal::with(Status::STALE_MAP, text));
        };
        if target.is_removed() {
            let text = format!("target {id} was removed from the cluster: fetch the map");
            return Err(Refusal::with(Status::STALE_MAP, text));
        }
        let admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
        admission.check(id, target.consistency(), request)?;
        Ok(target)
    }

    /// `by`: in which term of which shard it comes, of a metadata server. `client`: of whose session it is; 0: of none.
    fn serve(
        &self,
        request: StorageRequest,
        by: Option<ShardTerm>,
        client: ClientId,
        payload: &mut Payload,
    ) -> Result<Answer, Refusal> {
        let id = match &request {
            StorageRequest::ReadChunk(m) => m.target,
            StorageRequest::WriteChunk(m) => m.target,
            StorageRequest::TrimChunk(m) => m.target,
            StorageRequest::PunchChunk(m) => m.target,
            StorageRequest::ReserveChunk(m) => m.target,
            StorageRequest::SyncChunks(m) => m.target,
            StorageRequest::StatChunks(m) => m.target,
            StorageRequest::DeleteChunks(m) => m.target,
            StorageRequest::ListChunks(m) => m.target,
            StorageRequest::MapChunk(m) => m.target,
            StorageRequest::CopyChunk(m) => m.target,
            StorageRequest::SealChunk(m) => m.target,
            StorageRequest::TargetStats(_) => {
                return Ok(Answer::done(&TargetStatsReply { targets: self.stats() }));
            }
        };
        let target = self.target(id, &request)?;
        let _speaking = by.map(|by| target.speak(by, makes_room(&request))).transpose()?;
        let answer = self.serve_on(target, request, client, payload);
        if let Err(refusal) = &answer
            && target.is_news(refusal)
        {
            self.nudge.nudge();
        }
        answer
    }

    fn serve_on(
        &self,
        target: &Target,
        request: StorageRequest,
        client: ClientId,
        payload: &mut Payload,
    ) -> Result<Answer, Refusal> {
        match &request {
            StorageRequest::ReadChunk(m) => {
                let (body, len) = target.read(m, payload.room(m.len as usize))?;
                Ok(answer(body).with_payload(len))
            }
            StorageRequest::WriteChunk(m) => {
                let m = WriteChunk { sync: m.sync || self.sync_on_write, ..m.clone() };
                match target.write(&m, payload.bytes(), client) {
                    Err(refusal) if refusal.status != Status::LOST_CHUNK => Err(refusal),
                    // A chunk file that was deleted at the same moment is not lost.
                    done => self.still_wanted(target, &request, m.chunk).and(done).map(answer),
                }
            }
            StorageRequest::ReserveChunk(m) => {
                let body = target.reserve(m)?;
                self.still_wanted(target, &request, m.chunk).map(|()| answer(body))
            }
            StorageRequest::CopyChunk(m) => match self.copy(m, target, &request, payload) {
                Err(refusal) if refusal.status != Status::LOST_CHUNK => Err(refusal),
                done => self.still_wanted(target, &request, m.chunk).and(done).map(answer),
            },
            StorageRequest::DeleteChunks(m) => {
                self.bury(m);
                target.run(&request).map(answer)
            }
            // The shard has given both up before it deletes, but what it sent may be in work, or come by another line.
            StorageRequest::SealChunk(m) => {
                let done = target.run(&request)?;
                self.still_wanted(target, &request, m.chunk).map(|()| answer(done))
            }
            StorageRequest::TrimChunk(m) => {
                let done = target.run(&request);
                self.stays_deleted(target, m.chunk)?;
                done.map(answer)
            }
            _ => target.run(&request).map(answer),
        }
    }

    fn copy(
        &self,
        m: &CopyChunk,
        target: &Target,
        request: &StorageRequest,
        payload: &mut Payload,
    ) -> Result<Vec<u8>, Refusal> {
        if !self.targets.contains_key(&m.from_target) {
            let text = format!("target {} is not served by {}", m.from_target, self.place.alias);
            return Err(Refusal::with(Status::errno(Errno::EXDEV), text));
        }
        let from = self.target(m.from_target, request)?;
        target.copy(m, from, self.sync_on_write, payload.room(COPY_BUFFER))
    }

    /// A chunk file may have been deleted between the check and the write, which then made it anew:
    /// nobody else knows of it, so it goes again here.
    fn still_wanted(&self, target: &Target, request: &StorageRequest, chunk: ChunkId) -> Result<(), Refusal> {
        let checked = {
            let admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
            admission.check(target.id, Consistency::Good, request)
        };
        if checked.is_err() {
            self.delete(target, chunk)?;
        }
        checked
    }

    /// A truncate of a chunk file that was deleted meanwhile has nothing left to cut, and is done. But it may have made a
    /// piece anew that the deletion does not know of.
    fn stays_deleted(&self, target: &Target, chunk: ChunkId) -> Result<(), Refusal> {
        let admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
        let is_buried = admission.is_buried(chunk.ino, chunk.generation);
        drop(admission);
        if is_buried { self.delete(target, chunk) } else { Ok(()) }
    }

    fn delete(&self, target: &Target, chunk: ChunkId) -> Result<(), Refusal> {
        let again = DeleteChunks { target: target.id, by: None, chunks: vec![chunk] };
        target.run(&again.into()).map(drop)
    }

    /// Late writes are refused from here on, also while the files are being deleted.
    fn bury(&self, m: &DeleteChunks) {
        let mut admission = self.admission.write().unwrap_or_else(PoisonError::into_inner);
        for chunk in &m.chunks {
            admission.bury(chunk.ino, chunk.generation);
        }
    }
}

/// Does it change a chunk file for a client?
fn changes(request: &StorageRequest) -> bool {
    matches!(
        request,
        StorageRequest::WriteChunk(_)
            | StorageRequest::PunchChunk(_)
            | StorageRequest::ReserveChunk(_)
            | StorageRequest::CopyChunk(_)
    )
}

/// Whose session it comes from; 0: from none.
fn session(sender: &Sender) -> ClientId {
    if sender.role == Role::Client { sender.client } else { ClientId(0) }
}

fn answer(body: Vec<u8>) -> Answer {
    Answer { body, ..Answer::default() }
}

impl Handler for Storaged {
    fn hello(&self, hello: &Hello, _info: &PeerInfo) -> Result<Welcome, Refusal> {
        let greeter = Greeter {
            place: &self.place,
            incarnation: self.incarnation,
            keyring: &self.keyring,
            service: ServiceKind::Storaged,
            epoch: self.epoch(),
        };
        let welcome = greeter.welcome(hello)?;
        // Payloads are handed to files and nothing else, so they may lie where the peer can change them.
        Ok(Welcome { features: hello.features & SHARED_MEMORY, ..welcome })
    }

    fn epoch(&self) -> FenceEpoch {
        self.admission.read().unwrap_or_else(PoisonError::into_inner).epoch()
    }

    fn handle(&self, peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        if is_instrument(header.kind) {
            return self.instruments.stream_answer(peer, header, body, payload);
        }
        let sender = Sender { role: peer.hello.role, client: peer.hello.client, epoch: header.epoch };
        let client = session(&sender);
        let mut work = None;
        let mut answer = || -> Result<Answer, Refusal> {
            may_call(header, sender.role)?;
            let mut r = Reader::new(body);
            let request = match StorageRequest::decode(header.kind, &mut r) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    return Err(Refusal::with(Status::MALFORMED, "not a message for a storage daemon"));
                }
                Err(e) => return Err(Refusal::with(Status::MALFORMED, e.to_string())),
            };
            work = Work::of(&request);
            // Before admission: see `Writers::enter`.
            let _in_work = changes(&request).then(|| self.writers.enter(sender.client));
            self.admit(&sender)?;
            let by = speaker(sender.role, &request)?;
            self.serve(request, by, client, payload)
        };
        let since = Instant::now();
        let answer = answer();
        // One look at the clock serves both counts: it costs more than they do.
        let took = since.elapsed();
        self.requests.answered(header.kind, took, answer.is_err());
        if let (Some((id, work)), Ok(_)) = (work, &answer)
            && let Some(target) = self.targets.get(&id)
        {
            target.spent(work, took);
        }
        answer.unwrap_or_else(Answer::from)
    }
}

impl Member for Storaged {
    fn report(&self) -> Report {
        let served = self.targets.values().filter(|target| !target.is_removed());
        Report { targets: served.map(Target::report).collect(), ..Report::default() }
    }

    fn map(&self, map: MapReply) {
        for target in self.targets.values() {
            let server = map.targets.iter().find(|entry| entry.target == target.id).map(|entry| entry.node);
            // A server that was away while its disk moved must not serve what stayed behind.
            let gone = server != Some(self.place.node);
            match target.set_removed(gone) {
                true if gone => warning!(
                    "target {} {}: it is served no more; take it out of `targets`",
                    target.id,
                    match server {
                        None => "was removed from the cluster".to_owned(),
                        Some(node) => format!("has moved to node {node}"),
                    }
                ),
                true => info!("target {} belongs to the cluster again", target.id),
                false => {}
            }
        }
        for entry in map.targets.iter().filter(|entry| entry.node == self.place.node) {
            let Some(target) = self.targets.get(&entry.target) else { continue };
            target.hear(entry);
        }
    }

    fn fences(&self, fences: FencesReply) {
        self.admission.write().unwrap_or_else(PoisonError::into_inner).refuse(&fences);
        // Who sees the new epoch in an answer relies on it that nothing of the evicted comes any more.
        let mut evicted: BTreeSet<ClientId> = self.writers.clients().into_iter().collect();
        {
            let admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
            evicted.retain(|client| admission.has_ended(*client));
        }
        if !self.writers.wait_for(&evicted, DRAIN_LIMIT) {
            warning!("writes of an evicted client hang in a disk for {DRAIN_LIMIT:?}: going on without them");
        }
        self.admission.write().unwrap_or_else(PoisonError::into_inner).set_fences(&fences);
    }
}

#[cfg(test)]
mod tests;
