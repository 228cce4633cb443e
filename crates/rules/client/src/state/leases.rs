//! Which leases a mount believes in, and until when. See `docs/design/leases.md`, sections 4 and 5.
//!
//! A grant comes in an answer, a recall as an event, each by a connection of its own: numbers say which came first at the
//! shard. All leases of a metadata server's shards hold as long as the newest of its answers renewed them, counted from
//! the moment at which its question was sent: the server counts from when it heard it.

mod hearing;
mod own;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_random;

pub use hearing::{Heard, TakenBack};
pub use own::{Became, Change, OwnChanges};

use super::Found;
use crate::limits::{GIVEN_BACK_AT_ONCE, Limits, RECALLS_KEPT_MAX, TOLD_AT_ONCE, VALIDITY_MARGIN_MS};
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::{Attr, Incarnation, Ino, LogIndex, Millis, NodeId, ShardId, Slot, Term};
use skep_wire::meta::{Grant, Recalled, ShardStamp};

/// A server that renews nothing is asked to begin anew at most so often, in milliseconds.
const ANEW_MS: u64 = 1_000;
/// What no recall is about.
const NO_DIR: Ino = Ino(0);
/// Leases that one step frees of those that have ended together.
const SWEPT_AT_ONCE: usize = 16;

/// A request to a shard, as it was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Its place among all requests of the mount.
    serial: u64,
    /// When, by the clock that goes on while the machine sleeps.
    at: Millis,
    /// What it says of lapses.
    pub lapses: u64,
    /// Its answer may give leases.
    pub wishes: bool,
}

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub node: NodeId,
    pub life: Incarnation,
    pub shard: ShardId,
    pub term: Term,
}

/// What an answer, or a refusal, says beside its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    sent: Sent,
    shard: ShardId,
    term: Term,
    grants: Vec<Grant>,
    /// What the rest is true as of.
    pub index: LogIndex,
    /// Other inodes, after the change.
    pub touched: Vec<Attr>,
    /// What was known of the names of the change until then.
    pub before: [Found; 2],
}

impl Told {
    /// By the answer from `source` to the request `sent`.
    pub fn new(source: &Source, sent: Sent, stamp: &ShardStamp) -> Self {
        let grants = stamp.grants.clone().unwrap_or_default();
        Self {
            sent,
            shard: source.shard,
            term: source.term,
            grants,
            index: stamp.index,
            touched: stamp.touched.clone().unwrap_or_default(),
            before: [Found::Unknown, Found::Unknown],
        }
    }

    fn grant(&self, ino: Ino) -> Option<u64> {
        self.grants.iter().filter(|grant| grant.ino == ino).map(|grant| grant.number).max()
    }
}

/// A lease.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Answers with older grants may be from before what was recalled of it.
    since: u64,
    /// The newest grant.
    number: u64,
}

/// What one metadata server has promised.
#[derive(Debug, Default)]
struct Group {
    life: Option<Incarnation>,
    /// Terms of shards that had ended when this life renewed first.
    ended: Option<u64>,
    until: Millis,
    /// Moves when an answer comes behind that: this mount was not heard in between.
    breaks: u64,
    /// For how long its newest answer renewed.
    ms: u64,
    lapses: u64,
    /// When it was asked last to begin anew: see [`Leases::is_not_renewed`].
    asked_anew: Millis,
    /// It is to be asked for events once, be anything held or not: it may take this mount for one that does not listen, and
    /// lend it nothing.
    is_to_ask: bool,
    /// The last question for events failed: what it takes back would not be heard.
    is_deaf: bool,
    /// What requests say of lapses: as many as there were, once the kernel uses nothing any more that ended with them.
    said: u64,
    /// An answer was lost that may have lent something. It will be taken back, and heard of while something else is held.
    has_lost: bool,
}

