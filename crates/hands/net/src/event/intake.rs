//! What arrives on the connections of an event server.

use super::connection::{Connection, Open, Phase};
use super::{ConnId, EventServer, Service};
use crate::Peer;
use crate::error::Cause;
use crate::frame::{Front, front};
use crate::handshake::Progress;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use skep_wire::{Flags, Refusal, SHARED_MEMORY, Status};

/// Least room for one read.
const READ_MIN: usize = 64 << 10;
/// Most room for one read: more of a long frame is read in the next round.
const READ_MAX: usize = 1 << 20;

/// What became of the bytes at hand.
enum Taken {
    /// So many were used up; more must arrive, this many at least.
    Part { used: usize, missing: usize },
    /// So many were used up; whole requests are left.
    More { used: usize },
}

impl EventServer {
    /// Reads once and serves what is whole.
    pub(super) fn readable<S: Service>(&mut self, id: ConnId, service: &mut S) {
        let Some(connection) = self.table.get(id) else { return };
        if connection.leftover || !connection.watched.0 {
            return; // its requests are ahead of what the socket holds, or it must read its replies first
        }
        let own = !connection.inbound.is_empty();
        let mut buf = std::mem::take(if own { &mut connection.inbound } else { &mut self.scratch });
        if buf.capacity() - buf.len() < READ_MIN {
            buf.reserve(READ_MIN);
        }
        let got = recv(&connection.fd, spare_capacity(&mut buf), RecvFlags::DONTWAIT);
        let why = match got {
            Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT) => {
                Some(match connection.phase {
                    Phase::Half { .. } => Some("it left within the handshake"),
                    Phase::Open(_) => None,
                })
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(Some("the socket failed")),
        };
        if let Some(why) = why {
            self.close(id, why, service);
        } else {
            buf = self.take_in(id, buf, own, service);
        }
        if !own {
            buf.clear();
            self.scratch = buf;
        }
    }

    /// Serves the requests that were left over from the last round.
    pub(super) fn requests_left_over<S: Service>(&mut self, id: ConnId, service: &mut S) {
        let Some(connection) = self.table.get(id) else { return };
        if !connection.watched.0 {
            connection.parked = true;
            return;
        }
        connection.leftover = false;
        let buf = std::mem::take(&mut connection.inbound);
        self.take_in(id, buf, true, service);
    }

    /// Uses up what is whole in `buf`, keeps the rest with the connection (`own`: in this very
    /// buffer). Gives the buffer back when the connection does not keep it.
    fn take_in<S: Service>(&mut self, id: ConnId, mut buf: Vec<u8>, own: bool, service: &mut S) -> Vec<u8> {
        let taken = match self.serve(id, &buf, service) {
            Ok(taken) => taken,
            Err(why) => {
                self.end(id, &why, service);
                return buf;
            }
        };
        let Some(connection) = self.table.get(id) else { return buf };
        let (used, missing) = match taken {
            Taken::Part { used, missing } => (used, missing),
            Taken::More { used } => (used, 0),
        };
        if matches!(taken, Taken::More { .. }) {
            connection.leftover = true;
            self.leftover.push(id);
        }
        if used == buf.len() {
            return buf;
        }
        if own {
            buf.drain(..used);
            connection.inbound = buf;
            buf = Vec::new();
        } else {
            connection.inbound = buf[used..].to_vec();
        }
        // Announced length is room for one read only: memory follows what really arrives.
        connection.inbound.reserve(missing.clamp(READ_MIN, READ_MAX));
        buf
    }

    fn serve<S: Service>(&mut self, id: ConnId, buf: &[u8], service: &mut S) -> Result<Taken, String> {
        let mut used = 0;
        if self.table.get(id).is_some_and(|c| matches!(c.phase, Phase::Half { .. })) {
            used = self.shake(id, buf, service)?;
        }
        let Some(connection) = self.table.get(id) else { return Ok(Taken::Part { used, missing: 0 }) };
        let Connection { phase: Phase::Open(open), ending: false, .. } = connection else {
            return Ok(Taken::Part { used, missing: 0 });
        };
        let Open { peer, receive, asked, .. } = &mut **open;
        for _ in 0..self.limits.requests_per_round {
            let rest = &buf[used..];
            if rest.is_empty() {
                return Ok(Taken::Part { used, missing: 0 });
            }
            match front(rest, receive.as_mut(), self.limits.payload)
                .map_err(|cause: Cause| cause.to_string())?
            {
                Front::Part { of } => return Ok(Taken::Part { used, missing: of - rest.len() }),
                Front::Frame(whole) => {
                    used += whole.len;
                    *asked += u32::from(!whole.header.flags.has(Flags::ONE_WAY));
                    service.request(id, peer, &whole.header, &rest[whole.body], &rest[whole.payload]);
                }
            }
        }
        Ok(if used < buf.len() { Taken::More { used } } else { Taken::Part { used, missing: 0 } })
    }

