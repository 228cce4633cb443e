//! All locks of a shard, and everybody who waits for one. A circle of waiting owners is seen when all their files are of
//! this shard.

mod leavers;

use super::given::Given;
use super::orders::Orders;
use super::range::{Changed, Held, Range, Ranges, excludes};
use crate::limit::{
    LOCK_TURN_MS, LOCK_WAITS_MAX, LOCK_WAITS_PER_CLIENT_MAX, LOCKS_MAX, LOCKS_PER_CLIENT_MAX,
    LOCKS_PER_FILE_MAX,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Errno, Ino, Millis};
use skep_wire::meta::{HeldLock, LockKind, LockOwner, LockSpace, LockState, LockWish};
use skep_wire::{Refusal, Status};

/// A space of a file.
pub type Key = (Ino, LockSpace);

/// Both spaces.
pub const SPACES: [LockSpace; 2] = [LockSpace::Range, LockSpace::Whole];

/// Where a wish stands. Numbers rise: the lowest came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The queue.
    pub key: Key,
    /// Its number in it.
    pub number: u64,
}

/// A lock that is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Who wants it.
    pub by: LockOwner,
    /// Its process.
    pub pid: u32,
    /// What for.
    pub kind: LockKind,
    /// Which bytes.
    pub range: Range,
    ticket: u64,
    order: u64,
    /// It waits for its turn only, and no longer than this.
    turn: Option<Millis>,
}

/// Locks of one space of a file.
#[derive(Debug, Default)]
pub struct File {
    /// Held.
    pub held: Ranges,
    /// Waited for, in the order in which they came.
    pub queue: BTreeMap<u64, Wish>,
}

/// What a client has to do with a file.
#[derive(Debug, Default)]
struct OnFile {
    orders: Orders,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Client {
    files: BTreeMap<Ino, OnFile>,
    held: usize,
    waiting: usize,
}

/// What counts against limits beside the locks of this table, as of the current request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    /// Locks held on other shards of the group.
    pub locks: usize,
    /// Locks waited for there.
    pub lock_waits: usize,
    /// Outcomes that the client who asks has not confirmed.
    pub unconfirmed: usize,
}

/// Something that may let wishes come true.
#[derive(Debug)]
enum Change {
    /// A range was given up.
    Freed(Key, Range),
    /// An owner holds its first lock: it waits for nobody's turn any more.
    Holds(LockSpace, LockOwner, u32),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Table {
    pub(super) files: BTreeMap<Key, File>,
    clients: BTreeMap<ClientId, Client>,
    tickets: BTreeMap<(ClientId, u64), Place>,
    pub(super) waiting: BTreeMap<(LockSpace, LockOwner), BTreeSet<Place>>,
    waiting_processes: BTreeMap<(ClientId, u32), BTreeSet<Place>>,
    holders: BTreeMap<(LockSpace, LockOwner), usize>,
    processes: BTreeMap<(ClientId, u32), usize>,
    turns: BTreeSet<(Millis, Place)>,
    next: u64,
    held: usize,
    changes: VecDeque<Change>,
    given: Given,
    /// What became of wishes: client, ticket, error.
    told: Vec<(ClientId, u64, u32)>,
    /// See [`Beside`].
    pub beside: Beside,
    /// The wish that was put into a queue last, of a range.
    queued: Option<(LockOwner, u64)>,
}

impl Table {
    /// Locks held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Is nothing at all remembered?
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let maps = self.files.len() + self.tickets.len() + self.waiting.len() + self.waiting_processes.len();
        let counts = self.holders.len() + self.processes.len() + self.turns.len() + self.held;
        maps + counts + self.clients.len() + self.changes.len() == 0
    }

    /// Wishes that wait.
    pub fn waits(&self) -> usize {
        self.tickets.len()
    }

