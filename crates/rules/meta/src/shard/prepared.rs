//! The participant of transactions over shards: keeps what it has promised until it hears how they ended, and asks when
//! it does not.

use super::Shard;
use crate::fail::corrupt;
use crate::group::{Host, Owner, Request, ShardMessage};
use crate::key::{self, Table};
use crate::limit::TXN_ASK_MS;
use crate::row::txn::{Decision, Prepared, Redo};
use crate::store::{Store, StoreError};
use alloc::vec::Vec;
use skep_types::{Decode, ShardId};
use skep_wire::meta::{AskOutcome, Decide, TxnId, TxnOutcome};

impl Shard {
    /// Takes up what the rows hold of transactions: locks of what was promised, and what is decided.
    pub(super) fn find_txns<S: Store>(&mut self, host: &Host<S>) -> Result<Vec<TxnId>, StoreError> {
        let (from, until) = key::table(self.id, Table::Prepared);
        let (txns, mut failed) = (&mut self.txns, None);
        host.store.scan(&from, &until, &mut |key, bytes| {
            match (key::prepared_of(key), Prepared::from_bytes(bytes)) {
                (Some(txid), Ok(Prepared { age, redo: Some(redo) })) => {
                    txns.prepared(txid, age, redo.iter().map(Redo::ino).collect(), host.now);
                }
                (_, Ok(_)) => {}
                (_, Err(e)) => failed = Some(corrupt("prepared row", e)),
            }
            failed.is_none()
        })?;
        failed.map_or(Ok(()), Err)?;
        let mut decisions = Vec::new();
        let (from, until) = key::table(self.id, Table::Decision);
        host.store.scan(&from, &until, &mut |key, bytes| {
            decisions.push((key::decision_of(key), Decision::from_bytes(bytes)));
            true
        })?;
        let mut decided = Vec::new();
        for (txid, row) in decisions {
            let Decision { participants } = row.map_err(|e| corrupt("decision row", e))?;
            if let Some(txid) = txid {
                self.txns.committed(txid, participants);
                decided.push(txid);
            }
        }
        Ok(decided)
    }

    /// Nothing was heard of a transaction for a while.
    pub(super) fn ask<S: Store>(&mut self, host: &mut Host<S>, txid: TxnId) {
        if !self.leads || !self.is_ready(host) {
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
