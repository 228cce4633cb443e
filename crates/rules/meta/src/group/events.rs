//! What the shards of a group have to tell clients: kept for each of them until it confirms, told when it asks. One channel
//! for all shards; the shard that a request names is how the client found the group.

use super::{Group, Host, Request, not_ready};
use crate::limit::{EVENTS_PER_MESSAGE_MAX, EVENTS_WAIT_MAX_MS};
use crate::shard::Shard;
use crate::store::Store;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::codec::Growing;
use skep_types::{ClientId, Encode, Incarnation, Ino, Millis, Role, ShardId, Term};
use skep_wire::Refusal;
use skep_wire::meta::{Event, EventsReply, LockOutcome, Question, ShardStamp, TermBegun};

/// A request that waits for an event.
#[derive(Debug, Clone, Copy)]
struct Parked {
    to: u64,
    shard: ShardId,
    until: Millis,
}

#[derive(Debug, Default)]
struct Outbox {
    last: u64,
    list: VecDeque<(u64, Event)>,
    /// What became of wishes for locks, of all that is in the list.
    locks: usize,
    /// Tickets of those that were granted, each with the term: how often it is there.
    granted: BTreeMap<(u64, Term), usize>,
    /// Files of which it was asked: each is in the list once.
    questions: BTreeMap<Ino, Question>,
    parked: Option<Parked>,
    /// When its client asked last.
    asked: Millis,
}

/// An answer that is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// Where it goes.
    pub to: u64,
    /// The shard that was asked.
    pub shard: ShardId,
    /// The answer.
    pub reply: EventsReply,
}

/// Of all clients.
#[derive(Debug, Default)]
pub struct Events {
    boxes: BTreeMap<ClientId, Outbox>,
    deadlines: BTreeSet<(Millis, ClientId)>,
    by_address: BTreeMap<u64, ClientId>,
    /// Numbers of this life are above this.
    base: u64,
    due: Vec<Due>,
}

impl Events {
    /// Of this life of the server: its numbers are higher than those of every earlier one (lives are counted in
    /// nanoseconds), so that what a client confirms from an earlier life confirms nothing of this.
    pub fn new(life: Incarnation) -> Self {
        Self { base: life.0, ..Self::default() }
    }

    fn outbox(&mut self, client: ClientId) -> &mut Outbox {
        let base = self.base;
        self.boxes.entry(client).or_insert_with(|| Outbox { last: base, ..Outbox::default() })
    }

    /// What became of wishes for locks that the client has not confirmed.
    pub fn unconfirmed_locks(&self, client: ClientId) -> usize {
        self.boxes.get(&client).map_or(0, |outbox| outbox.locks)
    }

    /// Was the client's wish granted in this term of its shard, as far as it has not confirmed that yet?
    pub fn was_granted(&self, client: ClientId, ticket: u64, term: Term) -> bool {
        self.boxes.get(&client).is_some_and(|outbox| outbox.granted.contains_key(&(ticket, term)))
    }

    /// Something happened that the client is to hear of. Whoever tells sees to it that what is not confirmed is bounded,
    /// before it comes to that: events are not dropped.
    pub fn tell(&mut self, client: ClientId, event: Event) {
        self.outbox(client).put(event);
        self.answer_parked(client);
    }

    /// A shard began a term of which the client is to hear. Of each shard it hears of the newest only, so that one that never
    /// asks costs no more than that.
    pub fn tell_of_term(&mut self, client: ClientId, begun: TermBegun) {
        let is_newer = |event: &Event| !matches!(event, Event::Term(old) if old.shard == begun.shard);
        self.outbox(client).list.retain(|(_, event)| is_newer(event));
        self.tell(client, begun.into());
    }

    /// A client that holds a file is asked what became of it. As long as it has not heard that it is asked no more; but a
    /// newer question of those who only look takes the place of an older one, and one that ends the hold that of both.
    pub fn ask_holder(&mut self, client: ClientId, question: Question) {
        let outbox = self.outbox(client);
        match outbox.questions.get(&question.ino) {
            Some(old) if old.term == question.term && old.looks.is_none() => return,
            Some(_) => outbox.retract(question.ino),
            None => {}
        }
        self.tell(client, question.into());
    }

