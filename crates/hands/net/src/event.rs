//! One thread, epoll, many connections: the server of mgmtd and metad.
//!
//! A round: take what the kernel says is ready, give every whole request to the service, let the
//! service end the round (one log append) and push its replies, send them.

mod connection;
mod intake;
mod replies;
mod table;

pub(crate) use intake::full_house;
pub use replies::Replies;

use crate::waker::{StopHandle, Waker};
use crate::{Keyring, Listener, Log, Peer, PeerInfo, SEND_DEADLINE, now};
use connection::{Connection, Phase};
use rustix::event::{Timespec, epoll};
use skep_ring::look_again;
use skep_types::limits::PAYLOAD_MAX;
use skep_types::{FenceEpoch, Millis};
use skep_wire::{Header, Hello, Refusal, Welcome};
use std::io;
use std::time::Duration;
use table::Table;

/// Names a connection; never reused within one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) life: u32,
}

/// Limits of an event server.
#[derive(Debug, Clone, Copy)]
pub struct EventLimits {
    /// Authenticated connections; one more takes the place of one that had its turn, or is refused with a text that
    /// says so.
    pub connections: usize,
    /// At the limit a client's connection makes room for another after this long: clients that are refused would wait
    /// for ever beside those that came first.
    pub turn: Duration,
    /// Connections within the handshake; one more ends the oldest of them.
    pub half_open: usize,
    /// Bytes of replies that one connection may leave unread. At half of it no more requests are
    /// read from it, at all of it it is closed.
    pub outbound: usize,
    /// Requests of one connection per round.
    pub requests_per_round: usize,
    /// Bytes of payload that a request may carry.
    pub payload: usize,
    /// A connection that takes nothing of its replies for this long is closed.
    pub stalled: Duration,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self {
            connections: 8_192,
            turn: TURN,
            half_open: 128,
            outbound: 16 << 20,
            requests_per_round: 64,
            payload: PAYLOAD_MAX,
            stalled: SEND_DEADLINE,
        }
    }
}

/// What answers the requests.
pub trait Service {
    /// May this peer connect? Its role is proven; client, token and cluster are for the service to
    /// check. Must change nothing: whoever recorded a hello can send it again.
    fn hello(&mut self, hello: &Hello, peer: &PeerInfo) -> Result<Welcome, Refusal>;

    /// The peer is connected and proven.
    fn opened(&mut self, conn: ConnId, peer: &Peer) {
        let _ = (conn, peer);
    }

    /// A request. To be answered by a push in this or a later [`Service::round_end`].
    fn request(&mut self, conn: ConnId, peer: &Peer, header: &Header, body: &[u8], payload: &[u8]);

    /// The connection is gone; replies to it are dropped from now on.
    fn closed(&mut self, conn: ConnId, peer: &Peer) {
        let _ = (conn, peer);
    }

    /// The waker was used.
    fn wake(&mut self) {}

    /// All ready requests of the round were given, or the waker or the deadline fired. Called in every round.
    fn round_end(&mut self, out: &mut Replies<'_>);

    /// When a round is wanted though nothing arrives (clock: [`crate::now`]).
    fn next_deadline(&self) -> Option<Millis>;

    /// The highest fence epoch that the service knows; every reply carries it.
    fn epoch(&self) -> FenceEpoch;
}

/// How long a connection may stay at least, at the limit.
pub(crate) const TURN: Duration = Duration::from_secs(1);
/// Events taken from the kernel at once.
const EVENTS_PER_ROUND: usize = 256;
/// Connections accepted per listener and round.
const ACCEPTS_PER_ROUND: usize = 64;
/// Pause of accepting when the process has no descriptor left, in milliseconds.
const ACCEPT_PAUSE_MS: u64 = 500;
/// Event data of the waker; listeners stand below it.
const TOKEN_WAKER: u64 = u64::MAX;
/// Listeners have `TOKEN_LISTENER + number`.
const TOKEN_LISTENER: u64 = u64::MAX - 1_024;

pub struct EventServer {
    listeners: Vec<Listener>,
    keyring: Keyring,
    limits: EventLimits,
    log: Log,
    stop: StopHandle,
    table: Table,
    /// Read buffer of the loop; a connection has one of its own only while it holds part of a frame.
    scratch: Vec<u8>,
    /// Connections with whole requests left over from the last round.
    leftover: Vec<ConnId>,
    /// Accepting pauses until then.
    paused: Option<Millis>,
    /// The log was told that accepting pauses; it is told once, and again when it goes on.
    crowded: bool,
}

impl EventServer {
    /// A server for `listeners`; nothing is accepted before [`EventServer::run`].
    pub fn new(
        listeners: Vec<Listener>,
        keyring: Keyring,
        limits: EventLimits,
        log: Log,
    ) -> io::Result<Self> {
        let table = Table::new(epoll::create(epoll::CreateFlags::CLOEXEC)?, log.clone());
        let stop = StopHandle::new(Waker::new()?);
        let watch = epoll::EventFlags::IN;
        epoll::add(table.epoll(), stop.waker.fd(), epoll::EventData::new_u64(TOKEN_WAKER), watch)?;
        let server = Self {
            listeners,
            keyring,
            limits,
            log,
            stop,
            table,
            scratch: Vec::new(),
            leftover: Vec::new(),
            paused: None,
            crowded: false,
        };
        server.watch_listeners(true)?;
        Ok(server)
    }

