//! One connection of an event server.

use crate::handshake::Responder;
use crate::outbound::Outbound;
use crate::seal::Seal;
use crate::{Peer, PeerInfo};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use skep_types::Millis;
use skep_wire::Hello;

/// Where it is in its life.
pub(super) enum Phase {
    /// Within the handshake.
    Half {
        /// The state of it.
        responder: Responder,
        /// What the peer said, once it did.
        hello: Option<Box<Hello>>,
        /// Closed when it is not finished by then.
        deadline: Millis,
    },
    /// The peer is proven.
    Open(Box<Open>),
}

/// A proven peer.
pub(super) struct Open {
    pub(super) peer: Peer,
    pub(super) receive: Option<Seal>,
    /// The service was told of it.
    pub(super) announced: bool,
    /// Requests without an answer.
    pub(super) asked: u32,
    /// When the last answer was given; before the first one, since when it is open.
    pub(super) answered: Millis,
    /// Since when it is open.
    pub(super) since: Millis,
}

impl Open {
    /// At its beginning.
    pub(super) fn new(peer: Peer, receive: Option<Seal>) -> Self {
        let now = crate::now();
        Self { peer, receive, announced: false, asked: 0, answered: now, since: now }
    }

    /// An answer leaves.
    pub(super) fn answers(&mut self) {
        self.asked = self.asked.saturating_sub(1);
        if self.asked == 0 {
            self.answered = crate::now();
        }
    }
}

pub(super) struct Connection {
    pub(super) fd: OwnedFd,
    pub(super) info: PeerInfo,
    pub(super) phase: Phase,
    /// Bytes that arrived and are not used up: part of a frame, or requests beyond a round's share.
    pub(super) inbound: Vec<u8>,
    pub(super) outbound: Outbound,
    /// Is in the list of those with something to send.
    pub(super) dirty: bool,
    /// Has whole requests left over.
    pub(super) leftover: bool,
    /// Its left-over requests wait until it has read its replies.
    pub(super) parked: bool,
    /// It has taken nothing of what waits for it; closed when that is still so by then.
    pub(super) stalled: Option<Millis>,
    /// Closed as soon as everything is sent.
    pub(super) ending: bool,
    /// (reads, writes) that the kernel was asked to tell of.
    pub(super) watched: (bool, bool),
}

impl Connection {
    pub(super) fn new(fd: OwnedFd, info: PeerInfo) -> Self {
        let responder = Responder::new(info.protection);
        let deadline = crate::now().plus(crate::HANDSHAKE_DEADLINE.as_millis() as u64);
        Self {
            fd,
            info,
            phase: Phase::Half { responder, hello: None, deadline },
            inbound: Vec::new(),
            outbound: Outbound::new(None),
            dirty: false,
            leftover: false,
            parked: false,
            stalled: None,
            ending: false,
            watched: (true, false),
        }
    }

    /// Everything that was to be said is said.
    pub(super) fn is_finished(&self) -> bool {
        self.ending && self.outbound.bytes().is_empty()
    }

    /// Sends as much as the socket takes. An error closes the connection; its text goes to the log.
    pub(super) fn send_waiting(&mut self, limit: usize) -> Result<(), Option<&'static str>> {
        while !self.outbound.bytes().is_empty() {
            match send(&self.fd, self.outbound.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => {
                    self.outbound.advance(n);
                    self.stalled = None;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.outbound.bytes().len() > limit => {
                    return Err(Some("it does not read its replies"));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => return Err(None),
            }
        }
        Ok(())
    }
}
