//! What nobody waits for: renewal, map, reclaim, closes, doubts, old unsynced chunks. Each step is
//! tried once; what fails is tried at the next call, so that a dead daemon delays nothing else.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{HOUSEKEEPING_MAX_MS, HOUSEKEEPING_SOON_MS, OPENS_PER_REQUEST, SYNC_IDLE_BATCH};
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, NodeId};
use skep_wire::meta::{Close, Sync};
use skep_wire::mgmt::RenewSession;
use skep_wire::{Message, Status};

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
        ok &= self.send_closes().await;
        ok &= self.resolve_doubts().await;
        for ino in self.shared.with(|s| s.inodes.overdue(SYNC_IDLE_BATCH)) {
            ok &= self.sync_chunks(ino).await.is_ok() && self.commit(ino).await.is_ok();
            self.shared.with(|s| s.inodes.forget(ino));
        }
        if !ok {
            return AGAIN_MS;
        }
        let (waiting, timeout) = self.shared.with(|s| {
            (!s.closes.is_empty(), s.session.open().map_or(HOUSEKEEPING_MAX_MS, |session| session.timeout_ms))
        });
        if waiting { HOUSEKEEPING_SOON_MS } else { (timeout / 4).clamp(1, HOUSEKEEPING_MAX_MS) }
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
