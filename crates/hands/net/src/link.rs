//! The blocking side that asks: mounts, couriers, commands.

use crate::error::Cause;
use crate::handshake::{CLOSED_KEYS_HINT, Initiator};
use crate::inbound::Inbound;
use crate::memory::{Memory, Slots};
use crate::outbound::Outbound;
use crate::socket::{Patience, SLICE};
use crate::{Endpoint, Keyring, NetError, PeerInfo, socket};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use skep_wire::{Header, Hello, Protection, SHARED_MEMORY, Welcome};
use std::time::{Duration, Instant};

/// A peer that takes nothing of a frame for this long is given up.
pub const SEND_DEADLINE: Duration = Duration::from_secs(30);
/// Waiting one-way frames are sent once they take this many bytes.
const POSTED_MAX: usize = 64 << 10;

#[derive(Debug)]
pub struct Frame<'a> {
    /// Its header; `payload_len` tells how much of `into` was filled.
    pub header: Header,
    pub body: &'a [u8],
}

/// One connection to a service.
pub struct Link {
    fd: OwnedFd,
    info: PeerInfo,
    welcome: Welcome,
    group: u32,
    inbound: Inbound,
    outbound: Outbound,
    /// Memory that the service has mapped, too.
    pub(crate) slots: Option<Slots>,
    patience: Duration,
    /// Its socket waits; not when whoever had it last drove it by a ring.
    waits: bool,
}

/// What a link is made of, for those that drive it otherwise.
pub(crate) struct Parts {
    pub(crate) fd: OwnedFd,
    pub(crate) info: PeerInfo,
    pub(crate) welcome: Welcome,
    pub(crate) group: u32,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) slots: Option<Slots>,
    pub(crate) waits: bool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.info.address)
    }
}

impl Link {
    /// Connects to the first of `endpoints` that answers (see [`crate::choose`]) and shakes hands.
    /// The time until `deadline` is shared among them. The error is that of the endpoint that came furthest.
    pub fn connect(
        endpoints: &[Endpoint],
        keyring: &Keyring,
        hello: &Hello,
        deadline: Instant,
    ) -> Result<Self, NetError> {
        Self::connect_unless(endpoints, keyring, hello, deadline, &|| false)
    }

    /// As [`Link::connect`]; `gives_up` is asked every 100 ms.
    pub fn connect_unless(
        endpoints: &[Endpoint],
        keyring: &Keyring,
        hello: &Hello,
        deadline: Instant,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Self, NetError> {
        let mut told: Option<NetError> = None;
        for (at, endpoint) in endpoints.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let until = Instant::now() + left / (endpoints.len() - at) as u32;
            match Self::connect_one(endpoint, keyring, hello, Patience { until, gives_up }) {
                Ok(link) => return Ok(link),
                Err(_) if gives_up() => return Err(NetError::new(endpoint.to_string(), Cause::Cancelled)),
                Err(e) if told.is_none() || !matches!(e.cause, Cause::Unreachable(_)) => told = Some(e),
                Err(_) => {}
            }
        }
        Err(told.unwrap_or_else(|| {
            let none = std::io::Error::other("no address that can be used from this machine is known");
            NetError::new("the service", Cause::Unreachable(none))
        }))
    }

    fn connect_one(
        endpoint: &Endpoint,
        keyring: &Keyring,
        hello: &Hello,
        patience: Patience<'_>,
    ) -> Result<Self, NetError> {
        if let Some(cause) = Initiator::impossible(keyring, hello) {
            return Err(NetError::new(endpoint.to_string(), cause));
        }
        let (fd, info) = socket::connect(endpoint, patience)?;
        let fail = |cause| NetError::new(info.address.clone(), cause);
        let (hello, memory) = offer(hello, info.protection);
        let (initiator, first) = Initiator::begin(keyring, &hello, info.protection).map_err(fail)?;
        let mut outbound = Outbound::new(None);
        let (memory, descriptor) = memory.unzip();
        outbound.raw(&first[socket::send_beside(fd.as_fd(), &first, descriptor).map_err(fail)?..]);
        outbound.flush(fd.as_fd(), &mut || Err(Cause::TimedOut)).map_err(fail)?;
        let mut length = [0; 2];
        read_exact(&fd, &mut length, patience).map_err(fail)?;
        let mut answer = vec![0; Initiator::follow(length).map_err(fail)?];
        read_exact(&fd, &mut answer, patience).map_err(fail)?;
        let (welcome, seals, confirmation) = initiator.finish(&answer).map_err(fail)?;
        // At once, not with the first request: the other side counts the connection as half open until then.
        outbound.raw(&confirmation);
        outbound.flush(fd.as_fd(), &mut || Err(Cause::TimedOut)).map_err(fail)?;
        socket::set_slices(fd.as_fd(), SLICE).map_err(|e| fail(Cause::Io(e)))?;
        let (mut inbound, outbound) = (Inbound::new(seals.receive), Outbound::new(seals.send));
        let slots = memory.filter(|_| welcome.features & SHARED_MEMORY != 0).map(Slots::new);
        inbound.share(slots.as_ref().map_or(0, Slots::count));
        Ok(Self {
            fd,
            info,
            welcome,
            group: hello.group,
            inbound,
            outbound,
            slots,
            patience: SEND_DEADLINE,
            waits: true,
        })
    }

    pub(crate) fn into_parts(self) -> Parts {
        let Self { fd, info, welcome, group, inbound, outbound, slots, waits, .. } = self;
        Parts { fd, info, welcome, group, inbound, outbound, slots, waits }
    }

    /// Puts it together again. It cannot be used as it is when its socket does not wait.
    pub(crate) fn from_parts(parts: Parts) -> Self {
        let Parts { fd, info, welcome, group, inbound, outbound, slots, waits } = parts;
        Self { fd, info, welcome, group, inbound, outbound, slots, patience: SEND_DEADLINE, waits }
    }

