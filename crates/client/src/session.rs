//! The session: opened at the mount, renewed by housekeeping, closed at the unmount.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{BACKOFF_MAX_MS, BACKOFF_MIN_MS};
use crate::port::{Cell, Port};
use crate::state::{Mounting, Session, SessionState, Shared};
use alloc::vec::Vec;
use skep_types::{Encode, Errno, Ino, Uuid};
use skep_wire::meta::{Open, OpenMode};
use skep_wire::mgmt::{CloseSession, OpenSession, OpenSessionReply};
use skep_wire::{Message, Refusal};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Opens the session and fetches the map; tries for `patience_ms`.
    pub async fn attach(&self, mounting: Mounting, patience_ms: u64) -> Result<(), Refusal> {
        self.shared.with(|s| s.mounting = mounting);
        let (uuid, started) = (self.port.uuid(), self.port.now());
        let mut backoff = BACKOFF_MIN_MS;
        loop {
            let refusal = match self.open_session(uuid).await {
                Ok(()) if self.refresh_map().await => return Ok(()),
                Ok(()) => Errno::ETIMEDOUT.into(),
                Err(refusal) => refusal,
            };
            let waited = self.port.now().since(started);
            if waited >= patience_ms || self.port.cancelled() {
                return Err(refusal);
            }
            self.port.pause(backoff).await;
            backoff = (backoff + backoff / 2).min(BACKOFF_MAX_MS);
        }
    }

    async fn open_session(&self, uuid: Uuid) -> Result<(), Refusal> {
        let Mounting { host, mount, machine } = self.shared.with(|s| s.mounting.clone());
        let message = OpenSession { uuid, host, mount, machine };
        let job = Job::new(To::Mgmt, OpenSession::KIND, message.to_bytes(), false);
        let reply: OpenSessionReply = self.once(job).await?.read()?;
        let renewed = self.port.now();
        self.shared.with(|s| {
            s.epoch = s.epoch.max(reply.epoch);
            s.session = SessionState::Open(Session {
                client: reply.client,
                incarnation: reply.incarnation,
                token: reply.token,
                cluster: reply.cluster,
                timeout_ms: reply.timeout_ms,
                renewed,
            });
        });
        Ok(())
    }

    /// Ends the session: what is uncommitted is committed, shards are told of all closes by mgmtd.
    /// Tries each step once: an unmount must not hang.
    pub async fn detach(&self) {
        let marked: Vec<Ino> = self.shared.with(|s| {
            s.inodes.iter().filter(|(_, inode)| inode.mark.is_some()).map(|(ino, _)| ino).collect()
        });
        if !self.shared.with(|s| s.session.is_dead()) {
            self.shared.with(|s| s.limits.retry_ms = BACKOFF_MAX_MS);
            for ino in marked {
                if let Err(refusal) = self.commit(ino).await {
                    self.port.log(format_args!("unmount: size of inode {ino} not committed: {refusal}"));
                }
            }
        }
        let Some(client) = self.shared.with(|s| s.session.open().map(|session| session.client)) else {
            return;
        };
        let job = Job::new(To::Mgmt, CloseSession::KIND, CloseSession { client }.to_bytes(), false);
        if let Err(refusal) = self.once(job).await {
            self.port.log(format_args!("unmount: the session stays until its time-out: {refusal}"));
        }
        self.shared.with(|s| s.session = SessionState::None);
    }

    /// After an eviction: a new session, if nothing can have been lost by the old one's end.
    pub(crate) async fn revive(&self) {
        if !self.shared.with(|s| s.session.is_dead() && s.is_clean()) {
            return;
        }
        if self.open_session(self.port.uuid()).await.is_err() {
            return;
        }
        self.port.log(format_args!("a new session is open; nothing written had been lost"));
        let open: Vec<(Ino, OpenMode, u64)> = self.shared.with(|s| {
            let used = s.inodes.iter().filter(|(_, inode)| inode.uses() > 0);
            used.map(|(ino, inode)| (ino, inode.mode.unwrap_or(OpenMode::Read), inode.open_seq)).collect()
        });
        for (ino, mode, open_seq) in open {
            let message = Open { ino, mode, truncate: false, kill_suidgid: false, open_seq };
            if let Err(refusal) = self.settle(self.asking(ino.shard(), &message)).await {
                self.port.log(format_args!("inode {ino} cannot be opened again: {refusal}"));
            }
        }
    }
}
