//! The participant of transactions over shards: keeps what it has promised until it hears how they ended, and asks when
//! it does not.

use super::Shard;
use crate::group::{Host, Owner, Request, ShardMessage};
use crate::limit::TXN_ASK_MS;
use crate::store::{Store, StoreError};
use skep_types::ShardId;
use skep_wire::meta::{AskOutcome, Decide, TxnId, TxnOutcome};

impl Shard {
    /// Nothing was heard of a transaction for a while.
    pub(super) fn ask<S: Store>(&mut self, host: &mut Host<S>, txid: TxnId) {
        if !self.leads || !self.is_in_service(host) {
            return self.txns.ask_at(txid, host.now.plus(TXN_ASK_MS));
        }
        let message = ShardMessage::AskOutcome(AskOutcome { txid, by: self.id });
        let errand = self.tell(host, Owner::Ask(self.id, txid), txid.shard, message);
        self.txns.asking(txid, errand);
    }

    /// The coordinator has answered: as if its decision had come.
    pub(super) fn heard<S: Store>(
        &mut self,
        host: &mut Host<S>,
        errand: u64,
        txid: TxnId,
        outcome: TxnOutcome,
    ) -> Result<(), StoreError> {
        if !self.txns.is_prepared(txid) {
            return Ok(());
        }
        if outcome == TxnOutcome::Undecided {
            self.txns.ask_at(txid, host.now.plus(TXN_ASK_MS));
            return Ok(());
        }
        // It says nothing of others.
        let floor = TxnId { shard: ShardId(0), ..TxnId::default() };
        let decide = Decide { txid, floor, commit: outcome == TxnOutcome::Committed };
        let (own, epoch) = (host.own, host.sessions.epoch());
        // Nobody waits for the answer: the job that asked is done.
        let call = host.call_to(self.id);
        let request = Request::loopback(errand, call, own, ShardMessage::Decide(decide), epoch);
        self.without_waiting(host, |shard, host| shard.perform(host, request, None))
    }
}
