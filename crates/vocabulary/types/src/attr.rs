//! Attributes of an inode, as programs see them.

use crate::{Generation, Ino, ProjectId, Timestamp};
use crate::{byte_enum, record};

byte_enum! {
    /// What an inode is.
    pub enum Kind {
        /// Regular file.
        File = 1,
        /// Directory.
        Dir = 2,
        /// Symbolic link.
        Symlink = 3,
        /// Named pipe.
        Fifo = 4,
        /// Socket.
        Socket = 5,
        /// Character device.
        CharDev = 6,
        /// Block device.
        BlockDev = 7,
    }
}

impl Kind {
    /// The `S_IFMT` bits.
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::File => 0o100_000,
            Self::Dir => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::CharDev => 0o020_000,
            Self::BlockDev => 0o060_000,
        }
    }

    /// From the `S_IFMT` bits of a mode.
    pub fn from_mode(mode: u32) -> Option<Self> {
        [Self::File, Self::Dir, Self::Symlink, Self::Fifo, Self::Socket, Self::CharDev, Self::BlockDev]
            .into_iter()
            .find(|kind| kind.mode_bits() == mode & 0o170_000)
    }

    /// The `DT_*` number of a directory listing.
    pub fn dirent_type(self) -> u32 {
        self.mode_bits() >> 12
    }
}

/// Permission bits (12 bits: suid, sgid, sticky, rwxrwxrwx), without the kind.
pub type Mode = u32;

record! {
    /// What `stat` shows, and what a client needs beside it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Attr {
        /// Inode number.
        pub ino: Ino,
        /// What it is.
        pub kind: Kind,
        /// Permission bits.
        pub mode: Mode,
        /// Names that lead to it (a directory: 2 + sub-directories).
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Project that its space is accounted to.
        pub project: ProjectId,
        /// Device number of a device node.
        pub rdev: u32,
        /// Size in bytes.
        pub size: u64,
        /// 512-byte blocks in use, as last committed.
        pub blocks: u64,
        /// Last access (set by utimensat and by creation; reads do not move it).
        pub atime: Timestamp,
        /// Last change of the content.
        pub mtime: Timestamp,
        /// Last change of the inode.
        pub ctime: Timestamp,
        /// Birth.
        pub btime: Timestamp,
        /// Moves with every change of content or attributes.
        pub change: u64,
        /// Layout generation. 0 while the data is inline.
        pub generation: Generation,
        /// How often the file was cut or set to a size, on all its targets: an end that was known at another
        /// number may be cut since. From 1 on; 0 = unknown.
        pub cuts: u64,
        /// How often the change time of the content was set to a given one.
        pub time_sets: u64,
        /// [`Attr::MTIME_GIVEN`] and the others; bits of later releases are passed over.
        pub flags: u32,
    }
}

impl Attr {
    /// The change time is a given one: nothing was written since.
    pub const MTIME_GIVEN: u32 = 1;

    /// It has no ACL.
    pub const NO_ACL: u32 = 1 << 1;
    /// It has no capability (the extended attribute that gives a program rights).
    pub const NO_CAPABILITY: u32 = 1 << 2;
    /// It has no other extended attributes.
    pub const NO_OTHER_XATTR: u32 = 1 << 3;
    /// The lease on its directory that the answer gives covers these attributes.
    pub const COVERED: u32 = 1 << 4;
    /// As told by who holds the file, and may know more of its size and times.
    pub const AS_TOLD: u32 = 1 << 5;

    /// Is the change time a given one?
    pub fn is_mtime_given(&self) -> bool {
        self.flags & Self::MTIME_GIVEN != 0
    }
}

byte_enum! {
    /// How `utimensat` sets a time when it sets one.
    pub enum TimeIs {
        /// The server's present.
        Now = 1,
        /// A time that follows.
        Given = 2,
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The shard's present.
    Now,
    /// Exactly this.
    At(Timestamp),
}

impl crate::Encode for SetTime {
    fn encode(&self, out: &mut crate::codec::Buffer) {
        match self {
            Self::Now => TimeIs::Now.encode(out),
            Self::At(time) => {
                TimeIs::Given.encode(out);
                time.encode(out);
            }
        }
    }
}

impl crate::Decode for SetTime {
    fn decode(r: &mut crate::Reader<'_>) -> Result<Self, crate::DecodeError> {
        Ok(match TimeIs::decode(r)? {
            TimeIs::Now => Self::Now,
            TimeIs::Given => Self::At(Timestamp::decode(r)?),
        })
    }
}

record! {
    /// What `setattr` changes: absent = stays.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct SetAttr {
        /// Permission bits.
        pub mode: Option<Mode>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Size (truncate).
        pub size: Option<u64>,
        /// The size is a least one: a file that is longer stays as it is, and no content is cut.
        pub grow_only: bool,
        /// Access time.
        pub atime: Option<SetTime>,
        /// Change time of the content.
        pub mtime: Option<SetTime>,
        /// Clear suid, and sgid when group-executable (a write or truncate by an ordinary user).
        pub kill_suidgid: bool,
    }
}
