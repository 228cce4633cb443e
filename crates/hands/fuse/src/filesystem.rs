//! What a file system implements.
//!
//! Why the methods are asynchronous: the `/dev/fuse` loop drives one request per thread and the implementor blocks
//! inside (its future never pends); the loop over `io_uring` drives many requests on one thread, and there the same
//! methods pend on the ring. Dispatch is static, so the first case compiles to plain calls. The futures stay on
//! their thread: nothing has to be `Send`.

use skep_ring::Reactor;

use std::time::Instant;

use crate::{
    AttrReply, Context, CopyRange, CreateRequest, DirSink, Entry, Errno, FallocateRequest, FileLock, Forgets,
    IoctlRequest, LockRequest, Negotiated, OpenRequest, Opened, ReadRequest, ReleaseRequest, Serving,
    SetAttr, StatFs, Waited, WriteRequest,
};

/// One mounted file system: makes the workers that answer its requests.
pub trait Mount: Sync {
    /// Answers the requests of one blocking thread, one at a time; it is made on that thread and never leaves it,
    /// so what it owns (connections, buffers) needs no locks.
    type Worker: Filesystem;

    /// What one ring thread owns.
    type Ring: RingThread;

    /// Called once, before any request, with what the kernel granted. An error refuses the mount.
    ///
    /// # Errors
    /// Whatever the implementor cannot do without.
    fn init(&self, _negotiated: &Negotiated) -> Result<(), Errno> {
        Ok(())
    }

    /// Called once, after [`Mount::init`], when it is settled how requests travel.
    fn serving(&self, _serving: &Serving) {}

    /// Makes the worker of the blocking thread in slot `index` (below the limit of workers; a slot is re-used after
    /// its thread ended). It must not block: until it returns, the thread counts as idle. Connect at the first
    /// request. With `io_uring` there is one such thread, which takes FORGET and little else.
    fn worker(&self, index: usize) -> Self::Worker;

    /// Makes what the ring thread with this number (from 0) owns. Called on that thread.
    fn ring(&self, thread: usize, reactor: &Reactor) -> Self::Ring;

    /// The caller of a parked request was signalled, or the connection has ended: its reply, if it still waits,
    /// should be answered soon, with EINTR. Never called before the method that parked it has returned; may be
    /// called more than once, and for a request that was answered meanwhile. Must not block.
    fn interrupt_parked(&self, _unique: u64) {}

    /// Called once, after the last request.
    fn destroy(&self) {}
}

/// What one ring thread owns: connections, buffers, its reactor.
pub trait RingThread {
    /// Answers one request at a time; the thread has several in work at once, each with a worker of its own.
    type Worker: Filesystem;

    /// Makes one more worker. They are made as requests need them and used again, the last one first. `None`: no
    /// more at present; the request waits for one of those there are, in turn, or fails (EMFILE) if there is none.
    fn worker(&self) -> Option<Self::Worker>;

    /// Makes the worker of the reserve, once, for requests that a notification may wait for while all others are at work.
    fn reserve(&self) -> Option<Self::Worker> {
        self.worker()
    }
}

/// The operations of a file system. `ino` is the node id that an [`Entry`] gave (root: 1).
///
/// Everything has a default: ENOSYS where the kernel then does without or tells the caller, success where nothing
/// needs doing. Note that the kernel remembers an ENOSYS of `flush`, `fsync`, `access`, the xattr calls,
/// `fallocate`, `lseek`, `copy_file_range` and `poll` for the life of the mount.
///
/// A method that waits for something checks [`Context::interrupted`] and then returns EINTR; otherwise a killed
/// program stays until the answer comes.
#[allow(async_fn_in_trait)] // futures stay on their thread, so callers need no Send bound
#[allow(unused_variables)] // the defaults use none of their arguments, which carry names for the documentation
pub trait Filesystem {
    /// The time when a request begins, if requests shall be measured.
    fn clock(&self) -> Option<Instant> {
        None
    }

    /// A request was answered that began at `since`: its number (see [`crate::OPERATIONS`]), its length and, if it did
    /// not fail, that of the reply's payload.
    fn answered(&self, since: Instant, opcode: u32, length: usize, payload: Result<usize, Errno>) {}