#[derive(Debug, Default)]
struct OfShard {
    term: Term,
    node: NodeId,
    /// The last request whose answer, and what it says, is not believed.
    forgotten: u64,
    /// Moves when all of them end.
    era: u64,
    held: BTreeMap<Ino, Held>,
    /// Of these it was not looked whether anything is kept under them.
    fresh: VecDeque<Ino>,
    /// Requests on their way whose answers may give leases.
    flights: BTreeSet<u64>,
    /// The highest recall of each inode of which such a request may bring an older grant.
    recalled: BTreeMap<Ino, u64>,
    /// The same in their order, each with the request that was sent last before it came.
    order: VecDeque<(u64, Ino, u64)>,
    /// There were more: answers to requests up to the first give no grant up to the second.
    floor: (u64, u64),
    /// Heard, and not confirmed: numbers of recalls, each with what it was about.
    unconfirmed: BTreeMap<u64, Ino>,
    back: VecDeque<(Ino, u64)>,
    /// It may wait to hear that nothing of its earlier terms is used.
    is_to_hear: bool,
    /// Until when the kernel may use what it was told under these leases.
    told_until: Millis,
    /// The same of those that have ended: what the kernel is to drop.
    unclean_until: Millis,
    /// It has dropped that, but names, which go by time.
    is_dropped: bool,
}

/// What a mount counts of its leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// What shards took back.
    pub recalls: u64,
    /// How often all leases of a server ended at once, and there were some.
    pub lapses: u64,
    /// Leases that were wanted back, and given back.
    pub given_back: u64,
    /// Those that were kept, as names would have had to be waited for.
    pub kept: u64,
}

/// The leases of a mount.
#[derive(Debug, Default)]
pub struct Leases {
    /// Changes of this mount, which recall nothing of its own.
    pub own: OwnChanges,
    groups: BTreeMap<NodeId, Group>,
    shards: BTreeMap<ShardId, OfShard>,
    serial: u64,
    /// Ended together; freed little by little.
    ended: Vec<BTreeMap<Ino, Held>>,
    /// No request asks for any more.
    is_over: bool,
    /// There is something to hear or to tell that was not there before.
    news: bool,
    /// For people: recalls that were heard, lapses that ended something.
    counts: LeaseCounts,
    /// See [`Limits`].
    recalls_kept: Option<usize>,
    forgets_recalls: bool,
    counts_from_answers: bool,
    ignores_ended: bool,
    installs_late: bool,
    forgets_doubts: bool,
    revives: bool,
}

impl Leases {
    pub fn new(limits: &Limits) -> Self {
        Self {
            forgets_recalls: limits.canary_forgets_recalls,
            counts_from_answers: limits.canary_counts_from_answers,
            ignores_ended: limits.canary_ignores_ended,
            installs_late: limits.canary_installs_late,
            forgets_doubts: limits.canary_forgets_doubts,
            revives: limits.canary_revives,
            recalls_kept: Some(limits.recalls_kept),
            own: OwnChanges::new(limits.own_changes_kept),
            ..Self::default()
        }
    }

    /// A request to `shard` goes out to `node` now.
    pub fn sends(&mut self, node: NodeId, shard: ShardId, now: Millis, wishes: bool) -> Sent {
        self.look(node, now);
        self.serial += 1;
        let Group { lapses, is_deaf, said, .. } = *self.groups.entry(node).or_default();
        let is_clean = said == lapses || self.is_clean(node, now);
        let wishes = wishes && !self.is_over && !is_deaf && is_clean;
        if wishes {
            self.shards.entry(shard).or_default().flights.insert(self.serial);
        }
        let said = if is_clean { lapses } else { said };
        self.groups.entry(node).or_default().said = said;
        Sent { serial: self.serial, at: now, lapses: said, wishes }
    }

