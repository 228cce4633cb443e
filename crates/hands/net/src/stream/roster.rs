//! Who is connected to a stream server, and which connection serves which lane.

use super::StreamLimits;
use super::connection::Serving;
use crate::payload::Budget;
use crate::peer::{Lane, Rank};
use crate::{Log, PeerInfo, now};
use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Number of a connection, in the order of arrival.
pub(super) type Number = u64;

/// What the thread of a connection and the others share.
pub(super) struct Seat {
    pub(super) fd: OwnedFd,
    /// It must not begin another request.
    ended: AtomicBool,
    /// Since when it waits for a request (clock: [`crate::now`]); 0 = it does not.
    idle: AtomicU64,
}

impl Seat {
    /// Makes the connection end: the thread's waiting read or write returns, and what was received
    /// but not begun is dropped (the socket may still hold it, so the thread asks before each request).
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let _ = shutdown(&self.fd, Shutdown::Both);
    }

    /// It waits for a request from now on, or has one.
    pub(super) fn set_idle(&self, idle: bool) {
        self.idle.store(if idle { now().0.max(1) } else { 0 }, Ordering::Relaxed);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Tables {
    next: Number,
    seats: BTreeMap<Number, Arc<Seat>>,
    half_open: BTreeMap<Number, Arc<Seat>>,
    lanes: BTreeMap<Lane, (Rank, Number)>,
    closing: bool,
}

pub(super) struct Roster {
    tables: Mutex<Tables>,
    left: Condvar,
    pub(super) limits: StreamLimits,
    pub(super) log: Log,
    pub(super) budget: Arc<Budget>,
    /// Connections that share memory.
    sharing: AtomicUsize,
}

/// One of the connections that may share memory, until it is dropped.
pub(super) struct Share<'a>(&'a Roster);

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.sharing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Roster {
    pub(super) fn new(limits: StreamLimits, log: Log) -> Self {
        let budget = Budget::new(limits.bytes_in_flight);
        Self {
            tables: Mutex::default(),
            left: Condvar::new(),
            limits,
            log,
            budget,
            sharing: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May one more connection share memory?
    pub(super) fn share(&self) -> Option<Share<'_>> {
        let share = Share(self);
        let before = self.sharing.fetch_add(1, Ordering::Relaxed);
        (before < self.limits.sharing).then_some(share)
    }

    /// Takes in a connection that begins its handshake. When there are too many of them the oldest ends,
    /// and is waited for: it is its thread that costs, not its socket.
    pub(super) fn enter(&self, fd: OwnedFd, info: PeerInfo) -> Serving {
        let mut tables = self.lock();
        if tables.half_open.len() >= self.limits.half_open
            && let Some((_, oldest)) = tables.half_open.first_key_value()
        {
            oldest.end();
            let crowded = |tables: &mut Tables| tables.half_open.len() >= self.limits.half_open.max(1);
            tables = self.left.wait_while(tables, crowded).unwrap_or_else(PoisonError::into_inner);
        }
        let seat = Arc::new(Seat { fd, ended: AtomicBool::new(false), idle: AtomicU64::new(0) });
        let number = tables.next;
        tables.next += 1;
        tables.seats.insert(number, seat.clone());
        tables.half_open.insert(number, seat.clone());
        Serving { number, seat, info, stalled: self.limits.stalled }
    }

    /// Is there no room for one more proven connection of this lane? One that takes the place of an older one
    /// needs none, and servers take turns: an idle connection makes room for whoever has something to ask.
    pub(super) fn is_full(&self, lane: Option<Lane>) -> bool {
        let tables = self.lock();
        if tables.seats.len() - tables.half_open.len() < self.limits.connections
            || lane.is_some_and(|lane| tables.lanes.contains_key(&lane))
        {
            return false;
        }
        let turn = self.limits.turn.as_millis() as u64;
        let idle = tables.seats.values().filter(|seat| !seat.is_ended());
        let since = |seat: &&Arc<Seat>| seat.idle.load(Ordering::Relaxed);
        let longest = idle.filter(|seat| since(seat) > 0).min_by_key(since);
        let Some(seat) = longest.filter(|seat| since(seat).saturating_add(turn) <= now().0) else {
            return true;
        };
        seat.end();
        false
    }

    /// Is an equal or newer connection of this lane open?
    pub(super) fn is_late(&self, lane: Option<Lane>, rank: Rank) -> bool {
        let tables = self.lock();
        lane.and_then(|lane| tables.lanes.get(&lane)).is_some_and(|(present, _)| *present >= rank)
    }

    /// A proven peer takes its place: an older connection of its lane is ended, and waited for until the
    /// request it has in work is done. `false`: a newer one is there already.
    pub(super) fn admit(&self, number: Number, lane: Option<Lane>, rank: Rank) -> bool {
        let mut tables = self.lock();
        tables.half_open.remove(&number);
        self.left.notify_all();
        if tables.closing {
            return false;
        }
        let Some(lane) = lane else { return true };
        let older = tables.lanes.get(&lane).copied();
        if older.is_some_and(|(present, _)| present >= rank) {
            return false;
        }
        tables.lanes.insert(lane, (rank, number));
        let Some((_, older)) = older else { return true };
        if let Some(seat) = tables.seats.get(&older) {
            seat.end();
        }
        let still_there = |tables: &mut Tables| tables.seats.contains_key(&older);
        drop(self.left.wait_while(tables, still_there).unwrap_or_else(PoisonError::into_inner));
        true
    }

    /// The connection is over.
    pub(super) fn leave(&self, number: Number) {
        let mut tables = self.lock();
        tables.seats.remove(&number);
        tables.half_open.remove(&number);
        tables.lanes.retain(|_, (_, holder)| *holder != number);
        drop(tables);
        self.left.notify_all();
    }

    /// Ends every connection; their threads finish what is in work.
    pub(super) fn end_all(&self) {
        let mut tables = self.lock();
        tables.closing = true;
        tables.seats.values().for_each(|seat| seat.end());
    }
}
