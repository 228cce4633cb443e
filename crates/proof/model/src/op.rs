//! An operation of a history, in small indices, and what came of it.

use crate::content::Content;
use crate::copy::may_seek;
use crate::fs::{Handle, Stat};
use crate::lock::{LockFound, LockSpace};
use crate::rename::RenameHow;
use crate::rng::Rng;
use crate::xattr::XattrHow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use skep_types::{Errno, Kind, Mode, Name, SetTime};

/// Longest path of a history, in names.
pub const DEPTH_MAX: usize = 5;

const LONGEST: [u8; 255] = [b'n'; 255];

/// The names that paths are made of: few, so that operations meet. The first
/// [`NAMES_OF_DIRS`] are mostly directories. The last two are awkward: 255 bytes, and no UTF-8.
pub const NAMES: [&[u8]; 10] =
    [b"d0", b"d1", b"d2", b"d3", b"f0", b"f1", b"f2", b"f3", &LONGEST, b"\xff\xfe f\n"];

/// How many of [`NAMES`] the generator uses for directories by preference.
pub(crate) const NAMES_OF_DIRS: u8 = 4;

/// Extended attributes of users that a history uses.
pub const XATTR_NAMES: u8 = 24;

/// Numbers from [`XATTR_NAMES`] on that name attributes of the administrator; any higher one is too long.
pub(crate) const XATTR_NAMES_OF_ROOT: [&[u8]; 2] = [b"trusted.x0", b"security.x0"];

/// The name number `index` of [`NAMES`].
pub fn path_name(index: u8) -> &'static [u8] {
    NAMES[index as usize % NAMES.len()]
}

/// The name of extended attribute `index`: `user.x0`, `user.x1`..., then those of the administrator.
pub fn xattr_name(index: u8) -> Vec<u8> {
    if let Some(name) = index.checked_sub(XATTR_NAMES).and_then(|at| XATTR_NAMES_OF_ROOT.get(at as usize)) {
        return name.to_vec();
    }
    if index >= XATTR_NAMES {
        let mut name = b"user.".to_vec();
        name.resize(256, b'x');
        return name;
    }
    alloc::format!("user.x{index}").into_bytes()
}

/// A path below the root of the history, as indices into [`NAMES`]. Empty = the root itself.
#[derive(Clone, Copy)]
pub struct Path {
    parts: [u8; DEPTH_MAX],
    len: u8,
}

impl Path {
    pub const ROOT: Self = Self { parts: [0; DEPTH_MAX], len: 0 };

    /// The path of these names; what is deeper than [`DEPTH_MAX`] is left out.
    pub fn new(indices: &[u8]) -> Self {
        let mut path = Self::ROOT;
        for (part, index) in path.parts.iter_mut().zip(indices) {
            *part = *index;
        }
        path.len = indices.len().min(DEPTH_MAX) as u8;
        path
    }

    /// The path of name `index` in this directory; beside it where it is `depth` names deep already.
    pub fn below(mut self, index: u8, depth: u8) -> Self {
        let at = self.len.min(depth.clamp(1, DEPTH_MAX as u8) - 1);
        self.parts[at as usize] = index;
        self.len = at + 1;
        self
    }

    /// The names, from the root down.
    pub fn names(&self) -> impl Iterator<Item = &'static [u8]> + '_ {
        self.parts[..self.len as usize].iter().map(|index| path_name(*index))
    }

    /// The names joined by slashes, without one at the start.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.names().collect::<Vec<_>>().join(&b'/')
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.parts[..self.len as usize] == other.parts[..other.len as usize]
    }
}

impl Eq for Path {}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in self.names() {
            let shown = if name.len() > 20 { &b"<255 bytes>"[..] } else { name };
            write!(f, "/{}", shown.escape_ascii())?;
        }
        if self.len == 0 { f.write_str("/") } else { Ok(()) }
    }
}

/// What an attribute operation works on. A path is never followed at its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// By path, as `lstat` does.
    Path(Path),
    /// By handle, as `fstat` does.
    Handle(Handle),
}

/// Bytes that a number stands for, so that a history stays small in memory and in logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Which bytes. 0 = zeros.
    pub tag: u32,
    pub len: u32,
}