    /// Looks `name` up; counts one lookup. "." and ".." come only for NFS file handles.
    async fn lookup(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Takes lookups back; an inode whose count reaches 0 may be dropped. No reply, no context.
    async fn forget(&self, forgets: Forgets<'_>) {}

    /// Attributes of an inode, through an open handle if given.
    async fn getattr(&self, cx: &Context<'_>, ino: u64, fh: Option<u64>) -> Result<AttrReply, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes and returns them all.
    async fn setattr(&self, cx: &Context<'_>, ino: u64, set: &SetAttr) -> Result<AttrReply, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Writes the target of a symbolic link into `out` and returns its length.
    async fn readlink(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, device, pipe or socket node.
    async fn mknod(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    async fn mkdir(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name of anything but a directory.
    async fn unlink(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    async fn rmdir(&self, cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symbolic link.
    async fn symlink(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Renames; `flags` are RENAME_NOREPLACE (1) and RENAME_EXCHANGE (2). `from` and `to` are (parent, name).
    async fn rename(
        &self,
        cx: &Context<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Gives an inode another name; counts one lookup.
    async fn link(&self, cx: &Context<'_>, ino: u64, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        Err(Errno::ENOSYS)
    }

    async fn open(&self, cx: &Context<'_>, ino: u64, request: &OpenRequest) -> Result<Opened, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file; counts one lookup.
    async fn create(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file without a name (O_TMPFILE); counts one lookup.
    async fn tmpfile(
        &self,
        cx: &Context<'_>,
        parent: u64,
        request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Reads into `out`, which is the reply's payload, and returns the bytes read; fewer than asked means end of
    /// file.
    async fn read(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Writes and returns the bytes written, at least 1.
    async fn write(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &WriteRequest,
        data: &[u8],
    ) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Called at every `close` of a descriptor; an error here is the error of `close`.
    async fn flush(&self, cx: &Context<'_>, ino: u64, fh: u64, lock_owner: u64) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of a handle has gone. Errors reach nobody.
    async fn release(&self, cx: &Context<'_>, ino: u64, request: &ReleaseRequest) -> Result<(), Errno> {
        Ok(())
    }

    /// Makes a file durable.
    async fn fsync(&self, cx: &Context<'_>, ino: u64, fh: u64, data_only: bool) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory.
    async fn opendir(&self, cx: &Context<'_>, ino: u64, request: &OpenRequest) -> Result<Opened, Errno> {
        Ok(Opened::default())
    }

    /// Lists a directory from `offset` (0, or a cookie given with a record) until `sink` is full or all is told.
    async fn readdir(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// As [`Filesystem::readdir`], with attributes; each record added counts one lookup.
    async fn readdirplus(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of a directory handle has gone.
    async fn releasedir(&self, cx: &Context<'_>, ino: u64, request: &ReleaseRequest) -> Result<(), Errno> {
        Ok(())
    }

    /// Makes a directory durable.
    async fn fsyncdir(&self, cx: &Context<'_>, ino: u64, fh: u64, data_only: bool) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Space and inodes.
    async fn statfs(&self, cx: &Context<'_>, ino: u64) -> Result<StatFs, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Sets an extended attribute; `flags` are XATTR_CREATE (1) and XATTR_REPLACE (2). `kill_sgid` comes with an
    /// access ACL set by a caller outside the group.
    async fn setxattr(
        &self,
        cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Returns the value's length and copies it into `out` when it fits; `out` is empty when only the length is
    /// asked. A value that does not fit becomes ERANGE outside.
    async fn getxattr(
        &self,
        cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }

    /// As [`Filesystem::getxattr`], for the names, each ended by a NUL.
    async fn listxattr(&self, cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    async fn removexattr(&self, cx: &Context<'_>, ino: u64, name: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Checks permissions; not called with `default_permissions`.
    async fn access(&self, cx: &Context<'_>, ino: u64, mask: u32) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Allocates, punches or zeroes a range.
    async fn fallocate(&self, cx: &Context<'_>, ino: u64, request: &FallocateRequest) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Finds data (3) or a hole (4) from `offset`.
    async fn lseek(
        &self,
        cx: &Context<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        whence: u32,
    ) -> Result<u64, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Copies between two files and returns the bytes copied.
    async fn copy_file_range(&self, cx: &Context<'_>, ino: u64, request: &CopyRange) -> Result<u64, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Returns a lock that conflicts, or kind `Unlock`. Comes with [`crate::InitFlags::POSIX_LOCKS`].
    async fn getlk(&self, cx: &Context<'_>, ino: u64, request: &LockRequest) -> Result<FileLock, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Sets or drops a record lock; EAGAIN when it conflicts.
    async fn setlk(&self, cx: &Context<'_>, ino: u64, request: &LockRequest) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    /// As [`Filesystem::setlk`], waiting for the lock, best by [`Context::park`]: a worker that waits serves nobody.
    async fn setlkw(&self, cx: &Context<'_>, ino: u64, request: &LockRequest) -> Result<Waited, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Sets or drops an `flock`, waiting if `wait`, as in [`Filesystem::setlkw`]. Comes with [`crate::InitFlags::FLOCK_LOCKS`].
    async fn flock(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &LockRequest,
        wait: bool,
    ) -> Result<Waited, Errno> {
        Err(Errno::ENOSYS)
    }

    /// A device command; returns its result and the bytes written to `out`.
    async fn ioctl(
        &self,
        cx: &Context<'_>,
        ino: u64,
        request: &IoctlRequest,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<(i32, usize), Errno> {
        Err(Errno::ENOSYS)
    }

    /// Ready events of an open file.
    async fn poll(&self, cx: &Context<'_>, ino: u64, fh: u64, events: u32) -> Result<u32, Errno> {
        Err(Errno::ENOSYS)
    }
}