    /// It was answered. `true`: something of the shard is held now, and nothing was before.
    pub fn answered(&mut self, from: &Source, sent: &Sent, stamp: &ShardStamp, now: Millis) -> bool {
        self.sweep();
        if from.term == Term(0)
            || !self.began(from.node, from.life)
            || !self.term_is(from.shard, from.term, from.node)
        {
            return false;
        }
        self.look(from.node, now);
        let Some(renews) = stamp.renews else {
            self.is_not_renewed(from.node, sent, now);
            return false;
        };
        let group = self.groups.entry(from.node).or_default();
        // What was sent before a lapse counts as little as what was held.
        if sent.lapses != group.lapses && !self.revives {
            return false;
        }
        let known = *group.ended.get_or_insert(renews.ended);
        if known != renews.ended && !self.ignores_ended {
            // The server does not answer for all of them any more. Or this is late.
            if known < renews.ended {
                group.ended = Some(renews.ended);
                self.lapse(from.node);
            }
            return false;
        }
        let until = if self.counts_from_answers { now } else { sent.at }.plus(renews.ms);
        group.breaks += u64::from(group.until <= now);
        (group.until, group.ms) = (group.until.max(until), renews.ms);
        // A lease that comes later than its time was not renewed by what came before it.
        let (Some(grants), Some(of)) = (&stamp.grants, self.shards.get_mut(&from.shard)) else {
            return false;
        };
        let held_nothing = of.held.is_empty();
        let sent_by_now = (self.serial, self.recalls_kept.unwrap_or(RECALLS_KEPT_MAX));
        for grant in grants.iter().filter(|grant| grant.ino.shard() == from.shard) {
            if until <= now || !of.granted(grant, sent.serial) {
                self.news |= of.is_unknown(grant.ino, grant.number, sent_by_now);
            }
        }
        held_nothing && !of.held.is_empty()
    }

    /// What was sent to `shard` brings nothing any more: it was answered, or is lost.
    pub fn is_over(&mut self, shard: ShardId, sent: &Sent) {
        if let Some(of) = self.shards.get_mut(&shard).filter(|_| sent.wishes) {
            of.flights.remove(&sent.serial);
            of.forget_recalls();
        }
    }

    /// Requests on their way whose answers may give leases.
    #[cfg(test)]
    pub fn flights(&self) -> usize {
        self.shards.values().map(|of| of.flights.len()).sum()
    }

    /// `node` is in this life. `false`: it has ended.
    pub fn began(&mut self, node: NodeId, life: Incarnation) -> bool {
        let group = self.groups.entry(node).or_default();
        match group.life {
            Some(known) if known > life => return false,
            Some(known) if known == life => return true,
            Some(_) => {
                group.ended = None;
                self.lapse(node);
            }
            None => {}
        }
        let group = self.groups.entry(node).or_default();
        // Whether this one lends is not known.
        (group.life, group.ms) = (Some(life), 0);
        true
    }

    /// `shard` is in this term, led by `node`. `false`: it has ended.
    pub fn term_is(&mut self, shard: ShardId, term: Term, node: NodeId) -> bool {
        let of = self.shards.entry(shard).or_default();
        if of.term > term {
            return false;
        }
        if (of.term, of.node) == (term, node) {
            return true;
        }
        self.ended.extend(of.end());
        of.numbers_begin();
        (of.term, of.node, of.is_to_hear) = (term, node, true);
        self.news = true;
        true
    }

    /// May what the lease on `ino` covers be told? Gives a number that is another one when all leases of the shard have
    /// ended since.
    pub fn believes(&mut self, ino: Ino, now: Millis) -> Option<u64> {
        let node = self.shards.get(&ino.shard())?.node;
        self.look(node, now);
        let until = self.groups.get(&node)?.until;
        let of = self.shards.get(&ino.shard())?;
        (until > now && of.held.contains_key(&ino)).then_some(of.era)
    }

    /// The number of [`Leases::believes`], whether anything is held or not.
    pub fn era(&self, shard: ShardId) -> u64 {
        self.shards.get(&shard).map_or(0, |of| of.era)
    }

