//! Frames on their way out: heads are gathered in a buffer, a payload goes from where it is.

use crate::error::Cause;
use crate::frame::checksum;
use crate::seal::{MAC_LEN, Seal};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use skep_types::limits::{BODY_MAX, PAYLOAD_MAX};
use skep_wire::Header;
use std::io::IoSlice;

/// A send buffer larger than this is given back when it is empty.
const KEEP_MAX: usize = 64 << 10;

/// The sending half of a connection.
pub(crate) struct Outbound {
    buf: Vec<u8>,
    /// Bytes of `buf` that were sent.
    sent: usize,
    seal: Option<Seal>,
    broken: bool,
}

impl Outbound {
    pub(crate) fn new(seal: Option<Seal>) -> Self {
        Self { buf: Vec::new(), sent: 0, seal, broken: false }
    }

    /// From here on frames are sealed.
    pub(crate) fn seal(&mut self, seal: Option<Seal>) {
        self.seal = seal;
    }

    /// A frame was begun and not sent to its end.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Bytes that wait to be sent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.sent..]
    }

    /// Appends bytes that are no frame (the handshake).
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Takes `n` sent bytes off.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
        if self.sent == self.buf.len() {
            self.sent = 0;
            self.buf.clear();
            if self.buf.capacity() > KEEP_MAX {
                self.buf = Vec::new();
            }
        }
    }

    /// Appends header and body; gives the MAC that must follow the payload.
    fn head(&mut self, header: &Header, body: &[u8], payload: &[u8]) -> Result<Option<[u8; MAC_LEN]>, Cause> {
        if body.len() > BODY_MAX || payload.len() > PAYLOAD_MAX {
            return Err(Cause::TooLong);
        }
        let at = self.buf.len();
        // What is sealed needs no weaker check beside it.
        let checksum = if self.seal.is_some() { 0 } else { checksum(payload) };
        // In a slot it is there already, and is not sent.
        let payload_len = if header.slot == 0 { payload.len() as u32 } else { header.payload_len };
        let header = Header { payload_len, payload_checksum: checksum, ..*header };
        header.encode_with(body, crc_fast::crc32_iscsi, &mut self.buf);
        self.seal.as_mut().map(|seal| seal.next(&self.buf[at..], payload)).transpose()
    }

    /// Appends a whole frame to what waits to be sent.
    pub(crate) fn queue(&mut self, header: &Header, body: &[u8], payload: &[u8]) -> Result<(), Cause> {
        let mac = self.head(header, body, payload)?;
        self.buf.extend_from_slice(payload);
        self.buf.extend_from_slice(mac.as_ref().map_or(&[], |mac| &mac[..]));
        Ok(())
    }

    /// Begins a frame whose payload goes out from where it is: everything up to it waits in the buffer.
    /// To be followed by [`Outbound::push`] until that says that all is sent.
    pub(crate) fn begin(&mut self, header: &Header, body: &[u8], payload: &[u8]) -> Result<Sending, Cause> {
        if self.broken {
            return Err(Cause::Broken);
        }
        let mac = self.head(header, body, payload)?;
        Ok(Sending { mac, sent: 0 })
    }

    /// Sends as much of it as the socket takes; `true` = all. `false` = it takes nothing at the moment.
    /// Until all is sent the connection counts as broken for everything else.
    pub(crate) fn push(
        &mut self,
        fd: BorrowedFd<'_>,
        sending: &mut Sending,
        payload: &[u8],
    ) -> Result<bool, Cause> {
        let waiting = self.buf.len() - self.sent;
        let mac = sending.mac.as_ref().map_or(&[][..], |mac| &mac[..]);
        let slices = &mut [IoSlice::new(&self.buf[self.sent..]), IoSlice::new(payload), IoSlice::new(mac)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, sending.sent);
        self.broken = true;
        while !rest.is_empty() {
            let mut nothing = SendAncillaryBuffer::default();
            match sendmsg(fd, rest, &mut nothing, SendFlags::NOSIGNAL) {
                Ok(n) => {
                    sending.sent += n;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.broken = false;
        self.advance(waiting);
        Ok(true)
    }

    /// Sends what waits and then this frame, the payload without a copy. `wait` is asked whenever
    /// the socket takes nothing for one time slice; its error ends the attempt and breaks the connection.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        header: &Header,
        body: &[u8],
        payload: &[u8],
        wait: &mut dyn FnMut() -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let mut sending = self.begin(header, body, payload)?;
        while !self.push(fd, &mut sending, payload)? {
            wait()?;
        }
        Ok(())
    }

    /// Sends what waits.
    pub(crate) fn flush(
        &mut self,
        fd: BorrowedFd<'_>,
        wait: &mut dyn FnMut() -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        if self.broken {
            return Err(Cause::Broken);
        }
        let mut sending = Sending { mac: None, sent: 0 };
        while !self.push(fd, &mut sending, &[])? {
            wait()?;
        }
        Ok(())
    }
}

/// A frame on its way whose payload is the caller's.
pub(crate) struct Sending {
    mac: Option<[u8; MAC_LEN]>,
    /// Bytes sent of what waited, the payload and the MAC.
    sent: usize,
}
