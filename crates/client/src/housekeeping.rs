//! What nobody waits for: renewal, map, reclaim, closes, doubts, old unsynced chunks. Each step is
//! tried once; what fails is tried at the next call, so that a dead daemon delays nothing else.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{HOUSEKEEPING_MAX_MS, HOUSEKEEPING_SOON_MS, OPENS_PER_REQUEST, SYNC_IDLE_BATCH};
use crate::port::{Cell, Port};
use crate::state::{Shared, Unsynced};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, Ino, NodeId, TargetId};
use skep_wire::meta::{Close, Sync};
use skep_wire::mgmt::RenewSession;
use skep_wire::storage::{SyncChunks, SyncChunksReply};
use skep_wire::{Message, Refusal, Status};

/// Pause after a step that failed.
const AGAIN_MS: u64 = 1_000;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Does what is due, and says in how many milliseconds it wants to be called again at the
    /// latest ([`Port::work_waits`] asks for it sooner).
    pub async fn housekeeping(&self) -> u64 {
        self.revive().await;
        let mut ok = self.renew().await;
        let needing: Vec<NodeId> = self.shared.with(|s| s.nodes.needing().collect());
        for node in needing {
            if self.shared.with(|s| s.nodes.begin_reclaim(node)) {
                ok &= self.reclaim(node).await;
            }
        }
        ok &= self.settle_locks().await;
        self.punch_strays().await;
        let measuring = self.end_netbench();
        ok &= self.send_closes().await;
        ok &= self.resolve_doubts().await;
        ok &= self.sync_idle().await;
        self.drop_idle_pages().await;
        if !ok {
            return AGAIN_MS;
        }
        let (waiting, timeout) = self.shared.with(|s| {
            (!s.closes.is_empty(), s.session.open().map_or(HOUSEKEEPING_MAX_MS, |session| session.timeout_ms))
        });
        match () {
            () if waiting => HOUSEKEEPING_SOON_MS,
            () if measuring => AGAIN_MS,
            () => (timeout / 4).clamp(1, HOUSEKEEPING_MAX_MS),
        }
    }

    /// Renews the session if that is due, and nothing else: for a lane that waits for nobody but mgmtd. Says in how
    /// many milliseconds it wants to be called again.
    pub async fn keep_alive(&self) -> u64 {
        if !self.renew().await {
            return AGAIN_MS;
        }
        let timeout = self.shared.with(|s| s.session.open().map(|session| session.timeout_ms));
        (timeout.unwrap_or(HOUSEKEEPING_MAX_MS) / 8).clamp(1, HOUSEKEEPING_MAX_MS)
    }

    /// Renews the session when a quarter of its time-out has passed.
    async fn renew(&self) -> bool {
        let now = self.port.now();
        let due: Option<ClientId> = self.shared.with(|s| {
            let session = s.session.open()?;
            (now.since(session.renewed) >= session.timeout_ms / 4).then_some(session.client)
        });
        let Some(client) = due else { return true };
        let job = Job::new(To::Mgmt, RenewSession::KIND, RenewSession { client }.to_bytes(), false);
        let Ok(reply) = self.once(job).await else { return false };
        let Ok(beat) = reply.read::<<RenewSession as Message>::Reply>() else { return false };
        let newer = self.shared.with(|s| {
            if let crate::state::SessionState::Open(session) = &mut s.session {
                session.renewed = now;
            }
            s.epoch = s.epoch.max(beat.epoch);
            beat.map > s.map.version()
        });
        !newer || self.refresh_map().await
    }

    /// Tells shards what is closed. `false`: some could not be told now.
    pub(crate) async fn send_closes(&self) -> bool {
        let mut failed = Vec::new();
        while let Some((shard, opens)) = self.shared.with(|s| s.closes.take(OPENS_PER_REQUEST)) {
            let message = Close { opens };
            match self.once(self.asking(shard, &message)).await {
                // A refusal that a repetition does not change: the shard knows of no such open.
                Err(refusal) if is_passing(refusal.status) => failed.extend(message.opens),
                _ => {}
            }
        }
        let told = failed.is_empty();
        self.shared.with(|s| s.closes.put_back(failed));
        told
    }

    /// Too many closed files have unsynced chunks: some of them are synced, a request for each target,
    /// and forgotten.
    async fn sync_idle(&self) -> bool {
        let mut points = BTreeMap::new();
        let mut by_life: BTreeMap<(TargetId, u64), Vec<(Ino, Unsynced)>> = BTreeMap::new();
        let idle = self.shared.with(|s| {
            let idle = s.inodes.overdue(SYNC_IDLE_BATCH);
            for ino in &idle {
                points.extend(s.inodes.get(*ino).map(|inode| (*ino, inode.looks_at())));
                for unsynced in s.inodes.get(*ino).map_or(&[][..], |inode| &inode.unsynced) {
                    by_life
                        .entry((unsynced.target, unsynced.life))
                        .or_default()
                        .push((*ino, unsynced.clone()));
                }
            }
            idle
        });
        let mut ok = true;
        for ((target, life), files) in by_life {
            let chunks = files.iter().flat_map(|(_, unsynced)| unsynced.chunks.iter().copied()).collect();
            let message = SyncChunks { target, chunks, life };
            let job = Job::new(To::Target(target), SyncChunks::KIND, message.to_bytes(), false);
            let synced = self.once(job).await;
            let sizes = synced.as_ref().ok().and_then(|reply| reply.read::<SyncChunksReply>().ok());
            let mut sizes = sizes.map(|reply| reply.sizes).unwrap_or_default().into_iter();
            let settled = match &synced {
                Ok(_) => true,
                Err(refusal) => matches!(refusal.status, Status::STALE_GENERATION | Status::LOST_WRITES),
            };
            ok &= settled;
            for (ino, unsynced) in files.iter().filter(|_| settled) {
                let held: Vec<u64> = sizes.by_ref().take(unsynced.chunks.len()).collect();
                self.shared.with(|s| match synced {
                    Err(Refusal { status: Status::LOST_WRITES, .. }) => s.chunks_lost(*ino, unsynced),
                    _ => {
                        s.chunks_synced(*ino, unsynced);
                        if let Some((inode, point)) = s.inodes.get_mut(*ino).zip(points.get(ino)) {
                            inode.hold_all(&unsynced.chunks, *point, &held);
                        }
                    }
                });
            }
        }
        for ino in &idle {
            ok &= self.commit(*ino).await.is_ok();
        }
        self.shared.with(|s| idle.iter().for_each(|ino| s.inodes.forget(*ino)));
        ok
    }

    /// Changes of a term that has ended: are they still there?
    async fn resolve_doubts(&self) -> bool {
        let mut ok = true;
        for (shard, term, index) in self.shared.with(|s| s.stamps.in_doubt()) {
            match self.once(self.asking(shard, &Sync { term, index })).await {
                Ok(_) => self.shared.with(|s| s.stamps.synced(shard, term, index)),
                Err(refusal) if refusal.status == Status::LOST_HISTORY => self.history_lost(shard, term),
                Err(_) => ok = false,
            }
        }
        ok
    }
}

/// The daemon was not reached, or not ready.
fn is_passing(status: Status) -> bool {
    status.is_transient() || status == Status::STALE_MAP || status.as_errno() == Some(Errno::EIO)
}
