//! What became of waiting locks: kept for each client until it confirms, told when it asks.

use crate::limit::LOCK_OUTCOMES_PER_MESSAGE_MAX;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::{ClientId, Millis, ShardId, Term};
use skep_wire::meta::{AwaitLocksReply, LockOutcome};

/// A request that waits for an outcome.
#[derive(Debug, Clone, Copy)]
struct Parked {
    to: u64,
    shard: ShardId,
    until: Millis,
}

#[derive(Debug, Default)]
struct Outbox {
    last: u64,
    list: VecDeque<(u64, LockOutcome)>,
    parked: Option<Parked>,
}

/// An answer that is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// Where it goes.
    pub to: u64,
    /// The shard that was asked.
    pub shard: ShardId,
    /// The answer.
    pub reply: AwaitLocksReply,
}

/// Of all clients.
#[derive(Debug, Default)]
pub struct Outcomes {
    boxes: BTreeMap<ClientId, Outbox>,
    deadlines: BTreeSet<(Millis, ClientId)>,
    /// Numbers of this life are above this.
    base: u64,
    due: Vec<Due>,
}

impl Outcomes {
    /// A life of the server begins: its numbers are higher than those of every earlier one, so that what a
    /// client confirms from an earlier life confirms nothing of this.
    pub fn begin(&mut self, term: Term) {
        self.base = term.0 << 32;
    }

    fn outbox(&mut self, client: ClientId) -> &mut Outbox {
        let base = self.base;
        self.boxes.entry(client).or_insert_with(|| Outbox { last: base, ..Outbox::default() })
    }

    /// Outcomes that the client has not confirmed.
    pub fn unconfirmed(&self, client: ClientId) -> usize {
        self.boxes.get(&client).map_or(0, |outbox| outbox.list.len())
    }

    /// Was the client's wish granted, as far as it has not confirmed that yet?
    pub fn was_granted(&self, client: ClientId, ticket: u64) -> bool {
        let list = self.boxes.get(&client).map(|outbox| &outbox.list);
        list.is_some_and(|list| list.iter().any(|(_, told)| (told.ticket, told.errno) == (ticket, 0)))
    }

    /// Something became of a wish.
    pub fn tell(&mut self, client: ClientId, ticket: u64, errno: u32) {
        let outbox = self.outbox(client);
        outbox.last += 1;
        outbox.list.push_back((outbox.last, LockOutcome { ticket, errno }));
        self.answer_parked(client);
    }

    fn answer_parked(&mut self, client: ClientId) {
        let Some(outbox) = self.boxes.get_mut(&client) else { return };
        if let Some(Parked { to, shard, until }) = outbox.parked.take() {
            self.deadlines.remove(&(until, client));
            self.due.push(Due { to, shard, reply: outbox.reply() });
        }
    }

    /// A client asks.
    pub fn ask(
        &mut self,
        client: ClientId,
        received: u64,
        to: u64,
        shard: ShardId,
        now: Millis,
        until: Millis,
    ) {
        // One at a time: an older one is answered with what there is.
        self.answer_parked(client);
        let outbox = self.outbox(client);
        while outbox.list.front().is_some_and(|(number, _)| *number <= received) {
            outbox.list.pop_front();
        }
        outbox.parked = Some(Parked { to, shard, until });
        let waits = outbox.list.is_empty() && now < until;
        self.deadlines.insert((until, client));
        if !waits {
            self.answer_parked(client);
        }
    }

    /// Nobody waits for the answer any more.
    pub fn abandon(&mut self, to: u64) {
        for (client, outbox) in &mut self.boxes {
            if let Some(parked) = outbox.parked.take_if(|parked| parked.to == to) {
                self.deadlines.remove(&(parked.until, *client));
            }
        }
    }

    /// Time passed.
    pub fn expire(&mut self, now: Millis) {
        while let Some((until, client)) = self.deadlines.first().copied() {
            if until > now {
                break;
            }
            self.deadlines.pop_first();
            self.answer_parked(client);
        }
    }

    /// When the next request has waited long enough.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// The client is gone.
    pub fn end(&mut self, client: ClientId) {
        self.answer_parked(client);
        self.boxes.remove(&client);
    }

    /// Answers that are due.
    pub fn take_due(&mut self) -> Vec<Due> {
        core::mem::take(&mut self.due)
    }
}

impl Outbox {
    fn reply(&self) -> AwaitLocksReply {
        let told = self.list.iter().take(LOCK_OUTCOMES_PER_MESSAGE_MAX);
        let outcomes: Vec<LockOutcome> = told.map(|(_, outcome)| *outcome).collect();
        let number =
            outcomes.len().checked_sub(1).and_then(|at| self.list.get(at)).map(|(number, _)| *number);
        AwaitLocksReply { outcomes, number: number.unwrap_or(self.last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const CLIENT: ClientId = ClientId(7);
    const SHARD: ShardId = ShardId(3);

    fn ask(outcomes: &mut Outcomes, received: u64, to: u64, wait: u64) -> Vec<Due> {
        outcomes.ask(CLIENT, received, to, SHARD, Millis(100), Millis(100 + wait));
        outcomes.take_due()
    }

    /// Goal: outcomes are told at once or when they come, again until they are confirmed, and in order;
    /// a newer question ends an older one; time ends it too.
    #[test]
    fn told_until_confirmed() {
        let mut outcomes = Outcomes::default();
        outcomes.begin(Term(2));
        let first = (2 << 32) + 1;
        assert!(ask(&mut outcomes, 0, 1, 50).is_empty());
        let superseded = ask(&mut outcomes, 0, 2, 50);
        assert_eq!((superseded.len(), superseded[0].to), (1, 1));
        assert!(superseded[0].reply.outcomes.is_empty());
        outcomes.tell(CLIENT, 40, 0);
        let told = outcomes.take_due();
        assert_eq!((told[0].to, told[0].shard, told[0].reply.number), (2, SHARD, first));
        assert!(outcomes.was_granted(CLIENT, 40) && !outcomes.was_granted(CLIENT, 41));
        outcomes.tell(CLIENT, 41, 35);
        let again = ask(&mut outcomes, 99, 3, 50);
        assert_eq!(again[0].reply.outcomes.len(), 2, "a number of an earlier life confirms nothing");
        assert_eq!(again[0].reply.number, first + 1);
        let rest = ask(&mut outcomes, first, 4, 50);
        assert_eq!(rest[0].reply.outcomes, vec![LockOutcome { ticket: 41, errno: 35 }]);
        assert!(ask(&mut outcomes, first + 1, 5, 50).is_empty());
        assert_eq!(outcomes.deadline(), Some(Millis(150)));
        outcomes.expire(Millis(149));
        assert!(outcomes.take_due().is_empty());
        outcomes.expire(Millis(150));
        assert_eq!(outcomes.take_due()[0].reply.number, first + 1);
        assert_eq!(ask(&mut outcomes, first + 1, 6, 0).len(), 1, "no wait at all");
        assert!(ask(&mut outcomes, first + 1, 7, 50).is_empty());
        outcomes.abandon(7);
        assert_eq!((outcomes.deadline(), outcomes.unconfirmed(CLIENT)), (None, 0));
    }
}
