//! Bytes moved inside the file system: copies, zeroed ranges; and where data is.

use crate::content::Content;
use crate::file::checked;
use crate::fs::Fs;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{Errno, Ino, Timestamp};

impl Fs {
    /// `copy_file_range`: copies what the source has of the range, and says how much that was. EISDIR, EINVAL (no
    /// regular file, or a range over itself), EFBIG.
    pub fn copy(
        &mut self,
        (from, from_offset): (Ino, u64),
        (to, offset): (Ino, u64),
        len: usize,
        kill: bool,
        now: Timestamp,
    ) -> Result<usize, Errno> {
        let dir = |ino| self.inode(ino).is_ok_and(|inode| inode.is_dir());
        if dir(from) || dir(to) {
            return Err(Errno::EISDIR);
        }
        self.content(to)?;
        let has = self.content(from)?.size().saturating_sub(from_offset).min(len as u64);
        if offset >= FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let len = has.min(FILE_SIZE_MAX - offset);
        if from == to && len > 0 && offset < from_offset + len && from_offset < offset + len {
            return Err(Errno::EINVAL);
        }
        checked(from_offset, len as usize)?;
        let data = self.content(from)?.read(from_offset, len as usize);
        self.write(to, offset, &data, kill, now)
    }

    /// `fallocate(ZERO_RANGE)`: the range reads as zeros; the file grows unless `keep_size`. Errors as
    /// [`Fs::allocate`].
    pub fn zero(
        &mut self,
        ino: Ino,
        (offset, len): (u64, u64),
        keep_size: bool,
        kill: bool,
        now: Timestamp,
    ) -> Result<(), Errno> {
        self.allocate(ino, (offset, len), keep_size, kill, now)?;
        self.content_mut(ino)?.punch(offset, len);
        Ok(())
    }
}

/// May `lseek(SEEK_DATA)` (or `SEEK_HOLE`: `hole`) from `from` lead to `to`? Where holes are is a file system's own
/// affair, but data is never called a hole, and the end is the end. `None` = ENXIO.
pub(crate) fn may_seek(content: &Content, from: u64, hole: bool, to: Option<u64>) -> bool {
    let size = content.size();
    let data = content.next_data(from);
    match to {
        None => from >= size || (!hole && data.is_none()),
        Some(to) if from >= size || to < from => false,
        Some(to) if hole => to == size || (to < size && content.read(to, 1) == [0]),
        Some(to) => to < size && data.is_none_or(|first| to <= first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::{call, name, root, time};

    /// Goal: copies end with the source, over themselves they are refused, and zeros are zeros.
    #[test]
    fn copies_and_zeros() {
        let mut fs = root();
        let a = fs.create(Ino::ROOT, &name("a"), 0o644, call(2)).unwrap();
        let b = fs.create(Ino::ROOT, &name("b"), 0o644, call(3)).unwrap();
        fs.write(a, 0, b"0123456789", false, time(1)).unwrap();
        assert_eq!(fs.copy((a, 4), (b, 2), 100, false, time(2)), Ok(6));
        assert_eq!(fs.read(b, 0, 100).unwrap(), b"\0\x00456789");
        assert_eq!(fs.copy((a, 10), (b, 2), 100, false, time(2)), Ok(0));
        assert_eq!(fs.copy((a, 0), (a, 5), 6, false, time(2)), Err(Errno::EINVAL));
        assert_eq!(fs.copy((a, 0), (a, 5), 5, false, time(2)), Ok(5));
        assert_eq!(fs.copy((a, 0), (Ino::ROOT, 5), 5, false, time(2)), Err(Errno::EISDIR));
        fs.zero(a, (8, 4), true, false, time(3)).unwrap();
        assert_eq!(fs.read(a, 0, 100).unwrap(), b"01234012\0\0");
        fs.zero(a, (9, 3), false, false, time(3)).unwrap();
        assert_eq!(fs.stat(a).unwrap().size, 12);
    }

    /// Goal: what may be said of holes, and what would be a lie.
    #[test]
    fn seeks() {
        let mut content = Content::default();
        content.write(10_000, b"abc");
        content.truncate(20_000);
        let data = |from, to| may_seek(&content, from, false, to);
        assert!(
            data(0, Some(0)) && data(0, Some(8_192)) && data(0, Some(10_000)) && data(10_001, Some(10_001))
        );
        assert!(!data(0, Some(10_001)) && !data(0, None) && !data(5, Some(4)));
        assert!(data(10_003, None) && data(10_003, Some(10_003)) && data(20_000, None));
        assert!(!data(20_000, Some(20_000)) && !data(10_003, Some(20_000)));
        let hole = |from, to| may_seek(&content, from, true, to);
        assert!(hole(0, Some(0)) && hole(0, Some(20_000)) && hole(10_000, Some(10_003)));
        assert!(!hole(0, Some(10_000)) && !hole(0, None) && !hole(0, Some(20_001)) && hole(20_000, None));
    }
}
