//! Record locks and `flock`.

kernel! {
    /// A byte range with its kind of lock; `end` is inclusive.
    struct RawFileLock { start: u64, end: u64, kind: u32, pid: u32 }

    /// GETLK, SETLK and SETLKW.
    struct LkIn { fh: u64, owner: u64, lk: RawFileLock, lk_flags: u32, padding: u32 }

    /// Reply to GETLK.
    struct LkOut { lk: RawFileLock }
}

/// In [`LkIn::lk_flags`]: an `flock`, not a record lock.
pub const LK_FLOCK: u32 = 1 << 0;
/// `F_RDLCK`
pub const F_RDLCK: u32 = 0;
/// `F_WRLCK`
pub const F_WRLCK: u32 = 1;
/// `F_UNLCK`
pub const F_UNLCK: u32 = 2;
