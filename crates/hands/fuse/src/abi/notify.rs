//! Messages the file system sends unasked.

kernel! {
    /// Drops cached attributes and pages of an inode.
    struct InvalInodeOut { ino: u64, off: i64, len: i64 }

    /// Puts bytes, which follow, into pages of an inode, and makes it as long as they reach.
    struct StoreOut { nodeid: u64, offset: u64, size: u32, padding: u32 }

    /// Drops a cached name, which follows with its NUL.
    struct InvalEntryOut { parent: u64, namelen: u32, flags: u32 }

    /// Tells that a name was deleted; it follows with its NUL.
    struct DeleteOut { parent: u64, child: u64, namelen: u32, padding: u32 }
}

/// Code of [`InvalInodeOut`].
pub const INVAL_INODE: i32 = 2;
/// Code of [`InvalEntryOut`].
pub const INVAL_ENTRY: i32 = 3;
/// Code of [`StoreOut`].
pub const STORE: i32 = 4;
/// Code of [`DeleteOut`].
pub const DELETE: i32 = 6;
/// Code of the message without body that makes the kernel drop every cached name at its next use (7.44).
pub const INC_EPOCH: i32 = 8;
/// In [`InvalEntryOut::flags`]: expire the name instead of dropping it.
pub const EXPIRE_ONLY: u32 = 1 << 0;
