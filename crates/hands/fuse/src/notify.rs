//! Telling the kernel to drop what it cached, or of a size.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use zerocopy::IntoBytes;

use crate::abi::header::{OUT_HEADER, OutHeader};
use crate::abi::notify::{
    DELETE, DeleteOut, EXPIRE_ONLY, INC_EPOCH, INVAL_ENTRY, INVAL_INODE, InvalEntryOut, InvalInodeOut, STORE,
    StoreOut,
};
use crate::notices::Notices;
use crate::{Errno, NAME_MAX};

/// What became of something that the kernel was told to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The kernel knew it, and uses it no longer.
    Done,
    /// The kernel does not know it. It may be about to, all the same: from an answer that it was given, and has not
    /// looked at yet. It says this of everything, too, when the file system was unmounted.
    Unknown,
}

/// Sends invalidations; cloned freely, used from any thread.
///
/// Never call it from the thread that handles a request on the same inode or directory: dropping a name takes the
/// directory's lock in the kernel, which the request may hold, and dropping pages waits for reads in flight.
#[derive(Clone)]
pub struct Notifier {
    /// Weak, so that a forgotten notifier does not keep a connection alive whose daemon has ended.
    device: Weak<OwnedFd>,
    notices: Arc<Notices>,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<OwnedFd>, notices: &Arc<Notices>) -> Self {
        Notifier { device: Arc::downgrade(device), notices: Arc::clone(notices) }
    }

    /// Drops the cached attributes of an inode and its pages in `offset..offset + length`; length 0 means to the
    /// end, a negative offset means attributes only.
    ///
    /// # Errors
    /// ENOTCONN when the file system is no longer mounted.
    pub fn inval_inode(&self, ino: u64, offset: i64, length: i64) -> Result<Dropped, Errno> {
        self.send(INVAL_INODE, &[InvalInodeOut { ino, off: offset, len: length }.as_bytes()], None)
    }

    /// Makes an inode at least `size` bytes long in the kernel's eyes, and touches none of its bytes: an answer of
    /// attributes may be ignored, this is not. It waits while the last page of that size is being filled.
    ///
    /// The kernel sets the size before it copies bytes into pages (`fuse_notify_store`, Linux 2.6.36 to 6.18). The one
    /// byte of this message cannot be read, so that it stops there: no byte could be right, as a write may be on its way.
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`].
    pub fn lengthen_inode(&self, ino: u64, size: u64) -> Result<(), Errno> {
        let Some(offset) = size.checked_sub(1) else { return Ok(()) };
        let out = StoreOut { nodeid: ino, offset, size: 1, padding: 0 };
        match self.send(STORE, &[out.as_bytes()], Some(unreadable())) {
            Err(Errno::EFAULT) => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Drops the cached `name` of directory `parent`, negative ones too, and with a name the attributes of the directory.
    ///
    /// # Errors
    /// ENOTCONN when the file system is no longer mounted; ENAMETOOLONG.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<Dropped, Errno> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel ask again for `name` at its next use, without dropping what uses it. Needs
    /// [`crate::InitFlags::HAS_EXPIRE_ONLY`]; older kernels drop the name.
    ///
    /// # Errors
    /// As [`Notifier::inval_entry`].
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<Dropped, Errno> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    /// Tells that `name` of `parent`, which was inode `child`, was deleted: watchers are told as well.
    ///
    /// # Errors
    /// As [`Notifier::inval_entry`]; ENOTEMPTY for a directory with cached content.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<Dropped, Errno> {
        let out = DeleteOut { parent, child, namelen: name_length(name)?, padding: 0 };
        self.send(DELETE, &[out.as_bytes(), name, b"\0"], None)
    }

    /// Drops every name that the kernel asked for before, each at its next use, with all that is mounted below it; takes
    /// no lock. Which kernels can: [`crate::Negotiated::has_epochs`].
    ///
    /// # Errors
    /// EINVAL from kernels that cannot; ENOTCONN.
    pub fn inc_epoch(&self) -> Result<(), Errno> {
        self.send(INC_EPOCH, &[], None).map(|_| ())
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<Dropped, Errno> {
        let out = InvalEntryOut { parent, namelen: name_length(name)?, flags };
        self.send(INVAL_ENTRY, &[out.as_bytes(), name, b"\0"], None)
    }

    fn send(&self, code: i32, body: &[&[u8]], last: Option<IoSlice<'_>>) -> Result<Dropped, Errno> {
        let device = self.device.upgrade().ok_or(Errno::ENOTCONN)?;
        let mut parts: [IoSlice<'_>; 5] = std::array::from_fn(|_| IoSlice::new(&[]));
        for (part, bytes) in parts[1..].iter_mut().zip(body) {
            *part = IoSlice::new(bytes);
        }
        let body_len = body.iter().map(|part| part.len()).sum::<usize>() + usize::from(last.is_some());
        parts[4] = last.unwrap_or(IoSlice::new(&[]));
        let len = u32::try_from(OUT_HEADER + body_len).map_err(|_| Errno::EOVERFLOW)?;
        let header = OutHeader { len, error: code, unique: 0 };
        parts[0] = IoSlice::new(header.as_bytes());
        let _told = self.notices.begin();
        match rustix::io::retry_on_intr(|| rustix::io::writev(&*device, &parts)) {
            Ok(_) => Ok(Dropped::Done),
            Err(rustix::io::Errno::NOENT) => Ok(Dropped::Unknown),
            Err(rustix::io::Errno::NODEV) => Err(Errno::ENOTCONN),
            Err(error) => Err(error.into()),
        }
    }
}

/// One byte that cannot be read.
#[allow(unsafe_code)] // an address that is none
fn unreadable() -> IoSlice<'static> {
    #[repr(C)]
    struct Vector {
        base: usize,
        len: usize,
    }
    // SAFETY: `IoSlice` has the layout of the system's `iovec`, as its documentation promises. Nothing in this process
    // reads it; the system call does not find the address, which is below all that can be mapped.
    unsafe { std::mem::transmute(Vector { base: 8, len: 1 }) }
}

fn name_length(name: &[u8]) -> Result<u32, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    u32::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG)
}