    /// For how long the kernel may use, from now on, what the lease on `ino` covers, if that is believed in: a margin less than
    /// the lease holds. It counts as told so.
    pub fn tells(&mut self, ino: Ino, now: Millis) -> Option<u64> {
        self.believes(ino, now)?;
        let of = self.shards.get_mut(&ino.shard())?;
        let left = self.groups.get(&of.node)?.until.since(now);
        if of.is_dropped && of.unclean_until <= now {
            (of.unclean_until, of.is_dropped) = (Millis(0), false);
        }
        let ms =
            left.checked_sub(VALIDITY_MARGIN_MS).filter(|ms| *ms > 0 && of.unclean_until == Millis(0))?;
        of.told_until = of.told_until.max(now.plus(left));
        Some(ms)
    }

    /// May what was told of `ino` be kept? As [`Leases::believes`].
    pub fn keeps(&mut self, ino: Ino, told: &Told, now: Millis) -> Option<u64> {
        self.keeps_own(ino, told, now).filter(|_| self.is_fresh(ino, told))
    }

    /// The same of what this mount itself has changed, whatever else it changes there.
    pub fn keeps_own(&mut self, ino: Ino, told: &Told, now: Millis) -> Option<u64> {
        let number = told.grant(ino)?;
        let era = self.believes(ino, now)?;
        let of = self.shards.get(&ino.shard())?;
        let is_of_now = (told.shard, told.term) == (ino.shard(), of.term)
            && told.sent.serial > of.forgotten
            && (self.groups.get(&of.node)?.lapses == told.sent.lapses || self.revives);
        let is_newer = of.held.get(&ino)?.since <= number || self.installs_late;
        (is_of_now && is_newer).then_some(era)
    }

    /// Does the shard's present term say that? Another one's indexes are no measure for it.
    pub fn is_of_its_term(&self, told: &Told) -> bool {
        self.shards.get(&told.shard).is_some_and(|of| of.term == told.term)
    }

    /// Has this mount changed nothing of `ino` since that was asked?
    pub fn is_fresh(&self, ino: Ino, told: &Told) -> bool {
        self.own.is_fresh(ino, told.sent.serial)
    }

    /// What became of a change of this mount. What was asked before it was over is not kept.
    pub fn changed(&mut self, lane: (Slot, ShardId), change: Change, became: Became) {
        match became {
            Became::InDoubt if !self.forgets_doubts => {
                return self.own.is_in_doubt(lane, change, self.serial);
            }
            Became::Settled => self.own.is_settled(lane, self.serial),
            Became::InDoubt | Became::Over => {}
        }
        self.own.ends(&change, self.serial);
    }

    /// The lease on `ino` is not needed any more.
    pub fn give_back(&mut self, ino: Ino) {
        let until = (self.serial, self.recalls_kept());
        if let Some(of) = self.shards.get_mut(&ino.shard())
            && let Some(held) = of.held.remove(&ino)
        {
            of.refuse(ino, held.number, until);
            of.back.push_back((ino, held.number));
            let node = of.node;
            self.nothing_unknown_stays(node);
        }
    }

    /// The next lease of `node` of which it was not looked whether anything is kept under it.
    pub fn next_fresh(&mut self, node: NodeId) -> Option<Ino> {
        let mut of_node = self.shards.values_mut().filter(|of| of.node == node);
        of_node.find_map(|of| of.fresh.pop_front())
    }

    /// What was asked of `ino` until now is not kept.
    pub fn is_another(&mut self, ino: Ino) {
        self.own.is_old(ino, self.serial);
    }

    /// Nothing that was told of `shard` until now is believed, or on its way to be.
    pub fn forget_shard(&mut self, shard: ShardId) {
        self.own.all_is_old(self.serial);
        let Some(of) = self.shards.get_mut(&shard) else { return };
        of.forgotten = self.serial;
        let node = of.node;
        if of.held.is_empty() {
            self.ended.extend(of.end());
        } else {
            // Else the server would go on counting them.
            self.lapse(node);
        }
    }

