//! Which requests a target serves.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use skep_types::{ClientId, Consistency, Errno, FenceEpoch, Generation, Ino, Role, TargetId};
use skep_wire::mgmt::FencesReply;
use skep_wire::storage::StorageRequest;
use skep_wire::{Refusal, Status};

/// Deleted (inode, generation) pairs that a target remembers, so that a late write cannot bring a
/// deleted chunk file back, nor a late read take what is missing for zeros. In memory only: after a restart of the daemon every connection is
/// new, and a client sends again only what belongs to files it still has open.
pub const TOMBSTONES_MAX: usize = 65_536;

/// Fenced clients that a target remembers at most (the limit of mgmtd's list).
pub const FENCED_MAX: usize = 65_536;

/// Who sent a request, as the handshake proved it, and the epoch in its header.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// Proven role.
    pub role: Role,
    /// A client's session (0 for servers and administrators).
    pub client: ClientId,
    /// Highest fence epoch that the sender knew.
    pub epoch: FenceEpoch,
}

/// The state that admission is decided on. One per storage daemon for the fences, with the
/// states of its targets; readers share it, the hands guard changes.
#[derive(Debug)]
pub struct Admission {
    /// `None` until the fences were fetched once: a restarted target must not serve before.
    epoch: Option<FenceEpoch>,
    fenced: BTreeSet<ClientId>,
    /// Sessions up to this one that are not in `living` have ended, whether a list names them or not: mgmtd uses no id twice,
    /// and one that was put back from a backup does not know those that were opened since.
    horizon: ClientId,
    living: BTreeSet<ClientId>,
    tombstones: BTreeSet<(Ino, Generation)>,
    tombstone_order: VecDeque<(Ino, Generation)>,
    config: Config,
}