    /// Takes or gives up a lock, or puts the wish into the queue.
    pub fn set(
        &mut self,
        now: Millis,
        ino: Ino,
        client: ClientId,
        lock: &LockWish,
        ticket: Option<u64>,
        order: u64,
    ) -> Result<LockState, Refusal> {
        let range = range_of(lock)?;
        let (key, by) = ((ino, lock.space), LockOwner { client, owner: lock.owner });
        self.admit(client, ino, lock.space, lock.owner, order)?;
        if ticket.is_some_and(|ticket| self.tickets.contains_key(&(client, ticket))) {
            return Ok(LockState::Waits);
        }
        let Some(kind) = lock.kind else {
            self.check_room(key, by, None, range)?;
            self.hold(key, by, lock.pid, None, range);
            self.settle(now);
            return Ok(LockState::Done);
        };
        if lock.space == LockSpace::Whole {
            match self.files.get(&key).and_then(|file| file.held.of(by).first()).map(|held| held.kind) {
                Some(held) if held == kind => return Ok(LockState::Done),
                // As Linux: the old lock is given up first, and lost when the new one is not to be had.
                Some(_) => self.release(key, by),
                None => {}
            }
            self.settle(now);
        }
        self.check_room(key, by, Some(kind), range)?;
        let wish = Wish { by, pid: lock.pid, kind, range, ticket: ticket.unwrap_or(0), order, turn: None };
        let file = self.files.entry(key).or_default();
        let blocked = file.held.is_blocked(by, kind, range);
        let must_wait = blocked || ticket.is_some() && self.is_behind(key, u64::MAX, &wish);
        let state = match ticket {
            _ if !must_wait => {
                self.given.note(ino, client);
                self.hold(key, by, lock.pid, Some(kind), range);
                Ok(LockState::Done)
            }
            None => Err(Errno::EAGAIN.into()),
            Some(_) if blocked && lock.space == LockSpace::Range && self.is_circle(key, &wish) => {
                Err(Errno::EDEADLK.into())
            }
            Some(_) => self.enqueue(now, key, wish, blocked).map(|()| LockState::Waits),
        };
        self.settle(now);
        self.tidy_file(key);
        state
    }

    /// Which lock stands in the way of a wish?
    pub fn get(&self, ino: Ino, client: ClientId, lock: &LockWish) -> Result<Option<HeldLock>, Refusal> {
        let range = range_of(lock)?;
        let kind = lock.kind.ok_or(Errno::EINVAL)?;
        let by = LockOwner { client, owner: lock.owner };
        Ok(self.files.get(&(ino, lock.space)).and_then(|file| file.held.first_conflict(by, kind, range)))
    }

    /// An owner gives up everything on a file.
    pub fn drop_owner(&mut self, now: Millis, key: Key, by: LockOwner, order: u64) -> Result<(), Refusal> {
        let file = self.clients.entry(by.client).or_default().files.entry(key.0).or_default();
        if !file.orders.admit_end(key.1, by.owner, order) {
            return Err(Status::OLD_SEQUENCE.into());
        }
        self.release(key, by);
        let places = self.waiting.get(&(key.1, by)).into_iter().flatten().filter(|place| place.key == key);
        for place in places.copied().collect::<Vec<_>>() {
            self.dismiss(place, Some(Errno::EBADF));
        }
        self.settle(now);
        self.tidy_file(key);
        Ok(())
    }

    /// A wish is not wanted any more. `false`: it does not wait, something became of it before.
    pub fn cancel(&mut self, now: Millis, client: ClientId, ticket: u64) -> bool {
        let Some(place) = self.tickets.get(&(client, ticket)).copied() else { return false };
        if let Some(wish) = self.dismiss(place, None)
            && let Some(file) = self.clients.get_mut(&client).and_then(|c| c.files.get_mut(&place.key.0))
        {
            file.orders.spend(place.key.1, wish.by.owner, wish.order);
        }
        self.settle(now);
        self.tidy_file(place.key);
        true
    }

    /// The wish of a range that began to wait since the last call: who, and its ticket.
    pub fn take_queued(&mut self) -> Option<(LockOwner, u64)> {
        self.queued.take()
    }

    /// A wish waits in a circle over several shards.
    pub fn refuse_circle(&mut self, now: Millis, client: ClientId, ticket: u64) {
        if let Some(place) = self.tickets.get(&(client, ticket)).copied() {
            self.dismiss(place, Some(Errno::EDEADLK));
            self.settle(now);
            self.tidy_file(place.key);
        }
    }

    /// What became of wishes since the last call: client, ticket, error.
    pub fn take_told(&mut self) -> Vec<(ClientId, u64, u32)> {
        core::mem::take(&mut self.told)
    }

    /// Has its owner asked for something newer than the request that took this lock?
    pub fn is_overtaken(&self, ino: Ino, client: ClientId, lock: &LockWish, order: u64) -> bool {
        let on_file = self.clients.get(&client).and_then(|client| client.files.get(&ino));
        on_file.is_some_and(|file| file.orders.is_overtaken(lock.space, lock.owner, order))
    }