    /// A new session: there are none in it.
    pub fn session_ended(&mut self) {
        let nodes: Vec<NodeId> = self.groups.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.lapse(node));
        for of in self.shards.values_mut() {
            self.ended.extend(of.end());
            of.numbers_begin();
            of.is_to_hear = false;
        }
        self.own.session_ended(self.serial);
    }

    fn recalls_kept(&self) -> usize {
        self.recalls_kept.unwrap_or(RECALLS_KEPT_MAX)
    }

    /// Nobody can say how long this mount stood still: all ends. `for_good`: the mount ends, and nothing is asked for any more.
    pub fn all_lapse(&mut self, for_good: bool) {
        self.is_over |= for_good;
        if for_good {
            self.groups.values_mut().for_each(|group| group.is_to_ask = false);
        }
        let nodes: Vec<NodeId> = self.groups.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.lapse(node));
    }

    /// What is held, for people.
    pub fn count(&self) -> usize {
        self.shards.values().map(|of| of.held.len()).sum()
    }

    /// See [`LeaseCounts`].
    pub fn counts(&self) -> LeaseCounts {
        self.counts
    }

    /// All that is believed in now, each with the number of its newest grant and the term of its shard: for who looks whether
    /// the shards know of it.
    pub fn believed(&self, now: Millis) -> impl Iterator<Item = (Ino, u64, Term)> + '_ {
        let holds = move |of: &OfShard| self.groups.get(&of.node).is_some_and(|group| group.until > now);
        let shards = self.shards.values().filter(move |of| holds(of));
        shards.flat_map(|of| of.held.iter().map(|(ino, held)| (*ino, held.number, of.term)))
    }

    /// How often leases have lapsed, of all servers.
    pub fn lapses(&self) -> u64 {
        self.groups.values().map(|group| group.lapses).sum()
    }

    /// Is anything of `node` held?
    pub fn holds(&self, node: NodeId) -> bool {
        self.shards.values().any(|of| of.node == node && !of.held.is_empty())
    }

    /// The time of what is held of `node` may be over.
    fn look(&mut self, node: NodeId, now: Millis) {
        if self.groups.get(&node).is_some_and(|group| group.until <= now) && self.holds(node) {
            self.lapse(node);
        }
    }

    /// All of `node` ends, and what is on its way from there is not believed. One of its shards that had lent something is to
    /// hear that it did, and it is asked for events once, where it lends: it may have passed this mount over.
    fn lapse(&mut self, node: NodeId) {
        let group = self.groups.entry(node).or_default();
        group.lapses += 1;
        (group.until, group.has_lost) = (Millis(0), false);
        let lends = group.ms > 0;
        let mut ended = false;
        for of in self.shards.values_mut().filter(|of| of.node == node) {
            if let Some(held) = of.end() {
                of.is_to_hear |= !core::mem::replace(&mut ended, true);
                self.ended.push(held);
            }
        }
        self.counts.lapses += u64::from(ended);
        self.news |= ended;
        if lends {
            self.is_to_ask(node);
        }
    }

    /// Frees some of what has ended. `false`: nothing is left of it.
    pub fn sweep(&mut self) -> bool {
        for _ in 0..SWEPT_AT_ONCE {
            let Some(last) = self.ended.last_mut() else { return false };
            if last.pop_first().is_none() {
                self.ended.pop();
            }
        }
        true
    }
}

impl OfShard {
    /// `false`: it is not believed.
    fn granted(&mut self, grant: &Grant, serial: u64) -> bool {
        let Grant { ino, number, .. } = *grant;
        let is_older = self.recalled.get(&ino).is_some_and(|recalled| *recalled >= number);
        if is_older || (serial <= self.floor.0 && number <= self.floor.1) {
            return false;
        }
        match self.held.entry(ino) {
            Entry::Occupied(mut held) => held.get_mut().number = held.get().number.max(number),
            Entry::Vacant(place) => {
                place.insert(Held { since: number, number });
                self.fresh.push_back(ino);
            }
        }
        true
    }

