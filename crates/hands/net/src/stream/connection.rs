//! The thread of one connection.

use super::roster::{Number, Roster, Seat, Share};
use super::{Answer, Handler};
use crate::error::Cause;
use crate::event::full_house;
use crate::handshake::{HANDSHAKE_DEADLINE, HANDSHAKE_MESSAGE_MAX, PREAMBLE_LEN, Progress, Responder};
use crate::inbound::Inbound;
use crate::memory::Memory;
use crate::outbound::Outbound;
use crate::seal::Seals;
use crate::{Keyring, Payload, Peer, PeerInfo, socket};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::geteuid;
use skep_wire::{Flags, Header, HeaderError, Protection, Refusal, SHARED_MEMORY, Status, Welcome};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An idle connection gives its payload memory back after this time; then it sleeps until something comes.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// A request that has begun to arrive must be there within this time.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// A connection that was accepted.
pub(super) struct Serving {
    pub(super) number: Number,
    pub(super) seat: Arc<Seat>,
    pub(super) info: PeerInfo,
    /// See [`super::StreamLimits::stalled`].
    pub(super) stalled: Duration,
}

/// A peer that has shown who it is.
struct Met<'a> {
    peer: Peer,
    seals: Seals,
    /// What was read beyond the handshake.
    ahead: Vec<u8>,
    memory: Option<(Memory, Share<'a>)>,
}

/// How a connection ended: with a line for the log, or quietly.
type Ended = Option<String>;

impl Serving {
    pub(super) fn id(&self) -> Number {
        self.number
    }

    /// From the handshake to the end.
    pub(super) fn run<H: Handler>(self, handler: &H, keyring: &Keyring, roster: &Roster) {
        if let Err(Some(why)) = self.serve(handler, keyring, roster) {
            roster.log.line(&self.info.host, format_args!("connection {} closed: {why}", self.info.address));
        }
        roster.leave(self.number);
    }

    fn serve<H: Handler>(&self, handler: &H, keyring: &Keyring, roster: &Roster) -> Result<(), Ended> {
        let Met { peer, seals, ahead, memory } = self.shake(handler, keyring, roster)?;
        if !roster.admit(self.number, peer.lane(), peer.rank()) {
            return Err(Some("a newer connection of the same client and group is already open".into()));
        }
        let mut inbound = Inbound::new(seals.receive);
        inbound.preload(&ahead);
        let mut outbound = Outbound::new(seals.send);
        let mut payload = Payload::counted(roster.budget.clone())
            .map_err(|e| Some(format!("no memory for its payloads: {e}")))?;
        let (memory, _share) = memory.unzip();
        if let Some(memory) = memory {
            inbound.share(memory.slots());
            payload.share(memory);
        }
        let slice = IDLE_AFTER.min(self.stalled);
        socket::set_slices(self.seat.fd.as_fd(), slice).map_err(|e| Some(e.to_string()))?;
        let result = loop {
            match self.one(handler, &peer, &mut inbound, &mut outbound, &mut payload) {
                Ok(()) => {}
                Err(Cause::Closed | Cause::Cancelled) => break Ok(()),
                Err(cause) => break Err(Some(cause.to_string())),
            }
        };
        handler.closed(&peer);
        result
    }

    /// Serves one request.
    fn one<H: Handler>(
        &self,
        handler: &H,
        peer: &Peer,
        inbound: &mut Inbound,
        outbound: &mut Outbound,
        payload: &mut Payload,
    ) -> Result<(), Cause> {
        let fd = self.seat.fd.as_fd();
        let mut begun: Option<Instant> = None;
        self.seat.set_idle(true);
        let announced = inbound.head(fd, &mut |within| self.wait_for_request(within, &mut begun, payload))?;
        self.seat.set_idle(false);
        let header = announced.header;
        let into = match header.slot {
            0 => payload.room(announced.payload_len()),
            slot if payload.lend(slot, header.payload_len as usize) => &mut [],
            slot => return Err(HeaderError::Slot(slot).into()),
        };
        let since = Instant::now();
        let body = inbound.payload(fd, &announced, into, &mut |_| self.patience(since, REQUEST_DEADLINE))?;
        if self.seat.is_ended() {
            return Err(Cause::Cancelled);
        }
        let answer = handler.handle(peer, &header, inbound.body(body), payload);
        let result = match header.flags.has(Flags::ONE_WAY) {
            true => Ok(()),
            false => self.reply(handler, &header, &answer, outbound, payload),
        };
        payload.finish();
        result
    }

    fn reply<H: Handler>(
        &self,
        handler: &H,
        request: &Header,
        answer: &Answer,
        outbound: &mut Outbound,
        payload: &Payload,
    ) -> Result<(), Cause> {
        let mut header = Header { status: answer.status, epoch: handler.epoch(), ..request.reply() };
        let mut bytes = payload.bytes().get(..answer.payload).ok_or(Cause::TooLong)?;
        if payload.slot() != 0 && answer.payload > 0 {
            header = Header { slot: payload.slot(), payload_len: answer.payload as u32, ..header };
            bytes = &[];
        }
        let since = Instant::now();
        outbound.send(self.seat.fd.as_fd(), &header, &answer.body, bytes, &mut || {
            self.patience(since, self.stalled)
        })
    }

