//! What a shard has in memory of transactions over shards: those that it coordinates, and what others have prepared here.
//! Running ones live here only; the rest stands in rows and is read again by the next term.

use super::homes::Home;
use crate::choose::{Conflict, Plan};
use crate::command::{Caller, Decided};
use crate::fail::Fail;
use crate::group::Request;
use crate::limit::TXNS_MAX;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{Ino, Millis, Name, ShardId, Term, Timestamp};
use skep_wire::meta::{TxnId, TxnPromise};

/// When a request first became a transaction, and until when it may be tried.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    pub age: Timestamp,
    pub until: Millis,
}

/// A transaction that is not decided.
pub struct Running {
    pub request: Request,
    pub caller: Option<Caller>,
    pub begun: Begun,
    pub plan: Plan,
    pub votes: BTreeMap<ShardId, TxnPromise>,
    /// Where the shards were that were asked.
    pub asked: Vec<Home>,
    /// Jobs that ask for votes.
    pub errands: Vec<u64>,
}

/// One that gave way, and is tried again.
pub struct Paused {
    pub request: Request,
    pub caller: Option<Caller>,
    pub begun: Begun,
    at: Millis,
}

/// One that is committed.
pub struct Told {
    /// Who has not confirmed.
    pub waits_for: BTreeSet<ShardId>,
    /// The decision is durable.
    pub is_durable: bool,
}

/// What another shard's transaction has locked here.
struct Held {
    age: Timestamp,
    inos: Vec<Ino>,
    ask_at: Option<Millis>,
    errand: Option<u64>,
}

/// What time is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// A transaction has run too long.
    GiveUp(u64),
    /// One that gave way goes on.
    Again(u64),
    /// A participant asks.
    Ask(TxnId),
}

/// See the module.
#[derive(Default)]
pub struct Txns {
    /// Counters up to this one were used in this term.
    last: u64,
    running: BTreeMap<u64, Running>,
    names: BTreeMap<(Ino, Name), u64>,
    paused: BTreeMap<u64, Paused>,
    decided: BTreeMap<TxnId, Told>,
    prepared: BTreeMap<TxnId, Held>,
    inodes: BTreeMap<Ino, TxnId>,
    due: BTreeSet<(Millis, Due)>,
}

impl Txns {
    /// Has a transaction locked this inode?
    pub fn has_locked(&self, ino: Ino) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// How many there are of all kinds.
    pub fn len(&self) -> usize {
        self.running.len() + self.paused.len() + self.decided.len() + self.prepared.len()
    }