    /// The shard may count a lease, of a grant up to `number`, that is not held: it is given back, and no older grant is
    /// believed that is on its way.
    fn is_unknown(&mut self, ino: Ino, number: u64, until: (u64, usize)) -> bool {
        if let Some(held) = self.held.get_mut(&ino) {
            // When it is given back, so is this.
            held.number = held.number.max(number);
            return false;
        }
        self.refuse(ino, number, until);
        self.back.push_back((ino, number));
        true
    }

    /// Grants up to `number` of `ino` are not believed, as long as there can be some: in answers to requests up to `serial`.
    /// Beyond `most` recalls none is kept by itself.
    fn refuse(&mut self, ino: Ino, number: u64, (serial, most): (u64, usize)) {
        if self.flights.is_empty() {
            return;
        }
        let highest = self.recalled.entry(ino).or_default();
        *highest = number.max(*highest);
        self.order.push_back((serial, ino, number));
        if self.order.len() > most {
            let numbers = self.recalled.values().copied();
            self.floor = (serial, numbers.fold(self.floor.1, u64::max));
            self.recalled.clear();
            self.order.clear();
        }
    }

    fn forget_recalls(&mut self) {
        let oldest = self.flights.first().copied().unwrap_or(u64::MAX);
        while let Some((_, ino, number)) = self.order.pop_front_if(|(serial, ..)| *serial < oldest) {
            if self.recalled.get(&ino) == Some(&number) {
                self.recalled.remove(&ino);
            }
        }
        if self.floor.0 < oldest {
            self.floor = (0, 0);
        }
    }

    /// All of them end. Gives what is to be freed.
    fn end(&mut self) -> Option<BTreeMap<Ino, Held>> {
        self.era += 1;
        let told_until = core::mem::take(&mut self.told_until);
        self.is_dropped &= told_until == Millis(0);
        self.unclean_until = self.unclean_until.max(told_until);
        self.back.clear();
        self.fresh.clear();
        Some(core::mem::take(&mut self.held)).filter(|held| !held.is_empty())
    }

    /// The shard numbers grants and recalls of this client anew.
    fn numbers_begin(&mut self) {
        self.recalled.clear();
        self.order.clear();
        self.floor = (0, 0);
        self.unconfirmed.clear();
    }

    fn has_report(&self) -> bool {
        self.is_to_hear || !self.unconfirmed.is_empty() || !self.back.is_empty()
    }

    /// `None`: of all that it is to hear `waits` says that it is not so yet.
    fn take_report(&mut self, waits: impl Fn(Ino) -> bool) -> Option<Recalled> {
        let anew = core::mem::take(&mut self.is_to_hear).then_some(true);
        let is_so = |ino: Ino| ino == NO_DIR || !waits(ino);
        let confirmed = self.unconfirmed.iter().filter(|(_, ino)| is_so(**ino)).map(|(number, _)| *number);
        let confirmed: Vec<u64> = confirmed.take(TOLD_AT_ONCE).collect();
        self.unconfirmed.retain(|number, _| confirmed.binary_search(number).is_err());
        let mut back = Vec::new();
        for _ in 0..self.back.len() {
            match self.back.pop_front() {
                Some(given) if is_so(given.0) => back.push(given),
                // Behind the others.
                given => self.back.extend(given),
            }
            if back.len() == GIVEN_BACK_AT_ONCE {
                break;
            }
        }
        let is_empty = anew.is_none() && confirmed.is_empty() && back.is_empty();
        (!is_empty).then_some(Recalled { term: self.term, confirmed, back, anew })
    }
}
