//! Page-aligned buffers of a worker, placed so that payloads begin on a page.

use std::ops::{Deref, DerefMut};

use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{Immutable, IntoBytes};

use crate::Errno;
use crate::abi::file::WriteIn;
use crate::abi::header::{IN_HEADER, OUT_HEADER, OutHeader};

const PAGE: usize = 4096;
/// Room in front of the payload: holds any request's header and fixed part, or a reply's header.
pub(crate) const HEAD: usize = PAGE;
/// Where a WRITE's data begins in its request.
const WRITE_HEAD: usize = IN_HEADER + size_of::<WriteIn>();
/// The kernel refuses to hand requests into less than this.
pub(crate) const SMALLEST: usize = 8192;

/// Zeroed memory that the kernel backs only where it is touched: most buffers are large and little used. (The
/// standard allocator writes zeros into aligned memory, and so touches all of it.)
struct Pages {
    start: *mut u8,
    length: usize,
}

impl Pages {
    #[allow(unsafe_code)] // mmap
    fn new(bytes: usize) -> Result<Self, Errno> {
        let length = bytes.next_multiple_of(PAGE);
        let (access, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory in use.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, how) }?;
        Ok(Pages { start: start.cast(), length })
    }
}

impl Deref for Pages {
    type Target = [u8];
    #[allow(unsafe_code)] // a slice of the mapping
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, as long as this, and lives until `drop`.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl DerefMut for Pages {
    #[allow(unsafe_code)] // a slice of the mapping
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Pages {
    #[allow(unsafe_code)] // munmap
    fn drop(&mut self) {
        // SAFETY: it is this mapping, which nothing borrows any more.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.length) };
    }
}

// SAFETY: the mapping belongs to this value alone, as a vector's memory does.
#[allow(unsafe_code)]
unsafe impl Send for Pages {}

/// Receives requests; the data of a WRITE lands on a page boundary.
pub struct RequestBuffer {
    pages: Pages,
}

impl RequestBuffer {
    /// For writes of at most `max_write` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(max_write: usize) -> Result<Self, Errno> {
        Ok(RequestBuffer { pages: Pages::new((HEAD + max_write + PAGE).max(SMALLEST + HEAD))? })
    }

    /// The whole area to read a request into.
    pub fn area(&mut self) -> &mut [u8] {
        &mut self.pages[HEAD - WRITE_HEAD..]
    }

    /// The first `length` bytes of the area: the request.
    #[must_use]
    pub fn request(&self, length: usize) -> &[u8] {
        let bytes = &self.pages[HEAD - WRITE_HEAD..];
        &bytes[..length.min(bytes.len())]
    }
}

/// Holds one reply: the header directly in front of a page-aligned payload, so that one `write` sends both.
pub struct ReplyBuffer {
    pages: Pages,
    capacity: usize,
}

impl ReplyBuffer {
    /// For payloads of at most `capacity` bytes (at least one page).
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(capacity: usize) -> Result<Self, Errno> {
        let capacity = capacity.max(PAGE);
        Ok(ReplyBuffer { pages: Pages::new(HEAD + capacity)?, capacity })
    }

    /// Largest payload.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The first `size` bytes of the payload, to be filled; EINVAL when the kernel asks for more than agreed.
    pub(crate) fn payload(&mut self, size: usize) -> Result<&mut [u8], Errno> {
        if size > self.capacity {
            return Err(Errno::EINVAL);
        }
        Ok(&mut self.pages[HEAD..HEAD + size])
    }

    /// Puts a structure at `offset` of the payload and returns the offset behind it.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, offset: usize, value: &T) -> Result<usize, Errno> {
        let end = offset + size_of::<T>();
        self.payload(end)?[offset..].copy_from_slice(value.as_bytes());
        Ok(end)
    }

    /// Completes the reply and returns its length.
    pub(crate) fn finish(&mut self, unique: u64, outcome: Result<usize, Errno>) -> usize {
        let (error, payload) = match outcome {
            Ok(length) => (0, length.min(self.capacity)),
            Err(errno) => (errno.to_wire(), 0),
        };
        let len = OUT_HEADER + payload;
        let header = OutHeader { len: u32::try_from(len).unwrap_or(u32::MAX), error, unique };
        let bytes = &mut self.pages;
        bytes[HEAD - OUT_HEADER..HEAD].copy_from_slice(header.as_bytes());
        len
    }

    /// Everything: [`HEAD`] bytes, then the payload.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.pages
    }

    /// As [`ReplyBuffer::whole`], to be changed.
    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        &mut self.pages
    }

    /// The reply of `length` bytes as [`crate::Answer::Reply`] gave it.
    #[must_use]
    pub fn reply(&self, length: usize) -> &[u8] {
        let bytes = &self.pages[HEAD - OUT_HEADER..];
        &bytes[..length.min(bytes.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, ReplyBuffer, RequestBuffer, WRITE_HEAD};
    use crate::Errno;

    /// Goal: payloads of both directions begin on a page, and a request's buffer has the room the kernel asks for.
    #[test]
    fn payloads_are_page_aligned() {
        let mut request = RequestBuffer::new(1 << 20).unwrap();
        let area = request.area();
        assert!(area.len() >= (1 << 20) + WRITE_HEAD);
        assert_eq!(area[WRITE_HEAD..].as_ptr() as usize % PAGE, 0);
        let mut reply = ReplyBuffer::new(1 << 20).unwrap();
        assert_eq!(reply.payload(1).unwrap().as_ptr() as usize % PAGE, 0);
        assert_eq!(reply.payload((1 << 20) + 1).unwrap_err(), Errno::EINVAL);
    }

    /// Goal: a finished reply starts with its own length, the error and the unique.
    #[test]
    fn header_is_in_front() {
        let mut reply = ReplyBuffer::new(PAGE).unwrap();
        reply.put(0, &7u32).unwrap();
        let length = reply.finish(99, Ok(4));
        assert_eq!(length, 20);
        let bytes = reply.reply(length);
        assert_eq!(bytes[..4], 20u32.to_ne_bytes());
        assert_eq!(bytes[8..16], 99u64.to_ne_bytes());
        assert_eq!(bytes[16..], 7u32.to_ne_bytes());
        let length = reply.finish(5, Err(Errno::ENOENT));
        assert_eq!(reply.reply(length)[4..8], (-2i32).to_ne_bytes());
        assert_eq!(length, 16);
    }
}