    /// Wakes the loop from another thread.
    pub fn waker(&self) -> Waker {
        self.stop.waker.clone()
    }

    /// Ends the loop from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Serves until stopped. Sockets are closed and socket files removed at the end.
    pub fn run<S: Service>(mut self, service: &mut S) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_PER_ROUND);
        while !self.stop.is_stopped() {
            let timeout = self.timeout(service.next_deadline());
            let has_worked = !events.is_empty();
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let has_come = || self.table.wait(&mut events, Some(&now));
            if !(has_worked && timeout != Some(now) && look_again(has_come)?) {
                self.table.wait(&mut events, timeout.as_ref())?;
            }
            for id in std::mem::take(&mut self.leftover) {
                self.requests_left_over(id, service);
            }
            for event in &events {
                self.event(event.data.u64(), event.flags, service);
            }
            self.expire(service);
            let epoch = service.epoch();
            service.round_end(&mut Replies { table: &mut self.table, epoch });
            self.send_replies(service);
        }
        Ok(())
    }

    /// How long the kernel may let the loop sleep.
    fn timeout(&mut self, service: Option<Millis>) -> Option<Timespec> {
        if !self.leftover.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let wanted = [service, self.table.first_deadline(), self.table.first_stall(), self.paused];
        // The clock is read only when there is something to wait for.
        wanted.into_iter().flatten().min().map(|at| {
            let ms = at.since(now());
            Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 }
        })
    }

    fn event<S: Service>(&mut self, token: u64, flags: epoll::EventFlags, service: &mut S) {
        if token == TOKEN_WAKER {
            self.stop.waker.clear();
            return service.wake();
        }
        if token >= TOKEN_LISTENER {
            return self.accept((token - TOKEN_LISTENER) as usize, service);
        }
        let id = ConnId { index: token as u32, life: (token >> 32) as u32 };
        // A peer that is gone altogether is noticed by the attempt to send when reading is paused.
        if flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.table.mark_dirty(id);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.readable(id, service);
        }
    }

    fn accept<S: Service>(&mut self, listener: usize, service: &mut S) {
        for _ in 0..ACCEPTS_PER_ROUND {
            match self.listeners[listener].accept(true) {
                Ok(Some((fd, info))) => {
                    if self.table.half_open() >= self.limits.half_open
                        && let Some(oldest) = self.table.oldest_half_open()
                    {
                        self.close(oldest, Some("too many connections are within the handshake"), service);
                    }
                    if let Err(e) = self.table.insert(Connection::new(fd, info.clone())) {
                        self.log.line(&info.host, format_args!("connection not accepted: {e}"));
                    }
                }
                Ok(None) => {
                    if std::mem::take(&mut self.crowded) {
                        self.log.line("this service", "accepts connections again");
                    }
                    return;
                }
                Err(e) => {
                    let text =
                        format_args!("accepting pauses: {e}; raise the limit of open files (LimitNOFILE)");
                    if !std::mem::replace(&mut self.crowded, true) {
                        self.log.line("this service", text);
                    }
                    self.paused = Some(now().plus(ACCEPT_PAUSE_MS));
                    let _ = self.watch_listeners(false);
                    return;
                }
            }
        }
    }

    fn watch_listeners(&self, on: bool) -> io::Result<()> {
        for (number, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(TOKEN_LISTENER + number as u64);
            match on {
                true => epoll::add(self.table.epoll(), listener.fd(), data, epoll::EventFlags::IN)?,
                false => epoll::delete(self.table.epoll(), listener.fd())?,
            }
        }
        Ok(())
    }

    /// Ends handshakes that take too long, connections that do not read, and the pause of accepting.
    fn expire<S: Service>(&mut self, service: &mut S) {
        if !self.table.has_deadlines() && self.paused.is_none() {
            return;
        }
        let now = now();
        while let Some(id) = self.table.stalled(now) {
            self.close(id, Some("it does not read its replies"), service);
        }
        while let Some(id) = self.table.expired(now) {
            self.close(id, Some("handshake not finished in time"), service);
        }
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
            if let Err(e) = self.watch_listeners(true) {
                self.log.line(
                    "this service",
                    format_args!("cannot accept connections any more: {e}; restart it"),
                );
            }
        }
    }

    /// Sends what the round produced; closes connections that are finished or do not read.
    fn send_replies<S: Service>(&mut self, service: &mut S) {
        while let Some(id) = self.table.next_dirty() {
            let limit = self.limits.outbound;
            let Some(connection) = self.table.get(id) else { continue };
            if let Err(why) = connection.send_waiting(limit) {
                self.close(id, why, service);
                continue;
            }
            if connection.is_finished() {
                self.close(id, None, service);
                continue;
            }
            match self.table.watch(id, limit / 2, self.limits.stalled) {
                Ok(true) if self.table.unpark(id) => self.leftover.push(id),
                Ok(_) => {}
                Err(e) => {
                    self.log.line("this service", format_args!("cannot watch a connection: {e}"));
                    self.close(id, None, service);
                }
            }
        }
    }

    /// Ends a connection; `why` goes to the log.
    fn close<S: Service>(&mut self, id: ConnId, why: Option<&str>, service: &mut S) {
        let Some(connection) = self.table.remove(id) else { return };
        if let Some(why) = why {
            self.log.line(
                &connection.info.host,
                format_args!("connection {} closed: {why}", connection.info.address),
            );
        }
        if let Phase::Open(open) = connection.phase
            && open.announced
        {
            service.closed(id, &open.peer);
        }
    }
}
