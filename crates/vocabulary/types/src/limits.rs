//! Named limits that both ends of a connection must agree on. Limits of one service stand beside
//! its rules. Reaching a limit is an error that says what to change, or back-pressure.

/// Name of the formats of state directories, targets and logs: a directory of another one is refused. What was written in
/// format 1 is opened by every later release; formats of the time before it (`dev-N`) are not.
pub const FORMAT: &str = "1";
/// Name of the files in which tests keep the bytes of this release. Whoever adds to a format once these are released gives
/// it another name, and leaves the files of this one as they are: they must open for ever. (1.1: `newer_are_lost`.)
pub const FORMAT_FILES: &str = "1.1";
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link.
pub const SYMLINK_MAX: usize = 4095;
/// Highest file size: the last byte a program can address is at this offset minus one.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Most names of one inode (the link list in its row is bounded).
pub const LINKS_MAX: u32 = 1_000;
/// Longest value of one extended attribute.
pub const XATTR_VALUE_MAX: usize = 65_536;
/// Longest name of one extended attribute, with its namespace.
pub const XATTR_NAME_MAX: usize = 255;
/// Names plus values of all extended attributes of one inode.
pub const XATTR_TOTAL_MAX: usize = 1 << 20;
/// Default limit for data kept in the metadata.
pub const INLINE_DEFAULT: u32 = 8 * 1024;
/// Highest limit for data kept in the metadata: what clients send to a shard without asking.
pub const INLINE_MAX: u32 = INLINE_DEFAULT;
/// Smallest chunk.
pub const CHUNK_MIN: u32 = 64 * 1024;
/// Largest chunk.
pub const CHUNK_MAX: u32 = 1 << 30;
/// Default chunk.
pub const CHUNK_DEFAULT: u32 = 1 << 20;
/// Most stripes of one extent; a policy counts one target for each.
pub const TARGETS_MAX: usize = 256;
/// Most targets of one stripe: three copies, and one that takes the place of another.
pub const COPIES_MAX: usize = 4;
/// Most extents of one file.
pub const EXTENTS_MAX: usize = 64;
/// A chunk file is cut into pieces of this size (ext4 ends at 16 TiB).
pub const PIECE_SIZE: u64 = 1 << 40;
/// Largest body of a frame.
pub const BODY_MAX: usize = 1 << 20;
/// Largest payload of a frame.
pub const PAYLOAD_MAX: usize = 4 << 20;
/// Largest single read or write a client sends.
pub const TRANSFER_MAX: usize = 1 << 20;
/// Most metadata shards of a cluster.
pub const SHARDS_MAX: u16 = 1 << 14;
/// Most slots a client may use on one shard.
pub const SLOTS_MAX: u32 = 256;
/// Entries of one readdir reply.
pub const READDIR_MAX: u32 = 1_024;
/// Longest alias of a node or target.
pub const ALIAS_MAX: usize = 64;
/// Most addresses of one node.
pub const ADDRESSES_MAX: usize = 32;
