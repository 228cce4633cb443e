//! Where a connection of a stream server receives payloads and answers from: a buffer of its own, or memory that it shares
//! with the side that asks.
#![allow(unsafe_code)]

use crate::memory::{Memory, SLOT_LEN};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use skep_types::limits::PAYLOAD_MAX;
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes of payload that all connections of a server may hold at once.
pub(crate) struct Budget {
    limit: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(PAYLOAD_MAX), used: Mutex::new(0), freed: Condvar::new() })
    }
}

/// The share of one connection.
struct Allowance {
    budget: Arc<Budget>,
    held: usize,
}

impl Allowance {
    /// Waits until `bytes` are within the limit. Whoever holds something already does not wait for
    /// more: two that wait for each other would wait for ever.
    fn raise_to(&mut self, bytes: usize) {
        if bytes <= self.held {
            return;
        }
        let more = bytes - self.held;
        let used = self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |used: &mut usize| self.held == 0 && *used + more > self.budget.limit;
        let mut used = self.budget.freed.wait_while(used, over).unwrap_or_else(PoisonError::into_inner);
        *used += more;
        self.held = bytes;
    }

    fn release(&mut self) {
        if self.held == 0 {
            return;
        }
        let mut used = self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used -= std::mem::take(&mut self.held);
        // Only a nearly full budget has anybody waiting.
        if *used + PAYLOAD_MAX * 2 > self.budget.limit {
            self.budget.freed.notify_all();
        }
    }
}

/// A page-aligned buffer of [`PAYLOAD_MAX`] bytes of address space. Memory is taken page by page as it
/// is touched and given back when the connection has been idle for a while.
///
/// For the time of a request a slot of shared memory may stand in its place. Then the other side can change the bytes at
/// any moment, so whoever has them passes them on (to a file, mostly), and decides nothing by what they are.
pub struct Payload {
    base: NonNull<u8>,
    memory: Option<Memory>,
    /// The present request's slot, and where it begins.
    lent: Option<(u32, NonNull<u8>)>,
    len: usize,
    touched: bool,
    allowance: Option<Allowance>,
}

// SAFETY: the mapping belongs to this value alone and is bound to no thread.
unsafe impl Send for Payload {}
// SAFETY: shared references only read.
unsafe impl Sync for Payload {}

impl Payload {
    /// A buffer outside of any server (tests).
    pub fn new() -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no memory in use.
        let base =
            unsafe { mmap_anonymous(null_mut(), PAYLOAD_MAX, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, memory: None, lent: None, len: 0, touched: false, allowance: None })
    }

    /// A buffer whose use counts against the server's bytes in flight.
    pub(crate) fn counted(budget: Arc<Budget>) -> io::Result<Self> {
        // Not `..Self::new()?`: the fields are Copy, so the temporary would still be dropped and unmap the buffer.
        let mut payload = Self::new()?;
        payload.allowance = Some(Allowance { budget, held: 0 });
        Ok(payload)
    }

    /// Memory that is shared with the other side.
    pub(crate) fn share(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    /// The request has this slot: its payload of `len` bytes lies there, and that of the answer may. `false`: no such slot.
    pub(crate) fn lend(&mut self, slot: u32, len: usize) -> bool {
        let Some(place) = self.memory.as_ref().and_then(|memory| memory.slot(slot, len)) else {
            return false;
        };
        self.lent = Some((slot, place));
        self.room(len);
        true
    }

    /// The slot that the bytes are in; 0: in none.
    pub(crate) fn slot(&self) -> u32 {
        self.lent.map_or(0, |(slot, _)| slot)
    }

    fn place(&self) -> *mut u8 {
        self.lent.map_or(self.base, |(_, place)| place).as_ptr()
    }

    /// The payload that came with the request.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: base is the start of PAYLOAD_MAX readable bytes for as long as self lives, and len <= PAYLOAD_MAX; a slot
        // that is lent that of SLOT_LEN bytes, and len <= SLOT_LEN (`room`). Nothing is concluded from bytes of a slot.
        unsafe { std::slice::from_raw_parts(self.place(), self.len) }
    }

    /// Room for `len` bytes of answer (at most [`PAYLOAD_MAX`]: the slice is cut to it). It is the
    /// same memory as [`Payload::bytes`]; its content is whatever was there before.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.len = len.min(PAYLOAD_MAX);
        if let Some(allowance) = &mut self.allowance {
            allowance.raise_to(self.len);
        }
        if self.len > SLOT_LEN {
            // It goes over the socket then.
            self.lent = None;
        }
        self.touched |= self.len > 0 && self.lent.is_none();
        // SAFETY: as in `bytes`, and &mut self makes this the only reference of this process.
        unsafe { std::slice::from_raw_parts_mut(self.place(), self.len) }
    }

    /// The request is done: nothing is in flight here any more.
    pub(crate) fn finish(&mut self) {
        self.len = 0;
        self.lent = None;
        if let Some(allowance) = &mut self.allowance {
            allowance.release();
        }
    }

    /// Bytes that [`Payload::bytes`] gives.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Did no payload come?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives the memory back to the kernel; the content is lost.
    pub(crate) fn give_back(&mut self) {
        self.len = 0;
        if std::mem::take(&mut self.touched) {
            // SAFETY: the range is this value's own mapping; afterwards its pages read as zeros.
            let _ =
                unsafe { madvise(self.base.as_ptr().cast::<c_void>(), PAYLOAD_MAX, Advice::LinuxDontNeed) };
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.finish();
        // SAFETY: base and length are those of the mapping made in `new`; no slice outlives self.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), PAYLOAD_MAX) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a full budget makes a newcomer wait until another request is done, and nobody for ever.
    #[test]
    fn a_full_budget_waits() {
        let budget = Budget::new(PAYLOAD_MAX);
        let mut first = Payload::counted(budget.clone()).unwrap();
        first.room(PAYLOAD_MAX - 10);
        first.room(PAYLOAD_MAX); // holds something: does not wait
        let (sender, done) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn({
            let budget = budget.clone();
            move || {
                let mut second = Payload::counted(budget).unwrap();
                second.room(20);
                sender.send(()).unwrap();
            }
        });
        assert!(done.try_recv().is_err());
        first.finish();
        done.recv().unwrap();
        waiter.join().unwrap();
        assert_eq!(*budget.used.lock().unwrap(), 0);
    }

    /// Goal: the buffer is page-aligned, keeps what was written, and is empty after being given back.
    #[test]
    fn written_read_given_back() {
        let mut payload = Payload::new().unwrap();
        payload.room(PAYLOAD_MAX + 1).fill(7);
        assert_eq!((payload.len(), payload.base.as_ptr() as usize % 4096), (PAYLOAD_MAX, 0));
        assert!(payload.bytes().iter().all(|b| *b == 7));
        payload.give_back();
        assert!(payload.is_empty());
        assert!(payload.room(PAYLOAD_MAX).iter().all(|b| *b == 0));
    }
}