    /// When something is to be done.
    pub fn deadline(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// What is to be done next of what is due, the oldest first.
    pub fn take_due(&mut self, now: Millis) -> Option<Due> {
        self.deadline().filter(|at| *at <= now)?;
        self.due.pop_first().map(|(_, what)| what)
    }

    /// Where those wait that are not decided.
    pub fn take_addresses(&mut self) -> Vec<u64> {
        let running =
            core::mem::take(&mut self.running).into_values().map(|running| running.request.reply_to);
        let paused = core::mem::take(&mut self.paused).into_values().map(|paused| paused.request.reply_to);
        running.chain(paused).collect()
    }

    /// The one that is not decided whose answer goes there.
    pub fn asked_by(&self, to: u64) -> Option<u64> {
        let running = self.running.iter().find(|(_, running)| running.request.reply_to == to);
        let paused = self.paused.iter().find(|(_, paused)| paused.request.reply_to == to);
        running.map(|(number, _)| *number).or(paused.map(|(number, _)| *number))
    }

    // The coordinator.

    /// Why is there no room for one more?
    pub fn is_full(&self, term: Term, most_ahead: u64) -> Option<String> {
        if self.running.len() + self.paused.len() >= TXNS_MAX || self.decided.len() >= TXNS_MAX {
            return Some("too many transactions over shards are under way".to_owned());
        }
        let (oldest, told) = self.decided.first_key_value()?;
        let since = if oldest.term < term { 0 } else { oldest.counter };
        (self.last.saturating_sub(since) >= most_ahead).then(|| {
            let by = told.waits_for.first().copied().unwrap_or_default();
            format!("shard {by} has not confirmed a transaction for too long; is its server away?")
        })
    }

    /// All transactions below this one are finished.
    pub fn floor(&self, shard: ShardId, term: Term) -> TxnId {
        let counter = self.running.keys().next().copied().unwrap_or(self.last + 1);
        let next = TxnId { shard, term, counter };
        self.decided.keys().next().map_or(next, |oldest| next.min(*oldest))
    }

    /// A transaction begins: its number.
    pub fn begin(&mut self, request: Request, caller: Option<Caller>, begun: Begun, plan: Plan) -> u64 {
        self.last += 1;
        self.names.extend(plan.names.iter().map(|name| (name.clone(), self.last)));
        self.due.insert((begun.until, Due::GiveUp(self.last)));
        let (votes, asked, errands) = (BTreeMap::new(), Vec::new(), Vec::new());
        self.running.insert(self.last, Running { request, caller, begun, plan, votes, asked, errands });
        self.last
    }

    /// One that is not decided.
    pub fn running(&mut self, counter: u64) -> Option<&mut Running> {
        self.running.get_mut(&counter)
    }

    /// It is decided, or given up: its names are free.
    pub fn end(&mut self, counter: u64) -> Option<Running> {
        let running = self.running.remove(&counter)?;
        self.due.remove(&(running.begun.until, Due::GiveUp(counter)));
        for name in &running.plan.names {
            self.names.remove(name);
        }
        Some(running)
    }

    /// It gave way, and is tried again then.
    pub fn pause(&mut self, running: Running, at: Millis) {
        let Running { request, caller, begun, .. } = running;
        self.last += 1;
        self.due.insert((at, Due::Again(self.last)));
        self.paused.insert(self.last, Paused { request, caller, begun, at });
    }

    /// One that gave way.
    pub fn unpause(&mut self, number: u64) -> Option<Paused> {
        let paused = self.paused.remove(&number)?;
        self.due.remove(&(paused.at, Due::Again(number)));
        Some(paused)
    }

    /// A transaction is committed, and these are to hear of it.
    pub fn committed(&mut self, txid: TxnId, participants: impl IntoIterator<Item = ShardId>) {
        let waits_for = participants.into_iter().collect();
        self.decided.insert(txid, Told { waits_for, is_durable: false });
    }

    /// One that is committed.
    pub fn decided(&mut self, txid: TxnId) -> Option<&mut Told> {
        self.decided.get_mut(&txid)
    }

    /// Everybody has confirmed.
    pub fn finished(&mut self, txid: TxnId) {
        self.decided.remove(&txid);
    }

    // The participant.

    /// Another shard's transaction has locked these inodes; it is asked for from then on.
    pub fn prepared(&mut self, txid: TxnId, age: Timestamp, inos: Vec<Ino>, ask_at: Millis) {
        self.inodes.extend(inos.iter().map(|ino| (*ino, txid)));
        self.due.insert((ask_at, Due::Ask(txid)));
        self.prepared.insert(txid, Held { age, inos, ask_at: Some(ask_at), errand: None });
    }

    /// No longer: the job that asks, if there is one.
    pub fn released(&mut self, txid: TxnId) -> Option<u64> {
        let held = self.prepared.remove(&txid)?;
        held.ask_at.map(|at| self.due.remove(&(at, Due::Ask(txid))));
        for ino in &held.inos {
            self.inodes.remove(ino);
        }
        held.errand
    }

    /// Is the outcome not known here?
    pub fn is_prepared(&self, txid: TxnId) -> bool {
        self.prepared.contains_key(&txid)
    }

    /// Its coordinator is being asked.
    pub fn asking(&mut self, txid: TxnId, errand: u64) {
        if let Some(held) = self.prepared.get_mut(&txid) {
            (held.ask_at, held.errand) = (None, Some(errand));
        }
    }

    /// It is to be asked then.
    pub fn ask_at(&mut self, txid: TxnId, at: Millis) {
        if let Some(held) = self.prepared.get_mut(&txid) {
            (held.ask_at, held.errand) = (Some(at), None);
            self.due.insert((at, Due::Ask(txid)));
        }
    }

    /// How many there are.
    pub fn prepared_len(&self) -> usize {
        self.prepared.len()
    }
}

/// The same, as an operation sees it.
#[derive(Clone, Copy)]
pub struct Locked<'a> {
    pub txns: &'a Txns,
    /// The shard and its term.
    pub own: (ShardId, Term),
    /// The transaction that is being decided.
    pub deciding: Option<u64>,
}

