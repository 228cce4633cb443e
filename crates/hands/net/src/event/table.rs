//! All connections of an event server, and what the kernel watches of them.

use super::connection::{Connection, Phase};
use super::{ConnId, TOKEN_LISTENER};
use crate::Log;
use crate::peer::{Lane, Rank};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use skep_types::Millis;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

pub(super) struct Table {
    epoll: OwnedFd,
    pub(super) log: Log,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// In the order of their deadlines; may name connections that are past it or gone.
    halves: VecDeque<ConnId>,
    half_open: usize,
    open: usize,
    lanes: BTreeMap<Lane, (Rank, ConnId)>,
    dirty: Vec<ConnId>,
    /// Those with something to send that the socket did not take; few.
    stalls: Vec<ConnId>,
}

struct Slot {
    life: u32,
    connection: Option<Connection>,
}

impl Table {
    pub(super) fn new(epoll: OwnedFd, log: Log) -> Self {
        Self {
            epoll,
            log,
            slots: Vec::new(),
            free: Vec::new(),
            halves: VecDeque::new(),
            half_open: 0,
            open: 0,
            lanes: BTreeMap::new(),
            dirty: Vec::new(),
            stalls: Vec::new(),
        }
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Takes what is ready, or gets ready within this time; `true`: something is.
    pub(super) fn wait(&self, events: &mut Vec<epoll::Event>, limit: Option<&Timespec>) -> io::Result<bool> {
        events.clear();
        match epoll::wait(self.epoll(), spare_capacity(events), limit) {
            Ok(_) | Err(Errno::INTR) => Ok(!events.is_empty()),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Takes in a connection that begins its handshake.
    pub(super) fn insert(&mut self, connection: Connection) -> io::Result<()> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { life: 0, connection: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.life = slot.life.wrapping_add(1) & (TOKEN_LISTENER >> 33) as u32;
        let id = ConnId { index, life: slot.life };
        if let Err(e) = epoll::add(&self.epoll, &connection.fd, event_data(id), EventFlags::IN) {
            self.free.push(index);
            return Err(e.into());
        }
        slot.connection = Some(connection);
        // Takes those off the front that are past the handshake, so that the list cannot grow.
        self.oldest_half_open();
        self.half_open += 1;
        self.halves.push_back(id);
        Ok(())
    }

    pub(super) fn get(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.slots.get_mut(id.index as usize).filter(|slot| slot.life == id.life)?.connection.as_mut()
    }

    /// Counts a connection as proven, with its lane.
    pub(super) fn opened(&mut self, id: ConnId, lane: Option<Lane>, rank: Rank) {
        self.half_open -= 1;
        self.open += 1;
        if let Some(lane) = lane {
            self.lanes.insert(lane, (rank, id));
        }
    }

    /// The connection that serves a lane at present.
    pub(super) fn in_lane(&self, lane: Lane) -> Option<(Rank, ConnId)> {
        self.lanes.get(&lane).copied()
    }

    /// Takes a connection out; dropping it closes the socket, which also ends its watch.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Connection> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.life == id.life)?;
        let connection = slot.connection.take()?;
        self.free.push(id.index);
        match &connection.phase {
            Phase::Half { .. } => self.half_open -= 1,
            Phase::Open(open) => {
                self.open -= 1;
                if let Some(lane) = open.peer.lane()
                    && self.in_lane(lane).is_some_and(|(_, holder)| holder == id)
                {
                    self.lanes.remove(&lane);
                }
            }
        }
        Some(connection)
    }

    /// Whose turn is over: the client's connection that has waited longest for a request, or else the oldest one.
    /// What it asked and got no answer to, its client asks again.
    pub(super) fn had_its_turn(&self, turn: Duration) -> Option<ConnId> {
        let begun = Millis(crate::now().0.saturating_sub(turn.as_millis() as u64));
        let open = self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let Phase::Open(open) = &slot.connection.as_ref()?.phase else { return None };
            let is_client = matches!(open.peer.lane(), Some(Lane::Client(..)));
            let busy = open.asked > 0;
            let order = (busy, if busy { open.since } else { open.answered });
            (is_client && open.announced && open.since <= begun)
                .then_some((order, ConnId { index, life: slot.life }))
        });
        open.min().map(|(_, id)| id)
    }

