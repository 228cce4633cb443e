//! Bytes through sockets, and waiting until a descriptor is ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};
use rustix::event::PollFlags;

use crate::Reactor;
use crate::command::{Keep, outcome};
use crate::operation::Operation;

/// A socket whose other end has gone is an error, not a signal.
const NO_SIGNAL: i32 = rustix::net::SendFlags::NOSIGNAL.bits().cast_signed();
/// `IORING_RECVSEND_POLL_FIRST`: do not try before the socket says that there is something.
const POLL_FIRST: u16 = 1;

fn length(buffer: &[u8], from: usize) -> u32 {
    u32::try_from(buffer.len().saturating_sub(from)).unwrap_or(u32::MAX)
}

fn returned(result: i32, keep: Keep) -> (io::Result<usize>, Vec<u8>) {
    let buffer = match keep {
        Keep::Buffer(buffer) => buffer,
        _ => Vec::new(),
    };
    (outcome(result).map(|length| length as usize), buffer)
}

impl Reactor {
    /// Receives into `buffer[from..]` (its length, not its capacity, is the room) and gives the buffer back with
    /// the bytes received; 0: the other end has closed. Dropped in the middle, it may have taken bytes that are
    /// then lost: give up the connection.
    ///
    /// # Errors
    /// As `recv(2)`; no room is `InvalidInput`.
    pub async fn recv(
        &self,
        fd: BorrowedFd<'_>,
        buffer: Vec<u8>,
        from: usize,
    ) -> (io::Result<usize>, Vec<u8>) {
        self.receive(fd, buffer, from, 0).await
    }

    /// As [`Reactor::recv`], for a time when nothing is expected yet: spares the kernel the first, fruitless look.
    ///
    /// # Errors
    /// As `recv(2)`.
    pub async fn recv_later(
        &self,
        fd: BorrowedFd<'_>,
        buffer: Vec<u8>,
        from: usize,
    ) -> (io::Result<usize>, Vec<u8>) {
        self.receive(fd, buffer, from, POLL_FIRST).await
    }

    #[allow(unsafe_code)] // the kernel is given an address
    async fn receive(
        &self,
        fd: BorrowedFd<'_>,
        buffer: Vec<u8>,
        from: usize,
        when: u16,
    ) -> (io::Result<usize>, Vec<u8>) {
        if from >= buffer.len() {
            // A result of 0 would look like the end of the connection.
            return (Err(io::Error::from(io::ErrorKind::InvalidInput)), buffer);
        }
        let make = |keep: &mut Keep| {
            let place = match keep {
                Keep::Buffer(buffer) => buffer.get_mut(from..).unwrap_or_default(),
                _ => &mut [],
            };
            let room = length(place, 0);
            opcode::Recv::new(types::Fd(fd.as_raw_fd()), place.as_mut_ptr(), room).ioprio(when).build().into()
        };
        // SAFETY: the bytes are in the kept vector, whose memory does not move with it; the descriptor is borrowed
        // for as long as the operation lives.
        let operation = unsafe { Operation::start(self.inner(), Keep::Buffer(buffer), make) };
        let (result, keep) = operation.await;
        returned(result, keep)
    }

    /// Sends `buffer[from..]`, or the beginning of it, and gives the buffer back with the bytes sent. Dropped in
    /// the middle, it may have sent any part.
    ///
    /// # Errors
    /// As `send(2)`; EPIPE without the signal.
    #[allow(unsafe_code)] // the kernel is given an address
    pub async fn send(
        &self,
        fd: BorrowedFd<'_>,
        buffer: Vec<u8>,
        from: usize,
    ) -> (io::Result<usize>, Vec<u8>) {
        let make = |keep: &mut Keep| {
            let bytes = match keep {
                Keep::Buffer(buffer) => buffer.get(from..).unwrap_or_default(),
                _ => &[],
            };
            opcode::Send::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), length(bytes, 0))
                .flags(NO_SIGNAL)
                .build()
                .into()
        };
        // SAFETY: as in `receive`.
        let operation = unsafe { Operation::start(self.inner(), Keep::Buffer(buffer), make) };
        let (result, keep) = operation.await;
        returned(result, keep)
    }

    /// Waits until `fd` can be read without waiting, or has an error.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub async fn readable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.ready(fd, PollFlags::IN).await
    }

    /// Waits until `fd` can be written without waiting, or has an error.
    ///
    /// # Errors
    /// As `poll(2)`.
    pub async fn writable(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.ready(fd, PollFlags::OUT).await
    }

    #[allow(unsafe_code)] // a submission without memory
    async fn ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
        let events = u32::from(events.bits());
        let make = |_: &mut Keep| opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).build().into();
        // SAFETY: no memory is involved; the descriptor is borrowed for as long as the operation lives.
        let operation = unsafe { Operation::start(self.inner(), Keep::Nothing, make) };
        outcome(operation.await.0).map(drop)
    }
}
