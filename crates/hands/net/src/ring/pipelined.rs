//! One connection for all tasks of a thread: requests pipelined, answers matched by their number.

use crate::error::Cause;
use crate::frame::{Front, Whole, front};
use crate::link::Parts;
use crate::outbound::Outbound;
use crate::seal::Seal;
use crate::{Link, NetError, PeerInfo};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use skep_ring::Reactor;
use skep_types::limits::PAYLOAD_MAX;
use skep_wire::{Header, Welcome};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bytes asked for with one receive.
const READ_AHEAD: usize = 64 << 10;
/// Least room for one receive.
const READ_MIN: usize = 16 << 10;
/// A receive buffer extended for a long frame grows by this much at a time.
const GROW_MAX: usize = 1 << 20;

/// An answer, taken out of the link.
#[derive(Debug)]
pub struct Reply {
    pub header: Header,
    pub body: Vec<u8>,
    pub payload: Vec<u8>,
}

/// See the module. Clones are the same connection; it is closed with the last of them.
#[derive(Clone)]
pub struct SharedLink(Rc<Handle>);

/// Counts those who use the link; its two tasks do not.
struct Handle(Rc<Inner>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(Cause::Closed);
    }
}

struct Inner {
    fd: OwnedFd,
    info: PeerInfo,
    welcome: Welcome,
    group: u32,
    outbound: RefCell<Outbound>,
    /// The task that sends, when it has nothing to do.
    sender: Cell<Option<Waker>>,
    /// In the order of their numbers; as many as there are tasks that wait.
    asked: RefCell<Vec<Asked>>,
    next: Cell<u64>,
    ended: RefCell<Option<Cause>>,
}

/// A request on its way.
struct Asked {
    request: u64,
    waker: Option<Waker>,
    reply: Option<Reply>,
}

impl std::fmt::Debug for SharedLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedLink({})", self.0.0.info.address)
    }
}

impl SharedLink {
    /// Takes over a connected link; the reactor's thread is this one.
    pub fn new(reactor: &Reactor, link: Link) -> Self {
        let Parts { fd, info, welcome, group, inbound, outbound, .. } = link.into_parts();
        let (seal, ahead) = inbound.into_parts();
        let inner = Rc::new(Inner {
            fd,
            info,
            welcome,
            group,
            outbound: RefCell::new(outbound),
            sender: Cell::new(None),
            asked: RefCell::default(),
            next: Cell::new(1),
            ended: RefCell::new(None),
        });
        reactor.spawn(send_all(reactor.clone(), inner.clone()));
        reactor.spawn(receive_all(reactor.clone(), inner.clone(), seal, ahead));
        Self(Rc::new(Handle(inner)))
    }

    /// What the service said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.0.0.welcome
    }

    /// The address that was connected to.
    pub fn peer(&self) -> &PeerInfo {
        &self.0.0.info
    }

    /// May it still be asked?
    pub fn is_usable(&self) -> bool {
        self.0.0.ended.borrow().is_none()
    }

    /// Does nobody wait for an answer?
    pub fn is_idle(&self) -> bool {
        self.0.0.asked.borrow().is_empty()
    }

    /// Ends the connection: all who wait get an error.
    pub fn close(&self) {
        self.0.0.end(Cause::Closed);
    }

    /// Queues a request; what the tasks of one turn of the reactor ask goes out together. Header fields
    /// that describe the connection, the payload or the number of the request are filled in here.
    ///
    /// Dropping the result gives the request up: its answer is passed over when it comes, and the others
    /// are not disturbed.
    pub fn request(&self, header: &Header, body: &[u8], payload: &[u8]) -> Result<Pending, NetError> {
        let inner = &self.0.0;
        if let Some(cause) = inner.ended.borrow().as_ref() {
            return Err(inner.fail(cause.again()));
        }
        let request = inner.next.replace(inner.next.get() + 1);
        let header = Header { group: inner.group, request, slot: 0, ..*header };
        inner.outbound.borrow_mut().queue(&header, body, payload).map_err(|cause| inner.fail(cause))?;
        inner.asked.borrow_mut().push(Asked { request, waker: None, reply: None });
        if let Some(sender) = inner.sender.take() {
            sender.wake();
        }
        Ok(Pending { link: self.clone(), request })
    }
}

impl Inner {
    fn fail(&self, cause: Cause) -> NetError {
        NetError::new(self.info.address.clone(), cause)
    }

    /// Ends it, for the first reason that is given.
    fn end(&self, cause: Cause) {
        if self.ended.borrow().is_some() {
            return;
        }
        *self.ended.borrow_mut() = Some(cause);
        // The receive in flight returns; the descriptor is closed when both tasks have ended.
        let _ = shutdown(&self.fd, Shutdown::Both);
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
        for asked in self.asked.borrow_mut().iter_mut() {
            if let Some(waker) = asked.waker.take() {
                waker.wake();
            }
        }
    }

