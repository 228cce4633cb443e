//! Sessions of mounts: opened, renewed, closed, evicted.

use crate::command::{EndSession, Session, SessionEnd, SetSession};
use crate::limits::TEXT_MAX;
use crate::registry::{Answer, Output, Peer, Registry, SessionPulse};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, FenceEpoch, Incarnation, Millis, Uuid};
use skep_wire::mgmt::{CloseSession, Evict, FencesReply, OpenSession, OpenSessionReply, RenewSession};
use skep_wire::{Empty, Refusal, Status};

impl Registry {
    pub(crate) fn open_session(
        &mut self,
        now: Millis,
        to: u64,
        m: OpenSession,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        if m.uuid == Uuid::default() || m.host.len() > TEXT_MAX || m.mount.len() > TEXT_MAX {
            return Err(Refusal::with(
                Status::errno(Errno::EINVAL),
                "a session needs a uuid and short texts",
            ));
        }
        // A repeated request (its answer was lost) gets the session that it already has.
        let known =
            self.state.sessions.values().find(|session| session.uuid == m.uuid).map(|session| session.client);
        let client = match known {
            Some(client) => client,
            None if self.state.sessions.len() >= self.config.max_sessions => {
                let max = self.config.max_sessions;
                let text = format!("{max} mounts are connected, the limit; raise max_sessions of mgmtd");
                return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
            }
            None => {
                let client = ClientId(self.state.last_client.0 + 1);
                out.notes.push(format!("client {client}: {} on {}", m.mount, m.host));
                let session =
                    Session { client, uuid: m.uuid, host: m.host, mount: m.mount, machine: m.machine };
                self.commit(SetSession { session }, out);
                client
            }
        };
        self.sessions.insert(client, SessionPulse { heard: now, seen: true });
        let reply = OpenSessionReply {
            client,
            // Random, by the mount: should an id be given twice after all (an older registry that nobody noticed),
            // servers tell the two apart.
            incarnation: life_of(&m.uuid),
            token: [0; 32],
            cluster: self.state.cluster,
            epoch: self.state.epoch,
            timeout_ms: self.config.session_timeout_ms,
        };
        out.answers.push((to, Ok(Answer::Session(reply))));
        Ok(())
    }

    pub(crate) fn renew_session(
        &mut self,
        now: Millis,
        to: u64,
        peer: Peer,
        m: RenewSession,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        own(peer, m.client)?;
        match self.sessions.get_mut(&m.client) {
            Some(pulse) => {
                *pulse = SessionPulse { heard: now, seen: true };
                out.answers.push((to, Ok(Answer::Body(self.pulse().to_bytes()))));
                Ok(())
            }
            None => {
                let text = format!("the session of client {} has ended: mount again", m.client);
                Err(Refusal::with(Status::FENCED, text))
            }
        }
    }

    pub(crate) fn close_session(
        &mut self,
        to: u64,
        peer: Peer,
        m: CloseSession,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        own(peer, m.client)?;
        // Closing twice is fine: the first answer may have been lost.
        if m.died && self.sessions.contains_key(&m.client) {
            // Requests of the dead process may still lie in servers' buffers: no orderly end.
            self.fence(m.client, "its mount died, and another took its place".into(), out);
        } else if self.sessions.remove(&m.client).is_some() {
            out.notes.push(format!("client {} closed its session", m.client));
            let end = SessionEnd::Closed;
            let (epoch, at, why) = (FenceEpoch(0), self.clock, String::new());
            self.commit(EndSession { client: m.client, end, epoch, at, why }, out);
        }
        out.answers.push((to, Ok(Answer::Body(Empty {}.to_bytes()))));
        Ok(())
    }

    pub(crate) fn evict(&mut self, to: u64, m: Evict, out: &mut Output) -> Result<(), Refusal> {
        if !self.sessions.contains_key(&m.client) {
            let text = format!("there is no client {}; see `skep session list`", m.client);
            return Err(Refusal::with(Status::errno(Errno::ENOENT), text));
        }
        self.fence(m.client, "by an administrator".into(), out);
        out.answers.push((to, Ok(Answer::Body(Empty {}.to_bytes()))));
        Ok(())
    }

    /// Ends the sessions that were silent for too long. Only of a registry that is vouched for: they may speak to a newer one,
    /// a fence is never lifted, and its epoch would stand for another fence there.
    pub(crate) fn watch_sessions(&mut self, now: Millis, out: &mut Output) {
        let limit = self.config.session_timeout_ms;
        let silent: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, pulse)| now.since(pulse.heard) >= limit)
            .map(|(id, _)| *id)
            .collect();
        for client in silent {
            self.fence(client, format!("silent for {} s", limit / 1_000), out);
        }
    }

    fn fence(&mut self, client: ClientId, why: String, out: &mut Output) {
        self.sessions.remove(&client);
        let epoch = FenceEpoch(self.state.epoch.0 + 1);
        out.notes.push(format!("client {client} is evicted (fence epoch {epoch}): {why}"));
        self.commit(EndSession { client, end: SessionEnd::Evicted, epoch, at: self.clock, why }, out);
    }

    /// Of the newest sessions that ended in good order, and of those that an older copy had lost, only so many are remembered.
    /// Servers refuse every id up to the highest in the list that does not live: with the highest that was ever given in it,
    /// nobody of the others is taken for one who came after the list.
    pub(crate) fn fences(&self) -> FencesReply {
        let (last, mut closed) = (self.state.last_client, self.state.closed.clone());
        if last != ClientId(0) && !self.state.sessions.contains_key(&last) && !closed.contains(&last) {
            closed.push(last);
        }
        FencesReply {
            epoch: self.state.epoch,
            fences: self.state.fences.clone(),
            sessions: self.state.sessions.keys().copied().collect(),
            closed,
        }
    }
}

/// The life of a session: a part of its random uuid, so that a repeated question gets the same.
fn life_of(uuid: &Uuid) -> Incarnation {
    let (life, _) = uuid.0.split_first_chunk().unwrap_or((&[0; 8], &[]));
    Incarnation(u64::from_le_bytes(*life).max(1))
}

/// A client speaks for itself only (servers and administrators have no client id).
fn own(peer: Peer, client: ClientId) -> Result<(), Refusal> {
    if peer.client.0 == 0 || peer.client == client {
        return Ok(());
    }
    Err(Refusal::with(Status::ROLE, format!("client {} speaks for client {client}", peer.client)))
}
