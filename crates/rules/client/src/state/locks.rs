//! Locks that programs of this mount hold, and those that they wait for.
//!
//! The shards decide; this is kept so that a shard that forgot (a restart) can be told, so that a close
//! sends an unlock only where there is one, and so that what a given-up request may have done is undone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use skep_types::{Errno, Ino, ShardId, Term};
use skep_wire::meta::{LockKind, LockSpace, LockWish, ReclaimedLock};

use super::Handle;

/// Whose lock on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockKey {
    pub ino: Ino,
    pub space: LockSpace,
    /// Owner, as the kernel numbers it.
    pub owner: u64,
}

impl LockKey {
    /// Of a wish.
    pub fn of(ino: Ino, lock: &LockWish) -> Self {
        Self { ino, space: lock.space, owner: lock.owner }
    }

    /// All bytes of it, given up.
    pub fn all(&self) -> LockWish {
        LockWish { owner: self.owner, pid: 0, space: self.space, kind: None, start: 0, last: u64::MAX }
    }
}

/// A range that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    last: u64,
    kind: LockKind,
    pid: u32,
    /// The handle that it was taken through: its end takes the lock along (OFD locks, `flock`).
    handle: Handle,
    /// Number of its handle's newest request since which it is held.
    order: u64,
}

impl Range {
    fn renumber(&mut self, order: u64) {
        self.order = self.order.max(order);
    }
}

/// What an owner holds of a file.
#[derive(Debug, Default)]
struct Held {
    ranges: Vec<Range>,
    /// Number of its last request that was answered.
    order: u64,
}

/// A lock that waits in a shard's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    pub ino: Ino,
    pub lock: LockWish,
    /// The handle that asks.
    pub handle: Handle,
    /// Term of the shard that put it into its queue; `None` = not answered yet.
    pub term: Option<Term>,
    /// Number of its newest request.
    pub order: u64,
    /// That request is on its way.
    asked: bool,
    /// An earlier one was not answered: it may have been carried out.
    pub unsure: bool,
}

/// A wish that waits no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub ticket: u64,
    pub ino: Ino,
    /// What came of it.
    pub result: Result<(), Errno>,
}

/// All locks of a mount.
#[derive(Debug, Default)]
pub struct Locks {
    held: BTreeMap<LockKey, Held>,
    wishes: BTreeMap<u64, Wish>,
    /// Wishes that were granted before the answer to their request came.
    early: BTreeSet<u64>,
    /// Waits that have ended and are not told yet: at most one for each wish, which somebody waits for or is about to.
    ended: Vec<Ended>,
    /// Something may be held that the program was not told of: to be put right.
    suspects: Vec<(Ino, LockWish, Option<u64>)>,
    /// Unlocks at a close that no server confirmed.
    drops: Vec<(LockKey, u64)>,
    /// Requests in flight.
    asking: BTreeMap<LockKey, u32>,
    /// Unlocks in flight, by their requests' numbers. A server may have done them already, and given what was held to
    /// another: the next one is not told of it.
    leaving: BTreeMap<u64, (LockKey, u64, u64)>,
    /// Ends of open files and of descriptors, by their numbers, until all that was held by them is given up.
    ending: BTreeMap<u64, LockKey>,
    ticket: u64,
    order: u64,
}

/// Locks of one file.
fn keys_of(ino: Ino) -> RangeInclusive<LockKey> {
    let key = |space, owner| LockKey { ino, space, owner };
    key(LockSpace::Range, 0)..=key(LockSpace::Whole, u64::MAX)
}

impl Locks {
    /// The number of the next lock request.
    pub fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// The number of the next request for a lock, which the wish of `ticket` is sent by.
    pub fn number(&mut self, ticket: Option<u64>) -> u64 {
        let order = self.next_order();
        if let Some(wish) = ticket.and_then(|ticket| self.wishes.get_mut(&ticket)) {
            wish.order = order;
            wish.asked = true;
        }
        order
    }

    /// Is anything of `key` held, waited for, or in doubt?
    pub fn knows(&self, key: &LockKey) -> bool {
        self.held.contains_key(key)
            || self.wishes.values().any(|wish| LockKey::of(wish.ino, &wish.lock) == *key)
            || self.suspects.iter().any(|(ino, lock, _)| LockKey::of(*ino, lock) == *key)
    }

