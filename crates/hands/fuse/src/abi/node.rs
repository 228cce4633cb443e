//! Inodes: entries, attributes, forgetting, file system statistics.

kernel! {
    /// Attributes of an inode (`struct fuse_attr`).
    struct RawAttr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    /// A name's inode with its cache times.
    struct EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: RawAttr,
    }

    struct GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }

    /// Attributes with their cache time.
    struct AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: RawAttr }

    /// SETATTR; `valid` says which fields count.
    struct SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }

    struct ForgetIn { nlookup: u64 }

    /// One of the inodes of a BATCH_FORGET.
    struct ForgetOne { nodeid: u64, nlookup: u64 }

    /// BATCH_FORGET; `count` [`ForgetOne`] follow.
    struct BatchForgetIn { count: u32, dummy: u32 }

    struct StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
}

/// GETATTR carries a file handle.
pub const GETATTR_FH: u32 = 1 << 0;

/// Bits of [`SetattrIn::valid`].
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}