/// What admission may be told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Deleted (inode, generation) pairs that are remembered.
    pub tombstones_max: usize,
    /// A fault on purpose, for the simulator: a deleted chunk file reads as zeros.
    pub canary_reads_dead: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { tombstones_max: TOMBSTONES_MAX, canary_reads_dead: false }
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl Admission {
    /// Before anything is known.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            epoch: None,
            fenced: BTreeSet::new(),
            horizon: ClientId(0),
            living: BTreeSet::new(),
            tombstones: BTreeSet::new(),
            tombstone_order: VecDeque::new(),
        }
    }

    /// The fence epoch that replies carry.
    pub fn epoch(&self) -> FenceEpoch {
        self.epoch.unwrap_or(FenceEpoch(0))
    }

    /// Refuses from now on those who have ended by a fence list, while requests of theirs may still be in work: the epoch
    /// rises (by [`Admission::set_fences`]) when those are done, for whoever sees it relies on that.
    pub fn refuse(&mut self, fences: &FencesReply) {
        let fenced = || fences.fences.iter().map(|fence| fence.client);
        self.fenced.extend(fenced());
        while self.fenced.len() > FENCED_MAX {
            self.fenced.pop_first();
        }
        let newest = fences.sessions.iter().chain(&fences.closed).copied().chain(fenced()).max();
        // Who has ended does not live again, so an older list is as true, but says less.
        if let Some(newest) = newest.filter(|newest| *newest >= self.horizon) {
            (self.horizon, self.living) = (newest, fences.sessions.iter().copied().collect());
        }
    }

    /// Has the session of this client ended? (0: who has none, a server.)
    pub fn has_ended(&self, client: ClientId) -> bool {
        let is_known = client.0 != 0 && client <= self.horizon;
        self.fenced.contains(&client) || (is_known && !self.living.contains(&client))
    }

    /// Takes a fence list; an older one than known is ignored.
    pub fn set_fences(&mut self, fences: &FencesReply) {
        if self.epoch.is_none_or(|epoch| fences.epoch >= epoch) {
            self.epoch = Some(fences.epoch);
            self.refuse(fences);
        }
    }

    /// Does the sender know of evictions that this daemon has not heard of (or has it heard of
    /// none so far)? Then it fetches the fences, and answers NOT_READY meanwhile.
    pub fn must_fetch_fences(&self, sender: &Sender) -> bool {
        self.epoch.is_none_or(|epoch| epoch < sender.epoch)
    }

    /// May this sender be served now?
    pub fn admit(&self, sender: &Sender) -> Result<(), Refusal> {
        if self.must_fetch_fences(sender) {
            return Err(Refusal::with(Status::NOT_READY, "the storage daemon is fetching the fence list"));
        }
        if sender.role == Role::Client && (sender.client.0 == 0 || self.has_ended(sender.client)) {
            let text = format!("the session of client {} has ended: mount again", sender.client);
            return Err(Refusal::with(Status::FENCED, text));
        }
        Ok(())
    }

    /// May this request touch the target in its state?
    pub fn check(&self, target: TargetId, is: Consistency, request: &StorageRequest) -> Result<(), Refusal> {
        if is == Consistency::Bad {
            let text = format!("target {target} is bad (its disk failed); see `skep health`");
            return Err(Refusal::with(Status::errno(Errno::EIO), text));
        }
        let dead = |ino, generation| self.is_buried(ino, generation);
        let stale = match request {
            StorageRequest::WriteChunk(m) => dead(m.chunk.ino, m.chunk.generation),
            StorageRequest::SealChunk(m) => dead(m.chunk.ino, m.chunk.generation),
            StorageRequest::ReserveChunk(m) => dead(m.chunk.ino, m.chunk.generation),
            StorageRequest::PunchChunk(m) => dead(m.chunk.ino, m.chunk.generation),
            // A mount with an old layout must not take what is missing for zeros.
            StorageRequest::CopyChunk(m) => {
                dead(m.chunk.ino, m.chunk.generation) || dead(m.from_chunk.ino, m.from_chunk.generation)
            }
            StorageRequest::ReadChunk(m) if !self.config.canary_reads_dead => {
                dead(m.chunk.ino, m.chunk.generation)
            }
            StorageRequest::MapChunk(m) if !self.config.canary_reads_dead => {
                dead(m.chunk.ino, m.chunk.generation)
            }
            _ => false,
        };
        if stale {
            Err(Refusal::with(Status::STALE_GENERATION, "the chunk file was deleted"))
        } else {
            Ok(())
        }
    }

    /// Was this generation of the file deleted?
    pub fn is_buried(&self, ino: Ino, generation: Generation) -> bool {
        self.tombstones.contains(&(ino, generation))
    }

    /// From now on nobody reads or writes this generation of the file.
    pub fn bury(&mut self, ino: Ino, generation: Generation) {
        if self.tombstones.insert((ino, generation)) {
            self.tombstone_order.push_back((ino, generation));
            let surplus = self.tombstone_order.len() > self.config.tombstones_max;
            if let Some(oldest) = surplus.then(|| self.tombstone_order.pop_front()).flatten() {
                self.tombstones.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skep_types::ChunkId;
    use skep_wire::mgmt::Fence;
    use skep_wire::storage::{Owner, ReadChunk, WriteChunk};

    fn fences(epoch: u64, clients: &[u64]) -> FencesReply {
        let fence = |client: &u64| Fence { client: ClientId(*client), epoch: FenceEpoch(epoch) };
        let fences = clients.iter().map(fence).collect();
        FencesReply { epoch: FenceEpoch(epoch), fences, sessions: vec![], closed: vec![] }
    }

    fn sender(client: u64, epoch: u64) -> Sender {
        Sender { role: Role::Client, client: ClientId(client), epoch: FenceEpoch(epoch) }
    }

    /// Goal: nothing is served before the fences are known, a higher epoch makes the daemon ask,
    /// and a fenced client is refused whatever epoch it claims.
    #[test]
    fn fenced_clients_are_refused() {
        let mut admission = Admission::default();
        assert_eq!(admission.admit(&sender(1, 0)).unwrap_err().status, Status::NOT_READY);
        admission.set_fences(&fences(3, &[1]));
        assert_eq!(admission.admit(&sender(1, 0)).unwrap_err().status, Status::FENCED);
        assert!(admission.admit(&sender(2, 3)).is_ok());
        assert!(admission.must_fetch_fences(&sender(2, 4)));
        assert_eq!(admission.admit(&sender(2, 4)).unwrap_err().status, Status::NOT_READY);
        admission.set_fences(&fences(4, &[]));
        assert_eq!(
            admission.admit(&sender(1, 4)).unwrap_err().status,
            Status::FENCED,
            "a fence is never lifted"
        );
        admission.set_fences(&fences(2, &[2]));
        assert_eq!(admission.epoch(), FenceEpoch(4), "an older list changes nothing");
        assert!(admission.admit(&sender(2, 4)).is_ok());
        assert_eq!(
            admission.admit(&sender(0, 4)).unwrap_err().status,
            Status::FENCED,
            "a client without a session"
        );
    }

    /// Goal: who opened his session since the backup from which mgmtd was put back is in no list, and is refused all the same:
    /// his locks are others' by then. Sessions of the backup, and those that were opened since it was put back, go on.
    #[test]
    fn sessions_that_a_backup_does_not_know_have_ended() {
        let ids = |ids: &[u64]| ids.iter().map(|id| ClientId(*id)).collect();
        let list = |epoch, living: &[u64], closed: &[u64]| FencesReply {
            sessions: ids(living),
            closed: ids(closed),
            ..fences(epoch, &[])
        };
        let mut admission = Admission::default();
        admission.set_fences(&list(1, &[1, 2], &[3]));
        let ended = |admission: &Admission| {
            [1, 2, 3, 4, 900, 1_001].map(|client| admission.admit(&sender(client, 0)).is_err())
        };
        assert_eq!(ended(&admission), [false, false, true, false, false, false]);
        let restored = list(1_001, &[1], &[1_000]);
        admission.refuse(&restored);
        assert_eq!(ended(&admission), [false, true, true, true, true, false], "before its epoch is told");
        admission.set_fences(&restored);
        // One of before that was on its way gives nobody his session back.
        admission.refuse(&list(1, &[1, 2, 4], &[3]));
        assert_eq!(ended(&admission), [false, true, true, true, true, false]);
        assert!(!admission.has_ended(ClientId(0)), "servers are waited for by nobody");
    }

    /// Goal: a deleted generation stays deleted and is read by nobody: missing chunk files would pass for zeros. The
    /// next one is writable; memory is bounded.
    #[test]
    fn deleted_generations_are_neither_written_nor_read() {
        let mut admission = Admission::default();
        let write = |ino, generation| {
            let chunk = ChunkId { ino: Ino(ino), generation: Generation(generation), extent: 0, stripe: 0 };
            let (target, owner) = (TargetId(101), Owner::default());
            StorageRequest::WriteChunk(WriteChunk {
                target,
                chunk,
                offset: 0,
                owner,
                floor: 0,
                sync: false,
                uncut: None,
                later: None,
                until: None,
            })
        };
        let check = |a: &Admission, r| a.check(TargetId(101), Consistency::Good, &r).map_err(|e| e.status);
        admission.bury(Ino(5), Generation(1));
        assert_eq!(check(&admission, write(5, 1)), Err(Status::STALE_GENERATION));
        assert_eq!(check(&admission, write(5, 2)), Ok(()));
        let read = |generation| {
            let chunk = ChunkId { ino: Ino(5), generation: Generation(generation), extent: 0, stripe: 0 };
            StorageRequest::ReadChunk(ReadChunk { target: TargetId(101), chunk, offset: 0, len: 1 })
        };
        assert_eq!(check(&admission, read(1)), Err(Status::STALE_GENERATION));
        assert_eq!(check(&admission, read(2)), Ok(()));
        for ino in 0..TOMBSTONES_MAX as u64 + 10 {
            admission.bury(Ino(ino), Generation(9));
        }
        assert_eq!(admission.tombstones.len(), TOMBSTONES_MAX);
        assert!(admission.check(TargetId(101), Consistency::Bad, &write(5, 2)).is_err());
    }
}
