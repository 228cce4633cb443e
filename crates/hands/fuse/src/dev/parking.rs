//! Parked requests of `/dev/fuse`.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi::header::{OUT_HEADER, OutHeader};
use crate::device::send;
use crate::dispatch::{refuse, unique_of};
use crate::interrupt::{InterruptTable, Interrupted};
use crate::parked::{Confirmed, Parked};
use crate::{Answer, Errno, Park, ParkedReply, ReplyBuffer};

/// Parks requests that one worker has read: the kernel takes their answers only where they were read.
pub(crate) struct DevParking {
    device: Arc<OwnedFd>,
    parked: Arc<Parked>,
    is_parked: Cell<bool>,
}

impl DevParking {
    pub(crate) fn new(device: &Arc<OwnedFd>, parked: &Arc<Parked>) -> Self {
        DevParking { device: Arc::clone(device), parked: Arc::clone(parked), is_parked: Cell::new(false) }
    }

    /// The end of a method that parked its request.
    fn after(
        &self,
        interrupts: &InterruptTable,
        slot: usize,
        request: &[u8],
        answer: Answer,
        reply: &mut ReplyBuffer,
        told: &dyn Fn(u64),
    ) -> Answer {
        let unique = unique_of(request).unwrap_or_default();
        if answer != Answer::Later {
            interrupts.end(slot);
            return if self.parked.withdraw(unique) { answer } else { Answer::NoReply };
        }
        let confirmed = self.parked.confirm(unique);
        let overlooked = interrupts.end_parked(slot, unique);
        if confirmed == Confirmed::Forgotten {
            return refuse(request, Errno::EIO, reply);
        }
        if overlooked {
            told(unique);
        }
        Answer::Later
    }
}

impl Park for DevParking {
    fn park(&self, unique: u64) -> Result<ParkedReply, Errno> {
        let device = Arc::clone(&self.device);
        let reply = self.parked.park(unique, move |result| {
            let error = result.err().map_or(0, Errno::to_wire);
            let header = OutHeader { len: OUT_HEADER as u32, error, unique };
            // A failure means that the caller, or the whole connection, has gone.
            let _ = send(&device, header.as_bytes());
        })?;
        self.is_parked.set(true);
        Ok(reply)
    }

    fn is_parked(&self) -> bool {
        self.is_parked.get()
    }
}

/// Ends the work on a request in `slot` and says what is to be sent. Interrupts of parked requests are for `told`.
pub(crate) fn after_dispatch(
    interrupts: &InterruptTable,
    slot: usize,
    parking: &DevParking,
    request: &[u8],
    answer: Answer,
    reply: &mut ReplyBuffer,
    told: &dyn Fn(u64),
) -> Answer {
    if parking.is_parked.take() {
        return parking.after(interrupts, slot, request, answer, reply, told);
    }
    interrupts.end(slot);
    let Answer::Interrupt { unique } = answer else { return answer };
    if interrupts.interrupt(unique) == Interrupted::Parked {
        told(unique);
    }
    Answer::NoReply
}
