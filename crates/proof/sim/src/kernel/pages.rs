//! Pages of files, and the size that decides what of them a program sees.

use super::{Asked, Inode, Kernel};
use skep_types::{Attr, Ino};

/// Size of a page.
pub const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) enum Page {
    /// It is being filled: who wants to read or drop it waits.
    Locked,
    /// Its bytes; what the file does not have is zeros.
    Held(Vec<u8>),
}

/// A notification that is on its way, of which its sender believes that it has arrived.
#[derive(Debug)]
pub(super) struct Late {
    due: u64,
    ino: Ino,
    from: u64,
    len: u64,
}

/// What a reader finds of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Its bytes within the file.
    Bytes(Vec<u8>),
    /// Somebody fills it.
    Locked,
    /// Nothing: the reader fills it, and has locked it.
    Nothing,
    /// The file ends before it.
    End,
}

impl Inode {
    /// Only its size; what is beyond it goes.
    pub(super) fn resize(&mut self, size: u64, version: u64) {
        (self.version, self.answered) = (version, version);
        if size < self.size {
            self.pages.retain(|page, state| matches!(state, Page::Locked) || page * PAGE < size);
            if let Some(Page::Held(bytes)) = self.pages.get_mut(&(size / PAGE)) {
                bytes[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }
}

impl Kernel {
    fn set_size(&mut self, ino: Ino, size: u64) {
        self.version += 1;
        let version = self.version;
        self.inodes.entry(ino).or_default().resize(size, version);
    }

    /// The answer to a question of an open file tells a size. What is held beyond it goes, and nothing else. `false`: a
    /// drop made the kernel not believe it, and it takes the file for shorter.
    pub fn told(&mut self, ino: Ino, size: u64, asked: Asked) -> bool {
        if self.inodes.get(&ino).is_none_or(|inode| inode.version <= asked.version) {
            self.set_size(ino, size);
        }
        self.inodes.get(&ino).is_some_and(|inode| inode.size >= size || inode.answered > asked.version)
    }

    /// A program opens it: it is there, by whatever name.
    pub fn opens(&mut self, ino: Ino) {
        self.inodes.entry(ino).or_default();
    }

    /// With AUTO_INVAL_DATA, before an answer is applied: is it believed, and says another time or size, so that all pages go (K11)?
    pub fn compared(&mut self, ino: Ino, attr: &Attr, asked: Asked) -> bool {
        let Some(inode) = self.inodes.get_mut(&ino).filter(|inode| inode.version <= asked.version) else {
            return false;
        };
        let known = inode.mtime.replace(attr.mtime);
        known != Some(attr.mtime) || inode.size != attr.size
    }

    /// The answer to a question tells a size. `false`: something has outdated that, and it is not believed.
    pub fn took_over(&mut self, ino: Ino, size: u64, asked: Asked) -> bool {
        let is_believed = self.inodes.get(&ino).is_none_or(|inode| inode.version <= asked.version);
        if is_believed {
            self.set_size(ino, size);
        }
        is_believed
    }

    /// A notification makes the file at least this long; `false`: its last page is locked, which it waits for.
    pub fn lengthened(&mut self, ino: Ino, size: u64) -> bool {
        let Some(inode) = self.inodes.get(&ino) else { return true };
        if size > inode.size {
            self.set_size(ino, size);
        }
        let last = self.inodes.get(&ino).and_then(|inode| inode.pages.get(&(size.saturating_sub(1) / PAGE)));
        !matches!(last, Some(Page::Locked))
    }

    /// A write of a program that ends at `end` was answered.
    pub fn written(&mut self, ino: Ino, end: u64) {
        let size = self.inodes.get(&ino).map_or(0, |inode| inode.size);
        self.set_size(ino, size.max(end));
    }

    /// The file's size, as programs of this kernel see it.
    pub fn size(&self, ino: Ino) -> u64 {
        self.inodes.get(&ino).map_or(0, |inode| inode.size)
    }

    /// A program reads a page.
    pub fn read(&mut self, ino: Ino, page: u64, now: u64) -> Found {
        self.late_arrive(now);
        let inode = self.inodes.entry(ino).or_default();
        let room = inode.size.saturating_sub(page * PAGE).min(PAGE) as usize;
        if room == 0 {
            return Found::End;
        }
        match inode.pages.get(&page) {
            Some(Page::Held(bytes)) => Found::Bytes(bytes[..room].to_vec()),
            Some(Page::Locked) => Found::Locked,
            None => {
                inode.pages.insert(page, Page::Locked);
                Found::Nothing
            }
        }
    }

    /// A page was filled (`None`: it could not be).
    pub fn filled(&mut self, ino: Ino, page: u64, bytes: Option<&[u8]>, asked: Asked) {
        let inode = self.inodes.entry(ino).or_default();
        let Some(bytes) = bytes else {
            inode.pages.remove(&page);
            return;
        };
        let mut held = bytes.to_vec();
        held.resize(PAGE as usize, 0);
        inode.pages.insert(page, Page::Held(held));
        let end = page * PAGE + bytes.len() as u64;
        if (bytes.len() as u64) < PAGE && end < inode.size && inode.version <= asked.version {
            self.set_size(ino, end);
        }
    }

    /// Drops pages; `false`: one of them is locked.
    pub fn drop_pages(&mut self, ino: Ino, from: u64, len: u64) -> bool {
        let Some(inode) = self.inodes.get_mut(&ino) else { return true };
        let last = if len == 0 { u64::MAX } else { (from + len - 1) / PAGE };
        let mut locked = false;
        inode.pages.retain(|page, state| {
            let wanted = (from / PAGE..=last).contains(page);
            locked |= wanted && matches!(state, Page::Locked);
            !wanted || matches!(state, Page::Locked)
        });
        !locked
    }

    /// A canary: they go at `due`, and nobody waits.
    pub fn drop_late(&mut self, ino: Ino, from: u64, len: u64, due: u64) {
        self.late.push(Late { due, ino, from, len });
    }

    fn late_arrive(&mut self, now: u64) {
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|late| late.due <= now);
        self.late = later;
        for Late { ino, from, len, .. } in due {
            self.inval_inode(ino, Some((from, len)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Told;
    use super::*;

    /// Goal: the model does what makes the real one dangerous: a longer size shows zeros of an old page, an answer to
    /// an older question is not believed, a short fill makes the file shorter, a locked page is not dropped (K9).
    #[test]
    fn pages_and_sizes() {
        let (mut kernel, ino) = (Kernel::default(), Ino(7));
        kernel.told(ino, 3, kernel.asks());
        assert_eq!(kernel.read(ino, 0, 0), Found::Nothing);
        assert_eq!(kernel.read(ino, 0, 0), Found::Locked);
        assert!(!kernel.drop_pages(ino, 0, 0));
        kernel.filled(ino, 0, Some(b"abc"), kernel.asks());
        let asked = kernel.asks();
        kernel.told(ino, 5, asked);
        assert_eq!(kernel.read(ino, 0, 0), Found::Bytes(b"abc\0\0".to_vec()));
        kernel.told(ino, 1, asked);
        assert_eq!(kernel.size(ino), 5, "asked before that");
        assert!(kernel.drop_pages(ino, 2, 1));
        assert_eq!(kernel.read(ino, 0, 0), Found::Nothing);
        kernel.filled(ino, 0, Some(b"abcd"), kernel.asks());
        assert_eq!((kernel.size(ino), kernel.read(ino, 1, 0)), (4, Found::End));
        kernel.told(ino, 2, kernel.asks());
        kernel.written(ino, 4);
        assert_eq!(kernel.read(ino, 0, 0), Found::Bytes(b"ab\0\0".to_vec()));
        kernel.drop_late(ino, 0, 0, 9);
        assert_ne!(kernel.read(ino, 0, 8), Found::Nothing);
        assert_eq!(kernel.read(ino, 0, 9), Found::Nothing);
        let asked = kernel.asks();
        assert_eq!(kernel.inval_inode(ino, Some((0, 0))), Told::Waits);
        assert!(!kernel.told(ino, 9, asked), "the drop moved the version");
        assert!(
            !kernel.lengthened(ino, 9) && kernel.told(ino, 9, asked),
            "the size is there before its page is free"
        );
        kernel.filled(ino, 0, None, asked);
        assert!(kernel.lengthened(ino, 9) && kernel.lengthened(ino, 7) && kernel.size(ino) == 9);
    }
}
