//! Open files and their bytes: open, close, read, write, punch, allocate.

use crate::fs::{Access, Fs, Handle, OpenFile};
use alloc::vec::Vec;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{Errno, Ino, Timestamp};

/// A range as Linux accepts it for reads and writes: it ends within the highest file size.
pub(crate) fn checked(offset: u64, len: usize) -> Result<(), Errno> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

impl Fs {
    /// Opens `ino` under a number that is not in use (EMFILE). EISDIR for writing to a directory.
    pub fn open(&mut self, handle: Handle, ino: Ino, access: Access) -> Result<(), Errno> {
        if self.handles.contains_key(&handle) {
            return Err(Errno::EMFILE);
        }
        let inode = self.inode_mut(ino)?;
        if access.write && inode.is_dir() {
            return Err(Errno::EISDIR);
        }
        inode.opens += 1;
        self.handles.insert(handle, OpenFile { ino, access });
        Ok(())
    }

    /// Closes a handle (EBADF): its locks go. The last one of an inode without names takes it away.
    pub fn close(&mut self, handle: Handle) -> Result<(), Errno> {
        let file = self.handles.remove(&handle).ok_or(Errno::EBADF)?;
        self.inode_mut(file.ino)?.opens -= 1;
        self.drop_locks(file.ino, handle.0.into());
        self.reap(file.ino);
        Ok(())
    }

    /// What a handle is open on, and for what. EBADF.
    pub fn handle(&self, handle: Handle) -> Result<(Ino, Access), Errno> {
        self.handles.get(&handle).map(|file| (file.ino, file.access)).ok_or(Errno::EBADF)
    }

    /// Every open handle.
    pub fn handles(&self) -> impl Iterator<Item = (Handle, Ino)> + '_ {
        self.handles.iter().map(|(handle, file)| (*handle, file.ino))
    }

    /// Handles on `ino`.
    pub fn opens(&self, ino: Ino) -> Result<u32, Errno> {
        Ok(self.inode(ino)?.opens)
    }

    /// Closes every handle for which `of` says so: a client died.
    pub fn close_all(&mut self, of: impl Fn(Handle) -> bool) {
        let closing: Vec<Handle> = self.handles.keys().copied().filter(|handle| of(*handle)).collect();
        for handle in closing {
            // It was just found open, so it cannot fail.
            let _closed = self.close(handle);
        }
    }

    /// Bytes from `offset`, fewer at the end of the file. EISDIR, EINVAL.
    pub fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        checked(offset, len)?;
        Ok(self.content(ino)?.read(offset, len))
    }

    /// Puts `data` at `offset`. Nothing written moves nothing. `kill_suidgid` as in
    /// [`SetAttr`](skep_types::SetAttr). EISDIR, EINVAL.
    pub fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        kill_suidgid: bool,
        now: Timestamp,
    ) -> Result<usize, Errno> {
        checked(offset, data.len())?;
        self.content(ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        self.content_mut(ino)?.write(offset, data);
        self.kill_suidgid(ino, kill_suidgid)?;
        self.inode_mut(ino)?.content_moved(now);
        Ok(data.len())
    }

    /// Puts `data` at the end; as much of it as fits below [`FILE_SIZE_MAX`], EFBIG when nothing does.
    pub fn append(&mut self, ino: Ino, data: &[u8], kill: bool, now: Timestamp) -> Result<usize, Errno> {
        let size = self.content(ino)?.size();
        let room = (FILE_SIZE_MAX - size).min(data.len() as u64) as usize;
        if room == 0 && !data.is_empty() {
            return Err(Errno::EFBIG);
        }
        self.write(ino, size, &data[..room], kill, now)
    }

    /// `fallocate(PUNCH_HOLE | KEEP_SIZE)`: the range reads as zeros. EINVAL for an empty range, EFBIG
    /// beyond [`FILE_SIZE_MAX`], EISDIR, ENODEV.
    pub fn punch(
        &mut self,
        ino: Ino,
        offset: u64,
        len: u64,
        kill: bool,
        now: Timestamp,
    ) -> Result<(), Errno> {
        self.fallocate_range(ino, offset, len)?;
        self.content_mut(ino)?.punch(offset, len);
        self.kill_suidgid(ino, kill)?;
        self.inode_mut(ino)?.content_moved(now);
        Ok(())
    }

    /// `fallocate(0)` or `fallocate(KEEP_SIZE)`: space is promised, which the model has without end; the
    /// file grows unless `keep_size`. Errors as [`Fs::punch`].
    pub fn allocate(
        &mut self,
        ino: Ino,
        (offset, len): (u64, u64),
        keep_size: bool,
        kill: bool,
        now: Timestamp,
    ) -> Result<(), Errno> {
        self.fallocate_range(ino, offset, len)?;
        let content = self.content_mut(ino)?;
        if !keep_size && offset + len > content.size() {
            content.truncate(offset + len);
        }
        self.kill_suidgid(ino, kill)?;
        self.inode_mut(ino)?.content_moved(now);
        Ok(())
    }

    fn fallocate_range(&self, ino: Ino, offset: u64, len: u64) -> Result<(), Errno> {
        if len == 0 || offset > FILE_SIZE_MAX || len > FILE_SIZE_MAX {
            return Err(Errno::EINVAL);
        }
        self.content(ino).map_err(|e| if e == Errno::EINVAL { Errno::ENODEV } else { e })?;
        // Neither is above i64::MAX, so the sum cannot overflow.
        if offset + len > FILE_SIZE_MAX { Err(Errno::EFBIG) } else { Ok(()) }
    }
}
