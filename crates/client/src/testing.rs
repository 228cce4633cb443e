//! Helpers of this crate's tests.

use skep_types::{Attr, Generation, Ino, Kind, ProjectId, Timestamp};

/// Attributes of a regular file.
pub fn attr(ino: u64, change: u64, size: u64) -> Attr {
    Attr {
        ino: Ino(ino),
        kind: Kind::File,
        mode: 0o644,
        nlink: 1,
        uid: 1,
        gid: 2,
        project: ProjectId(0),
        rdev: 0,
        size,
        blocks: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        btime: Timestamp::default(),
        change,
        generation: Generation(0),
    }
}