    /// Nothing is held, waited for or in doubt.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.wishes.is_empty() && self.suspects.is_empty() && self.drops.is_empty()
    }

    /// A wish was fulfilled by request `order`: a lock is held, or (kind `None`) given up.
    pub fn done(&mut self, ino: Ino, lock: &LockWish, handle: Handle, order: u64) {
        let key = LockKey::of(ino, lock);
        let gives_up = self.gives_up(&key);
        let held = self.held.entry(key).or_default();
        held.order = held.order.max(order);
        let ranges = &mut held.ranges;
        match lock.kind {
            None => cut_older(ranges, lock.start, lock.last, order),
            Some(kind) => {
                cut(ranges, lock.start, lock.last);
                ranges.push(Range { start: lock.start, last: lock.last, kind, pid: lock.pid, handle, order });
                ranges.sort_unstable_by_key(|range| range.start);
            }
        }
        if !gives_up {
            ranges.iter_mut().filter(|range| range.handle == handle).for_each(|range| range.renumber(order));
            merge(ranges);
        }
        if ranges.is_empty() {
            self.held.remove(&key);
        }
    }

    /// A server was told again, by request `order`, that `lock` is held.
    pub fn told_again(&mut self, ino: Ino, lock: &LockWish, order: u64) {
        let key = LockKey::of(ino, lock);
        let gives_up = self.gives_up(&key);
        let Some(held) = self.held.get_mut(&key) else { return };
        held.order = held.order.max(order);
        let told = |range: &&mut Range| lock.start <= range.start && range.last <= lock.last;
        if !gives_up {
            held.ranges.iter_mut().filter(told).for_each(|range| range.renumber(order));
        }
    }

    /// Is something of `key` being given up? That ends with what was asked for before it: numbers stay what they are.
    fn gives_up(&self, key: &LockKey) -> bool {
        self.ending.values().any(|ending| ending == key)
            || self.leaving.values().any(|(left, ..)| left == key)
    }

    /// Everything of `key` is given up that was asked for before request `order`. Wishes of it end: their program closed
    /// the file. What was asked for later is another open file's: the kernel tells of the end of one after its `close`
    /// has returned, and gives its owner's number to the next. What is given back waited in a server's queue.
    pub fn dropped(&mut self, key: &LockKey, order: u64) -> Vec<(u64, LockWish)> {
        if let Some(held) = self.held.get_mut(key) {
            held.ranges.retain(|range| range.order > order);
            if held.ranges.is_empty() {
                self.held.remove(key);
            }
        }
        // One without a number gets a higher one.
        let is_older = |wish: &Wish| (1..=order).contains(&wish.order);
        let gone = |wish: &Wish| LockKey::of(wish.ino, &wish.lock) == *key && is_older(wish);
        let waited: Vec<(u64, LockWish)> = self
            .wishes
            .iter()
            .filter(|(_, wish)| gone(wish))
            .map(|(ticket, wish)| (*ticket, wish.lock))
            .collect();
        for (ticket, _) in &waited {
            self.wishes.remove(ticket);
            self.ended.push(Ended { ticket: *ticket, ino: key.ino, result: Err(Errno::EBADF) });
        }
        waited
    }

    /// Another owner held some of `lock` when request `order` came: what was believed of it then is not so.
    pub fn disbelieve(&mut self, ino: Ino, lock: &LockWish, order: u64) {
        let key = LockKey::of(ino, lock);
        let Some(held) = self.held.get_mut(&key) else { return };
        cut_older(&mut held.ranges, lock.start, lock.last, order);
        if held.ranges.is_empty() {
            self.held.remove(&key);
        }
    }

    /// A server has given up all of `key`: nothing of it is in doubt, unless more was asked for since.
    pub fn settled(&mut self, key: &LockKey) {
        let waits = self.wishes.values().any(|wish| LockKey::of(wish.ino, &wish.lock) == *key);
        if !self.held.contains_key(key) && !self.asking.contains_key(key) && !waits {
            self.suspects.retain(|(ino, lock, _)| LockKey::of(*ino, lock) != *key);
        }
    }

    /// A descriptor of `key`'s owner is closed: the number of that, if there is anything to be given up.
    pub fn ends(&mut self, key: LockKey) -> Option<u64> {
        self.knows(&key).then(|| {
            let order = self.next_order();
            self.ending.insert(order, key);
            order
        })
    }

    /// The open file behind `handle` has ended: the number up to which that is known, if it still holds anything of
    /// `key`. What has a higher one is another open file's, whose owner has the same number. Where the numbers do not
    /// tell the two apart, nothing is given up by number: it is in doubt what the server is to hold.
    pub fn ends_of(&mut self, key: LockKey, handle: Handle) -> Option<u64> {
        let held = self.held.get_mut(&key)?;
        let own = held.ranges.iter().filter(|range| range.handle == handle).map(|range| range.order).max()?;
        let wishes = self.wishes.values().filter(|wish| LockKey::of(wish.ino, &wish.lock) == key);
        let wished = wishes.filter(|wish| wish.handle == handle).map(|wish| wish.order).max();
        let order = own.max(wished.unwrap_or(0));
        if held.ranges.iter().any(|range| range.handle != handle && range.order <= order) {
            held.ranges.retain(|range| range.handle != handle);
            self.suspect(key.ino, key.all(), None);
            return None;
        }
        self.ending.insert(order, key);
        Some(order)
    }

    /// That is given up, or housekeeping will do it.
    pub fn ended(&mut self, order: u64) {
        self.ending.remove(&order);
    }

    /// Everything that was taken through a handle and still stands.
    pub fn of_handle(&self, ino: Ino, handle: Handle) -> Vec<LockKey> {
        let through = |ranges: &[Range]| ranges.iter().any(|range| range.handle == handle);
        let held = self.held.range(keys_of(ino)).filter(|(_, held)| through(&held.ranges));
        held.map(|(key, _)| *key).collect()
    }

    /// Is anything of this file held, waited for, in doubt, or to be given up?
    pub fn has_of(&self, ino: Ino) -> bool {
        let is_of = |key: &LockKey| key.ino == ino;
        self.held.range(keys_of(ino)).next().is_some()
            || self.wishes.values().any(|wish| wish.ino == ino)
            || self.suspects.iter().any(|(of, ..)| *of == ino)
            || self.drops.iter().any(|(key, _)| is_of(key))
            || self.asking.keys().any(is_of)
    }

    /// A wish is about to be put into a queue: its ticket.
    pub fn wish(&mut self, ino: Ino, lock: LockWish, handle: Handle) -> u64 {
        self.ticket += 1;
        self.wishes.insert(
            self.ticket,
            Wish { ino, lock, handle, term: None, order: 0, asked: false, unsure: false },
        );
        self.ticket
    }

    /// The shard has it in its queue, in this term.
    pub fn waits(&mut self, ticket: u64, term: Term) {
        if let Some(wish) = self.wishes.get_mut(&ticket) {
            wish.term = Some(term);
            (wish.asked, wish.unsure) = (false, false);
        }
    }

    /// The request for a wish was not answered, or not yet done: it stays where it was. `unsure`: it may have been done.
    pub fn not_answered(&mut self, ticket: u64, unsure: bool) {
        self.early.remove(&ticket);
        if let Some(wish) = self.wishes.get_mut(&ticket) {
            wish.asked = false;
            wish.unsure |= unsure;
        }
    }

    /// A wish was granted: its lock is held.
    pub fn granted(&mut self, ticket: u64) -> Option<Ended> {
        let wish = self.wishes.remove(&ticket)?;
        if wish.asked {
            self.early.insert(ticket);
        }
        self.done(wish.ino, &wish.lock, wish.handle, wish.order);
        Some(Ended { ticket, ino: wish.ino, result: Ok(()) })
    }

    /// The answer to a wish's request came. `true`: the wish was granted before, and nothing is in doubt.
    pub fn was_early(&mut self, ticket: u64) -> bool {
        self.early.remove(&ticket)
    }

    /// A wish waits no longer.
    pub fn take_wish(&mut self, ticket: u64) -> Option<Wish> {
        self.wishes.remove(&ticket)
    }

    /// A wish, if it still waits.
    pub fn wish_of(&self, ticket: u64) -> Option<Wish> {
        self.wishes.get(&ticket).copied()
    }

    /// All wishes, with their tickets.
    pub fn wishes(&self) -> impl Iterator<Item = (u64, &Wish)> {
        self.wishes.iter().map(|(ticket, wish)| (*ticket, wish))
    }

    /// It may have been done, and the program was told that it was not.
    pub fn suspect(&mut self, ino: Ino, lock: LockWish, ticket: Option<u64>) {
        if !self.suspects.contains(&(ino, lock, ticket)) {
            self.suspects.push((ino, lock, ticket));
        }
    }

    /// A request of `key` is sent.
    pub fn asks(&mut self, key: LockKey) {
        *self.asking.entry(key).or_default() += 1;
    }

    /// Request `order` unlocks `start..=last`, and is on its way.
    pub fn leaves(&mut self, order: u64, key: LockKey, start: u64, last: u64) {
        self.leaving.insert(order, (key, start, last));
    }

    /// Its answer came, or it was given up.
    pub fn left(&mut self, order: u64) {
        self.leaving.remove(&order);
    }

    /// It was answered, or given up.
    pub fn asked(&mut self, key: &LockKey) {
        if let Some(count) = self.asking.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.asking.remove(key);
            }
        }
    }

    /// The parts of `lock`'s range in which no server can come to hold something for its owner, by a request or a wish
    /// that has a number already (what is numbered from now on would take it away again), and the others. Nothing is
    /// decided while something is being given up: what is numbered from now on would take it again.
    pub fn decided(&self, ino: Ino, lock: &LockWish) -> (Vec<LockWish>, Vec<LockWish>) {
        let key = LockKey::of(ino, lock);
        if self.asking.contains_key(&key) || self.gives_up(&key) {
            return (Vec::new(), Vec::from([*lock]));
        }
        let waits = self.wishes.values().filter(|wish| LockKey::of(wish.ino, &wish.lock) == key);
        let within = waits.map(|wish| (wish.lock.start.max(lock.start), wish.lock.last.min(lock.last)));
        let open: Vec<(u64, u64)> = within.filter(|(start, last)| start <= last).collect();
        let mut decided = Vec::from([(lock.start, lock.last)]);
        for part in &open {
            decided = decided.into_iter().flat_map(|range| without(range, *part)).collect();
        }
        let part = |(start, last): &(u64, u64)| LockWish { start: *start, last: *last, ..*lock };
        (decided.iter().map(part).collect(), open.iter().map(part).collect())
    }

    /// Takes what is to be put right.
    pub fn take_suspects(&mut self) -> Vec<(Ino, LockWish, Option<u64>)> {
        core::mem::take(&mut self.suspects)
    }

    /// An unlock at a close was not confirmed.
    pub fn undropped(&mut self, key: LockKey, order: u64) {
        self.drops.push((key, order));
    }

    /// Takes the unlocks that are to be repeated.
    pub fn take_drops(&mut self) -> Vec<(LockKey, u64)> {
        core::mem::take(&mut self.drops)
    }

    /// Something waits for housekeeping.
    pub fn has_work(&self) -> bool {
        !self.suspects.is_empty() || !self.drops.is_empty()
    }

    /// A wish has ended by a word of its server, and whoever tells is to take it.
    pub fn keep_ended(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// Has a wish ended that nobody was told of?
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The shards of those that have.
    pub fn ended_on(&self) -> impl Iterator<Item = ShardId> {
        self.ended.iter().map(|ended| ended.ino.shard())
    }

    /// Takes the wishes that have ended.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        core::mem::take(&mut self.ended)
    }

    /// Takes those that ended without a lock: of these there is nothing to be learnt before they are told.
    pub fn take_refused(&mut self) -> Vec<Ended> {
        self.ended.extract_if(.., |ended| ended.result.is_err()).collect()
    }

    /// Takes what became of one wish, if it has ended and nobody has taken that.
    pub fn take_ended_of(&mut self, ticket: u64) -> Option<Ended> {
        let at = self.ended.iter().position(|ended| ended.ticket == ticket)?;
        Some(self.ended.remove(at))
    }

    /// The file of a wish that waits, or that has ended without being told.
    pub fn ino_of(&self, ticket: u64) -> Option<Ino> {
        let ended = || self.ended.iter().find(|ended| ended.ticket == ticket);
        self.wish_of(ticket).map(|wish| wish.ino).or_else(|| Some(ended()?.ino))
    }

    /// A new session began, and nothing that was held is: the handles through which it was taken.
    pub fn take_lost(&mut self) -> Vec<Handle> {
        let lost = core::mem::take(&mut self.held);
        lost.into_values().flat_map(|held| held.ranges).map(|range| range.handle).collect()
    }

    /// A server does not hold `claim` any more: the handles through which it was taken. What was taken since is another lock.
    pub fn lost(&mut self, claim: &ReclaimedLock) -> Vec<Handle> {
        let ReclaimedLock { ino, lock, order } = claim;
        let key = LockKey::of(*ino, lock);
        let Some(held) = self.held.get_mut(&key) else { return Vec::new() };
        let is_it =
            |range: &Range| range.start <= lock.last && lock.start <= range.last && range.order <= *order;
        let lost = held.ranges.extract_if(.., |range| is_it(range)).map(|range| range.handle).collect();
        if held.ranges.is_empty() {
            self.held.remove(&key);
        }
        lost
    }

    /// The cluster ended the session, and every lock with it.
    pub fn session_ended(&mut self) {
        let gone =
            |(ticket, wish): (u64, Wish)| Ended { ticket, ino: wish.ino, result: Err(Errno::ENOTCONN) };
        self.ended.extend(core::mem::take(&mut self.wishes).into_iter().map(gone));
        self.suspects.clear();
        self.drops.clear();
    }

    /// The requests that make a shard hold of `lock`'s owner, within `lock`'s range, exactly what this
    /// mount believes that it holds. A part that is held is asked for without an unlock before.
    pub fn believed(&self, ino: Ino, lock: &LockWish) -> Vec<LockWish> {
        let held = self.held.get(&LockKey::of(ino, lock)).map_or(&[][..], |held| &held.ranges);
        let mut wishes = Vec::new();
        let mut at = Some(lock.start);
        for range in held.iter().filter(|range| range.start <= lock.last && range.last >= lock.start) {
            let (start, last) = (range.start.max(lock.start), range.last.min(lock.last));
            if let Some(at) = at.filter(|at| *at < start) {
                wishes.push(LockWish { kind: None, start: at, last: start - 1, ..*lock });
            }
            wishes.push(LockWish { kind: Some(range.kind), start, last, pid: range.pid, ..*lock });
            at = last.checked_add(1);
        }
        if let Some(start) = at.filter(|at| *at <= lock.last) {
            wishes.push(LockWish { kind: None, start, ..*lock });
        }
        wishes
    }

    /// The parts of `lock` that its owner holds for writing, as wishes to hold them for reading.
    pub fn downgrades(&self, ino: Ino, lock: &LockWish) -> Vec<LockWish> {
        let held = self.held.get(&LockKey::of(ino, lock)).map_or(&[][..], |held| &held.ranges);
        let written = held.iter().filter(|range| range.kind == LockKind::Write);
        let within = written.filter(|range| range.start <= lock.last && range.last >= lock.start);
        let down = |range: &Range| LockWish {
            kind: Some(LockKind::Read),
            start: range.start.max(lock.start),
            last: range.last.min(lock.last),
            ..*lock
        };
        within.map(down).collect()
    }

    /// What a shard that forgot is told.
    pub fn of_shard(&self, shard: ShardId) -> Vec<ReclaimedLock> {
        let first = LockKey { ino: Ino::new(shard, 0), space: LockSpace::Range, owner: 0 };
        let last =
            LockKey { ino: Ino::new(shard, Ino::SERIAL_MAX), space: LockSpace::Whole, owner: u64::MAX };
        let mut locks = Vec::new();
        for (key, held) in self.held.range(first..=last) {
            let mut ranges = held.ranges.clone();
            for (order, (_, start, last)) in self.leaving.iter().filter(|(_, (left, ..))| left == key) {
                cut_older(&mut ranges, *start, *last, *order);
            }
            locks.extend(ranges.iter().map(|range| ReclaimedLock {
                ino: key.ino,
                order: held.order,
                lock: LockWish {
                    owner: key.owner,
                    pid: range.pid,
                    space: key.space,
                    kind: Some(range.kind),
                    start: range.start,
                    last: range.last,
                },
            }));
        }
        locks
    }
}

