//! The coordinator of transactions over shards: asks for votes, decides, and tells until everybody has confirmed.

use super::Shard;
use super::homes::Home;
use super::lane::Standing;
use super::run::Ran;
use super::txns::{Begun, Due, Paused, Running};
use super::waits::For;
use crate::choose::Plan;
use crate::command::{Caller, Finished, Internal};
use crate::group::{Host, Job, Owner, Request, ShardMessage};
use crate::limit::{TXN_AGAIN_MS, WAIT_DEADLINE_MS};
use crate::op;
use crate::store::{Store, StoreError};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{Encode, Errno, Role, ShardId};
use skep_wire::meta::{
    AskOutcome, AskOutcomeReply, Decide, MakeDirOn, MetaRequest, Prepare, TxnId, TxnOutcome, Vote,
};
use skep_wire::mgmt::ShardState;
use skep_wire::{Refusal, Status};

impl Shard {
    fn txid(&self, counter: u64) -> TxnId {
        TxnId { shard: self.id, term: self.term(), counter }
    }

    /// Sends something to another shard, on this server or another one, until it is answered.
    pub(super) fn tell<S: Store>(
        &mut self,
        host: &mut Host<S>,
        owner: Owner,
        shard: ShardId,
        message: ShardMessage,
    ) -> u64 {
        let job = Job::Shard { shard, message: message.clone() };
        if !host.leads(shard) {
            return host.errands.send(owner, self.term(), job, &mut host.out);
        }
        let errand = host.errands.keep(owner, self.term(), job);
        host.loop_calls.push_back((errand, shard, message));
        errand
    }