    /// A client holds a lock from an earlier life of the server. What is in its way, if it cannot be. `late`: locks are
    /// given already.
    pub fn reclaim(
        &mut self,
        ino: Ino,
        client: ClientId,
        lock: &LockWish,
        order: u64,
        late: bool,
    ) -> Result<(), Refusal> {
        let (range, key) = (range_of(lock)?, (ino, lock.space));
        let kind = lock.kind.ok_or(Errno::EINVAL)?;
        let by = LockOwner { client, owner: lock.owner };
        let held = self.files.get(&key).map(|file| &file.held);
        if let Some(held) = held.and_then(|held| held.first_conflict(by, kind, range)) {
            let text = format!("client {} holds bytes {} to {}", held.by.client, held.start, held.last);
            return Err(Refusal::with(Status::errno(Errno::EAGAIN), text));
        }
        let covers = |held: &Held| held.kind == kind && held.range.contains(range);
        if !held.is_some_and(|held| held.of(by).iter().any(covers)) {
            if late && self.given.to_others(ino, client) {
                let text = "another client may have held it since the grace period ended";
                return Err(Refusal::with(Status::errno(Errno::EAGAIN), text));
            }
            self.check_room(key, by, Some(kind), range)?;
        }
        let on_file = self.clients.entry(client).or_default().files.entry(ino).or_default();
        on_file.orders.reclaim(lock.space, lock.owner, order);
        self.hold(key, by, lock.pid, Some(kind), range);
        Ok(())
    }

    /// The order of a client's requests is remembered while it has something to do with the file.
    pub fn tidy_client(&mut self, client: ClientId, ino: Ino, is_open: bool) {
        let holds =
            |key: &Key| self.files.get(key).is_some_and(|file| file.held.owners_of(client).next().is_some());
        let idle = !is_open && !SPACES.map(|space| (ino, space)).iter().any(holds);
        let Some(known) = self.clients.get_mut(&client) else { return };
        if idle && known.files.get(&ino).is_some_and(|file| file.waiting == 0) {
            known.files.remove(&ino);
        }
        if known.files.is_empty() && known.held == 0 && known.waiting == 0 {
            self.clients.remove(&client);
        }
    }

    fn tidy_file(&mut self, key: Key) {
        if self.files.get(&key).is_some_and(|file| file.held.is_empty() && file.queue.is_empty()) {
            self.files.remove(&key);
        }
    }

    fn admit(
        &mut self,
        client: ClientId,
        ino: Ino,
        space: LockSpace,
        owner: u64,
        order: u64,
    ) -> Result<(), Refusal> {
        let file = self.clients.entry(client).or_default().files.entry(ino).or_default();
        if file.orders.admit(space, owner, order) { Ok(()) } else { Err(Status::OLD_SEQUENCE.into()) }
    }

    /// So many locks of others more.
    #[cfg(test)]
    pub fn suppose_held(&mut self, more: usize) {
        self.held += more;
    }

    /// Is there room for what a change may add at most?
    fn check_room(
        &self,
        key: Key,
        by: LockOwner,
        kind: Option<LockKind>,
        range: Range,
    ) -> Result<(), Refusal> {
        let file = self.files.get(&key);
        let adds = match kind {
            Some(_) => 2,
            // Giving up the middle of a range makes two of it.
            None => {
                let held = file.map_or(&[][..], |file| file.held.of(by));
                let splits = |held: &super::range::Held| {
                    held.range.start < range.start && range.last < held.range.last
                };
                usize::from(held.iter().any(splits))
            }
        };
        let client = self.clients.get(&by.client).map_or(0, |client| client.held);
        let limits = [
            (file.map_or(0, |file| file.held.len()), LOCKS_PER_FILE_MAX, "on one file"),
            (client, LOCKS_PER_CLIENT_MAX, "of one client"),
            (self.held + self.beside.locks, LOCKS_MAX, "on one metadata server"),
        ];
        match limits.iter().find(|(held, max, _)| adds > 0 && held + adds > *max) {
            Some((_, max, of)) => Err(no_lock(&format!("{max} locks {of} are the limit; give some up"))),
            None => Ok(()),
        }
    }