    /// Goes on with the handshake; gives the bytes used up.
    fn shake<S: Service>(&mut self, id: ConnId, buf: &[u8], service: &mut S) -> Result<usize, String> {
        let full = self.is_full();
        let Some(connection) = self.table.get(id) else { return Ok(0) };
        let Connection { info, phase, outbound, ending, .. } = connection;
        let Phase::Half { responder, hello, .. } = phase else { return Ok(0) };
        let (used, progress) = match responder.advance(buf, &self.keyring) {
            Ok(step) => step,
            Err(failure) => {
                outbound.raw(&failure.farewell());
                return Err(failure.text);
            }
        };
        match progress {
            Progress::More => Ok(used),
            Progress::Hello(said) => {
                let mut verdict = match full {
                    true => Err(full_house(self.limits.connections)),
                    false => service.hello(&said, info),
                };
                if let Ok(welcome) = &mut verdict {
                    // Nobody here takes the descriptor that may have come with the hello.
                    welcome.features &= !SHARED_MEMORY;
                }
                outbound.raw(&responder.answer(&verdict).map_err(|failure| failure.text)?);
                if let Err(refusal) = &verdict {
                    *ending = true;
                    self.log.line(&info.host, format_args!("connection {} refused: {refusal}", info.address));
                }
                *hello = Some(said);
                self.table.mark_dirty(id);
                self.shake_on(id, buf, used, verdict.is_ok(), service)
            }
            Progress::Open(seals) => {
                let Some(hello) = hello.take() else { return Err("handshake out of order".into()) };
                let peer = Peer { hello: *hello, info: info.clone() };
                outbound.seal(seals.send);
                *phase = Phase::Open(Box::new(Open::new(peer, seals.receive)));
                self.admit(id, service)?;
                Ok(used)
            }
        }
    }

    /// The confirmation may have arrived together with the hello (it cannot from an honest peer, which
    /// needs the answer first); after a refusal nothing more is read.
    fn shake_on<S: Service>(
        &mut self,
        id: ConnId,
        buf: &[u8],
        used: usize,
        welcome: bool,
        service: &mut S,
    ) -> Result<usize, String> {
        if welcome && used < buf.len() {
            return Ok(used + self.shake(id, &buf[used..], service)?);
        }
        Ok(if welcome { used } else { buf.len() })
    }

    /// Is there no place, and will nobody make room?
    fn is_full(&self) -> bool {
        self.table.open() >= self.limits.connections && self.table.had_its_turn(self.limits.turn).is_none()
    }

    /// A proven peer takes its place, at the limit that of one that had its turn; an older connection of the same lane ends
    /// before anything is served.
    fn admit<S: Service>(&mut self, id: ConnId, service: &mut S) -> Result<(), String> {
        let Some(Connection { phase: Phase::Open(open), .. }) = self.table.get(id) else { return Ok(()) };
        let (lane, rank) = (open.peer.lane(), open.peer.rank());
        let older = lane.and_then(|lane| self.table.in_lane(lane));
        let late = older.is_some_and(|(present, _)| present >= rank);
        self.table.opened(id, lane.filter(|_| !late), rank);
        if late {
            return Err("a newer connection of the same client and group is already open".into());
        }
        if let Some((_, older)) = older {
            self.close(older, None, service);
        }
        let limit = self.limits.connections;
        if self.table.open() > limit {
            let other =
                self.table.had_its_turn(self.limits.turn).ok_or_else(|| full_house(limit).to_string())?;
            let why = format!("it makes room for another: all {limit} of `max_connections` are in use");
            self.close(other, Some(&why), service);
        }
        if let Some(Connection { phase: Phase::Open(open), .. }) = self.table.get(id) {
            open.announced = true;
            service.opened(id, &open.peer);
        }
        Ok(())
    }

    /// Ends a connection that did not behave, after what it still should be told.
    fn end<S: Service>(&mut self, id: ConnId, why: &str, service: &mut S) {
        if let Some(connection) = self.table.get(id) {
            let _ = connection.send_waiting(usize::MAX);
        }
        self.close(id, Some(why), service);
    }
}

/// The refusal of one connection too many.
pub(crate) fn full_house(limit: usize) -> Refusal {
    let text = format!("this service has reached its limit of {limit} connections: raise `max_connections`");
    Refusal::with(Status::BUSY, text)
}
