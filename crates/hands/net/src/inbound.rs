//! Frames coming in on a blocking socket: small ones with one read, payloads straight to where they belong.

use crate::error::Cause;
use crate::frame::Announced;
use crate::seal::{MAC_LEN, Seal};
use crate::socket;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, readv};
use skep_ring::look_again;
use skep_wire::HEADER_LEN;
use std::io::IoSliceMut;
use std::ops::Range;

/// Bytes asked for with one read while no payload is due.
const READ_AHEAD: usize = 16 << 10;
/// A buffer that grew beyond this for a long body is given back.
const KEEP_MAX: usize = 4 * READ_AHEAD;

/// Asked whenever nothing came for one time slice; `true` = in the middle of a frame. Its error
/// ends the attempt.
pub(crate) type Wait<'a> = dyn FnMut(bool) -> Result<(), Cause> + 'a;

/// The receiving half of a connection.
pub(crate) struct Inbound {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the frame that was handed out last; they go when the next one is asked for.
    held: usize,
    seal: Option<Seal>,
    /// Of memory that the two sides share; 0 = they share none.
    slots: u32,
    /// A payload was begun and not finished: the place in the stream is lost.
    broken: bool,
    /// The payload begun, when the wait for more of it was interrupted.
    begun: Option<Begun>,
}

/// How far a payload is.
#[derive(Clone, Copy)]
struct Begun {
    /// Bytes of it that are where they belong.
    done: usize,
    /// Where what follows it lies in the buffer, from the start of the frame.
    tail: usize,
}

impl Inbound {
    pub(crate) fn new(seal: Option<Seal>) -> Self {
        Self {
            buf: vec![0; READ_AHEAD],
            start: 0,
            end: 0,
            held: 0,
            seal,
            slots: 0,
            broken: false,
            begun: None,
        }
    }

    /// Bytes that were read before this half took over; at most a handshake message's worth.
    pub(crate) fn preload(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.buf[..bytes.len()].copy_from_slice(bytes);
        self.end = bytes.len();
    }

    /// So many slots of memory are shared.
    pub(crate) fn share(&mut self, slots: u32) {
        self.slots = slots;
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The frame begun will not be finished: nothing more can be read.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
    }

    /// The seal, and what was read and not taken.
    pub(crate) fn into_parts(self) -> (Option<Seal>, Vec<u8>) {
        (self.seal, self.buf[self.start + self.held..self.end].to_vec())
    }

    /// Waits for the next header and body. May be called again after an error of `wait`.
    pub(crate) fn head(&mut self, fd: BorrowedFd<'_>, wait: &mut Wait<'_>) -> Result<Announced, Cause> {
        if let Some(announced) = self.ready_head()? {
            return Ok(announced);
        }
        if self.start == self.end {
            // Whatever is wrong the read meets as well.
            let _ = look_again(|| socket::is_readable(fd));
        }
        loop {
            if let Some(announced) = self.ready_head()? {
                return Ok(announced);
            }
            self.fill(fd, self.end - self.start + 1, wait)?;
        }
    }

