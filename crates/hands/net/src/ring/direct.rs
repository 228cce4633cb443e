//! A connection that one task uses at a time; payloads go straight from and into its buffers.

use crate::error::Cause;
use crate::frame::Announced;
use crate::inbound::Inbound;
use crate::link::Parts;
use crate::memory::Slots;
use crate::outbound::Outbound;
use crate::{Frame, Link, NetError, PeerInfo};
use rustix::fd::{AsFd, OwnedFd};
use skep_ring::Reactor;
use skep_wire::{Header, Welcome};

/// See the module. A future of it that is dropped in the middle leaves it unusable.
pub struct DirectLink {
    reactor: Reactor,
    fd: OwnedFd,
    info: PeerInfo,
    welcome: Welcome,
    group: u32,
    inbound: Inbound,
    outbound: Outbound,
    slots: Option<Slots>,
    /// A future was begun and has not come to its end.
    within: bool,
}

impl std::fmt::Debug for DirectLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectLink({})", self.info.address)
    }
}

impl DirectLink {
    /// Takes over a connected link; the reactor's thread is this one.
    pub fn new(reactor: &Reactor, link: Link) -> Result<Self, NetError> {
        let Parts { fd, info, welcome, group, inbound, outbound, slots, waits } = link.into_parts();
        if waits {
            rustix::io::ioctl_fionbio(&fd, true)
                .map_err(|e| NetError::new(info.address.clone(), e.into()))?;
        }
        let reactor = reactor.clone();
        Ok(Self { reactor, fd, info, welcome, group, inbound, outbound, slots, within: false })
    }

    /// For whoever uses it next, on any thread.
    pub fn park(self) -> Link {
        let Self { fd, info, welcome, group, inbound, outbound, slots, .. } = self;
        Link::from_parts(Parts { fd, info, welcome, group, inbound, outbound, slots, waits: false })
    }

    /// What the service said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The address that was connected to.
    pub fn peer(&self) -> &PeerInfo {
        &self.info
    }

    /// Its connection group.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// May it still be used? Not after a failure, nor after something that was given up in the middle.
    pub fn is_usable(&self) -> bool {
        !self.within && !self.inbound.is_broken() && !self.outbound.is_broken()
    }

    /// Sends a request, the payload without a copy. Header fields that describe the connection or the
    /// payload are filled in here.
    pub async fn send(&mut self, header: &Header, body: &[u8], payload: &[u8]) -> Result<(), NetError> {
        self.ask(header, body, payload, 0).await
    }

    /// As [`DirectLink::send`]; see [`Link::ask`].
    pub async fn ask(
        &mut self,
        header: &Header,
        body: &[u8],
        payload: &[u8],
        room: usize,
    ) -> Result<(), NetError> {
        let header = Header { group: self.group, slot: 0, ..*header };
        let (header, payload) = match &mut self.slots {
            Some(slots) => slots.place(header, body, payload, room),
            None => (header, payload),
        };
        let mut sending = self.outbound.begin(&header, body, payload).map_err(|cause| self.fail(cause))?;
        self.within = true;
        loop {
            match self.outbound.push(self.fd.as_fd(), &mut sending, payload) {
                Ok(true) => break,
                Ok(false) => self.reactor.writable(self.fd.as_fd()).await.map_err(|e| self.failed(e))?,
                Err(cause) => return Err(self.fail(cause)),
            }
        }
        self.within = false;
        Ok(())
    }

    /// Waits for the next answer; its payload lands in `into`.
    pub async fn recv(&mut self, into: &mut [u8]) -> Result<Frame<'_>, NetError> {
        self.within = true;
        let announced = self.head().await?;
        self.rest(announced, into).await
    }

    /// As [`DirectLink::recv`], where only the answer to `request` can be next.
    pub async fn recv_of(&mut self, request: u64, into: &mut [u8]) -> Result<Frame<'_>, NetError> {
        self.within = true;
        let announced = self.head().await?;
        if announced.header.request != request {
            return Err(self.fail(Cause::Unasked));
        }
        self.rest(announced, into).await
    }

    async fn rest(&mut self, announced: Announced, into: &mut [u8]) -> Result<Frame<'_>, NetError> {
        let (got, room) = (announced.header.payload_len as usize, into.len());
        let Some(into) = into.get_mut(..got) else {
            return Err(self.fail(Cause::PayloadTooLong { got, room }));
        };
        let body = loop {
            let sent = &mut into[..announced.payload_len()];
            match self.inbound.payload(self.fd.as_fd(), &announced, sent, &mut |_| Err(Cause::TimedOut)) {
                Ok(body) => break body,
                Err(Cause::TimedOut) => {
                    self.reactor.readable(self.fd.as_fd()).await.map_err(|e| self.failed(e))?;
                }
                Err(cause) => return Err(self.fail(cause)),
            }
        };
        if let Some(slots) = &mut self.slots
            && let Err(cause) = slots.answered(&announced.header, into)
        {
            return Err(self.fail(cause));
        }
        self.within = false;
        Ok(Frame { header: announced.header, body: self.inbound.body(body) })
    }

    /// Header and body arrive by the ring, in the buffer of the link, and what follows them with it.
    async fn head(&mut self) -> Result<Announced, NetError> {
        loop {
            match self.inbound.ready_head() {
                Ok(Some(announced)) => return Ok(announced),
                Ok(None) => {}
                Err(cause) => return Err(self.fail(cause)),
            }
            let (buf, from) = self.inbound.lend();
            let (result, buf) = self.reactor.recv_later(self.fd.as_fd(), buf, from).await;
            match result {
                Ok(0) => return Err(self.fail(Cause::Closed)),
                Ok(n) => self.inbound.take_back(buf, n),
                Err(e) => return Err(self.failed(e)),
            }
        }
    }

    fn fail(&self, cause: Cause) -> NetError {
        NetError::new(self.info.address.clone(), cause)
    }

    fn failed(&self, error: std::io::Error) -> NetError {
        self.fail(Cause::from_io(error))
    }
}
