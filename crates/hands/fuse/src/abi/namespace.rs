//! Names: creating, linking, renaming, listing.

kernel! {
    /// MKNOD; the name follows.
    struct MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }

    /// MKDIR; the name follows.
    struct MkdirIn { mode: u32, umask: u32 }

    /// LINK; the new name follows.
    struct LinkIn { oldnodeid: u64 }

    /// RENAME; old and new name follow.
    struct RenameIn { newdir: u64 }

    /// RENAME2; old and new name follow.
    struct Rename2In { newdir: u64, flags: u32, padding: u32 }

    /// CREATE and TMPFILE; the name follows (TMPFILE's means nothing).
    struct CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }

    /// Head of a directory record; `namelen` bytes of name follow, padded to 8.
    struct Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
}

/// Directory records start at multiples of this.
pub const DIRENT_ALIGN: usize = 8;
