//! The session: opened at the mount, renewed by housekeeping, closed at the unmount.

use crate::housekeeping::is_passing;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{BACKOFF_MAX_MS, BACKOFF_MIN_MS};
use crate::port::{Cell, Port};
use crate::state::{Mounting, Session, SessionState, Shared};
use alloc::vec::Vec;
use skep_types::{Encode, Errno, Ino, Uuid};
use skep_wire::meta::{Open, OpenMode, OpenReply};
use skep_wire::mgmt::{CloseSession, OpenSession, OpenSessionReply};
use skep_wire::{Message, Refusal, Status};

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
            if s.session.is_dead() {
                s.begin_again();
            }
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

    /// Ends the session: what is uncommitted is committed, what is not durable is synced, shards are told of all closes by
    /// mgmtd. An unmount must not hang: it waits some seconds for the sync, all else is tried once.
    pub async fn detach(&self) {
        let marked: Vec<Ino> = self.shared.with(|s| {
            s.inodes
                .iter()
                .filter(|(_, inode)| inode.mark.is_some() || inode.has_news())
                .map(|(ino, _)| ino)
                .collect()
        });
        if !self.shared.with(|s| s.session.is_dead()) {
            self.put_all().await;
            // The kernel uses nothing any more. First, for what follows may take its time.
            self.give_up_leases().await;
            self.shared.with(|s| s.limits.retry_ms = BACKOFF_MAX_MS);
            for ino in marked {
                if let Err(refusal) = self.commit(ino).await {
                    self.port.log(format_args!("unmount: size of inode {ino} not committed: {refusal}"));
                }
            }
            self.sync_all().await;
            self.shared.with(|s| s.limits.retry_ms = BACKOFF_MAX_MS);
        }
        let Some(client) = self.shared.with(|s| s.session.open().map(|session| session.client)) else {
            return;
        };
        let job =
            Job::new(To::Mgmt, CloseSession::KIND, CloseSession { client, died: false }.to_bytes(), false);
        if let Err(refusal) = self.once(job).await {
            self.port.log(format_args!("unmount: the session stays until its time-out: {refusal}"));
        }
        self.shared.with(|s| s.session = SessionState::None);
    }

    /// Ends the session of a mount that died, tried once: nobody has to wait until it is missed. For a lane of a state
    /// of its own.
    pub async fn bury(&self, dead: Session) -> Result<(), Refusal> {
        let client = dead.client;
        self.shared.with(|s| s.session = SessionState::Open(dead));
        let message = CloseSession { client, died: true };
        self.once(Job::new(To::Mgmt, CloseSession::KIND, message.to_bytes(), false)).await.map(|_| ())
    }

    /// After an eviction: a new session, in which everything that is open is opened again before anybody else may use
    /// it. `false`: not yet.
    pub(crate) async fn revive(&self) -> bool {
        if self.shared.with(|s| s.session.is_dead()) {
            let uuid = self.port.uuid();
            if self.open_session(uuid).await.is_err() {
                return false;
            }
            self.port.log(format_args!(
                "a new session is open. Locks that were held are gone; what was written and not fsynced is looked for"
            ));
        }
        while let Some(ino) =
            self.shared.with(|s| s.reopening.as_mut().and_then(|left| left.front().copied()))
        {
            if !self.reopen(ino).await {
                return false;
            }
            self.shared.with(|s| s.reopening.as_mut().map(|left| left.pop_front_if(|first| *first == ino)));
        }
        self.shared.with(|s| {
            if !s.session.is_dead() {
                s.reopening = None;
            }
        });
        true
    }

    /// Opens a file again, tried once. Its answer is the first that is believed in this session.
    async fn reopen(&self, ino: Ino) -> bool {
        let message = self.shared.with(|s| {
            let inode = s.inodes.get(ino).filter(|inode| inode.uses() > 0)?;
            let (mode, open_seq) = (inode.mode.unwrap_or(OpenMode::Read), inode.open_seq);
            Some(Open { ino, mode, truncate: false, shared: false, kill_suidgid: false, open_seq })
        });
        let Some(message) = message else { return true };
        let reply = self.once(self.asking(ino.shard(), &message)).await;
        match reply.and_then(|reply| reply.read::<OpenReply>().map(|open| (open, reply))) {
            Ok((open, reply)) => self.shared.with(|s| {
                s.shards.opened(ino.shard(), reply.stamp.term);
                if !s.limits.canary_keeps_beliefs {
                    s.took(open, false);
                }
            }),
            Err(refusal) if refusal.status == Status::FENCED || is_passing(refusal.status) => return false,
            Err(refusal) => self.port.log(format_args!("inode {ino} cannot be opened again: {refusal}")),
        }
        true
    }
}
