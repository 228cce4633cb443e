//! A storage daemon with its targets in memory.

use crate::Canary;
use crate::hub::Hub;
use crate::loss::Harm;
use crate::narrow;
use skep_storage::{
    Admission, ChunkFaults, ChunkStore, Config, CopyFault, Done, Limits, MemoryChunks, PieceName, Promised,
    Sender, Terms, Turn, copy_chunk, execute, read_chunk, speaker, write_chunk,
};
use skep_types::{
    Capacity, ChunkId, ClientId, Consistency, Decode, Encode, Errno, Millis, NodeId, Reader, Role, TargetId,
};
use skep_wire::mgmt::FencesReply;
use skep_wire::storage::{
    ReadChunkReply, ShardTerm, StorageRequest, SyncChunksReply, WriteChunk, WriteChunkReply,
};
use skep_wire::{Refusal, Status};
use std::collections::BTreeMap;

/// Bytes that a copy goes through at once: small, so that a copy is many steps.
const COPY_BUFFER: usize = 4_096;

/// Body and payload of an answer.
pub type Answered = (Vec<u8>, Vec<u8>);

/// Behind one of so many promises of a narrow target the rest of it is taken by somebody else.
const SQUEEZED: u64 = 4;

pub struct Storaged {
    pub node: NodeId,
    /// What decides who is served.
    pub admission: Admission,
    config: Config,
    targets: BTreeMap<TargetId, MemoryChunks>,
    /// The terms of shards that each has heard of; kept on it over kills and power cuts.
    terms: BTreeMap<TargetId, Terms>,
    /// Bytes that fit into narrow ones.
    rooms: BTreeMap<TargetId, u64>,
    /// What each has promised, each on a file system of its own.
    promised: BTreeMap<TargetId, Promised>,
}

impl Storaged {
    /// As well as a daemon does.
    pub fn remembers_deletions(&self) -> bool {
        self.config.tombstones_max == skep_storage::TOMBSTONES_MAX
    }

    /// With empty targets.
    pub fn new(node: NodeId, targets: &[TargetId], faults: ChunkFaults, config: Config) -> Self {
        let empty = |target: &TargetId| {
            let chunks = MemoryChunks::default();
            chunks.set_faults(faults);
            (*target, chunks)
        };
        // Nobody was promised anything yet, so they need not wait until that has ended.
        let promised = targets.iter().map(|target| (*target, Promised::new(narrow::sizes(None)))).collect();
        let targets = targets.iter().map(empty).collect();
        Self {
            node,
            admission: Admission::new(config),
            config,
            targets,
            terms: BTreeMap::new(),
            rooms: BTreeMap::new(),
            promised,
        }
    }

    /// No more than so many bytes fit into one of its targets.
    pub fn set_room(&mut self, target: TargetId, room: u64) {
        self.rooms.insert(target, room);
        self.promised.insert(target, Promised::new(narrow::sizes(Some(room))));
    }

