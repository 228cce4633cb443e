//! Open files: reading, writing and what goes with them.

kernel! {
    /// OPEN and OPENDIR.
    struct OpenIn { flags: u32, open_flags: u32 }

    /// Reply to OPEN, OPENDIR and, after the entry, CREATE.
    struct OpenOut { fh: u64, open_flags: u32, padding: u32 }

    /// RELEASE and RELEASEDIR.
    struct ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }

    struct FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }

    /// READ, READDIR and READDIRPLUS.
    struct ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// WRITE; `size` bytes follow.
    struct WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// Reply to WRITE and COPY_FILE_RANGE.
    struct WriteOut { size: u32, padding: u32 }

    /// FSYNC and FSYNCDIR.
    struct FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }

    struct FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }

    struct LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }

    /// Reply to LSEEK.
    struct LseekOut { offset: u64 }

    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    struct CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }

    /// Reply to COPY_FILE_RANGE_64.
    struct CopyFileRangeOut { bytes_copied: u64 }
}

/// In [`OpenIn::open_flags`] and `CreateIn::open_flags`: clear suid and sgid (with O_TRUNC).
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// In [`ReadIn::read_flags`]: `lock_owner` counts.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// In [`WriteIn::write_flags`]: written back from the page cache; handle and owner are guesses.
pub const WRITE_CACHE: u32 = 1 << 0;
/// In [`WriteIn::write_flags`]: `lock_owner` counts.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// In [`WriteIn::write_flags`]: clear suid and sgid.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// In [`FsyncIn::fsync_flags`]: data only.
pub const FSYNC_DATA: u32 = 1 << 0;
/// In [`ReleaseIn::release_flags`]: flush before release.
pub const RELEASE_FLUSH: u32 = 1 << 0;
/// In [`ReleaseIn::release_flags`]: drop the `flock` of this handle.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