    /// The next header and body, if they are there. Otherwise there is room for more of them behind.
    pub(crate) fn ready_head(&mut self) -> Result<Option<Announced>, Cause> {
        if self.broken {
            return Err(Cause::Broken);
        }
        self.start += std::mem::take(&mut self.held);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buf.len() > KEEP_MAX {
                self.buf = vec![0; READ_AHEAD];
            }
        }
        if self.end - self.start < HEADER_LEN {
            self.make_room(HEADER_LEN);
            return Ok(None);
        }
        let announced = Announced::read(&self.buf[self.start..self.end], self.slots)
            .inspect_err(|_| self.broken = true)?;
        let tail = if announced.payload_len() == 0 { self.mac_len() } else { 0 };
        let whole = announced.head_len() + tail;
        if self.end - self.start < whole {
            self.make_room(whole);
            return Ok(None);
        }
        Ok(Some(announced))
    }

    /// Lends the buffer to a ring, with the place to read to; [`Inbound::take_back`] follows.
    pub(crate) fn lend(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.buf), self.end)
    }

    /// The ring has read `n` bytes into the buffer lent.
    pub(crate) fn take_back(&mut self, buf: Vec<u8>, n: usize) {
        self.buf = buf;
        self.end += n;
    }

    /// Receives the payload of the frame whose head was just read into `into` (which must be exactly
    /// as long), and checks the whole frame. Gives the place of the body for [`Inbound::body`].
    /// After an error of `wait` it may be called again with the same arguments, and goes on.
    pub(crate) fn payload(
        &mut self,
        fd: BorrowedFd<'_>,
        announced: &Announced,
        into: &mut [u8],
        wait: &mut Wait<'_>,
    ) -> Result<Range<usize>, Cause> {
        self.broken = true; // until the end of the frame is reached
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => self.begin_payload(announced.head_len(), into),
        };
        let received = self.rest_of_payload(fd, &mut begun, into, wait);
        let received = received.and_then(|()| self.fill(fd, begun.tail + self.mac_len(), wait));
        if let Err(cause) = received {
            self.begun = Some(begun);
            return Err(cause);
        }
        let head = self.start..self.start + announced.head_len();
        let mac = self.start + begun.tail..self.start + begun.tail + self.mac_len();
        announced.check(&self.buf[head.clone()], into, &self.buf[mac], self.seal.as_mut())?;
        self.held = begun.tail + self.mac_len();
        self.broken = false;
        Ok(head.start + HEADER_LEN..head.end)
    }

    /// The bytes of a body; valid until the next head is asked for.
    pub(crate) fn body(&self, range: Range<usize>) -> &[u8] {
        &self.buf[range]
    }

    fn mac_len(&self) -> usize {
        if self.seal.is_some() { MAC_LEN } else { 0 }
    }

    /// Fills `into` from what was read ahead.
    fn begin_payload(&mut self, head_len: usize, into: &mut [u8]) -> Begun {
        let ahead = self.start + head_len..self.end;
        if ahead.len() >= into.len() {
            into.copy_from_slice(&self.buf[ahead.start..ahead.start + into.len()]);
            return Begun { done: into.len(), tail: head_len + into.len() };
        }
        let done = ahead.len();
        into[..done].copy_from_slice(&self.buf[ahead]);
        self.end = self.start + head_len;
        self.make_room(head_len + READ_AHEAD / 2);
        Begun { done, tail: head_len }
    }

    /// Reads the rest of a payload to its place; what follows it is read with it.
    fn rest_of_payload(
        &mut self,
        fd: BorrowedFd<'_>,
        begun: &mut Begun,
        into: &mut [u8],
        wait: &mut Wait<'_>,
    ) -> Result<(), Cause> {
        while begun.done < into.len() {
            let rest = &mut into[begun.done..];
            let room = rest.len();
            let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(&mut self.buf[self.end..])];
            match readv(fd, &mut slices) {
                Ok(0) => return Err(Cause::Closed),
                Ok(n) => {
                    let direct = n.min(room);
                    begun.done += direct;
                    self.end += n - direct;
                }
                Err(Errno::AGAIN) => wait(true)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Reads until at least `n` bytes of the frame are in the buffer.
    fn fill(&mut self, fd: BorrowedFd<'_>, n: usize, wait: &mut Wait<'_>) -> Result<(), Cause> {
        if self.end - self.start >= n {
            return Ok(());
        }
        self.make_room(n);
        while self.end - self.start < n {
            match rustix::io::read(fd, &mut self.buf[self.end..]) {
                Ok(0) => return Err(Cause::Closed),
                Ok(got) => self.end += got,
                Err(Errno::AGAIN) => wait(self.end > self.start)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Makes the buffer hold `n` bytes from the start of the frame on.
    fn make_room(&mut self, n: usize) {
        if self.start + n <= self.buf.len() {
            return;
        }
        self.buf.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if n > self.buf.len() {
            self.buf.resize(n, 0);
        }
    }
}
