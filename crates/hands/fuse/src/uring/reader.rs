//! What still comes through `/dev/fuse`: FORGET, INTERRUPT, and requests from before the rings were ready. Nothing
//! else tells that the connection has ended while nobody asks for anything.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;

use super::crew::Crew;
use crate::buffer::{ReplyBuffer, RequestBuffer, SMALLEST};
use crate::dev::{DevParking, Driver, after_dispatch};
use crate::device::{Received, receive, send};
use crate::dispatch::unique_of;
use crate::{Answer, Ending, Errno, Mount, dispatch};

/// The reader's place in the table of interrupts.
pub(super) const READER_SLOT: usize = 0;

/// Reads until the connection ends.
pub(super) fn read<M: Mount>(crew: &Crew<'_, M>, device: &Arc<OwnedFd>) -> io::Result<Ending> {
    let memory = |errno: Errno| io::Error::from_raw_os_error(errno.0);
    let payload = crew.payload().max(SMALLEST);
    let mut buffer = RequestBuffer::new(payload).map_err(memory)?;
    let mut reply = ReplyBuffer::new(payload).map_err(memory)?;
    let fs = crew.mount().worker(READER_SLOT);
    let driver = Driver::new();
    let parking = DevParking::new(device, crew.parked());
    loop {
        let length = match receive(device, &mut buffer) {
            Received::Request(length) => length,
            Received::Ended(ending) => return Ok(ending),
            Received::Failed(error) => return Err(error),
        };
        let request = buffer.request(length);
        let interrupt = crew.interrupts().begin(READER_SLOT, unique_of(request).unwrap_or_default());
        let answer = driver.drive(pin!(dispatch(&fs, request, interrupt, &parking, &mut reply)));
        let told = |unique| crew.mount().interrupt_parked(unique);
        let answer =
            after_dispatch(crew.interrupts(), READER_SLOT, &parking, request, answer, &mut reply, &told);
        if let Answer::Reply(length) = answer {
            send(device, reply.reply(length))?;
        }
    }
}
