//! Operations over two shards, the asking side: sending the step that is due, and what comes of
//! the answer. A shard of this very server is asked by the same message.

use super::Shard;
use crate::command::{Internal, RemoteAnswer};
use crate::fail::corrupt;
use crate::group::Host;
use crate::group::{Job, Owner};
use crate::key::{self, Table};
use crate::row::remote::{RemoteIntent, RemoteKind, RemotePhase};
use crate::store::{Store, StoreError};
use skep_types::{Decode, Encode, Kind};
use skep_wire::meta::{EntryReply, RemoteDir, RemoteDirReply, RemoteStep};
use skep_wire::{Empty, Status};

impl Shard {
    pub(super) fn remote_intent<S: Store>(
        &self,
        host: &Host<S>,
        txid: u64,
    ) -> Result<Option<RemoteIntent>, StoreError> {
        let row = host.store.get(&key::numbered(self.id, Table::RemoteIntent, txid))?;
        row.map(|bytes| RemoteIntent::from_bytes(&bytes).map_err(|e| corrupt("remote intent row", e)))
            .transpose()
    }

    /// The oldest transaction of the shard that is not finished; `txid` is none of the finished.
    fn remote_floor<S: Store>(&self, host: &Host<S>, txid: u64) -> Result<u64, StoreError> {
        let (from, until) =
            (key::table(self.id, Table::RemoteIntent).0, key::numbered(self.id, Table::RemoteIntent, txid));
        let mut floor = txid;
        host.store.scan(&from, &until, &mut |key, _| {
            floor = key::last_u64(key);
            false
        })?;
        Ok(floor)
    }

    /// The step that the intent is at is durable: it may be sent.
    pub(super) fn start_remote<S: Store>(&mut self, host: &mut Host<S>, txid: u64) -> Result<(), StoreError> {
        let Some(intent) = self.remote_intent(host, txid)? else { return Ok(()) };
        let step = match (intent.phase, intent.kind) {
            (RemotePhase::Forgetting, _) => RemoteStep::Forget,
            (RemotePhase::Asking, RemoteKind::Make) => RemoteStep::Make,
            (RemotePhase::Asking, RemoteKind::Retire) => RemoteStep::Retire,
        };
        let RemoteIntent { on, ino, parent, new, .. } = intent;
        let message =
            RemoteDir { txid, floor: self.remote_floor(host, txid)?, from: self.id, step, ino, parent, new };
        let owner = Owner::Remote(self.id, txid);
        let job = Job::Remote { shard: on, message: message.clone() };
        if host.led.contains(&on) {
            let errand = host.errands.keep(owner, self.term(), job);
            host.loop_calls.push_back((errand, on, message));
        } else {
            host.errands.send(owner, self.term(), job, &mut host.out);
        }
        Ok(())
    }

    /// The other shard answered.
    pub(super) fn remote_answered<S: Store>(
        &mut self,
        host: &mut Host<S>,
        txid: u64,
        step: RemoteStep,
        reply: &RemoteDirReply,
    ) -> Result<(), StoreError> {
        let Some(intent) = self.remote_intent(host, txid)? else { return Ok(()) };
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
        self.decide(host, &Internal::RemoteAnswer(answer))?;
        if !forgot {
            let body = if intent.kind == RemoteKind::Make {
                EntryReply { ino: reply.ino, kind: Kind::Dir, attr: reply.attr.clone(), live: None }
                    .to_bytes()
            } else {
                Empty {}.to_bytes()
            };
            self.remote_over(host, txid, Status(reply.errno), &body);
            // The other shard is told to forget soon, not at the next idle moment.
            host.out.sync_now = true;
        }
        Ok(())
    }
}