    fn enqueue(&mut self, now: Millis, key: Key, wish: Wish, blocked: bool) -> Result<(), Refusal> {
        let by = wish.by;
        let waiting = self.clients.get(&by.client).map_or(0, |client| client.waiting);
        if waiting + self.beside.unconfirmed >= LOCK_WAITS_PER_CLIENT_MAX {
            return Err(no_lock(&format!(
                "{LOCK_WAITS_PER_CLIENT_MAX} waiting locks are the limit of a client"
            )));
        }
        if self.tickets.len() + self.beside.lock_waits >= LOCK_WAITS_MAX {
            return Err(no_lock(&format!(
                "{LOCK_WAITS_MAX} waiting locks are the limit of a metadata server"
            )));
        }
        self.next += 1;
        let place = Place { key, number: self.next };
        self.tickets.insert((by.client, wish.ticket), place);
        self.waiting.entry((key.1, by)).or_default().insert(place);
        self.waiting_processes.entry((by.client, wish.pid)).or_default().insert(place);
        let client = self.clients.entry(by.client).or_default();
        client.waiting += 1;
        client.files.entry(key.0).or_default().waiting += 1;
        self.files.entry(key).or_default().queue.insert(place.number, wish);
        if key.1 == LockSpace::Range {
            self.queued = Some((by, wish.ticket));
        }
        if !blocked {
            self.await_turn(now, place);
        }
        Ok(())
    }

    /// Takes a wish out of its queue.
    fn unqueue(&mut self, place: Place) -> Option<Wish> {
        let wish = self.files.get_mut(&place.key)?.queue.remove(&place.number)?;
        let client = wish.by.client;
        self.tickets.remove(&(client, wish.ticket));
        remove_place(&mut self.waiting, (place.key.1, wish.by), place);
        remove_place(&mut self.waiting_processes, (client, wish.pid), place);
        if let Some(turn) = wish.turn {
            self.turns.remove(&(turn, place));
        }
        if let Some(known) = self.clients.get_mut(&client) {
            known.waiting = known.waiting.saturating_sub(1);
            if let Some(file) = known.files.get_mut(&place.key.0) {
                file.waiting = file.waiting.saturating_sub(1);
            }
        }
        Some(wish)
    }

    /// A wish ends without its lock; who stood behind it moves up.
    fn dismiss(&mut self, place: Place, errno: Option<Errno>) -> Option<Wish> {
        let wish = self.unqueue(place)?;
        if let Some(errno) = errno {
            self.told.push((wish.by.client, wish.ticket, u32::from(errno.0)));
        }
        self.changes.push_back(Change::Freed(place.key, wish.range));
        Some(wish)
    }

    /// An owner holds a range from now on, or no longer.
    fn hold(&mut self, key: Key, by: LockOwner, pid: u32, kind: Option<LockKind>, range: Range) {
        let file = self.files.entry(key).or_default();
        let Changed { frees, before, after } = file.held.set(by, pid, kind, range);
        if frees {
            self.changes.push_back(Change::Freed(key, range));
        }
        let is_first = kind.is_some() && self.holds_nothing(key.1, by, pid);
        self.recount(key.1, by, &before, &after);
        if is_first {
            self.changes.push_back(Change::Holds(key.1, by, pid));
        }
        self.tidy_file(key);
    }

    fn release(&mut self, key: Key, by: LockOwner) {
        let Some(file) = self.files.get_mut(&key) else { return };
        let held = file.held.drop_owner(by);
        let pids: Vec<u32> = held.iter().map(|held| held.pid).collect();
        self.recount(key.1, by, &pids, &[]);
        self.changes.extend(held.iter().map(|held| Change::Freed(key, held.range)));
    }

    fn recount(&mut self, space: LockSpace, by: LockOwner, before: &[u32], after: &[u32]) {
        self.held = self.held + after.len() - before.len();
        let client = self.clients.entry(by.client).or_default();
        client.held = client.held + after.len() - before.len();
        for pid in after {
            *self.processes.entry((by.client, *pid)).or_default() += 1;
        }
        for pid in before {
            count_down(&mut self.processes, (by.client, *pid), 1);
        }
        if after.len() > before.len() {
            *self.holders.entry((space, by)).or_default() += after.len() - before.len();
        } else {
            count_down(&mut self.holders, (space, by), before.len() - after.len());
        }
    }

    /// Nobody can be waiting for this owner, or for the process that it belongs to.
    fn holds_nothing(&self, space: LockSpace, by: LockOwner, pid: u32) -> bool {
        pid != 0
            && !self.holders.contains_key(&(space, by))
            && !self.processes.contains_key(&(by.client, pid))
    }