    /// Its targets with their space.
    pub fn capacities(&self, now: Millis) -> impl Iterator<Item = (TargetId, Capacity)> + '_ {
        let of = move |(target, chunks): (&TargetId, &MemoryChunks)| {
            let capacity = narrow::capacity(chunks, self.rooms.get(target).copied());
            let promised = self.promised.get(target).cloned();
            let told = promised.map(|mut promised| promised.told(now, capacity.bytes_free));
            (*target, Capacity { bytes_free: told.unwrap_or(capacity.bytes_free), ..capacity })
        };
        self.targets.iter().map(of)
    }

    /// A daemon that begins then knows of no promises.
    fn forget_promises(&mut self, now: Millis) {
        for (target, promised) in &mut self.promised {
            *promised = Promised::after_restart(narrow::sizes(self.rooms.get(target).copied()), now);
        }
    }

    /// Every sealed chunk file of every target.
    pub fn seals(&self) -> Vec<(TargetId, ChunkId)> {
        let all = self.targets.iter();
        let all =
            all.flat_map(|(target, chunks)| chunks.seals().into_iter().map(|(chunk, _)| (*target, chunk)));
        all.collect()
    }

    /// Another server has spoken for a shard, in a later term.
    pub fn hear(&mut self, target: TargetId, by: ShardTerm) {
        if self.targets.contains_key(&target) {
            // What it was told earlier is over.
            let _ = hear(self.terms.entry(target).or_default(), by);
        }
    }

    /// The process is new; the page cache is not.
    pub fn restart(&mut self, now: Millis) {
        self.admission = Admission::new(self.config);
        self.forget_promises(now);
        for chunks in self.targets.values() {
            chunks.set_time(now);
            chunks.restart(None);
        }
    }

    /// The machine lost its power: what was not synced is lost, or not.
    pub fn lose_power(&mut self, hub: &mut Hub) {
        for chunks in self.targets.values_mut() {
            let before: Vec<Vec<u8>> = contents(chunks);
            chunks.set_time(Millis(hub.now));
            chunks.crash(hub.rng.next_u64());
            if contents(chunks) != before {
                hub.coverage.hit("a power cut of storaged took content");
            }
        }
        self.admission = Admission::new(self.config);
        self.forget_promises(Millis(hub.now));
    }

    /// Somebody removes a chunk file, or cuts it short. `false`: there is none.
    pub fn vandalise(&mut self, harm: &Harm) -> bool {
        let Some(chunks) = self.targets.get(&harm.target) else { return false };
        let piece = PieceName::first(harm.chunk);
        match harm.left {
            None => chunks.remove(&piece).is_ok(),
            Some(size) => chunks.truncate(&piece, size).is_ok(),
        }
    }

    /// Takes the fence list.
    pub fn set_fences(&mut self, fences: &FencesReply) {
        self.admission.set_fences(fences);
    }

    /// Every chunk file of every target.
    pub fn chunks(&self) -> Vec<(TargetId, ChunkId)> {
        let list = |(target, chunks): (&TargetId, &MemoryChunks)| {
            let all = chunks.list(None, usize::MAX).unwrap_or_default();
            all.into_iter().map(|chunk| (*target, chunk)).collect::<Vec<_>>()
        };
        self.targets.iter().flat_map(list).collect()
    }

    /// Refuses what has no room, and counts what is taken of a promise: gives how much.
    fn find_room(
        &mut self,
        (sender, target): (&Sender, TargetId),
        request: &StorageRequest,
        payload: usize,
        hub: &mut Hub,
    ) -> Result<u64, Refusal> {
        let (room, now) = (self.rooms.get(&target).copied(), Millis(hub.now));
        let found = self.targets.get(&target).zip(self.promised.get_mut(&target));
        let (chunks, promised) = found.ok_or_else(|| Refusal::new(Status::STALE_MAP))?;
        let before = promised.total(now);
        narrow::require_room(chunks, room, (promised, client(sender), now), request, payload)
            .inspect_err(|_| hub.coverage.hit("a target was full"))?;
        let own = before - promised.total(now);
        if own > 0 {
            hub.coverage.hit("a client took of what it was promised");
        }
        Ok(own)
    }

    /// How much the client may bring later, if it asks.
    fn promise(&mut self, sender: &Sender, m: &WriteChunk, hub: &mut Hub) -> Option<u64> {
        if m.later != Some(true) {
            return None;
        }
        let free = narrow::capacity(self.targets.get(&m.target)?, self.rooms.get(&m.target).copied());
        let promised = self.promised.get_mut(&m.target)?;
        let room = promised.promise(client(sender), Millis(hub.now), free.bytes_free);
        hub.coverage.hit(match room {
            Some(_) => "a target promised room",
            None => "a target had no room to promise",
        });
        if room.is_some() && narrow::mixed(hub.now, u64::from(m.target.0)).is_multiple_of(SQUEEZED) {
            self.squeeze(m.target, hub.now);
        }
        room
    }

    /// Somebody else takes of a narrow target all that is promised to nobody.
    fn squeeze(&mut self, target: TargetId, now: u64) {
        let found = self.targets.get(&target).zip(self.promised.get_mut(&target));
        if let Some(((chunks, promised), room)) = found.zip(self.rooms.get_mut(&target)) {
            *room = (*room).min(chunks.used() + promised.total(Millis(now)));
        }
    }

    /// It has taken `own` bytes of what its client was promised.
    fn write(
        &mut self,
        sender: &Sender,
        m: &WriteChunk,
        (payload, own): (&[u8], u64),
        hub: &mut Hub,
    ) -> Result<WriteChunkReply, Refusal> {
        let (ino, generation) = (m.chunk.ino, m.chunk.generation);
        hub.say(format_args!("write to {} {ino}.{generation} at {} {}", m.target, m.offset, payload.len()));
        let chunks = self.targets.get(&m.target).ok_or_else(|| Refusal::new(Status::STALE_MAP))?;
        let written = write_chunk(chunks, m, payload).map_err(failed);
        if let Some(promised) = self.promised.get_mut(&m.target).filter(|_| own > 0 && written.is_err()) {
            promised.give_back(client(sender), Millis(hub.now), own);
        }
        if written.as_ref().is_err_and(|refusal| refusal.status == Status::TOO_LATE) {
            hub.coverage.hit("a write came later than it counts");
        }
        let reply = written?;
        Ok(WriteChunkReply { room: self.promise(sender, m, hub), ..reply })
    }

    pub fn answer(
        &mut self,
        sender: &Sender,
        kind: u16,
        (body, payload, answer_room): (&[u8], &[u8], usize),
        hub: &mut Hub,
    ) -> Result<Answered, Refusal> {
        let request = StorageRequest::decode(kind, &mut Reader::new(body))
            .map_err(|e| Refusal::with(Status::MALFORMED, e.to_string()))?
            .ok_or_else(|| Refusal::new(Status::MALFORMED))?;
        self.admission.admit(sender)?;
        let Some(target) = target_of(&request) else { return Err(Refusal::new(Status::MALFORMED)) };
        if !self.targets.contains_key(&target) {
            return Err(Refusal::new(Status::STALE_MAP));
        }
        self.admission.check(target, Consistency::Good, &request)?;
        let by = speaker(sender.role, &request)?;
        if let Some(by) = by.filter(|_| hub.canary != Some(Canary::OldTermsTrim)) {
            hear(self.terms.entry(target).or_default(), by)?;
        }
        let own = self.find_room((sender, target), &request, payload.len(), hub)?;
        let chunks = self.targets.get(&target).ok_or_else(|| Refusal::new(Status::STALE_MAP))?;
        chunks.set_time(Millis(hub.now));
        match &request {
            StorageRequest::ReadChunk(m) => {
                let mut out = vec![0; (m.len as usize).min(answer_room)];
                let (reply, len) = read_chunk(chunks, m, &mut out).map_err(failed)?;
                out.truncate(len);
                let blind = hub.canary == Some(Canary::ZeroForLost);
                let reply = if blind { ReadChunkReply { size: u64::MAX } } else { reply };
                Ok((reply.to_bytes(), out))
            }
            StorageRequest::WriteChunk(m) => {
                self.write(sender, m, (payload, own), hub).map(|reply| (reply.to_bytes(), Vec::new()))
            }
            StorageRequest::CopyChunk(m) => {
                hub.say(format_args!("{request:?}"));
                hub.coverage.hit("a target copied");
                let from = self.targets.get(&m.from_target).ok_or_else(|| Refusal::from(Errno::EXDEV))?;
                let reply = copy_chunk(chunks, from, m, false, &mut [0; COPY_BUFFER]);
                let reply =
                    reply.map_err(|(CopyFault::Source(done) | CopyFault::Copy(done))| failed(done))?;
                Ok((reply.to_bytes(), Vec::new()))
            }
            _ => {
                hub.say(format_args!("{request:?}"));
                if let StorageRequest::DeleteChunks(m) = &request {
                    for chunk in &m.chunks {
                        self.admission.bury(chunk.ino, chunk.generation);
                    }
                    hub.coverage.hit("chunk files were deleted");
                }
                match execute(chunks, Limits::default(), &request) {
                    Done::Body(body) if hub.canary == Some(Canary::EioForHole) => {
                        Ok((beyond_the_ends(&request, body), Vec::new()))
                    }
                    Done::Body(body) => Ok((body, Vec::new())),
                    other => Err(failed(other)),
                }
            }
        }
    }
}

