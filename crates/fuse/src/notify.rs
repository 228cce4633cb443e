//! Telling the kernel to drop what it cached.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use zerocopy::IntoBytes;

use crate::abi::header::{OUT_HEADER, OutHeader};
use crate::abi::notify::{
    DELETE, DeleteOut, EXPIRE_ONLY, INC_EPOCH, INVAL_ENTRY, INVAL_INODE, InvalEntryOut, InvalInodeOut,
};
use crate::{Errno, NAME_MAX};

/// Sends invalidations; cloned freely, used from any thread.
///
/// Never call it from the thread that handles a request on the same inode or directory: dropping a name takes the
/// directory's lock in the kernel, which the request may hold, and dropping pages waits for reads in flight.
#[derive(Clone)]
pub struct Notifier {
    /// Weak, so that a forgotten notifier does not keep a connection alive whose daemon has ended.
    device: Weak<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Self {
        Notifier { device: Arc::downgrade(device) }
    }

    /// Drops the cached attributes of an inode and its pages in `offset..offset + length`; length 0 means to the
    /// end, a negative offset means attributes only. An inode that the kernel does not know is no error.
    ///
    /// # Errors
    /// ENOTCONN when the file system is no longer mounted.
    pub fn inval_inode(&self, ino: u64, offset: i64, length: i64) -> Result<(), Errno> {
        self.send(INVAL_INODE, InvalInodeOut { ino, off: offset, len: length }.as_bytes(), None)
    }

    /// Drops the cached `name` of directory `parent`, negative ones too.
    ///
    /// # Errors
    /// ENOTCONN when the file system is no longer mounted; ENAMETOOLONG.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel ask again for `name` at its next use, without dropping what uses it. Needs
    /// [`crate::InitFlags::HAS_EXPIRE_ONLY`]; older kernels drop the name.
    ///
    /// # Errors
    /// As [`Notifier::inval_entry`].
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    /// Tells that `name` of `parent`, which was inode `child`, was deleted: watchers are told as well.
    ///
    /// # Errors
    /// As [`Notifier::inval_entry`]; ENOTEMPTY for a directory with cached content.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        let out = DeleteOut { parent, child, namelen: name_length(name)?, padding: 0 };
        self.send(DELETE, out.as_bytes(), Some(name))
    }

    /// Makes every cached name be asked for again at its next use; takes no lock. EINVAL before FUSE 7.44.
    ///
    /// # Errors
    /// EINVAL from older kernels; ENOTCONN.
    pub fn inc_epoch(&self) -> Result<(), Errno> {
        self.send(INC_EPOCH, &[], None)
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<(), Errno> {
        let out = InvalEntryOut { parent, namelen: name_length(name)?, flags };
        self.send(INVAL_ENTRY, out.as_bytes(), Some(name))
    }

    fn send(&self, code: i32, body: &[u8], name: Option<&[u8]>) -> Result<(), Errno> {
        let device = self.device.upgrade().ok_or(Errno::ENOTCONN)?;
        let name_bytes = name.map_or(0, |name| name.len() + 1);
        let len = u32::try_from(OUT_HEADER + body.len() + name_bytes).map_err(|_| Errno::EOVERFLOW)?;
        let header = OutHeader { len, error: code, unique: 0 };
        let parts = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(body),
            IoSlice::new(name.unwrap_or_default()),
            IoSlice::new(if name.is_some() { b"\0" } else { b"" }),
        ];
        match rustix::io::retry_on_intr(|| rustix::io::writev(&*device, &parts)) {
            // Not cached: nothing had to be dropped.
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(rustix::io::Errno::NODEV) => Err(Errno::ENOTCONN),
            Err(error) => Err(error.into()),
        }
    }
}

fn name_length(name: &[u8]) -> Result<u32, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    u32::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG)
}
