//! Admission: is the sender allowed, is the server ready, is the shard here?

use super::Server;
use super::message::{Output, Request};
use crate::store::Store;
use alloc::format;
use skep_types::Role;
use skep_wire::meta::MetaRequest;
use skep_wire::{Refusal, Status};

impl<S: Store> Server<S> {
    /// Refuses what must not be looked at further.
    pub(super) fn admit(&mut self, request: &Request, out: &mut Output) -> Result<(), Refusal> {
        if request.epoch > self.sessions.epoch() {
            out.fetch_fences = true;
            return Err(Refusal::with(Status::NOT_READY, "a newer fence list is being fetched"));
        }
        if !self.is_ready() {
            return Err(Refusal::with(
                Status::NOT_READY,
                "the metadata server is starting: it waits for its log, the map and the fence list",
            ));
        }
        let shard = request.call.shard;
        if !self.shards.get(&shard).is_some_and(|shard| shard.leads) {
            return Err(Refusal::with(
                Status::STALE_MAP,
                format!("shard {shard} is not served by node {}; fetch the map", self.own),
            ));
        }
        let role = request.peer.role;
        let allowed = match request.message {
            MetaRequest::RemoteDir(_) => role == Role::Server,
            MetaRequest::MakeDirOn(_) => role == Role::Admin,
            MetaRequest::ShardStats(_) => true,
            // Who has something open must have a session that can end.
            MetaRequest::Open(_)
            | MetaRequest::CreateTemp(_)
            | MetaRequest::Close(_)
            | MetaRequest::Reclaim(_)
            | MetaRequest::SetLock(_)
            | MetaRequest::GetLock(_)
            | MetaRequest::DropLocks(_)
            | MetaRequest::AwaitLocks(_)
            | MetaRequest::CancelLock(_)
            | MetaRequest::ReserveEnd(_) => role == Role::Client,
            MetaRequest::Create(ref m) if m.open.is_some() => role == Role::Client,
            _ => role != Role::Server,
        };
        if !allowed {
            return Err(Refusal::with(
                Status::ROLE,
                format!("{} is not for this role", request.message.name()),
            ));
        }
        if role != Role::Client {
            return Ok(());
        }
        let client = request.peer.client;
        self.sessions.admit(client)?;
        if self.grace.is_late(shard, client) && !matches!(request.message, MetaRequest::Reclaim(_)) {
            // Its programs may believe in locks that others have: it is told that first.
            let text = "the grace period ended without this client: it is to tell first what it holds";
            return Err(Refusal::with(Status::NOT_READY, text));
        }
        Ok(())
    }
}