fn failed(done: Done) -> Refusal {
    match done {
        Done::Refused(refusal) => refusal,
        other => Refusal::with(Status::MALFORMED, format!("{other:?}")),
    }
}

/// Whose promises a request moves.
fn client(sender: &Sender) -> ClientId {
    if sender.role == Role::Client { sender.client } else { ClientId(0) }
}

/// Requests are done at once here, so nothing is ever in work, and the terms are on the disk at once.
fn hear(terms: &mut Terms, by: ShardTerm) -> Result<(), Refusal> {
    while terms.ask(by)? != Turn::Now {
        let table = terms.to_keep().ok_or_else(|| Refusal::new(Status::BUSY))?;
        terms.kept(&table);
    }
    terms.ended(by);
    Ok(())
}

/// The canary: a sync tells more than the chunk files hold.
fn beyond_the_ends(request: &StorageRequest, body: Vec<u8>) -> Vec<u8> {
    match (request, SyncChunksReply::from_bytes(&body)) {
        (StorageRequest::SyncChunks(_), Ok(mut reply)) => {
            reply.sizes.iter_mut().for_each(|size| *size += u64::from(*size > 0));
            reply.to_bytes()
        }
        _ => body,
    }
}

fn contents(chunks: &MemoryChunks) -> Vec<Vec<u8>> {
    let list = chunks.list(None, usize::MAX).unwrap_or_default();
    let head = |chunk: ChunkId| {
        let mut bytes = vec![0; 4_096];
        let len = chunks.read(&PieceName::first(chunk), 0, &mut bytes).unwrap_or(0);
        bytes.truncate(len);
        bytes
    };
    list.into_iter().map(head).collect()
}

fn target_of(request: &StorageRequest) -> Option<TargetId> {
    Some(match request {
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
        StorageRequest::TargetStats(_) => return None,
    })
}