    /// Nobody waits any more for what it was asked.
    pub fn ask_no_more(&mut self, client: ClientId, ino: Ino) {
        if let Some(outbox) = self.boxes.get_mut(&client) {
            outbox.retract(ino);
        }
    }

    /// Is the client to hear, or has it not confirmed, that it is asked what became of a file?
    pub fn is_asked(&self, client: ClientId, ino: Ino) -> bool {
        self.boxes.get(&client).is_some_and(|outbox| outbox.questions.contains_key(&ino))
    }

    /// The same, by who is not content with a look.
    pub fn is_asked_to_end(&self, client: ClientId, ino: Ino) -> bool {
        let asked = self.boxes.get(&client).and_then(|outbox| outbox.questions.get(&ino));
        asked.is_some_and(|question| question.looks.is_none())
    }

    /// Does the client hear what it is told: does it ask, or has it within the last `within` milliseconds?
    pub fn listens(&self, client: ClientId, now: Millis, within: u64) -> bool {
        let is_near = |outbox: &Outbox| outbox.parked.is_some() || now < outbox.asked.plus(within);
        self.boxes.get(&client).is_some_and(is_near)
    }

    /// Recalls say nothing to a client any more that uses nothing.
    pub fn retract_recalls(&mut self, client: ClientId) {
        if let Some(outbox) = self.boxes.get_mut(&client) {
            outbox.list.retain(|(_, event)| !matches!(event, Event::Recall(_)));
        }
    }

    fn answer_parked(&mut self, client: ClientId) {
        let Some(outbox) = self.boxes.get_mut(&client) else { return };
        if let Some(Parked { to, shard, until }) = outbox.parked.take() {
            self.deadlines.remove(&(until, client));
            self.by_address.remove(&to);
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
        // What it knows is from an earlier life: it is to hear of this one, not to wait.
        let is_old = 0 < received && received < self.base;
        let outbox = self.outbox(client);
        outbox.confirm(received);
        outbox.parked = Some(Parked { to, shard, until });
        outbox.asked = now;
        let waits = outbox.list.is_empty() && now < until && !is_old;
        self.deadlines.insert((until, client));
        self.by_address.insert(to, client);
        if !waits {
            self.answer_parked(client);
        }
    }

    /// Nobody waits for the answer any more.
    pub fn abandon(&mut self, to: u64) {
        let Some(client) = self.by_address.remove(&to) else { return };
        let parked = self.boxes.get_mut(&client).and_then(|outbox| outbox.parked.take());
        parked.map(|parked| self.deadlines.remove(&(parked.until, client)));
    }

    /// Whoever asked by these shards is answered with what there is.
    pub fn dismiss(&mut self, is_gone: impl Fn(ShardId) -> bool) {
        let is_asked = |client: &ClientId| self.boxes.get(client).and_then(|outbox| outbox.parked);
        let asked = self.deadlines.iter().map(|(_, client)| *client);
        let gone: Vec<ClientId> =
            asked.filter(|client| is_asked(client).is_some_and(|parked| is_gone(parked.shard))).collect();
        gone.into_iter().for_each(|client| self.answer_parked(client));
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
    fn put(&mut self, event: Event) {
        self.last += 1;
        if let Event::Lock(outcome) = &event {
            self.locks += 1;
            if let Some(granted) = granted(outcome) {
                *self.granted.entry(granted).or_default() += 1;
            }
        }
        if let Event::Question(question) = &event {
            self.questions.insert(question.ino, *question);
        }
        self.list.push_back((self.last, event));
    }

    /// What it was asked of a file is over. (Questions are among the newest of what it is told.)
    fn retract(&mut self, ino: Ino) {
        self.questions.remove(&ino);
        let is_it = |(_, event): &(u64, Event)| matches!(event, Event::Question(old) if old.ino == ino);
        if let Some(at) = self.list.iter().rposition(is_it) {
            self.list.remove(at);
        }
    }

    /// Its client has heard what is numbered up to this.
    fn confirm(&mut self, received: u64) {
        while let Some((_, event)) = self.list.pop_front_if(|(number, _)| *number <= received) {
            if let Event::Question(question) = &event {
                self.questions.remove(&question.ino);
            }
            let Event::Lock(outcome) = event else { continue };
            self.locks -= 1;
            if let Some(granted) = granted(&outcome)
                && let Entry::Occupied(mut times) = self.granted.entry(granted)
            {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                }
            }
        }
    }

    fn reply(&self) -> EventsReply {
        let told = self.list.iter().take(EVENTS_PER_MESSAGE_MAX);
        let events: Vec<Event> = told.map(|(_, event)| event.clone()).collect();
        let number = events.len().checked_sub(1).and_then(|at| self.list.get(at)).map(|(number, _)| *number);
        EventsReply { events: Growing(events), number: number.unwrap_or(self.last) }
    }
}

/// Ticket and term, if the wish was granted.
fn granted(outcome: &LockOutcome) -> Option<(u64, Term)> {
    (outcome.errno == 0).then_some((outcome.ticket, outcome.term))
}

impl<S: Store> Group<S> {
    /// A client asks for events.
    pub(super) fn ask_events(&mut self, request: &Request, m: &skep_wire::meta::Events) {
        let Some(shard) = self.shards.get(&request.call.shard) else { return };
        if let Err(refusal) = may_ask(&mut self.host, shard, request) {
            let stamp = self.stamp_in_service(request.call.shard);
            return self.host.reply(request.reply_to, stamp, Err(refusal));
        }
        self.host.leases.listens(request.peer.client);
        let (now, shard) = (self.host.now, request.call.shard);
        let until = now.plus(m.wait_ms.min(EVENTS_WAIT_MAX_MS));
        self.host.events.ask(request.peer.client, m.received, request.reply_to, shard, now, until);
    }