    /// The half-open connection that has been so for the longest time.
    pub(super) fn oldest_half_open(&mut self) -> Option<ConnId> {
        while let Some(id) = self.halves.front().copied() {
            if self.get(id).is_some_and(|connection| matches!(connection.phase, Phase::Half { .. })) {
                return Some(id);
            }
            self.halves.pop_front();
        }
        None
    }

    /// When the next handshake runs out of time.
    pub(super) fn first_deadline(&mut self) -> Option<Millis> {
        let id = self.oldest_half_open()?;
        match self.get(id)?.phase {
            Phase::Half { deadline, .. } => Some(deadline),
            Phase::Open(_) => None,
        }
    }

    /// A half-open connection whose time is over.
    pub(super) fn expired(&mut self, now: Millis) -> Option<ConnId> {
        let id = self.oldest_half_open()?;
        match self.get(id)?.phase {
            Phase::Half { deadline, .. } if deadline <= now => Some(id),
            _ => None,
        }
    }

    /// Notes that there is something to send.
    pub(super) fn mark_dirty(&mut self, id: ConnId) {
        let Some(connection) = self.get(id) else { return };
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push(id);
        }
    }

    /// The next connection with something to send.
    pub(super) fn next_dirty(&mut self) -> Option<ConnId> {
        let id = self.dirty.pop()?;
        if let Some(connection) = self.get(id) {
            connection.dirty = false;
        }
        Some(id)
    }

    /// Does anything have to happen at some time though nothing arrives?
    pub(super) fn has_deadlines(&self) -> bool {
        self.half_open > 0 || !self.stalls.is_empty()
    }

    /// When the next connection that does not read runs out of time.
    pub(super) fn first_stall(&mut self) -> Option<Millis> {
        let stalls = std::mem::take(&mut self.stalls);
        let mut first: Option<Millis> = None;
        for id in stalls {
            let Some(at) = self.get(id).and_then(|connection| connection.stalled) else { continue };
            first = Some(first.map_or(at, |first| first.min(at)));
            self.stalls.push(id);
        }
        first
    }

    /// A connection that does not read and whose time is over.
    pub(super) fn stalled(&mut self, now: Millis) -> Option<ConnId> {
        let at = (0..self.stalls.len()).find(|at| {
            let id = self.stalls[*at];
            self.get(id).is_some_and(|connection| connection.stalled.is_some_and(|until| until <= now))
        })?;
        Some(self.stalls.swap_remove(at))
    }

    /// May the left-over requests of the connection go on, after a pause?
    pub(super) fn unpark(&mut self, id: ConnId) -> bool {
        self.get(id).is_some_and(|connection| std::mem::take(&mut connection.parked))
    }

    /// Tells the kernel what to watch: writes while something waits, no reads while more than `pause_at`
    /// waits. Gives whether reads are watched. What takes nothing for `patience` is stalled.
    pub(super) fn watch(&mut self, id: ConnId, pause_at: usize, patience: Duration) -> io::Result<bool> {
        let Self { epoll, slots, stalls, .. } = self;
        let slot = slots.get_mut(id.index as usize).filter(|slot| slot.life == id.life);
        let Some(connection) = slot.and_then(|slot| slot.connection.as_mut()) else { return Ok(false) };
        let waiting = connection.outbound.bytes().len();
        let wanted = (waiting < pause_at.max(1) && !connection.ending, waiting > 0);
        if waiting > 0 && connection.stalled.is_none() {
            connection.stalled = Some(crate::now().plus(patience.as_millis() as u64));
            if !stalls.contains(&id) {
                stalls.push(id);
            }
        }
        if std::mem::replace(&mut connection.watched, wanted) == wanted {
            return Ok(wanted.0);
        }
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, wanted.0);
        flags.set(EventFlags::OUT, wanted.1);
        epoll::modify(&*epoll, &connection.fd, event_data(id), flags)?;
        Ok(wanted.0)
    }
}

/// How the kernel names the connection to us.
fn event_data(id: ConnId) -> EventData {
    EventData::new_u64(u64::from(id.life) << 32 | u64::from(id.index))
}
