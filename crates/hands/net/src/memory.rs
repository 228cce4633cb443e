//! Memory that the two sides of a connection on one machine have mapped: long payloads lie in it, in slots, and do not go
//! through the socket. Why nothing goes wrong there: `docs/design/wire.md`, "Shared memory".
#![allow(unsafe_code)]

use crate::error::Cause;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use skep_types::limits::BODY_MAX;
use skep_wire::{Flags, Header, Status};
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};

/// Bytes of a slot: the longest piece that mounts read and write.
pub(crate) const SLOT_LEN: usize = 1 << 20;
/// Slots of the memory that is made here. A lane asks one server for one or two pieces at a time; what finds no slot free
/// goes over the socket.
const SLOTS: usize = 4;
/// Most slots that are accepted from the other side.
const SLOTS_MAX: usize = 8;
/// Shorter payloads go over the socket: what is gained by memory is less than the noise there.
pub(crate) const SHARED_FROM: usize = 32 << 10;
/// What nobody can undo: it stays as long as it is, so no page of it goes away under whoever has mapped it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// Of the file systems that can be sealed the one of ordinary pages; `hugetlbfs` is the other.
const TMPFS: u64 = 0x0102_1994;

/// The mapping of one side; it ends with the connection.
pub(crate) struct Memory {
    base: NonNull<u8>,
    slots: u32,
}

// SAFETY: the mapping belongs to this value alone and is bound to no thread.
unsafe impl Send for Memory {}
// SAFETY: shared references only copy bytes in and out, of slots that whoever calls has taken.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory, and the descriptor by which the other side maps it.
    pub(crate) fn make() -> io::Result<(Self, OwnedFd)> {
        let len = (SLOTS * SLOT_LEN) as u64;
        // Beyond this limit the kernel sends a signal that ends the process.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = match memfd_create("skep-payloads", flags | MemfdFlags::NOEXEC_SEAL) {
            // A kernel before 6.3.
            Err(Errno::INVAL) => memfd_create("skep-payloads", flags)?,
            made => made?,
        };
        ftruncate(&fd, len)?;
        fcntl_add_seals(&fd, SEALS)?;
        Ok((Self::map(&fd, SLOTS as u32)?, fd))
    }

    /// Maps what the other side has made, or says why it is not used. Seals are looked at first: from then on the length is
    /// what it is.
    pub(crate) fn accept(fd: &OwnedFd) -> Result<Self, String> {
        let seals = fcntl_get_seals(fd).map_err(|e| format!("it cannot be sealed ({e})"))?;
        if !seals.contains(SEALS) {
            return Err("it is not sealed, so it could be cut off".to_owned());
        }
        let system = fstatfs(fd).map_err(|e| e.to_string())?;
        if system.f_type as u64 != TMPFS {
            return Err("it is not of ordinary pages".to_owned());
        }
        let len = fstat(fd).map_err(|e| e.to_string())?.st_size as u64;
        let (slots, rest) = (len / SLOT_LEN as u64, len % SLOT_LEN as u64);
        if rest != 0 || !(1..=SLOTS_MAX as u64).contains(&slots) {
            return Err(format!("it has {len} bytes; 1 to {SLOTS_MAX} times {SLOT_LEN} are allowed"));
        }
        Self::map(fd, slots as u32).map_err(|e| format!("it cannot be mapped ({e})"))
    }

    fn map(fd: impl AsFd, slots: u32) -> io::Result<Self> {
        let (len, both) = (slots as usize * SLOT_LEN, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { mmap(null_mut(), len, both, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, slots })
    }

    /// How many slots there are; they are numbered from 1 on.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// The beginning of a slot, if there is such a slot and it has room for so many bytes.
    pub(crate) fn slot(&self, slot: u32, len: usize) -> Option<NonNull<u8>> {
        if !(1..=self.slots).contains(&slot) || len > SLOT_LEN {
            return None;
        }
        // SAFETY: slot - 1 < slots, so the place is inside of the mapping.
        Some(unsafe { self.base.add((slot - 1) as usize * SLOT_LEN) })
    }

    /// Has the first bytes of a slot be in memory; `false`: there is none. Made in a fault they would end the process where there is
    /// none, or look like a failed disk to who reads into them.
    fn fill(&self, slot: u32, len: usize) -> bool {
        let Some(from) = self.slot(slot, len) else { return false };
        // SAFETY: the place is inside of the mapping; its bytes stay what they are.
        unsafe { madvise(from.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }.is_ok()
    }

    /// Copies bytes into a slot; `false`: they do not fit.
    fn put(&self, slot: u32, bytes: &[u8]) -> bool {
        let Some(to) = self.slot(slot, bytes.len()) else { return false };
        // SAFETY: `to` has room for so many bytes, and no reference of this process leads there.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    /// Copies the first bytes of a slot out; `false`: there are not so many.
    fn take(&self, slot: u32, into: &mut [u8]) -> bool {
        let Some(from) = self.slot(slot, into.len()) else { return false };
        // SAFETY: as in `put`. What the other side does to them meanwhile is its answer.
        unsafe { from.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        true
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping made in `map`; who has a place in it has `self`, too.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.slots as usize * SLOT_LEN) };
    }
}

/// The slots of the side that asks, and which request has which. A slot is its request's from before the request is sent
/// until the answer has been copied out, whether somebody still waits for it or not.
pub(crate) struct Slots {
    memory: Memory,
    held: [Option<u64>; SLOTS],
    /// So many bytes of each are in memory.
    filled: [usize; SLOTS],
}

impl Slots {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, held: [None; SLOTS], filled: [0; SLOTS] }
    }

    pub(crate) fn count(&self) -> u32 {
        self.memory.slots()
    }

    /// Gives a request a slot if that is worth it, and moves its payload there: what is to be sent instead. `room`: bytes of
    /// payload that its answer may have.
    pub(crate) fn place<'a>(
        &mut self,
        header: Header,
        body: &[u8],
        payload: &'a [u8],
        room: usize,
    ) -> (Header, &'a [u8]) {
        let longest = payload.len().max(room);
        // What is not answered, or not even sent, would never give it back.
        let answered = !header.flags.has(Flags::ONE_WAY) && body.len() <= BODY_MAX;
        // Answers are told apart by their number.
        let known = self.held.contains(&Some(header.request));
        if !(SHARED_FROM..=SLOT_LEN).contains(&longest) || !answered || known {
            return (header, payload);
        }
        // The lowest: what is not needed is never touched, and takes no memory.
        let Some(at) = self.held.iter().position(Option::is_none) else { return (header, payload) };
        let slot = at as u32 + 1;
        if self.filled[at] < longest {
            if !self.memory.fill(slot, longest) {
                return (header, payload);
            }
            self.filled[at] = longest;
        }
        if !self.memory.put(slot, payload) {
            return (header, payload);
        }
        self.held[at] = Some(header.request);
        (Header { slot, payload_len: payload.len() as u32, ..header }, &[])
    }

    /// An answer is here: its payload is copied out if it lies in the slot, and the slot given back.
    pub(crate) fn answered(&mut self, header: &Header, into: &mut [u8]) -> Result<(), Cause> {
        let at = self.held.iter().position(|held| *held == Some(header.request));
        if header.slot != 0
            && (at.map(|at| at as u32 + 1) != Some(header.slot) || !self.memory.take(header.slot, into))
        {
            return Err(Cause::Unasked);
        }
        if let Some(at) = at {
            self.held[at] = None;
            if header.status == Status::BUSY.0 {
                // Perhaps for want of its pages: they are made again before it is used, or the socket is.
                self.filled[at] = 0;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