    /// Sends what happened to those that asked.
    pub(super) fn tell_events(&mut self) {
        for due in self.host.events.take_due() {
            let stamp = self.stamp_in_service(due.shard);
            self.host.reply(due.to, stamp, Ok(due.reply.to_bytes()));
        }
    }

    fn stamp_in_service(&self, shard: ShardId) -> ShardStamp {
        self.shards.get(&shard).map(|shard| shard.stamp_in_service(&self.host)).unwrap_or_default()
    }
}

/// May the client of this request be told of events? `shard` is the one that it names. Who asks in the wrong place is sent to
/// the right one; whether the shard is ready, or in its grace period, is of no concern: others may have something to tell.
fn may_ask<S: Store>(host: &mut Host<S>, shard: &Shard, request: &Request) -> Result<(), Refusal> {
    if let Some(refusal) = host.behind(request) {
        return Err(refusal);
    }
    if !(host.started && host.knows_cluster()) {
        return Err(not_ready());
    }
    host.locate(&request.call)?;
    request.of_role(request.peer.role == Role::Client)?;
    host.sessions.admit(request.peer.client)?;
    shard.refuse_late(request.peer.client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skep_wire::meta::{Recall, RecallKind};

    const CLIENT: ClientId = ClientId(7);
    const SHARD: ShardId = ShardId(3);

    fn lock(ticket: u64, errno: u32) -> LockOutcome {
        LockOutcome { ticket, errno, term: Term(5) }
    }

    fn tell(events: &mut Events, ticket: u64, errno: u32) {
        events.tell(CLIENT, lock(ticket, errno).into());
    }

    fn ask(events: &mut Events, received: u64, to: u64, wait: u64) -> Vec<Due> {
        events.ask(CLIENT, received, to, SHARD, Millis(100), Millis(100 + wait));
        events.take_due()
    }

    /// Goal: a client that does not ask for long hears of the newest term of each shard only, and of all else.
    #[test]
    fn terms_of_a_shard_do_not_pile_up() {
        let mut events = Events::new(Incarnation(1));
        for term in 1..=50 {
            for shard in [3, 4] {
                events.tell_of_term(CLIENT, TermBegun { shard: ShardId(shard), term: Term(term) });
            }
        }
        tell(&mut events, 40, 0);
        let begun = |shard| Event::from(TermBegun { shard: ShardId(shard), term: Term(50) });
        let told = ask(&mut events, 0, 1, 50);
        assert_eq!(told[0].reply.events.0, vec![begun(3), begun(4), lock(40, 0).into()]);
        let number = told[0].reply.number;
        assert!(ask(&mut events, number, 2, 50).is_empty(), "confirmed");
        events.tell_of_term(CLIENT, TermBegun { shard: SHARD, term: Term(51) });
        assert_eq!(events.take_due()[0].reply.number, number + 1);
    }

    /// Goal: what is counted of locks is what there is to tell, whatever else is told, taken back and confirmed beside.
    #[test]
    fn locks_are_counted_among_recalls() {
        let (mut events, mut state, mut told) = (Events::new(Incarnation(1)), 7_u64, 0);
        let mut draw = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        for to in 0..2_000 {
            match draw(12) {
                0..6 => tell(&mut events, draw(9), [0, 0, 35][draw(3) as usize]),
                6..8 => {
                    let (ino, kind) = (skep_types::Ino::new(SHARD, to), RecallKind::Everything);
                    let recall = Recall {
                        shard: SHARD,
                        term: Term(5),
                        number: to,
                        ino,
                        kind,
                        name: None,
                        entry: None,
                        wants_back: None,
                    };
                    events.tell(CLIENT, recall.into());
                }
                8 => events.tell_of_term(CLIENT, TermBegun { shard: SHARD, term: Term(to) }),
                9 if draw(4) == 0 => events.retract_recalls(CLIENT),
                10 => {
                    let received = events.outbox(CLIENT).last.saturating_sub(draw(30));
                    told += ask(&mut events, received, to, 0).len();
                }
                11 if draw(100) == 0 => events.end(CLIENT),
                _ => {}
            }
            let list = &events.outbox(CLIENT).list;
            let locks = list.iter().filter(|(_, event)| matches!(event, Event::Lock(_))).count();
            let is_there = |ticket| list.iter().any(|(_, event)| *event == lock(ticket, 0).into());
            let granted: Vec<bool> = (0..9).map(is_there).collect();
            assert_eq!(events.unconfirmed_locks(CLIENT), locks);
            let says = (0..9).map(|ticket| events.was_granted(CLIENT, ticket, Term(5)));
            assert_eq!(says.collect::<Vec<bool>>(), granted);
        }
        assert!(told > 100);
    }

    /// Goal: events are told at once or when they come, again until they are confirmed, and in order;
    /// a newer question ends an older one; time ends it too.
    #[test]
    fn told_until_confirmed() {
        let mut events = Events::new(Incarnation(2 << 32));
        let first = (2 << 32) + 1;
        assert!(ask(&mut events, 0, 1, 50).is_empty());
        let superseded = ask(&mut events, 0, 2, 50);
        assert_eq!((superseded.len(), superseded[0].to), (1, 1));
        assert!(superseded[0].reply.events.0.is_empty());
        tell(&mut events, 40, 0);
        let told = events.take_due();
        assert_eq!((told[0].to, told[0].shard, told[0].reply.number), (2, SHARD, first));
        assert!(events.was_granted(CLIENT, 40, Term(5)) && !events.was_granted(CLIENT, 41, Term(5)));
        assert!(!events.was_granted(CLIENT, 40, Term(6)), "the next term knows nothing of it");
        tell(&mut events, 41, 35);
        let again = ask(&mut events, 99, 3, 50);
        assert_eq!(again[0].reply.events.0.len(), 2, "a number of an earlier life confirms nothing");
        assert_eq!(again[0].reply.number, first + 1);
        let rest = ask(&mut events, first, 4, 50);
        assert_eq!(rest[0].reply.events.0, vec![lock(41, 35).into()]);
        assert!(ask(&mut events, first + 1, 5, 50).is_empty());
        assert_eq!(events.deadline(), Some(Millis(150)));
        events.expire(Millis(149));
        assert!(events.take_due().is_empty());
        events.expire(Millis(150));
        assert_eq!(events.take_due()[0].reply.number, first + 1);
        assert_eq!(ask(&mut events, first + 1, 6, 0).len(), 1, "no wait at all");
        assert!(ask(&mut events, first + 1, 7, 50).is_empty());
        events.abandon(7);
        let old = ask(&mut events, 7, 8, 50);
        assert_eq!(old[0].reply.number, first + 1, "it knows of another life: it hears of this one");
        assert_eq!((events.deadline(), events.unconfirmed_locks(CLIENT)), (None, 0));
    }
}
