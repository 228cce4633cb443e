//! Between the words of the kernel and those of the core.

use skep_client::{Valid, WriteHow};
use skep_types::{Errno, Kind, Timestamp};
use skep_wire::meta::OpenMode;
use std::time::Duration;

/// Preferred size of a program's requests: `cp` and `cat` go by it.
const BLOCK_SIZE: u32 = 128 << 10;
/// The bits of `open(2)` that this release acts upon.
pub mod flags {
    /// Access mode.
    pub const ACCMODE: u32 = 3;
    /// Write only.
    pub const WRONLY: u32 = 1;
    /// O_EXCL.
    pub const EXCL: u32 = 0o200;
    /// O_APPEND.
    pub const APPEND: u32 = 0o2000;
    /// O_TRUNC.
    pub const TRUNC: u32 = 0o1000;
    /// O_DIRECT.
    pub const DIRECT: u32 = 0o40000;
    /// O_DSYNC, which O_SYNC includes.
    pub const DSYNC: u32 = 0o10000;
}

/// An error for the kernel.
pub fn errno(errno: Errno) -> skep_fuse::Errno {
    skep_fuse::Errno(i32::from(errno.0))
}

fn time(time: Timestamp) -> skep_fuse::Time {
    skep_fuse::Time { seconds: time.secs, nanos: time.nanos }
}

fn timestamp(time: skep_fuse::Time) -> Timestamp {
    Timestamp { secs: time.seconds, nanos: time.nanos }
}

fn set_time(time: skep_fuse::SetTime) -> skep_types::SetTime {
    match time {
        skep_fuse::SetTime::Now => skep_types::SetTime::Now,
        skep_fuse::SetTime::At(time) => skep_types::SetTime::At(timestamp(time)),
    }
}

/// Attributes for the kernel.
pub fn attr(attr: &skep_types::Attr) -> skep_fuse::Attr {
    skep_fuse::Attr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        mode: attr.kind.mode_bits() | attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_SIZE,
    }
}

/// An entry for the kernel, which may use its name and attributes for so long.
pub fn entry(of: &skep_types::Attr, valid: Valid) -> skep_fuse::Entry {
    skep_fuse::Entry {
        ino: of.ino.0,
        generation: 0, // inode numbers are never used again
        attr: attr(of),
        entry_valid: Duration::from_millis(valid.name),
        attr_valid: Duration::from_millis(valid.attributes),
    }
}

/// The answer to getattr and setattr, which the kernel may use for so many milliseconds.
pub fn attr_reply(of: &skep_types::Attr, valid_ms: u64) -> skep_fuse::AttrReply {
    skep_fuse::AttrReply { attr: attr(of), attr_valid: Duration::from_millis(valid_ms) }
}

/// What setattr shall change.
pub fn set_attr(set: &skep_fuse::SetAttr) -> skep_types::SetAttr {
    skep_types::SetAttr {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        grow_only: false,
        atime: set.atime.map(set_time),
        mtime: set.mtime.map(set_time),
        kill_suidgid: set.kill_suidgid,
    }
}

/// What an open is for.
pub fn open_mode(bits: u32) -> OpenMode {
    match bits & flags::ACCMODE {
        0 => OpenMode::Read,
        flags::WRONLY => OpenMode::Write,
        _ => OpenMode::ReadWrite,
    }
}

/// How a write is done.
pub fn write_how(request: &skep_fuse::WriteRequest) -> WriteHow {
    WriteHow {
        kill_suidgid: request.kill_suidgid,
        sync: request.flags & flags::DSYNC != 0,
        // Pages of a mapping belong where they are.
        append: request.flags & flags::APPEND != 0 && !request.from_cache,
        from_pages: request.from_cache,
        direct: request.flags & flags::DIRECT != 0,
    }
}

/// The kind of a directory record.
pub fn kind(kind: Kind) -> skep_fuse::FileKind {
    skep_fuse::FileKind::from_mode(kind.mode_bits()).unwrap_or(skep_fuse::FileKind::Regular)
}

/// Space for statfs. What a new file can have is what users other than root can have, too.
pub fn statfs(capacity: skep_types::Capacity) -> skep_fuse::StatFs {
    const UNIT: u32 = 4096;
    let unit = u64::from(UNIT);
    skep_fuse::StatFs {
        blocks: capacity.bytes / unit,
        bfree: capacity.bytes_free / unit,
        bavail: capacity.bytes_free / unit,
        files: capacity.inodes,
        ffree: capacity.inodes_free,
        bsize: UNIT,
        namelen: skep_types::limits::NAME_MAX as u32,
        frsize: UNIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every kind keeps its bits on the way to the kernel, and access modes their meaning.
    #[test]
    fn kinds_and_modes() {
        for kind_of in [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDev] {
            assert_eq!(kind(kind_of).mode_bits(), kind_of.mode_bits());
        }
        assert_eq!([0, 1, 2].map(open_mode), [OpenMode::Read, OpenMode::Write, OpenMode::ReadWrite]);
        let request = skep_fuse::SetAttr { mode: Some(0o104_755), ..skep_fuse::SetAttr::default() };
        assert_eq!(set_attr(&request).mode, Some(0o4755));
    }
}