    /// Nothing came for a while.
    fn wait_for_request(
        &self,
        within: bool,
        begun: &mut Option<Instant>,
        payload: &mut Payload,
    ) -> Result<(), Cause> {
        if within {
            // The first slice of the wait is over already.
            let since = *begun.get_or_insert_with(|| Instant::now() - IDLE_AFTER.min(self.stalled));
            return self.patience(since, REQUEST_DEADLINE);
        }
        if self.seat.is_ended() {
            return Err(Cause::Cancelled);
        }
        payload.give_back();
        match poll(&mut [PollFd::new(&self.seat.fd, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn patience(&self, since: Instant, limit: Duration) -> Result<(), Cause> {
        match () {
            () if self.seat.is_ended() => Err(Cause::Cancelled),
            () if since.elapsed() >= limit => Err(Cause::TimedOut),
            () => Ok(()),
        }
    }

    /// The handshake, within its deadline. Gives what was read beyond it, too.
    fn shake<'a, H: Handler>(
        &self,
        handler: &H,
        keyring: &Keyring,
        roster: &'a Roster,
    ) -> Result<Met<'a>, Ended> {
        let until = Instant::now() + HANDSHAKE_DEADLINE;
        let mut responder = Responder::new(self.info.protection);
        let (mut hello, mut memory, mut beside) = (None, None, None);
        let mut buf = Vec::with_capacity(PREAMBLE_LEN + HANDSHAKE_MESSAGE_MAX);
        loop {
            let (used, progress) = responder.advance(&buf, keyring).map_err(|failure| {
                let _ = self.say(&failure.farewell());
                Some(failure.text)
            })?;
            buf.drain(..used);
            match progress {
                Progress::More => self.read_some(&mut buf, &mut beside, until)?,
                Progress::Hello(said) => {
                    let peer = Peer { hello: *said, info: self.info.clone() };
                    let mut verdict = match self.refusal(&peer, roster) {
                        Some(refusal) => Err(refusal),
                        None => handler.hello(&peer.hello, &self.info),
                    };
                    if let Ok(welcome) = &mut verdict {
                        memory = self.memory(&peer, welcome, beside.take(), roster);
                    }
                    let answer = responder.answer(&verdict).map_err(|failure| Some(failure.text))?;
                    self.say(&answer)?;
                    if let Err(refusal) = verdict {
                        return Err(Some(format!("refused: {refusal}")));
                    }
                    hello = Some(peer);
                }
                Progress::Open(seals) => {
                    let peer = hello.ok_or_else(|| Some("handshake out of order".to_owned()))?;
                    return Ok(Met { peer, seals, ahead: buf, memory });
                }
            }
        }
    }

    /// The memory that the peer brought, where both it and the service want it; the welcome says whether it is mapped.
    fn memory<'a>(
        &self,
        peer: &Peer,
        welcome: &mut Welcome,
        brought: Option<OwnedFd>,
        roster: &'a Roster,
    ) -> Option<(Memory, Share<'a>)> {
        let wanted = peer.hello.features & welcome.features & SHARED_MEMORY != 0;
        welcome.features &= !SHARED_MEMORY;
        let local = self.info.protection == Protection::Local;
        let brought = brought.filter(|_| wanted && local)?;
        let share = roster.share()?;
        match Memory::accept(&brought) {
            Ok(memory) => {
                welcome.features |= SHARED_MEMORY;
                Some((memory, share))
            }
            Err(why) => {
                let text = format_args!("{}: its memory is not used: {why}", self.info.address);
                roster.log.line(&self.info.host, text);
                None
            }
        }
    }

    fn refusal(&self, peer: &Peer, roster: &Roster) -> Option<Refusal> {
        if roster.is_full(peer.lane()) {
            return Some(full_house(roster.limits.connections));
        }
        let text = "a newer connection of the same client and group is already open";
        roster.is_late(peer.lane(), peer.rank()).then(|| Refusal::with(Status::OLD_SEQUENCE, text))
    }

    /// Handshake messages are far shorter than any socket buffer, so this does not wait.
    fn say(&self, bytes: &[u8]) -> Result<(), Ended> {
        let mut outbound = Outbound::new(None);
        outbound.raw(bytes);
        outbound
            .flush(self.seat.fd.as_fd(), &mut || Err(Cause::TimedOut))
            .map_err(|cause| Some(cause.to_string()))
    }

    /// A descriptor that comes with the bytes lies in `beside` then.
    fn read_some(
        &self,
        buf: &mut Vec<u8>,
        beside: &mut Option<OwnedFd>,
        until: Instant,
    ) -> Result<(), Ended> {
        let fd = self.seat.fd.as_fd();
        if !socket::wait_until(fd, PollFlags::IN, until).map_err(|e| Some(e.to_string()))? {
            return Err(Some("handshake not finished in time".into()));
        }
        let mut piece = [0; HANDSHAKE_MESSAGE_MAX];
        // Whoever may not be trusted with it could pass something on that is never closed again.
        let read = match self.info.uid {
            Some(uid) if (uid == 0 || uid == geteuid().as_raw()) && beside.is_none() => {
                socket::read_beside(fd, &mut piece)
            }
            _ => rustix::io::read(fd, &mut piece).map(|n| (n, None)),
        };
        match read {
            Ok((0, _)) if self.seat.is_ended() => {
                Err(Some("ended within the handshake: too many of them, or this service stops".into()))
            }
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(Some("it left within the handshake".into())),
            Ok((n, descriptor)) => {
                buf.extend_from_slice(&piece[..n]);
                *beside = descriptor.or(beside.take());
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(e) => Err(Some(e.to_string())),
        }
    }
}