impl Locked<'_> {
    fn id(&self, counter: u64) -> TxnId {
        TxnId { shard: self.own.0, term: self.own.1, counter }
    }

    /// What was promised for this plan.
    pub fn decided(&self, plan: Plan) -> Result<Decided, Fail> {
        let running = self.deciding.and_then(|counter| Some((counter, self.txns.running.get(&counter)?)));
        match running.filter(|(_, running)| running.plan == plan) {
            Some((counter, running)) if running.votes.len() == plan.parts.len() => {
                let promise =
                    |(shard, _): &(ShardId, _)| running.votes.get(shard).cloned().unwrap_or_default();
                Ok(Decided { counter, promises: plan.parts.iter().map(promise).collect() })
            }
            _ => Err(Fail::Transact(Box::new(plan))),
        }
    }

    /// See [`crate::choose::Choose::inode_lock`].
    pub fn inode(&self, ino: Ino) -> Option<TxnId> {
        self.txns.inodes.get(&ino).copied()
    }

    /// See [`crate::choose::Choose::name_lock`].
    pub fn name(&self, dir: Ino, name: &Name) -> Option<TxnId> {
        if self.txns.names.is_empty() {
            return None;
        }
        let counter = self.txns.names.get(&(dir, name.clone())).copied();
        counter.filter(|counter| self.deciding != Some(*counter)).map(|counter| self.id(counter))
    }

    fn names_in(&self, dir: Ino) -> impl Iterator<Item = u64> + '_ {
        let is_in = move |(at, _): &&(Ino, Name)| *at == dir;
        let all = self.txns.names.iter().filter(move |(name, _)| is_in(name)).map(|(_, counter)| *counter);
        all.filter(|counter| self.deciding != Some(*counter))
    }

    /// See [`crate::choose::Choose::dir_lock`].
    pub fn dir(&self, dir: Ino) -> Option<TxnId> {
        self.names_in(dir).next().map(|counter| self.id(counter))
    }

    /// See [`crate::choose::Choose::conflict`].
    pub fn conflict(&self, ino: Ino, age: Timestamp, txid: TxnId) -> Option<Conflict> {
        let here = self.inode(ino).and_then(|holder| Some((self.txns.prepared.get(&holder)?.age, holder)));
        let own = self
            .names_in(ino)
            .filter_map(|counter| Some((self.txns.running.get(&counter)?.begun.age, self.id(counter))));
        let oldest = here.into_iter().chain(own).min()?;
        Some(if (age, txid) < oldest { Conflict::Wait } else { Conflict::Die })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one transaction that a participant does not confirm lets many others begin, not any number: each leaves a row with
    /// its participants until that one is over. The refusal says who it is.
    #[test]
    fn an_unconfirmed_transaction_is_not_left_behind_for_ever() {
        let mut txns = Txns { last: 9, ..Txns::default() };
        assert_eq!(txns.is_full(Term(3), 1), None);
        txns.committed(TxnId { shard: ShardId(0), term: Term(3), counter: 5 }, [ShardId(7)]);
        assert_eq!(txns.is_full(Term(3), 5), None);
        assert!(txns.is_full(Term(3), 4).unwrap().contains("shard 7 has not confirmed"));
        txns.committed(TxnId { shard: ShardId(0), term: Term(2), counter: 70 }, [ShardId(8)]);
        assert!(txns.is_full(Term(3), 9).unwrap().contains("shard 8"), "all of this term count");
        txns.finished(TxnId { shard: ShardId(0), term: Term(2), counter: 70 });
        txns.finished(TxnId { shard: ShardId(0), term: Term(3), counter: 5 });
        assert_eq!(txns.is_full(Term(3), 1), None);
    }
}