    /// An operation has to do with other shards: they are asked.
    pub(super) fn begin_txn<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        caller: Option<Caller>,
        plan: Plan,
        begun: Option<Begun>,
    ) {
        if let Some(why) = self.txns.is_full(self.term(), host.config.limits.txns_ahead) {
            let refusal = Refusal::with(Status::BUSY, why);
            return self.answer(host, request.reply_to, self.stamp(), Err(refusal));
        }
        let until = host.waits_until.unwrap_or(host.now.plus(WAIT_DEADLINE_MS));
        let begun = begun.unwrap_or(Begun { age: host.wall, until });
        let parts = plan.parts.clone();
        host.held.insert(request.reply_to, self.id);
        let counter = self.txns.begin(request, caller, begun, plan);
        let txid = self.txid(counter);
        let floor = self.txns.floor(self.id, self.term());
        for (shard, ops) in parts {
            let message = Prepare { txid, floor, age: begun.age, ops };
            let errand = self.tell(host, Owner::Prepare(txid, shard), shard, ShardMessage::Prepare(message));
            if let Some(running) = self.txns.running(txid.counter) {
                running.errands.push(errand);
                running.asked.extend(host.homes.of(shard));
            }
        }
    }

    /// A participant has voted.
    pub(super) fn voted<S: Store>(
        &mut self,
        host: &mut Host<S>,
        txid: TxnId,
        by: ShardId,
        vote: Vote,
    ) -> Result<(), StoreError> {
        let Some(running) = self.txns.running(txid.counter).filter(|_| txid.term == self.terms.last()) else {
            return Ok(());
        };
        match vote {
            Vote::Yes(promise) => {
                running.votes.insert(by, promise);
                if running.votes.len() == running.plan.parts.len() {
                    return self.decide_txn(host, txid.counter);
                }
            }
            Vote::No(m) if op::is_lost(&m) => return self.has_lost(host, txid.counter, by),
            Vote::No(m) if m.errno == Status::errno(Errno::ENOSPC).0 => {
                return self.has_no_room(host, txid.counter, by);
            }
            Vote::No(m) => self.refuse_txn(host, txid.counter, Refusal::new(Status(m.errno))),
            Vote::Conflict(_) => self.give_way(host, txid.counter),
        }
        Ok(())
    }

    /// All have voted for it. The operation runs from its beginning, on the rows as they are now.
    fn decide_txn<S: Store>(&mut self, host: &mut Host<S>, counter: u64) -> Result<(), StoreError> {
        let Some(running) = self.txns.running(counter) else { return Ok(()) };
        let (request, caller) = (running.request.clone(), running.caller);
        if let Some(caller) = caller {
            if let Err(refusal) = host.sessions.admit(caller.client) {
                self.refuse_txn(host, counter, refusal);
                return Ok(());
            }
            if !matches!(self.standing(host, &caller)?, Standing::Next) {
                // The lane has gone on: what it was told stands.
                self.abort(host, counter);
                self.again.push_back(request.into());
                return Ok(());
            }
        }
        match self.run(host, &request, caller, Some(counter))? {
            Ran::Done { done, logged, tells } => {
                if self.txns.end(counter).is_some() {
                    self.names_free(host, counter);
                }
                // The participants are told soon, not at the next idle moment.
                host.out.sync_now = true;
                self.release(host, request, done, logged, tells)?;
            }
            Ran::Refused(refusal, _) => self.refuse_txn(host, counter, refusal),
            Ran::Transact(plan) => {
                if let Some(Running { request, caller, begun, .. }) = self.abort(host, counter) {
                    self.begin_txn(host, request, caller, plan, Some(begun));
                }
            }
            Ran::Wait(_) | Ran::Lacks(_) | Ran::Recall(_) | Ran::Hold => self.give_way(host, counter),
        }
        Ok(())
    }

    pub(super) fn warn_of_promise<S: Store>(&self, host: &mut Host<S>, txid: TxnId) {
        host.out.warn(format!(
            "shard {}: while this copy of it was not in use, it made or removed a directory for shard {}: what a name there \
             leads to may be missing. Such a name gives EIO and can be removed",
            self.id, txid.shard
        ));
    }

    /// Nothing comes of it: participants need not ask.
    fn abort<S: Store>(&mut self, host: &mut Host<S>, counter: u64) -> Option<Running> {
        let running = self.txns.end(counter)?;
        running.errands.iter().for_each(|errand| host.errands.drop(*errand));
        let (txid, floor) = (self.txid(counter), self.txns.floor(self.id, self.term()));
        for (shard, _) in &running.plan.parts {
            let message = ShardMessage::Decide(Decide { txid, floor, commit: false });
            self.tell(host, Owner::Abort(txid), *shard, message);
        }
        self.names_free(host, counter);
        Some(running)
    }

    fn names_free<S: Store>(&mut self, host: &mut Host<S>, counter: u64) {
        for parked in self.waits.over(For::Txn(self.txid(counter))) {
            self.resume(host, parked);
        }
    }

    fn refuse_txn<S: Store>(&mut self, host: &mut Host<S>, counter: u64, refusal: Refusal) {
        if let Some(running) = self.abort(host, counter) {
            self.remember(running.caller, Some(&refusal));
            self.answer(host, running.request.reply_to, self.stamp(), Err(refusal));
        }
    }

    /// Another one goes first.
    fn give_way<S: Store>(&mut self, host: &mut Host<S>, counter: u64) {
        if let Some(running) = self.abort(host, counter) {
            self.txns.pause(running, host.now.plus(TXN_AGAIN_MS));
        }
    }

    /// Where this one was when its vote was asked for. The question is repeated wherever it goes from there: whether the answer
    /// is of that place is known only while the place is the same.
    fn asked(&mut self, counter: u64, by: ShardId) -> Option<Home> {
        self.txns.running(counter)?.asked.iter().find(|home| home.shard == by).copied()
    }

    /// A participant is gone with its rows, or withheld.
    fn has_lost<S: Store>(
        &mut self,
        host: &mut Host<S>,
        counter: u64,
        by: ShardId,
    ) -> Result<(), StoreError> {
        if let Some(asked) = self.asked(counter, by) {
            host.homes.has_lost(asked);
        }
        if !self.redeal(host, counter, by)? {
            let text = format!(
                "the server of shard {by} has no rows of it that it may serve: its log says what to put back"
            );
            self.refuse_txn(host, counter, Refusal::with(Status::errno(Errno::EIO), text));
        }
        Ok(())
    }

    /// A participant's server is full: one that may not be gets what was dealt to it. Each is asked once in a while, so this
    /// ends. The name itself needs room here.
    fn has_no_room<S: Store>(
        &mut self,
        host: &mut Host<S>,
        counter: u64,
        by: ShardId,
    ) -> Result<(), StoreError> {
        let another = host.homes.has_no_room(self.asked(counter, by), host.now) && !host.low_space;
        if !(another && self.redeal(host, counter, by)?) {
            self.refuse_txn(host, counter, Errno::ENOSPC.into());
        }
        Ok(())
    }

    /// A participant has not answered some times. One that is new answers soon, for the first time.
    pub fn prepare_failed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        txid: TxnId,
        by: ShardId,
    ) -> Result<(), StoreError> {
        let is_used = host.seats.get(&by).is_some_and(|seat| seat.state == ShardState::Active);
        if is_used && txid.term == self.term() {
            self.redeal(host, txid.counter, by)?;
        }
        Ok(())
    }

    /// A directory that was dealt to this shard is dealt to another one. `false`: it was asked for there, or it is none, or
    /// there is no other one.
    fn redeal<S: Store>(
        &mut self,
        host: &mut Host<S>,
        counter: u64,
        from: ShardId,
    ) -> Result<bool, StoreError> {
        let Some(running) = self.txns.running(counter) else { return Ok(false) };
        let MetaRequest::MakeDirOn(m) = &running.request.message else { return Ok(false) };
        let is_dealt = running.request.peer.role == Role::Client;
        let Some(on) = is_dealt.then(|| host.homes.deal_beside(from, host.now)).flatten() else {
            return Ok(false);
        };
        let message = MetaRequest::MakeDirOn(MakeDirOn { on, ..m.clone() });
        if let Some(Running { request, caller, begun, .. }) = self.abort(host, counter) {
            self.run_anew(host, Request { message, ..request }, caller, begun)?;
        }
        Ok(true)
    }

    fn try_again<S: Store>(&mut self, host: &mut Host<S>, paused: Paused) -> Result<(), StoreError> {
        let Paused { request, caller, begun, .. } = paused;
        if host.now >= begun.until {
            let refusal = too_long();
            self.answer(host, request.reply_to, self.stamp(), Err(refusal));
            return Ok(());
        }
        self.run_anew(host, request, caller, begun)
    }

    /// Runs an operation whose transaction was given up.
    fn run_anew<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        caller: Option<Caller>,
        begun: Begun,
    ) -> Result<(), StoreError> {
        if let Some(caller) = caller
            && !matches!(self.standing(host, &caller)?, Standing::Next)
        {
            self.again.push_back(request.into());
            return Ok(());
        }
        // A wait would make it the youngest of those that want the same.
        let ran = self.without_waiting(host, |shard, host| shard.run(host, &request, caller, None))?;
        let until = host.waits_until.replace(begun.until);
        let done = self.ran(host, request, caller, ran, Some(begun));
        host.waits_until = until;
        done
    }

    /// Nobody waits for this answer any more: what was asked for does not happen.
    pub fn abandon<S: Store>(&mut self, host: &mut Host<S>, to: u64) -> Result<(), StoreError> {
        self.again.retain(|again| again.request.reply_to != to);
        self.waits.abandon(to);
        host.leases.abandoned(to);
        if let Some(number) = self.txns.asked_by(to) {
            self.abort(host, number);
            self.txns.unpause(number);
        }
        self.give_up_reads(host);
        Ok(())
    }

    /// Time passed for transactions. What is more than a step may do stays due.
    pub(super) fn tick_txns<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        while host.txns_left > 0
            && let Some(due) = self.txns.take_due(host.now)
        {
            host.txns_left -= 1;
            match due {
                Due::GiveUp(counter) => self.refuse_txn(host, counter, too_long()),
                Due::Again(number) => {
                    if let Some(paused) = self.txns.unpause(number) {
                        self.try_again(host, paused)?;
                    }
                }
                Due::Ask(txid) => self.ask(host, txid),
            }
        }
        Ok(())
    }

    /// The decision is durable: everybody is told.
    pub(super) fn tell_decided<S: Store>(&mut self, host: &mut Host<S>, txid: TxnId) {
        let floor = self.txns.floor(self.id, self.term());
        let Some(told) = self.txns.decided(txid) else { return };
        told.is_durable = true;
        for shard in told.waits_for.iter().copied().collect::<Vec<_>>() {
            let message = ShardMessage::Decide(Decide { txid, floor, commit: true });
            self.tell(host, Owner::Commit(txid, shard), shard, message);
        }
    }

    /// A participant has confirmed.
    pub(super) fn confirmed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        txid: TxnId,
        by: ShardId,
    ) -> Result<(), StoreError> {
        let Some(told) = self.txns.decided(txid) else { return Ok(()) };
        told.waits_for.remove(&by);
        if told.waits_for.is_empty() {
            self.decide(host, &Internal::Finished(Finished { txid }))
        } else {
            Ok(())
        }
    }

    /// A participant asks how a transaction ended. What is neither running nor committed was never decided, or everybody
    /// has confirmed it.
    pub(super) fn tell_outcome<S: Store>(&mut self, host: &mut Host<S>, request: &Request, m: &AskOutcome) {
        let result = if m.txid.shard != self.id || m.txid.term > self.term() {
            let text = format!("shard {} has not begun {:?}", self.id, m.txid);
            Err(Refusal::with(Status::NOT_READY, text))
        } else {
            let running = m.txid.term == self.term() && self.txns.running(m.txid.counter).is_some();
            let outcome = match self.txns.decided(m.txid) {
                Some(told) if told.is_durable => TxnOutcome::Committed,
                Some(_) => TxnOutcome::Undecided,
                None if running => TxnOutcome::Undecided,
                None => TxnOutcome::Aborted,
            };
            Ok(AskOutcomeReply { outcome }.to_bytes())
        };
        self.answer(host, request.reply_to, self.stamp(), result);
    }
}

fn too_long() -> Refusal {
    Refusal::with(Status::BUSY, format!("not decided after {} s", WAIT_DEADLINE_MS / 1_000))
}
