//! Page-aligned buffers of a worker, placed so that payloads begin on a page.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::Errno;
use crate::abi::file::WriteIn;
use crate::abi::header::{IN_HEADER, OUT_HEADER, OutHeader};

const PAGE: usize = 4096;
/// Room in front of the payload: holds any request's header and fixed part, or a reply's header.
const HEAD: usize = PAGE;
/// Where a WRITE's data begins in its request.
const WRITE_HEAD: usize = IN_HEADER + size_of::<WriteIn>();
/// The kernel refuses to hand requests into less than this.
const SMALLEST: usize = 8192;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Zeroed memory that the kernel backs only where it is touched.
fn pages(bytes: usize) -> Result<Vec<Page>, Errno> {
    Page::new_vec_zeroed(bytes.div_ceil(PAGE)).map_err(|_| Errno::ENOMEM)
}

/// Receives requests; the data of a WRITE lands on a page boundary.
pub struct RequestBuffer {
    pages: Vec<Page>,
}

impl RequestBuffer {
    /// For writes of at most `max_write` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(max_write: usize) -> Result<Self, Errno> {
        Ok(RequestBuffer { pages: pages((HEAD + max_write + PAGE).max(SMALLEST + HEAD))? })
    }

    /// The whole area to read a request into.
    pub fn area(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice().as_mut_bytes()[HEAD - WRITE_HEAD..]
    }

    /// The first `length` bytes of the area: the request.
    #[must_use]
    pub fn request(&self, length: usize) -> &[u8] {
        let bytes = &self.pages.as_slice().as_bytes()[HEAD - WRITE_HEAD..];
        &bytes[..length.min(bytes.len())]
    }
}

/// Holds one reply: the header directly in front of a page-aligned payload, so that one `write` sends both.
pub struct ReplyBuffer {
    pages: Vec<Page>,
    capacity: usize,
}

impl ReplyBuffer {
    /// For payloads of at most `capacity` bytes (at least one page).
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(capacity: usize) -> Result<Self, Errno> {
        let capacity = capacity.max(PAGE);
        Ok(ReplyBuffer { pages: pages(HEAD + capacity)?, capacity })
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
        Ok(&mut self.pages.as_mut_slice().as_mut_bytes()[HEAD..HEAD + size])
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
        let bytes = self.pages.as_mut_slice().as_mut_bytes();
        bytes[HEAD - OUT_HEADER..HEAD].copy_from_slice(header.as_bytes());
        len
    }

    /// The reply of `length` bytes as [`crate::Answer::Reply`] gave it.
    #[must_use]
    pub fn reply(&self, length: usize) -> &[u8] {
        let bytes = &self.pages.as_slice().as_bytes()[HEAD - OUT_HEADER..];
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
