//! Open handles of programs.

use crate::limits::HANDLES_MAX;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use skep_types::{Errno, Ino, Millis};
use skep_wire::meta::{DirEntry, OpenMode};

/// A number that stands for an open file or directory.
pub type Handle = u64;

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHandle {
    pub ino: Ino,
    pub mode: OpenMode,
    /// Every write is durable when it is answered (O_SYNC, O_DSYNC).
    pub sync: bool,
    /// The kernel writes through its page cache.
    pub cached: bool,
    /// The newest loss of the mount that it has told of, or that is none of its business.
    pub losses: u64,
    /// The newest when it was opened: a close tells of later ones only.
    pub losses_before: u64,
    /// A lock that was taken through it went with the session, and the program does not know: EIO until it gives the
    /// lock up, or closes.
    pub lock_lost: bool,
}

/// An open directory, with the part of its listing that was fetched but not handed out.
#[derive(Debug, Default)]
pub struct DirHandle {
    /// The directory.
    pub ino: Ino,
    /// Its parent, once known.
    pub parent: Option<Ino>,
    /// Entries that come next.
    pub ahead: VecDeque<DirEntry>,
    /// Offset that the first of [`DirHandle::ahead`] follows.
    pub position: u64,
    /// Nothing follows the last of [`DirHandle::ahead`].
    pub end: bool,
    /// The entries have attributes.
    pub with_attr: bool,
    /// When they were fetched, and at which count of changes of the mount.
    pub fetched: (Millis, u64),
    /// [`crate::Shared::disbeliefs`] then.
    pub told: u64,
    /// The newest loss of the mount that it has told of, or that is none of its business.
    pub losses: u64,
}

#[derive(Debug)]
enum Open {
    File(FileHandle),
    Dir(DirHandle),
}

/// All handles of a mount.
#[derive(Debug, Default)]
pub struct Handles {
    table: BTreeMap<Handle, Open>,
    last: Handle,
}

impl Handles {
    fn add(&mut self, open: Open) -> Result<Handle, Errno> {
        self.has_room()?;
        self.last += 1;
        self.table.insert(self.last, open);
        Ok(self.last)
    }

    /// Is there room for one more?
    pub fn has_room(&self) -> Result<(), Errno> {
        if self.table.len() < HANDLES_MAX { Ok(()) } else { Err(Errno::ENFILE) }
    }

    /// A new handle of a file.
    pub fn add_file(&mut self, file: FileHandle) -> Result<Handle, Errno> {
        self.add(Open::File(file))
    }

    /// A new handle of a directory.
    pub fn add_dir(&mut self, dir: DirHandle) -> Result<Handle, Errno> {
        self.add(Open::Dir(dir))
    }

    /// The file behind a handle, for whoever reads, writes or locks. EIO when the program believes in a lock that is
    /// lost.
    pub fn file(&mut self, handle: Handle) -> Result<&mut FileHandle, Errno> {
        match self.table.get_mut(&handle) {
            Some(Open::File(file)) if file.lock_lost => Err(Errno::EIO),
            Some(Open::File(file)) => Ok(file),
            _ => Err(Errno::EBADF),
        }
    }

    /// The file behind a handle, whatever its program believes.
    pub fn any_file(&mut self, handle: Handle) -> Option<&mut FileHandle> {
        match self.table.get_mut(&handle) {
            Some(Open::File(file)) => Some(file),
            _ => None,
        }
    }

    /// The directory behind a handle.
    pub fn dir(&mut self, handle: Handle) -> Result<&mut DirHandle, Errno> {
        match self.table.get_mut(&handle) {
            Some(Open::Dir(dir)) => Ok(dir),
            _ => Err(Errno::EBADF),
        }
    }

    /// Ends a handle of a file.
    pub fn remove_file(&mut self, handle: Handle) -> Option<FileHandle> {
        match self.table.remove(&handle)? {
            Open::File(file) => Some(file),
            dir => {
                self.table.insert(handle, dir);
                None
            }
        }
    }

    /// Ends a handle of a directory.
    pub fn remove_dir(&mut self, handle: Handle) {
        if let Some(Open::Dir(_)) = self.table.get(&handle) {
            self.table.remove(&handle);
        }
    }

    /// What is open.
    pub fn inos(&self) -> BTreeSet<Ino> {
        let ino = |open: &Open| match open {
            Open::File(file) => file.ino,
            Open::Dir(dir) => dir.ino,
        };
        self.table.values().map(ino).collect()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// None is open.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}
