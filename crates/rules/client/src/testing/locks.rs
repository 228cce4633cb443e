//! Fake locks: one table, searched from end to end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::codec::Growing;
use skep_types::{ClientId, Encode, Errno, Ino, Term};
use skep_wire::meta::{
    CancelLockReply, Event, EventsReply, GetLockReply, HeldLock, LockOutcome, LockOwner, LockState, LockWish,
    MetaRequest, ReclaimedLock, SetLockReply,
};
use skep_wire::{Empty, Refusal, Status};

/// Who, on what.
type Place = (u64, Ino, LockWish);

#[derive(Default)]
pub struct FakeLocks {
    pub held: Vec<Place>,
    pub queue: Vec<(Place, u64)>,
    /// Claims that were refused.
    pub lost: Vec<ReclaimedLock>,
    orders: BTreeMap<(u64, Ino, u64), u64>,
    pub events: BTreeMap<u64, Vec<(u64, Event)>>,
    /// Of the shard.
    term: Term,
    number: u64,
}

/// An encoded answer.
pub struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

fn raw<T: Encode>(reply: &T) -> Result<Raw, Refusal> {
    Ok(Raw(reply.to_bytes()))
}

fn conflict(held: &Place, mount: u64, ino: Ino, wish: &LockWish) -> bool {
    let (other, on, lock) = held;
    let same = (*other, lock.owner) == (mount, wish.owner);
    let meets = lock.start <= wish.last && lock.last >= wish.start;
    let write = lock.kind.max(wish.kind) == Some(skep_wire::meta::LockKind::Write);
    *on == ino && lock.space == wish.space && !same && meets && write
}

impl FakeLocks {
    /// Everything volatile is gone.
    pub fn restart(&mut self) {
        let number = self.number + 1_000;
        *self = Self { number, ..Self::default() };
    }

    /// Something that the mount is to hear.
    pub fn tell(&mut self, mount: u64, event: Event) {
        self.number += 1;
        self.events.entry(mount).or_default().push((self.number, event));
    }

    /// Answers what concerns locks.
    pub fn request(&mut self, mount: u64, term: Term, request: &MetaRequest) -> Option<Result<Raw, Refusal>> {
        self.term = term;
        Some(match request {
            MetaRequest::SetLock(m) => {
                let newest = self.orders.entry((mount, m.ino, m.lock.owner)).or_default();
                if *newest > m.order {
                    return Some(Err(Status::OLD_SEQUENCE.into()));
                }
                *newest = m.order;
                match self.set(mount, m.ino, m.lock) {
                    true => raw(&SetLockReply { state: LockState::Done }),
                    false => match m.ticket {
                        Some(ticket) => {
                            self.queue.retain(|(place, other)| (place.0, *other) != (mount, ticket));
                            self.queue.push(((mount, m.ino, m.lock), ticket));
                            raw(&SetLockReply { state: LockState::Waits })
                        }
                        None => Err(Errno::EAGAIN.into()),
                    },
                }
            }
            MetaRequest::GetLock(m) => {
                let found = self.held.iter().find(|held| conflict(held, mount, m.ino, &m.lock));
                let held = found.map(|(by, _, lock)| HeldLock {
                    by: LockOwner { client: ClientId(*by), owner: lock.owner },
                    pid: lock.pid,
                    kind: lock.kind.unwrap_or(skep_wire::meta::LockKind::Read),
                    start: lock.start,
                    last: lock.last,
                });
                raw(&GetLockReply { held })
            }
            MetaRequest::DropLocks(m) => {
                let newest = self.orders.entry((mount, m.ino, m.owner)).or_default();
                if *newest > m.order {
                    return Some(Err(Status::OLD_SEQUENCE.into()));
                }
                *newest = m.order;
                let gone = |p: &Place| (p.0, p.1, p.2.space, p.2.owner) == (mount, m.ino, m.space, m.owner);
                self.queue.retain(|(place, _)| !gone(place));
                self.held.retain(|place| !gone(place));
                self.serve();
                raw(&Empty {})
            }
            MetaRequest::Events(m) => {
                let waiting = self.events.entry(mount).or_default();
                waiting.retain(|(number, _)| *number > m.received);
                let events = Growing(waiting.iter().map(|(_, event)| event.clone()).collect());
                raw(&EventsReply { events, number: self.number })
            }
            MetaRequest::CancelLock(m) => {
                let before = self.queue.len();
                self.queue.retain(|(place, ticket)| (place.0, *ticket) != (mount, m.ticket));
                raw(&CancelLockReply { held: before == self.queue.len() })
            }
            MetaRequest::Reclaim(m) => {
                for lock in &m.locks {
                    let newest = self.orders.entry((mount, lock.ino, lock.lock.owner)).or_default();
                    if *newest > lock.order {
                        continue;
                    }
                    *newest = lock.order;
                    if !self.set(mount, lock.ino, lock.lock) {
                        self.lost.push(*lock);
                    }
                }
                return None;
            }
            _ => return None,
        })
    }

    fn set(&mut self, mount: u64, ino: Ino, wish: LockWish) -> bool {
        if wish.kind.is_some() && self.held.iter().any(|held| conflict(held, mount, ino, &wish)) {
            return false;
        }
        let mut rest = Vec::new();
        for (by, on, lock) in self.held.drain(..) {
            let own = (by, on, lock.space, lock.owner) == (mount, ino, wish.space, wish.owner);
            if !own || lock.last < wish.start || lock.start > wish.last {
                rest.push((by, on, lock));
                continue;
            }
            if lock.start < wish.start {
                rest.push((by, on, LockWish { last: wish.start - 1, ..lock }));
            }
            if lock.last > wish.last {
                rest.push((by, on, LockWish { start: wish.last + 1, ..lock }));
            }
        }
        self.held = rest;
        if wish.kind.is_some() {
            self.held.push((mount, ino, wish));
        }
        self.serve();
        true
    }

    fn serve(&mut self) {
        let queue = core::mem::take(&mut self.queue);
        for ((mount, ino, wish), ticket) in queue {
            if self.held.iter().any(|held| conflict(held, mount, ino, &wish)) {
                self.queue.push(((mount, ino, wish), ticket));
                continue;
            }
            self.held.push((mount, ino, wish));
            let outcome = LockOutcome { ticket, errno: 0, term: self.term };
            self.tell(mount, outcome.into());
        }
    }
}
