//! Attributes: chmod, chown, utimens, truncate, all through one call as a server sees them.

use crate::acl::follow_mode;
use crate::fs::{Fs, Inode};
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{Errno, Ino, Kind, Mode, SetAttr, SetTime, Timestamp};

const S_ISUID: Mode = 0o4000;
const S_ISGID: Mode = 0o2000;
const S_IXGRP: Mode = 0o0010;
const MODE_BITS: Mode = 0o7777;
/// Suid and sgid.
pub const SETID: Mode = S_ISUID | S_ISGID;

/// The mode without suid, and without sgid where it means "run as the group" (not: mandatory locks).
pub fn without_suidgid(mode: Mode) -> Mode {
    let mode = mode & !S_ISUID;
    if mode & S_IXGRP != 0 { mode & !S_ISGID } else { mode }
}

fn moment(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::At(at) => at,
    }
}

impl Fs {
    /// Changes what `set` names.
    ///
    /// - chmod: EOPNOTSUPP on a symbolic link.
    /// - chown of anything but a directory clears suid, and sgid when group-executable, whoever asks.
    /// - size: EISDIR, EINVAL for anything but a regular file or beyond [`FILE_SIZE_MAX`]. It moves
    ///   mtime and ctime, also when the size stays (so does Linux by handle; by path its file systems differ).
    /// - everything else moves ctime; a call that changes nothing moves nothing.
    pub fn setattr(&mut self, ino: Ino, set: &SetAttr, now: Timestamp) -> Result<(), Errno> {
        let kind = self.inode(ino)?.kind();
        if set.mode.is_some() && kind == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(size) = set.size {
            self.content(ino)?;
            if size > FILE_SIZE_MAX {
                return Err(Errno::EINVAL);
            }
            self.content_mut(ino)?.truncate(size);
        }
        let inode = self.inode_mut(ino)?;
        if set.size.is_some() {
            inode.mtime = now;
        }
        let changed = apply_ownership(inode, kind, set) | apply_times(inode, set, now);
        if set.size.is_some() || changed {
            inode.inode_moved(now);
        }
        Ok(())
    }

    /// A write, truncate or punch by a caller who may not keep suid and sgid.
    pub(crate) fn kill_suidgid(&mut self, ino: Ino, kill: bool) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        if kill && inode.kind() == Kind::File {
            inode.mode = without_suidgid(inode.mode);
        }
        Ok(())
    }
}

/// Mode, owner and group. True when one was set.
fn apply_ownership(inode: &mut Inode, kind: Kind, set: &SetAttr) -> bool {
    let chown = set.uid.is_some() || set.gid.is_some();
    let mut changed = set.mode.is_some() || chown;
    if let Some(mode) = set.mode {
        inode.mode = mode & MODE_BITS;
        follow_mode(inode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    if (chown && kind != Kind::Dir) || (set.kill_suidgid && kind == Kind::File) {
        let mode = without_suidgid(inode.mode);
        changed |= mode != inode.mode;
        inode.mode = mode;
    }
    changed
}

/// The times that are given. True when one was set.
fn apply_times(inode: &mut Inode, set: &SetAttr, now: Timestamp) -> bool {
    if let Some(time) = set.atime {
        inode.atime = moment(time, now);
    }
    if let Some(time) = set.mtime {
        inode.mtime = moment(time, now);
    }
    set.atime.is_some() || set.mtime.is_some()
}
