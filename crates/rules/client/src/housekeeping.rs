//! What nobody waits for: renewal, a new session, map, reclaim, closes, doubts. Each step is
//! tried once; what fails is tried at the next call, so that a dead daemon delays nothing else.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{HOUSEKEEPING_MAX_MS, HOUSEKEEPING_SOON_MS};
use crate::port::{Cell, Port};
use crate::state::{Shards, Shared};
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, ShardId};
use skep_wire::meta::{Close, Sync};
use skep_wire::mgmt::RenewSession;
use skep_wire::{Message, Status};

/// Steps in which one call frees what has ended; nobody waits for longer than for one of them.
const FREED_AT_ONCE: usize = 1_024;
/// Pause after a step that failed.
const AGAIN_MS: u64 = 1_000;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Does what is due, and says in how many milliseconds it wants to be called again at the
    /// latest ([`Port::work_waits`] asks for it sooner).
    pub async fn housekeeping(&self) -> u64 {
        let mut ok = self.revive().await;
        ok &= self.renew().await;
        if self.shared.with(|s| s.map.is_behind()) {
            ok &= self.refresh_map().await;
        }
        let needing: Vec<ShardId> = self.shared.with(|s| s.shards.needing().collect());
        ok &= self.reclaim_due(needing, Shards::begin_report).await;
        ok &= self.settle_locks().await;
        self.punch_strays().await;
        self.look_at_losses().await;
        self.close_unused();
        ok &= self.send_closes().await;
        ok &= self.resolve_doubts().await;
        // Behind the closes: of a file that this mount had open for writing nothing is told.
        self.ask_for_readers().await;
        self.drop_idle_pages().await;
        let frees = self.free_ended();
        let old_ms = self.forget_old_reads();
        // The last: a server that hangs is waited for here, and has no part in what came before.
        self.listen().await;
        if !ok {
            return AGAIN_MS;
        }
        let (waiting, timeout) = self.shared.with(|s| {
            (
                !s.closes.is_empty() || frees,
                s.session.open().map_or(HOUSEKEEPING_MAX_MS, |session| session.timeout_ms),
            )
        });
        match waiting {
            true => HOUSEKEEPING_SOON_MS,
            false => (timeout / 4).clamp(1, HOUSEKEEPING_MAX_MS).min(old_ms),
        }
    }

    /// Frees what was read ahead and is used no longer; says in how many milliseconds there is more.
    fn forget_old_reads(&self) -> u64 {
        let now = self.port.now();
        let (next, _dropped) = self.shared.with(|s| (s.aheads.forget_old(now), s.aheads.take_dropped()));
        next.map_or(HOUSEKEEPING_MAX_MS, |ms| ms.max(HOUSEKEEPING_SOON_MS))
    }

    /// Frees a good part of what leases covered that have ended, of what the kernel was told, and of files that nobody has used for
    /// long: answers free some, and there may be none. `true`: there is more.
    fn free_ended(&self) -> bool {
        let (boot, now) = (self.port.boot(), self.port.now());
        let free = |s: &mut Shared| {
            let (ended, told) = (s.leases.sweep() | s.names.sweep(), s.kernel.free_over(boot));
            s.inodes.forget_unused(now, s.limits.idle_ms) | ended | told
        };
        (0..FREED_AT_ONCE).all(|_| self.shared.with(free))
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
        let next = |s: &mut Shared| {
            let taken = s.closes.take(s.limits.told_at_once)?;
            s.closes.on_their_way += taken.1.len();
            Some(taken)
        };
        while let Some((shard, opens)) = self.shared.with(next) {
            let _on_their_way = OnTheirWay { shared: &self.shared, count: opens.len() };
            let message = Close { opens };
            // What is being told has the file open still, and must not come behind its close.
            if self.shared.with(|s| s.shards.is_told_now(shard)) {
                failed.extend(message.opens);
                continue;
            }
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

/// Closes that are being told, until that is over, in whatever way.
struct OnTheirWay<'a, C: Cell<Shared>> {
    shared: &'a C,
    count: usize,
}

impl<C: Cell<Shared>> Drop for OnTheirWay<'_, C> {
    fn drop(&mut self) {
        // With a session all of them are forgotten.
        self.shared.with(|s| s.closes.on_their_way = s.closes.on_their_way.saturating_sub(self.count));
    }
}

/// The daemon was not reached, or not ready.
pub(crate) fn is_passing(status: Status) -> bool {
    status.is_transient() || status.is_misdirected() || status.as_errno() == Some(Errno::EIO)
}