    fn arrived(&self, whole: &Whole, bytes: &[u8]) -> Result<(), Cause> {
        let request = whole.header.request;
        if request >= self.next.get() {
            return Err(Cause::Unasked);
        }
        let mut asked = self.asked.borrow_mut();
        let Ok(at) = asked.binary_search_by_key(&request, |asked| asked.request) else {
            return Ok(()); // given up
        };
        asked[at].reply = Some(Reply {
            header: whole.header,
            body: bytes[whole.body.clone()].to_vec(),
            payload: bytes[whole.payload.clone()].to_vec(),
        });
        if let Some(waker) = asked[at].waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Sends as much as the socket takes; `false`: it takes nothing at the moment.
    fn send_some(&self) -> Result<bool, Cause> {
        let mut outbound = self.outbound.borrow_mut();
        while !outbound.bytes().is_empty() {
            match send(&self.fd, outbound.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => outbound.advance(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Waits until there is something to send; `false` when the link has ended.
    async fn has_work(&self) -> bool {
        poll_fn(|cx| {
            if self.ended.borrow().is_some() {
                return Poll::Ready(false);
            }
            if !self.outbound.borrow().bytes().is_empty() {
                return Poll::Ready(true);
            }
            self.sender.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

/// The task that sends. It is woken behind the tasks that asked, so it finds what all of them want.
///
/// A plain system call: as an operation of the ring its completion would end the wait for the answer.
async fn send_all(reactor: Reactor, inner: Rc<Inner>) {
    while inner.has_work().await {
        match inner.send_some() {
            Ok(true) => {}
            Ok(false) => {
                if let Err(e) = reactor.writable(inner.fd.as_fd()).await {
                    return inner.end(Cause::from_io(e));
                }
            }
            Err(cause) => return inner.end(cause),
        }
    }
}

/// The task that receives; a receive is always armed.
async fn receive_all(reactor: Reactor, inner: Rc<Inner>, mut seal: Option<Seal>, ahead: Vec<u8>) {
    let mut buf = ahead;
    let mut end = buf.len();
    buf.resize(READ_AHEAD.max(end + READ_MIN), 0);
    loop {
        let (used, missing) = match take_frames(&inner, &buf[..end], &mut seal) {
            Ok(taken) => taken,
            Err(cause) => return inner.end(cause),
        };
        buf.copy_within(used..end, 0);
        end -= used;
        if end == 0 && buf.len() > READ_AHEAD {
            buf = vec![0; READ_AHEAD];
        }
        let wanted = end + missing.clamp(READ_MIN, GROW_MAX);
        if buf.len() < wanted {
            buf.resize(wanted, 0);
        }
        // Nothing can be there when nothing was asked.
        let quiet = inner.asked.borrow().is_empty();
        let (result, back) = match quiet {
            true => reactor.recv_later(inner.fd.as_fd(), buf, end).await,
            false => reactor.recv(inner.fd.as_fd(), buf, end).await,
        };
        buf = back;
        match result {
            Ok(0) => return inner.end(Cause::Closed),
            Ok(n) => end += n,
            Err(e) => return inner.end(Cause::from_io(e)),
        }
    }
}

/// Hands out the whole frames of `bytes`; gives the bytes used up, and how many the next frame lacks.
fn take_frames(inner: &Inner, bytes: &[u8], seal: &mut Option<Seal>) -> Result<(usize, usize), Cause> {
    let mut used = 0;
    loop {
        let rest = &bytes[used..];
        match front(rest, seal.as_mut(), PAYLOAD_MAX)? {
            Front::Part { of } => return Ok((used, of - rest.len())),
            Front::Frame(whole) => {
                inner.arrived(&whole, rest)?;
                used += whole.len;
            }
        }
    }
}

/// A request whose answer is awaited.
pub struct Pending {
    link: SharedLink,
    request: u64,
}

impl Future for Pending {
    type Output = Result<Reply, NetError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = &self.link.0.0;
        let mut all = inner.asked.borrow_mut();
        let place = all.binary_search_by_key(&self.request, |asked| asked.request);
        if let Ok(at) = place {
            if all[at].reply.is_none() && inner.ended.borrow().is_none() {
                let waker = &mut all[at].waker;
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
            if let Some(reply) = all.remove(at).reply {
                return Poll::Ready(Ok(reply));
            }
        }
        let ended = inner.ended.borrow();
        Poll::Ready(Err(inner.fail(ended.as_ref().map_or(Cause::Closed, Cause::again))))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut all = self.link.0.0.asked.borrow_mut();
        if let Ok(at) = all.binary_search_by_key(&self.request, |asked| asked.request) {
            all.remove(at);
        }
    }
}
