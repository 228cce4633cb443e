//! A thread per connection, blocking, handlers inline: the server of storaged.

mod connection;
mod roster;

use crate::event::TURN;
use crate::waker::{StopHandle, Waker};
use crate::{Keyring, Listener, Log, Payload, Peer, PeerInfo, SEND_DEADLINE};
use connection::Serving;
use roster::Roster;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use skep_types::{Encode, FenceEpoch};
use skep_wire::{Header, Hello, Refusal, Status, Welcome};
use std::io;
use std::thread::Builder;
use std::time::Duration;

/// Limits of a stream server.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// Authenticated connections (and threads); one more is refused with a text that says so.
    pub connections: usize,
    /// At the limit a connection that has been idle for so long makes room for another.
    pub turn: Duration,
    /// Connections within the handshake; one more ends the oldest of them.
    pub half_open: usize,
    /// Bytes of payload of all requests in work; beyond it connections wait. At least one largest payload.
    pub bytes_in_flight: usize,
    /// Connections that share memory with their peers; further ones do without.
    pub sharing: usize,
    /// A peer that has not taken a reply within this time is given up.
    pub stalled: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            turn: TURN,
            half_open: 64,
            bytes_in_flight: 512 << 20,
            sharing: 1_024,
            stalled: SEND_DEADLINE,
        }
    }
}

/// Stack of a connection's thread.
pub(crate) const THREAD_STACK: usize = 256 << 10;
/// Pause of accepting when the process has no descriptor or thread left.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// The answer to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0, or why not; then the body is a [`Refusal`].
    pub status: u32,
    pub body: Vec<u8>,
    /// So many bytes from the beginning of the [`Payload`] go with it.
    pub payload: usize,
}

impl Answer {
    /// Done: the record is the body.
    pub fn done(reply: &impl Encode) -> Self {
        Self { status: 0, body: reply.to_bytes(), payload: 0 }
    }

    /// Not done.
    pub fn refused(refusal: &Refusal) -> Self {
        Self { status: refusal.status.0, body: refusal.to_bytes(), payload: 0 }
    }

    /// With the first `len` bytes of the payload buffer.
    pub fn with_payload(self, len: usize) -> Self {
        Self { payload: len, ..self }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::refused(&refusal)
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::refused(&Refusal::new(status))
    }
}

/// What answers the requests; called by many threads at once.
pub trait Handler: Sync {
    /// May this peer connect? Its role is proven; client, token and cluster are for the handler to
    /// check. Must change nothing: whoever recorded a hello can send it again.
    fn hello(&self, hello: &Hello, peer: &PeerInfo) -> Result<Welcome, Refusal>;

    /// Does one request. `payload` holds what came with it and takes what goes back. The answer to a
    /// one-way frame is dropped.
    fn handle(&self, peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer;

    /// A connection ended.
    fn closed(&self, peer: &Peer) {
        let _ = peer;
    }

    /// The highest fence epoch that the service knows; every reply carries it.
    fn epoch(&self) -> FenceEpoch;
}

pub struct StreamServer {
    listeners: Vec<Listener>,
    keyring: Keyring,
    limits: StreamLimits,
    log: Log,
    stop: StopHandle,
}

impl StreamServer {
    /// A server for `listeners`; nothing is accepted before [`StreamServer::run`].
    pub fn new(
        listeners: Vec<Listener>,
        keyring: Keyring,
        limits: StreamLimits,
        log: Log,
    ) -> io::Result<Self> {
        Ok(Self { listeners, keyring, limits, log, stop: StopHandle::new(Waker::new()?) })
    }

    /// Ends the server from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Serves until stopped: accepts in this thread, serves in others, returns when all have ended
    /// (requests in work are finished first).
    pub fn run<H: Handler>(self, handler: &H) -> io::Result<()> {
        let roster = Roster::new(self.limits, self.log.clone());
        std::thread::scope(|scope| {
            let result = self.accept_all(
                |serving| {
                    let builder = Builder::new().name("connection".into()).stack_size(THREAD_STACK);
                    let (roster, keyring) = (&roster, &self.keyring);
                    builder.spawn_scoped(scope, move || serving.run(handler, keyring, roster)).map(drop)
                },
                &roster,
            );
            roster.end_all();
            result
        })
    }

    fn accept_all(&self, spawn: impl Fn(Serving) -> io::Result<()>, roster: &Roster) -> io::Result<()> {
        let mut pause: Option<Timespec> = None;
        let mut crowded = false;
        loop {
            let mut watched = vec![PollFd::from_borrowed_fd(self.stop.waker.fd(), PollFlags::IN)];
            if pause.is_none() {
                watched
                    .extend(self.listeners.iter().map(|l| PollFd::from_borrowed_fd(l.fd(), PollFlags::IN)));
            }
            match poll(&mut watched, pause.take().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            if self.stop.is_stopped() {
                return Ok(());
            }
            let ready: Vec<bool> = watched.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
            for (listener, _) in self.listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
                let result = self.accept_one(listener, &spawn, roster);
                if result.is_err() {
                    pause = Some(ACCEPT_PAUSE);
                }
                self.tell(&result, &mut crowded);
            }
        }
    }

    /// Says once that accepting pauses, and once that it goes on.
    fn tell(&self, result: &io::Result<()>, crowded: &mut bool) {
        match result {
            Err(e) if !std::mem::replace(crowded, true) => {
                let text = format_args!("accepting pauses: {e}; raise the limits of open files and threads");
                self.log.line("this service", text);
            }
            Ok(()) if std::mem::take(crowded) => self.log.line("this service", "accepts connections again"),
            _ => {}
        }
    }

    fn accept_one(
        &self,
        listener: &Listener,
        spawn: &impl Fn(Serving) -> io::Result<()>,
        roster: &Roster,
    ) -> io::Result<()> {
        while let Some((fd, info)) = listener.accept(false)? {
            let serving = roster.enter(fd, info);
            let id = serving.id();
            spawn(serving).inspect_err(|_| roster.leave(id))?;
        }
        Ok(())
    }
}
