//! What replies say about inodes, entries, opened files and the file system.

use core::ops::BitOr;
use core::time::Duration;

use crate::abi::file::OpenOut;
use crate::abi::node::{AttrOut, EntryOut, RawAttr, StatfsOut};

/// A point in time since 1970; seconds may be negative, nanoseconds count upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    pub(crate) fn from_wire(seconds: u64, nanos: u32) -> Result<Time, crate::Errno> {
        if nanos >= 1_000_000_000 {
            return Err(crate::Errno::EINVAL);
        }
        Ok(Time { seconds: seconds.cast_signed(), nanos })
    }
}

/// The kinds of inode; the values are those of `d_type`, which are also the top bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Unix socket.
    Socket = 12,
}

impl FileKind {
    /// The kind in the top bits of a mode; a mode without them (as MKNOD may send) is a regular file.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode >> 12 & 0o17 {
            0 | 8 => FileKind::Regular,
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The kind as the top bits of a mode.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// `st_ino`; normally the node id.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number in the kernel's 32-bit encoding, as MKNOD gave it.
    pub rdev: u32,
    /// Preferred size of requests.
    pub blksize: u32,
}

impl Attr {
    fn to_wire(self) -> RawAttr {
        RawAttr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds.cast_unsigned(),
            mtime: self.mtime.seconds.cast_unsigned(),
            ctime: self.ctime.seconds.cast_unsigned(),
            atimensec: self.atime.nanos,
            mtimensec: self.mtime.nanos,
            ctimensec: self.ctime.nanos,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: 0,
        }
    }
}

/// Attributes and how long the kernel may use them without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrReply {
    pub attr: Attr,
    /// Their cache time.
    pub attr_valid: Duration,
}

impl AttrReply {
    pub(crate) fn to_wire(self) -> AttrOut {
        AttrOut {
            attr_valid: self.attr_valid.as_secs(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            dummy: 0,
            attr: self.attr.to_wire(),
        }
    }
}

/// A name's inode. Every entry returned counts as one lookup that a later forget takes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Node id; 0 says that the name does not exist.
    pub ino: u64,
    /// Distinguishes re-uses of one node id.
    pub generation: u64,
    /// The inode's attributes.
    pub attr: Attr,
    /// How long the name may be used without asking.
    pub entry_valid: Duration,
    /// How long the attributes may be used without asking.
    pub attr_valid: Duration,
}

impl Entry {
    /// A name that does not exist, which the kernel may remember for `valid`.
    #[must_use]
    pub fn negative(valid: Duration) -> Entry {
        Entry { entry_valid: valid, ..Entry::default() }
    }

    pub(crate) fn to_wire(self) -> EntryOut {
        EntryOut {
            nodeid: self.ino,
            generation: self.generation,
            entry_valid: self.entry_valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.entry_valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: self.attr.to_wire(),
        }
    }
}

/// How the kernel treats an opened file (FOPEN_*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// By-pass the page cache.
    pub const DIRECT_IO: OpenFlags = OpenFlags(1 << 0);
    /// Keep the pages cached by earlier opens.
    pub const KEEP_CACHE: OpenFlags = OpenFlags(1 << 1);
    /// No seeking.
    pub const NONSEEKABLE: OpenFlags = OpenFlags(1 << 2);
    /// Cache the listing of this directory.
    pub const CACHE_DIR: OpenFlags = OpenFlags(1 << 3);
    /// No file position at all.
    pub const STREAM: OpenFlags = OpenFlags(1 << 4);
    /// No FLUSH at close.
    pub const NOFLUSH: OpenFlags = OpenFlags(1 << 5);
    /// Direct writes of several threads to one inode may overlap in time.
    pub const PARALLEL_DIRECT_WRITES: OpenFlags = OpenFlags(1 << 6);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn contains(self, other: OpenFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for OpenFlags {
    type Output = OpenFlags;
    fn bitor(self, other: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | other.0)
    }
}

/// An opened file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handle that later requests carry.
    pub fh: u64,
    /// How the kernel treats it.
    pub flags: OpenFlags,
}

impl Opened {
    pub(crate) fn to_wire(self) -> OpenOut {
        OpenOut { fh: self.fh, open_flags: self.flags.0, padding: 0 }
    }
}

/// Space and inodes of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks of `frsize` in total.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for users other than root.
    pub bavail: u64,
    /// Inodes in total.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred size of requests.
    pub bsize: u32,
    /// Longest name.
    pub namelen: u32,
    /// Unit of the block counts.
    pub frsize: u32,
}

impl StatFs {
    pub(crate) fn to_wire(self) -> StatfsOut {
        StatfsOut {
            blocks: self.blocks,
            bfree: self.bfree,
            bavail: self.bavail,
            files: self.files,
            ffree: self.ffree,
            bsize: self.bsize,
            namelen: self.namelen,
            frsize: self.frsize,
            padding: 0,
            spare: [0; 6],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileKind;

    /// Goal: kinds survive the trip through a mode, and modes of no kind are refused.
    #[test]
    fn kinds_and_modes() {
        for kind in
            [FileKind::Fifo, FileKind::Directory, FileKind::Regular, FileKind::Symlink, FileKind::Socket]
        {
            assert_eq!(FileKind::from_mode(kind.mode_bits() | 0o644), Some(kind));
        }
        assert_eq!(FileKind::Directory.mode_bits(), 0o040_000);
        assert_eq!(FileKind::from_mode(0o644), Some(FileKind::Regular));
        assert_eq!(FileKind::from_mode(0o030_000), None);
    }
}
