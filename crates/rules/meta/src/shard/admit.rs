//! Admission: is the sender allowed, is the server ready, is the shard here?

use super::Shard;
use crate::group::{Host, Request, not_ready};
use crate::store::Store;
use alloc::format;
use skep_types::limits::SLOTS_MAX;
use skep_types::{ClientId, Role};
use skep_wire::meta::MetaRequest;
use skep_wire::{Refusal, Status};

impl Shard {
    /// Refuses what must not be looked at further.
    pub fn admit<S: Store>(&mut self, host: &mut Host<S>, request: &Request) -> Result<(), Refusal> {
        if let Some(refusal) = host.behind(request) {
            return Err(refusal);
        }
        if host.started && host.knows_cluster() {
            host.locate(&request.call)?;
        }
        if !self.is_in_service(host) {
            return Err(not_ready());
        }
        let role = request.peer.role;
        let allowed = match request.message {
            MetaRequest::Prepare(_)
            | MetaRequest::Decide(_)
            | MetaRequest::AskOutcome(_)
            | MetaRequest::FetchRows(_)
            | MetaRequest::AskHistory(_) => role == Role::Server,
            // From a client it is a directory that was dealt to a shard: no frame of a client may hold it.
            MetaRequest::MakeDirOn(_) => role != Role::Server,
            // Who has something open must have a session that can end.
            MetaRequest::Open(_)
            | MetaRequest::CreateTemp(_)
            | MetaRequest::Close(_)
            | MetaRequest::Reclaim(_)
            | MetaRequest::SetLock(_)
            | MetaRequest::GetLock(_)
            | MetaRequest::DropLocks(_)
            | MetaRequest::CancelLock(_)
            | MetaRequest::Events(_)
            | MetaRequest::Recalled(_)
            | MetaRequest::Tell(_)
            | MetaRequest::ReserveEnd(_) => role == Role::Client,
            MetaRequest::Create(ref m) if m.open.is_some() => role == Role::Client,
            _ => role != Role::Server,
        };
        request.of_role(allowed)?;
        if role != Role::Client {
            return Ok(());
        }
        if request.call.slot.0 >= SLOTS_MAX {
            let text = format!("slot {}: a client has {SLOTS_MAX} on a shard", request.call.slot.0);
            return Err(Refusal::with(Status::MALFORMED, text));
        }
        let client = request.peer.client;
        host.sessions.admit(client)?;
        match request.message {
            MetaRequest::Reclaim(_) | MetaRequest::Recalled(_) => Ok(()),
            _ => self.refuse_late(client),
        }
    }

    /// A client that has not reported when the grace period was over is heard about nothing else before: its programs may
    /// believe in locks that others have, and it is told that first.
    pub fn refuse_late(&self, client: ClientId) -> Result<(), Refusal> {
        if !self.grace.is_late(client) {
            return Ok(());
        }
        let text = "the grace period ended without this client: it is to tell first what it holds";
        Err(Refusal::with(Status::NOT_READY, text))
    }
}
