//! Operations over two shards, the asking side: sending the step that is due, and what comes of
//! the answer. A shard of this very server is asked by the same message.

use super::Server;
use super::errands::Owner;
use super::message::{Job, JobFailure, JobReply, Output};
use crate::command::{Internal, RemoteAnswer};
use crate::fail::corrupt;
use crate::key::{self, Table};
use crate::row::remote::{RemoteIntent, RemoteKind, RemotePhase};
use crate::store::{Store, StoreError};
use alloc::string::ToString;
use alloc::vec::Vec;
use skep_types::{Decode, Encode, Kind, Millis, ShardId, Timestamp};
use skep_wire::meta::{EntryReply, RemoteDir, RemoteDirReply, RemoteStep};
use skep_wire::{Empty, Refusal, Status};

impl<S: Store> Server<S> {
    pub(super) fn remote_intent(
        &self,
        shard: ShardId,
        txid: u64,
    ) -> Result<Option<RemoteIntent>, StoreError> {
        let row = self.store.get(&key::numbered(shard, Table::RemoteIntent, txid))?;
        row.map(|bytes| RemoteIntent::from_bytes(&bytes).map_err(|e| corrupt("remote intent row", e)))
            .transpose()
    }

    /// The oldest transaction of the shard that is not finished; `txid` is none of the finished.
    fn remote_floor(&self, shard: ShardId, txid: u64) -> Result<u64, StoreError> {
        let (from, until) =
            (key::table(shard, Table::RemoteIntent).0, key::numbered(shard, Table::RemoteIntent, txid));
        let mut floor = txid;
        self.store.scan(&from, &until, &mut |key, _| {
            floor = key::last_u64(key);
            false
        })?;
        Ok(floor)
    }

    /// The step that the intent is at is durable: it may be sent.
    pub(super) fn start_remote(
        &mut self,
        _now: Millis,
        shard: ShardId,
        txid: u64,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let Some(intent) = self.remote_intent(shard, txid)? else { return Ok(()) };
        let step = match (intent.phase, intent.kind) {
            (RemotePhase::Forgetting, _) => RemoteStep::Forget,
            (RemotePhase::Asking, RemoteKind::Make) => RemoteStep::Make,
            (RemotePhase::Asking, RemoteKind::Retire) => RemoteStep::Retire,
        };
        let RemoteIntent { on, ino, parent, new, .. } = intent;
        let message =
            RemoteDir { txid, floor: self.remote_floor(shard, txid)?, from: shard, step, ino, parent, new };
        let owner = Owner::Remote(shard, txid);
        let job = Job::Remote { shard: on, message: message.clone() };
        if self.shards.get(&on).is_some_and(|shard| shard.leads) {
            let errand = self.errands.keep(owner, job);
            self.loop_calls.push_back((errand, on, message));
        } else {
            self.errands.send(owner, job, out);
        }
        Ok(())
    }

    /// This server answered itself.
    pub(super) fn loop_answered(
        &mut self,
        now: Millis,
        wall: Timestamp,
        errand: u64,
        result: Result<Vec<u8>, Refusal>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let result = match result {
            Ok(body) => {
                RemoteDirReply::from_bytes(&body).map(JobReply::Remote).map_err(|e| JobFailure(e.to_string()))
            }
            Err(refusal) => Err(JobFailure(refusal.to_string())),
        };
        self.courier(now, wall, errand, result, out)
    }

    /// The other shard answered.
    pub(super) fn remote_answered(
        &mut self,
        wall: Timestamp,
        shard: ShardId,
        txid: u64,
        step: RemoteStep,
        reply: &RemoteDirReply,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let Some(intent) = self.remote_intent(shard, txid)? else { return Ok(()) };
        let forgot = step == RemoteStep::Forget;
        if forgot != (intent.phase == RemotePhase::Forgetting) {
            return Ok(());
        }
        let answer = RemoteAnswer {
            txid,
            ino: reply.ino,
            errno: reply.errno,
            attr: reply.attr.clone(),
            phase: if forgot { RemotePhase::Forgetting } else { RemotePhase::Asking },
        };
        self.decide(wall, shard, &Internal::RemoteAnswer(answer), out)?;
        if !forgot {
            let body = if intent.kind == RemoteKind::Make {
                EntryReply { ino: reply.ino, kind: Kind::Dir, attr: reply.attr.clone(), live: None }
                    .to_bytes()
            } else {
                Empty {}.to_bytes()
            };
            self.remote_over(shard, txid, Status(reply.errno), &body, out);
            // The other shard is told to forget soon, not at the next idle moment.
            out.sync_now = true;
        }
        Ok(())
    }
}
