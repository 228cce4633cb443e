//! What requests ask for, decoded.

use zerocopy::FromBytes;

use crate::abi::control::IoctlIn;
use crate::abi::file::{
    FallocateIn, READ_LOCKOWNER, RELEASE_FLOCK_UNLOCK, RELEASE_FLUSH, ReadIn, ReleaseIn, WRITE_CACHE,
    WRITE_KILL_SUIDGID, WRITE_LOCKOWNER, WriteIn,
};
use crate::abi::lock::{F_RDLCK, F_UNLCK, F_WRLCK, LkIn, RawFileLock};
use crate::abi::node::{ForgetOne, SetattrIn, fattr};
use crate::{Errno, Interrupt, Park, ParkedReply, Time};

/// Who asks, and whether they still want the answer.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The request's number on this connection.
    pub unique: u64,
    /// The caller's file system uid.
    pub uid: u32,
    /// The caller's file system gid.
    pub gid: u32,
    /// The caller's thread id; 0 when outside this pid namespace or when the kernel asks for itself.
    pub pid: u32,
    /// The caller's umask, where the request gives it (create, mknod, mkdir, tmpfile), otherwise 0. The kernel has
    /// applied it already unless [`crate::InitFlags::DONT_MASK`] was granted.
    pub umask: u32,
    /// Set when the caller was signalled.
    pub interrupt: Interrupt<'a>,
    /// How the request is parked.
    pub parking: &'a dyn Park,
}

impl Context<'_> {
    /// Whether the caller was signalled or the mount is going away: a method that waits gives up with EINTR.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Parks the request: the method then returns [`crate::Waited::Later`], and the answer is given through the
    /// result, from any thread. For the methods that can return it only.
    ///
    /// # Errors
    /// ENOLCK when too many requests are parked; answer with it.
    pub fn park(&self) -> Result<ParkedReply, Errno> {
        self.parking.park(self.unique)
    }
}

impl core::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Context({}, uid {}, gid {}, pid {})", self.unique, self.uid, self.gid, self.pid)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's present.
    Now,
    /// This time.
    At(Time),
}

/// SETATTR: what to change; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Handle of the open file the change goes through.
    pub fh: Option<u64>,
    /// New permissions (with the kind bits).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time; sent only with the write-back cache.
    pub ctime: Option<Time>,
    /// Owner of the locks under which a truncate happens.
    pub lock_owner: Option<u64>,
    /// Clear suid and (with group execution) sgid.
    pub kill_suidgid: bool,
}

impl SetAttr {
    pub(crate) fn from_wire(raw: &SetattrIn) -> Result<SetAttr, Errno> {
        let has = |bit: u32| raw.valid & bit != 0;
        let time = |bit, now, seconds, nanos| -> Result<Option<SetTime>, Errno> {
            Ok(match (has(bit), has(now)) {
                (false, _) => None,
                (true, true) => Some(SetTime::Now),
                (true, false) => Some(SetTime::At(Time::from_wire(seconds, nanos)?)),
            })
        };
        Ok(SetAttr {
            fh: has(fattr::FH).then_some(raw.fh),
            mode: has(fattr::MODE).then_some(raw.mode),
            uid: has(fattr::UID).then_some(raw.uid),
            gid: has(fattr::GID).then_some(raw.gid),
            size: has(fattr::SIZE).then_some(raw.size),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, raw.atime, raw.atimensec)?,
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, raw.mtime, raw.mtimensec)?,
            ctime: has(fattr::CTIME).then(|| Time::from_wire(raw.ctime, raw.ctimensec)).transpose()?,
            lock_owner: has(fattr::LOCKOWNER).then_some(raw.lock_owner),
            kill_suidgid: has(fattr::KILL_SUIDGID),
        })
    }
}

/// OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// `open(2)` flags without O_CREAT and O_EXCL; O_TRUNC only with [`crate::InitFlags::ATOMIC_O_TRUNC`].
    pub flags: u32,
    /// Clear suid and sgid while truncating.
    pub kill_suidgid: bool,
}

/// CREATE and TMPFILE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// `open(2)` flags.
    pub flags: u32,
    /// Kind and permissions of a new file.
    pub mode: u32,
    /// Clear suid and sgid while truncating an existing file.
    pub kill_suidgid: bool,
}

/// READ; the size wanted is the length of the reply's slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Handle of the open file.
    pub fh: u64,
    /// Where to read.
    pub offset: u64,
    /// The file's present `open(2)` flags.
    pub flags: u32,
    /// Owner of mandatory locks, if given.
    pub lock_owner: Option<u64>,
}

impl ReadRequest {
    pub(crate) fn from_wire(raw: &ReadIn) -> ReadRequest {
        let owner = raw.read_flags & READ_LOCKOWNER != 0;
        ReadRequest {
            fh: raw.fh,
            offset: raw.offset,
            flags: raw.flags,
            lock_owner: owner.then_some(raw.lock_owner),
        }
    }
}

/// WRITE; the data comes beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// Handle of the open file (a guess when `from_cache`).
    pub fh: u64,
    /// Where to write.
    pub offset: u64,
    /// The file's present `open(2)` flags (O_APPEND, O_SYNC, O_DIRECT).
    pub flags: u32,
    /// Owner of mandatory locks, if given.
    pub lock_owner: Option<u64>,
    /// Written back from the page cache (mmap), not by a system call.
    pub from_cache: bool,
    /// Clear suid and (with group execution) sgid.
    pub kill_suidgid: bool,
}