    /// Does somebody wait for longer for what this wish would take? An owner that holds something waits
    /// for nobody's turn: whoever is before it may be waiting for just that.
    fn is_behind(&self, key: Key, number: u64, wish: &Wish) -> bool {
        let before = |file: &File| {
            let mut earlier = file.queue.range(..number);
            earlier.any(|(_, other)| {
                other.by != wish.by && other.range.overlaps(wish.range) && excludes(other.kind, wish.kind)
            })
        };
        self.holds_nothing(key.1, wish.by, wish.pid) && self.files.get(&key).is_some_and(before)
    }

    fn await_turn(&mut self, now: Millis, place: Place) {
        let wish = self.files.get_mut(&place.key).and_then(|file| file.queue.get_mut(&place.number));
        if let Some(wish) = wish.filter(|wish| wish.turn.is_none()) {
            let until = now.plus(LOCK_TURN_MS);
            wish.turn = Some(until);
            self.turns.insert((until, place));
        }
    }

    /// Grants everything that can be granted after what has changed.
    fn settle(&mut self, now: Millis) {
        while let Some(change) = self.changes.pop_front() {
            match change {
                Change::Freed(key, range) => self.freed(now, key, range),
                Change::Holds(space, by, pid) => {
                    let own = self.waiting.get(&(space, by)).into_iter().flatten();
                    let process = self.waiting_processes.get(&(by.client, pid)).into_iter().flatten();
                    for place in own.chain(process).copied().collect::<Vec<_>>() {
                        self.try_grant(now, place, false);
                    }
                }
            }
        }
    }

    fn freed(&mut self, now: Millis, key: Key, range: Range) {
        let mut from = 0;
        loop {
            let Some(file) = self.files.get(&key) else { return };
            let mut waiting = file.queue.range(from..);
            let next =
                waiting.find(|(_, wish)| wish.range.overlaps(range)).map(|(number, wish)| (*number, *wish));
            let Some((number, wish)) = next else { return };
            from = number + 1;
            let granted = self.try_grant(now, Place { key, number }, false);
            let covers = wish.range.start <= range.start && range.last <= wish.range.last;
            if granted && wish.kind == LockKind::Write && covers {
                // Nothing of what was given up is left.
                return;
            }
        }
    }

    fn try_grant(&mut self, now: Millis, place: Place, out_of_turn: bool) -> bool {
        let Some(file) = self.files.get(&place.key) else { return false };
        let Some(wish) = file.queue.get(&place.number).copied() else { return false };
        if file.held.is_blocked(wish.by, wish.kind, wish.range) {
            return false;
        }
        if !out_of_turn && self.is_behind(place.key, place.number, &wish) {
            self.await_turn(now, place);
            return false;
        }
        self.unqueue(place);
        self.given.note(place.key.0, wish.by.client);
        self.hold(place.key, wish.by, wish.pid, Some(wish.kind), wish.range);
        self.told.push((wish.by.client, wish.ticket, 0));
        true
    }

    /// When [`Table::tick`] has something to do.
    pub fn deadline(&self) -> Option<Millis> {
        self.turns.first().map(|(until, _)| *until)
    }

    /// Time passed: nobody waits for his turn for ever. So many turns end at most; the number of those that did.
    pub fn tick(&mut self, now: Millis, most: usize) -> usize {
        let mut ended = 0;
        while ended < most
            && let Some((until, place)) = self.turns.first().copied().filter(|(until, _)| *until <= now)
        {
            ended += 1;
            self.turns.remove(&(until, place));
            if let Some(wish) =
                self.files.get_mut(&place.key).and_then(|file| file.queue.get_mut(&place.number))
            {
                wish.turn = None;
            }
            self.try_grant(now, place, true);
        }
        self.settle(now);
        ended
    }
}

fn range_of(lock: &LockWish) -> Result<Range, Refusal> {
    match lock.space {
        LockSpace::Whole => Ok(Range::ALL),
        LockSpace::Range if lock.start > lock.last => Err(Errno::EINVAL.into()),
        LockSpace::Range => Ok(Range { start: lock.start, last: lock.last }),
    }
}

fn no_lock(text: &str) -> Refusal {
    Refusal::with(Status::errno(Errno::ENOLCK), text)
}

fn remove_place<K: Ord>(places: &mut BTreeMap<K, BTreeSet<Place>>, of: K, place: Place) {
    if let Some(own) = places.get_mut(&of) {
        own.remove(&place);
        if own.is_empty() {
            places.remove(&of);
        }
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, of: K, by: usize) {
    if let Some(count) = counts.get_mut(&of) {
        *count = count.saturating_sub(by);
        if *count == 0 {
            counts.remove(&of);
        }
    }
}