impl Fill {
    /// The bytes. Those of different tags differ nearly everywhere; a shift shows, too.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len as usize);
        if self.tag == 0 {
            bytes.resize(self.len as usize, 0);
        }
        let mut rng = Rng::new(self.tag.into());
        while bytes.len() < self.len as usize {
            let left = self.len as usize - bytes.len();
            bytes.extend_from_slice(&rng.next_u64().to_le_bytes()[..left.min(8)]);
        }
        bytes
    }
}

/// How [`Op::Open`] opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenHow {
    pub read: bool,
    pub write: bool,
    /// `O_APPEND`.
    pub append: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_CREAT`.
    pub create: bool,
    /// `O_EXCL`, only with `create`.
    pub exclusive: bool,
}

/// One operation. `kill` = the caller lacks `CAP_FSETID`, so that suid and sgid are cleared.
///
/// How a driver carries one out on a real file system, so that the outcomes can be compared:
/// - paths are relative to an empty directory of its own, umask 0, one caller for the whole history;
/// - `Open` always with `O_NOFOLLOW`; of a fifo, socket or device it answers ENXIO itself, without
///   opening (unless `exclusive`: EEXIST), for what a device answers is no matter of the file system;
/// - handles are the driver's: a number in use answers EMFILE, one not in use EBADF, before any call;
/// - by path: `Chmod` fails with EOPNOTSUPP on a symbolic link, `Chown`, `Utimens`, `Stat` and the
///   extended attributes do not follow it; `Truncate` and `List` follow it, as Linux does. All links
///   lead nowhere (`absent/...`), so following one is always ENOENT;
/// - `Write` and `Read` are one `pwrite` and one `pread`; `Copy` is `copy_file_range` until all is copied or
///   nothing more comes;
/// - `LinkHandle` goes by `/proc/self/fd`; `Seek` of a directory answers EISDIR itself;
/// - locks belong to the handle: `F_OFD_SETLK`, `F_OFD_GETLK`, `flock`, never waiting. A lock that another of the
///   driver's handles holds conflicts like anybody's;
/// - an outcome is right when the model's [`Outcome::accepts`] it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Opens, and perhaps creates, under a number that the history chose.
    Open { path: Path, handle: Handle, how: OpenHow, mode: Mode, kill: bool },
    /// Makes an open file without a name in a directory; `exclusive` = it never gets one (`O_EXCL`).
    OpenTemp { path: Path, handle: Handle, mode: Mode, exclusive: bool },
    /// Gives an open file a name.
    LinkHandle { handle: Handle, to: Path },
    /// Closes.
    Close { handle: Handle },
    /// Makes a directory.
    Mkdir { path: Path, mode: Mode },
    /// Makes a special file, or an empty regular one.
    Mknod { path: Path, kind: Kind, mode: Mode, rdev: u32 },
    /// Makes a symbolic link of this many bytes; see [`Op::symlink_target`].
    Symlink { path: Path, len: u16 },
    /// Reads a symbolic link.
    Readlink { path: Path },
    /// Makes a hard link (of the symbolic link itself, where `from` is one).
    Link { from: Path, to: Path },
    /// Takes a name away.
    Unlink { path: Path },
    /// Takes a directory away.
    Rmdir { path: Path },
    /// Renames.
    Rename { from: Path, to: Path, how: RenameHow },
    /// Lists a directory.
    List { path: Path },
    /// Reads attributes.
    Stat { at: At },
    /// Sets the mode.
    Chmod { at: At, mode: Mode },
    /// Sets owner or group: at least one is given.
    Chown { at: At, uid: Option<u32>, gid: Option<u32> },
    /// Sets times; absent = stays.
    Utimens { at: At, atime: Option<SetTime>, mtime: Option<SetTime> },
    /// Sets the size: `truncate` by path, `ftruncate` by handle.
    Truncate { at: At, size: u64, kill: bool },
    /// Writes.
    Write { handle: Handle, offset: u64, fill: Fill, kill: bool },
    /// Reads.
    Read { handle: Handle, offset: u64, len: u32 },
    /// Punches a hole.
    Punch { handle: Handle, offset: u64, len: u64, kill: bool },
    /// Allocates space.
    Allocate { handle: Handle, offset: u64, len: u64, keep_size: bool, kill: bool },
    /// Zeroes a range.
    Zero { handle: Handle, offset: u64, len: u64, keep_size: bool, kill: bool },
    /// Copies between files, or within one.
    Copy { from: Handle, from_offset: u64, to: Handle, offset: u64, len: u32, kill: bool },
    /// Looks for data, or for a hole.
    Seek { handle: Handle, offset: u64, hole: bool },
    /// Takes a lock, or (`exclusive` = `None`) gives one up.
    Lock { handle: Handle, space: LockSpace, exclusive: Option<bool>, start: u64, last: u64 },
    /// Asks who holds a lock against a range lock.
    TestLock { handle: Handle, exclusive: bool, start: u64, last: u64 },
    /// Makes a file (or directory) durable. Changes nothing that can be seen; a crash test takes note.
    Fsync { handle: Handle },
    /// Sets an extended attribute.
    Setxattr { at: At, name: u8, value: Fill, how: XattrHow },
    /// Reads an extended attribute.
    Getxattr { at: At, name: u8 },
    /// Lists extended attributes.
    Listxattr { at: At },
    /// Takes an extended attribute away.
    Removexattr { at: At, name: u8 },
    /// Sets an access control list to a value of [`acl_value`](crate::acl_value).
    SetAcl { at: At, default: bool, value: u8 },
    /// Reads one.
    GetAcl { at: At, default: bool },
    /// Takes one away.
    RemoveAcl { at: At, default: bool },
}

impl Op {
    /// The paths that it names.
    pub fn paths_mut(&mut self) -> Vec<&mut Path> {
        match self {
            Self::Open { path, .. }
            | Self::OpenTemp { path, .. }
            | Self::LinkHandle { to: path, .. }
            | Self::Mkdir { path, .. }
            | Self::Mknod { path, .. }
            | Self::Symlink { path, .. }
            | Self::Readlink { path }
            | Self::Unlink { path }
            | Self::Rmdir { path }
            | Self::List { path }
            | Self::Stat { at: At::Path(path) }
            | Self::Chmod { at: At::Path(path), .. }
            | Self::Chown { at: At::Path(path), .. }
            | Self::Utimens { at: At::Path(path), .. }
            | Self::Truncate { at: At::Path(path), .. }
            | Self::Setxattr { at: At::Path(path), .. }
            | Self::Getxattr { at: At::Path(path), .. }
            | Self::Listxattr { at: At::Path(path) }
            | Self::Removexattr { at: At::Path(path), .. }
            | Self::SetAcl { at: At::Path(path), .. }
            | Self::GetAcl { at: At::Path(path), .. }
            | Self::RemoveAcl { at: At::Path(path), .. } => Vec::from([path]),
            Self::Link { from, to } | Self::Rename { from, to, .. } => Vec::from([from, to]),
            _ => Vec::new(),
        }
    }

    /// The target of a symbolic link of `len` bytes. It never leads anywhere.
    pub fn symlink_target(len: u16) -> Vec<u8> {
        b"absent/".iter().chain([b'x', b'/'].iter().cycle()).copied().take(len as usize).collect()
    }

    /// It changes nothing that can be seen, whatever the outcome.
    pub fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Readlink { .. }
                | Self::List { .. }
                | Self::Stat { .. }
                | Self::Read { .. }
                | Self::Fsync { .. }
                | Self::Getxattr { .. }
                | Self::Listxattr { .. }
                | Self::GetAcl { .. }
                | Self::Seek { .. }
                | Self::TestLock { .. }
        )
    }
}

/// What came of an operation, in a form that can be compared between implementations.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It happened; nothing to tell.
    Done,
    /// It failed, and changed nothing.
    Failed(Errno),
    /// Attributes.
    Stat(Stat),
    /// Names and kinds, without `.` and `..`.
    Entries(BTreeMap<Name, Kind>),
    /// Bytes of a file, a symbolic link or an extended attribute.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Xattrs(BTreeSet<Vec<u8>>),
    /// Bytes written.
    Written(usize),
    /// Where a seek led.
    Offset(u64),
    /// The model's word on a seek: where it may lead is in what the file holds.
    Seek {
        /// From here.
        from: u64,
        /// For a hole, not for data.
        hole: bool,
        /// The file.
        content: Content,
    },
    /// The lock that stands in the way, if any.
    Conflict(Option<LockFound>),
    /// The model's word on that: any of these.
    Conflicts(BTreeSet<LockFound>),
}

impl Outcome {
    /// Is this, the model's outcome, met by what another implementation answered?
    pub fn accepts(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Seek { from, hole, content }, Self::Offset(to)) => {
                may_seek(content, *from, *hole, Some(*to))
            }
            (Self::Seek { from, hole, content }, Self::Failed(Errno::ENXIO)) => {
                may_seek(content, *from, *hole, None)
            }
            (Self::Conflicts(all), Self::Conflict(found)) => match found {
                Some(found) => all.contains(found),
                None => all.is_empty(),
            },
            (expected, found) => expected == found,
        }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failed(errno) => write!(f, "{errno:?}"),
            Self::Stat(stat) => stat.fmt(f),
            Self::Entries(entries) => entries.fmt(f),
            // A digest tells two apart; 64 KiB in a message do not help anybody.
            Self::Bytes(bytes) => {
                let sum = bytes.iter().fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte));
                let head = &bytes[..bytes.len().min(16)];
                write!(f, "{} bytes, digest {sum:08x}, start {}", bytes.len(), head.escape_ascii())
            }
            Self::Xattrs(names) => f.debug_list().entries(names.iter().map(|n| n.escape_ascii())).finish(),
            Self::Written(count) => write!(f, "wrote {count}"),
            Self::Offset(offset) => write!(f, "at {offset}"),
            Self::Seek { from, hole, content } => {
                let (size, data) = (content.size(), content.next_data(*from));
                write!(f, "seek from {from}, hole {hole}, size {size}, next byte that is not 0: {data:?}")
            }
            Self::Conflict(found) => write!(f, "conflict: {found:?}"),
            Self::Conflicts(all) => write!(f, "conflicts: {all:?}"),
        }
    }
}

impl<T: Into<Outcome>> From<Result<T, Errno>> for Outcome {
    fn from(result: Result<T, Errno>) -> Self {
        result.map_or_else(Outcome::Failed, Into::into)
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<usize> for Outcome {
    fn from(count: usize) -> Self {
        Self::Written(count)
    }
}

impl From<Stat> for Outcome {
    fn from(stat: Stat) -> Self {
        Self::Stat(stat)
    }
}

impl From<Vec<u8>> for Outcome {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<BTreeMap<Name, Kind>> for Outcome {
    fn from(entries: BTreeMap<Name, Kind>) -> Self {
        Self::Entries(entries)
    }
}

impl From<BTreeSet<Vec<u8>>> for Outcome {
    fn from(names: BTreeSet<Vec<u8>>) -> Self {
        Self::Xattrs(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a path keeps its names, never grows beyond its depth, and equals by its names only.
    #[test]
    fn paths() {
        let path = Path::new(&[0, 5]);
        assert_eq!((path.to_bytes(), Path::ROOT.to_bytes()), (b"d0/f1".to_vec(), Vec::new()));
        assert_eq!(path.below(1, 3), Path::new(&[0, 5, 1]));
        assert_eq!(path.below(1, 2), Path::new(&[0, 1]));
        assert_eq!(path.below(1, 3).below(2, 1), Path::new(&[2]));
        assert_eq!(Path::new(&[1; 9]).names().count(), DEPTH_MAX);
    }

    /// Goal: fills differ by tag and by place, and link targets have their length and lead nowhere.
    #[test]
    fn fills_and_targets() {
        let (one, two) = (Fill { tag: 1, len: 5_001 }.bytes(), Fill { tag: 2, len: 5_001 }.bytes());
        assert_eq!(one.len(), 5_001);
        assert!(one.iter().zip(&two).filter(|(x, y)| x != y).count() > 4_900);
        assert!(one[..4_096] != one[8..4_104] && Fill { tag: 0, len: 9 }.bytes() == [0; 9]);
        assert_eq!(Op::symlink_target(4_095).len(), 4_095);
        assert!(Op::symlink_target(20).starts_with(b"absent/") && !NAMES.contains(&&b"absent"[..]));
        assert_eq!((xattr_name(3), xattr_name(u8::MAX).len()), (b"user.x3".to_vec(), 256));
        assert_eq!(xattr_name(XATTR_NAMES + 1), b"security.x0");
    }
}