/// What is left of a range without another one.
fn without((start, last): (u64, u64), (from, to): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let before = (start < from).then(|| (start, last.min(from - 1)));
    let after = (last > to).then(|| (start.max(to + 1), last));
    before.into_iter().chain(after)
}

/// Takes `start..=last` out of the ranges.
fn cut(ranges: &mut Vec<Range>, start: u64, last: u64) {
    let mut rest = Vec::with_capacity(ranges.len() + 1);
    for range in ranges.drain(..) {
        if range.last < start || range.start > last {
            rest.push(range);
            continue;
        }
        if range.start < start {
            rest.push(Range { last: start - 1, ..range });
        }
        if range.last > last {
            rest.push(Range { start: last + 1, ..range });
        }
    }
    *ranges = rest;
}

/// As [`cut`], of what was asked for before request `order`.
fn cut_older(ranges: &mut Vec<Range>, start: u64, last: u64, order: u64) {
    let newer = ranges.extract_if(.., |range| range.order > order).collect::<Vec<_>>();
    cut(ranges, start, last);
    ranges.extend(newer);
    ranges.sort_unstable_by_key(|range| range.start);
}

/// Makes one of neighbours that differ in nothing but place.
fn merge(ranges: &mut Vec<Range>) {
    ranges.dedup_by(|next, range| {
        let same = (next.kind, next.pid, next.handle) == (range.kind, range.pid, range.handle);
        let meets = same && range.last.checked_add(1) == Some(next.start);
        if meets {
            range.last = next.last;
            range.renumber(next.order);
        }
        meets
    });
}

#[cfg(test)]
mod tests;