    /// Makes it wait again, after a ring has had it.
    pub fn waiting(mut self) -> Result<Self, NetError> {
        if !self.waits {
            rustix::io::ioctl_fionbio(&self.fd, false).map_err(|e| self.fail(e.into()))?;
            self.waits = true;
        }
        Ok(self)
    }

    /// Its connection group.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// What the service said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The address that was connected to.
    pub fn peer(&self) -> &PeerInfo {
        &self.info
    }

    /// May the link still be used? Not after a failure in the middle of a frame.
    pub fn is_usable(&self) -> bool {
        !self.inbound.is_broken() && !self.outbound.is_broken()
    }

    /// Gives a peer that takes nothing this time instead of [`SEND_DEADLINE`].
    pub fn set_send_deadline(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends a request (and the posted frames before it). Header fields that describe the connection
    /// or the payload (group, lengths, checksums) are filled in here.
    pub fn send(&mut self, header: &Header, body: &[u8], payload: &[u8]) -> Result<(), NetError> {
        self.ask(header, body, payload, 0)
    }

    /// As [`Link::send`], where the answer has a payload of at most `room` bytes: what is long goes by the memory that is
    /// shared, if it is.
    pub fn ask(&mut self, header: &Header, body: &[u8], payload: &[u8], room: usize) -> Result<(), NetError> {
        let header = Header { group: self.group, slot: 0, ..*header };
        let (header, payload) = match &mut self.slots {
            Some(slots) => slots.place(header, body, payload, room),
            None => (header, payload),
        };
        let mut wait = patience(self.patience);
        self.outbound
            .send(self.fd.as_fd(), &header, body, payload, &mut wait)
            .map_err(|cause| self.fail(cause))
    }

    /// Queues a one-way frame; it goes out with the next request, or by [`Link::flush`].
    pub fn post(&mut self, header: &Header, body: &[u8]) -> Result<(), NetError> {
        let header = Header { group: self.group, slot: 0, flags: skep_wire::Flags::ONE_WAY, ..*header };
        self.outbound.queue(&header, body, &[]).map_err(|cause| self.fail(cause))?;
        if self.outbound.bytes().len() > POSTED_MAX { self.flush() } else { Ok(()) }
    }

    /// Sends the posted frames.
    pub fn flush(&mut self) -> Result<(), NetError> {
        self.outbound.flush(self.fd.as_fd(), &mut patience(self.patience)).map_err(|cause| self.fail(cause))
    }

    /// Waits for the next answer; its payload lands in `into`. `cancelled` is asked every 100 ms.
    ///
    /// After a timeout or a cancellation the link can be used further as long as [`Link::is_usable`];
    /// the late answer will come with the number of its request.
    pub fn recv(
        &mut self,
        into: &mut [u8],
        deadline: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Frame<'_>, NetError> {
        let mut wait = |_| {
            if cancelled() {
                return Err(Cause::Cancelled);
            }
            if Instant::now() >= deadline { Err(Cause::TimedOut) } else { Ok(()) }
        };
        match receive(&self.fd, &mut self.inbound, &mut self.slots, into, &mut wait) {
            Ok((header, body)) => Ok(Frame { header, body: self.inbound.body(body) }),
            Err(cause) => Err(self.fail(cause)),
        }
    }

    fn fail(&self, cause: Cause) -> NetError {
        NetError::new(self.info.address.clone(), cause)
    }
}

/// What this side says of itself on this kind of socket, and the memory that it offers.
fn offer(hello: &Hello, protection: Protection) -> (Hello, Option<(Memory, OwnedFd)>) {
    let wanted = protection == Protection::Local && hello.features & SHARED_MEMORY != 0;
    // Whatever keeps it from making some (a limit, a filter of system calls): the socket carries everything.
    let memory = if wanted { Memory::make().ok() } else { None };
    let bit = if memory.is_some() { SHARED_MEMORY } else { 0 };
    (Hello { features: hello.features & !SHARED_MEMORY | bit, ..hello.clone() }, memory)
}

fn receive(
    fd: &OwnedFd,
    inbound: &mut Inbound,
    slots: &mut Option<Slots>,
    into: &mut [u8],
    wait: &mut crate::inbound::Wait<'_>,
) -> Result<(Header, std::ops::Range<usize>), Cause> {
    let announced = inbound.head(fd.as_fd(), wait)?;
    let (got, room) = (announced.header.payload_len as usize, into.len());
    let Some(into) = into.get_mut(..got) else {
        inbound.give_up();
        return Err(Cause::PayloadTooLong { got, room });
    };
    let body = inbound.payload(fd.as_fd(), &announced, &mut into[..announced.payload_len()], wait)?;
    if let Some(slots) = slots {
        slots.answered(&announced.header, into).inspect_err(|_| inbound.give_up())?;
    }
    Ok((announced.header, body))
}

/// Allows `limit` from now.
fn patience(limit: Duration) -> impl FnMut() -> Result<(), Cause> {
    let since = Instant::now();
    move || if since.elapsed() >= limit { Err(Cause::TimedOut) } else { Ok(()) }
}

fn read_exact(fd: &OwnedFd, into: &mut [u8], patience: Patience<'_>) -> Result<(), Cause> {
    let mut done = 0;
    while done < into.len() {
        if !patience.wait(fd.as_fd(), PollFlags::IN).map_err(Cause::Io)? {
            return Err(Cause::TimedOut);
        }
        match rustix::io::read(fd, &mut into[done..]) {
            Ok(0) | Err(Errno::CONNRESET) => return Err(Cause::Handshake(CLOSED_KEYS_HINT.into())),
            Ok(n) => done += n,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