impl WriteRequest {
    pub(crate) fn from_wire(raw: &WriteIn) -> WriteRequest {
        let has = |bit: u32| raw.write_flags & bit != 0;
        WriteRequest {
            fh: raw.fh,
            offset: raw.offset,
            flags: raw.flags,
            lock_owner: has(WRITE_LOCKOWNER).then_some(raw.lock_owner),
            from_cache: has(WRITE_CACHE),
            kill_suidgid: has(WRITE_KILL_SUIDGID),
        }
    }
}

/// RELEASE and RELEASEDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The handle that ends.
    pub fh: u64,
    /// The flags it was opened with.
    pub flags: u32,
    /// Owner of locks, as in FLUSH.
    pub lock_owner: u64,
    /// Flush first.
    pub flush: bool,
    /// Drop the handle's `flock`.
    pub flock_unlock: bool,
}

impl ReleaseRequest {
    pub(crate) fn from_wire(raw: &ReleaseIn) -> ReleaseRequest {
        ReleaseRequest {
            fh: raw.fh,
            flags: raw.flags,
            lock_owner: raw.lock_owner,
            flush: raw.release_flags & RELEASE_FLUSH != 0,
            flock_unlock: raw.release_flags & RELEASE_FLOCK_UNLOCK != 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallocateRequest {
    /// Handle of the open file.
    pub fh: u64,
    /// Start of the range.
    pub offset: u64,
    /// Length of the range.
    pub length: u64,
    /// FALLOC_FL_* bits.
    pub mode: u32,
}

impl FallocateRequest {
    pub(crate) fn from_wire(raw: &FallocateIn) -> FallocateRequest {
        FallocateRequest { fh: raw.fh, offset: raw.offset, length: raw.length, mode: raw.mode }
    }
}

/// COPY_FILE_RANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Handle of the source, which is the request's inode.
    pub fh_in: u64,
    /// Where to read.
    pub offset_in: u64,
    /// Inode of the destination.
    pub ino_out: u64,
    /// Handle of the destination.
    pub fh_out: u64,
    /// Where to write.
    pub offset_out: u64,
    /// Bytes to copy.
    pub length: u64,
    /// None are defined.
    pub flags: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: unlock, or "nobody holds one" as a reply.
    Unlock,
}

/// A lock on a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; 2^63-1 means to the end.
    pub end: u64,
    /// The kind of lock.
    pub kind: LockKind,
    /// The process that asks or holds.
    pub pid: u32,
}

impl FileLock {
    fn from_wire(raw: &RawFileLock) -> Result<FileLock, Errno> {
        let kind = match raw.kind {
            F_RDLCK => LockKind::Read,
            F_WRLCK => LockKind::Write,
            F_UNLCK => LockKind::Unlock,
            _ => return Err(Errno::EINVAL),
        };
        Ok(FileLock { start: raw.start, end: raw.end, kind, pid: raw.pid })
    }

    pub(crate) fn to_wire(self) -> RawFileLock {
        let kind = match self.kind {
            LockKind::Read => F_RDLCK,
            LockKind::Write => F_WRLCK,
            LockKind::Unlock => F_UNLCK,
        };
        RawFileLock { start: self.start, end: self.end, kind, pid: self.pid }
    }
}

/// GETLK, SETLK, SETLKW and `flock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Handle of the open file.
    pub fh: u64,
    /// Whose lock it is: locks of one owner do not conflict.
    pub owner: u64,
    /// The lock; an `flock` spans the whole file.
    pub lock: FileLock,
}

impl LockRequest {
    pub(crate) fn from_wire(raw: &LkIn) -> Result<LockRequest, Errno> {
        Ok(LockRequest { fh: raw.fh, owner: raw.owner, lock: FileLock::from_wire(&raw.lk)? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlRequest {
    /// Handle of the open file.
    pub fh: u64,
    /// FUSE_IOCTL_* bits.
    pub flags: u32,
    pub command: u32,
    /// Its raw argument.
    pub argument: u64,
}

impl IoctlRequest {
    pub(crate) fn from_wire(raw: &IoctlIn) -> IoctlRequest {
        IoctlRequest { fh: raw.fh, flags: raw.flags, command: raw.cmd, argument: raw.arg }
    }
}

/// The inodes of one FORGET or BATCH_FORGET: (node id, lookups taken back).
#[derive(Clone, Debug)]
pub struct Forgets<'a> {
    one: Option<(u64, u64)>,
    many: core::slice::ChunksExact<'a, u8>,
}

impl<'a> Forgets<'a> {
    pub(crate) fn one(ino: u64, lookups: u64) -> Self {
        Forgets { one: Some((ino, lookups)), many: [].chunks_exact(size_of::<ForgetOne>()) }
    }

    /// At most `count` records of `bytes`.
    pub(crate) fn many(count: u32, bytes: &'a [u8]) -> Self {
        let length = (count as usize).saturating_mul(size_of::<ForgetOne>()).min(bytes.len());
        Forgets { one: None, many: bytes[..length].chunks_exact(size_of::<ForgetOne>()) }
    }
}

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        self.one.take().or_else(|| {
            let record = ForgetOne::read_from_bytes(self.many.next()?).ok()?;
            Some((record.nodeid, record.nlookup))
        })
    }
}
