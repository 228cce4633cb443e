//! A small model of the kernel above a client: for each file `i_size`, the version of its attributes, and pages. It
//! keeps what it is told and what it reads, and drops pages when a notification reaches it, at any later moment.

use crate::hub::HubRef;
use skep_types::Ino;
use std::collections::BTreeMap;

/// Size of a page.
pub const PAGE: u64 = 4096;

#[derive(Debug)]
enum Page {
    /// It is being filled: who wants to read or drop it waits.
    Locked,
    /// Its bytes; what the file does not have is zeros.
    Held(Vec<u8>),
}

#[derive(Debug, Default)]
struct File {
    size: u64,
    /// Moves whenever the attributes are set, and when pages are dropped by a notification: an answer to an older
    /// question is not believed.
    version: u64,
    /// When an answer, or a write, moved it last.
    answered: u64,
    pages: BTreeMap<u64, Page>,
}

/// A notification that is on its way, of which its sender believes that it has arrived.
#[derive(Debug)]
struct Late {
    due: u64,
    ino: Ino,
    from: u64,
    len: u64,
}

#[derive(Debug, Default)]
pub struct Kernel {
    files: BTreeMap<Ino, File>,
    version: u64,
    late: Vec<Late>,
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

impl Kernel {
    /// For a question whose answer has attributes.
    pub fn asks(&self) -> u64 {
        self.version
    }

    fn set_size(&mut self, ino: Ino, size: u64) {
        self.version += 1;
        let version = self.version;
        let file = self.files.entry(ino).or_default();
        (file.version, file.answered) = (version, version);
        if size < file.size {
            file.pages.retain(|page, state| matches!(state, Page::Locked) || page * PAGE < size);
            if let Some(Page::Held(bytes)) = file.pages.get_mut(&(size / PAGE)) {
                bytes[(size % PAGE) as usize..].fill(0);
            }
        }
        file.size = size;
    }

    /// The answer to a question asked at `since` tells a size. What is held beyond it goes, and nothing else. `false`:
    /// a drop made the kernel not believe it, and it takes the file for shorter.
    pub fn told(&mut self, ino: Ino, size: u64, since: u64) -> bool {
        if self.files.get(&ino).is_none_or(|file| file.version <= since) {
            self.set_size(ino, size);
        }
        self.files.get(&ino).is_some_and(|file| file.size >= size || file.answered > since)
    }

    /// A notification makes the file at least this long; `false`: its last page is locked, which it waits for.
    pub fn lengthened(&mut self, ino: Ino, size: u64) -> bool {
        let Some(file) = self.files.get(&ino) else { return true };
        if size > file.size {
            self.set_size(ino, size);
        }
        let last = self.files.get(&ino).and_then(|file| file.pages.get(&(size.saturating_sub(1) / PAGE)));
        !matches!(last, Some(Page::Locked))
    }

    /// A write of a program that ends at `end` was answered.
    pub fn written(&mut self, ino: Ino, end: u64) {
        let size = self.files.get(&ino).map_or(0, |file| file.size);
        self.set_size(ino, size.max(end));
    }

    /// The file's size, as programs of this kernel see it.
    #[cfg(test)]
    fn size(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, |file| file.size)
    }

    /// A program reads a page.
    pub fn read(&mut self, ino: Ino, page: u64, now: u64) -> Found {
        self.late_arrive(now);
        let file = self.files.entry(ino).or_default();
        let room = file.size.saturating_sub(page * PAGE).min(PAGE) as usize;
        if room == 0 {
            return Found::End;
        }
        match file.pages.get(&page) {
            Some(Page::Held(bytes)) => Found::Bytes(bytes[..room].to_vec()),
            Some(Page::Locked) => Found::Locked,
            None => {
                file.pages.insert(page, Page::Locked);
                Found::Nothing
            }
        }
    }

    /// A page was filled (`None`: it could not be), by a question asked at `since`.
    pub fn filled(&mut self, ino: Ino, page: u64, bytes: Option<&[u8]>, since: u64) {
        let file = self.files.entry(ino).or_default();
        let Some(bytes) = bytes else {
            file.pages.remove(&page);
            return;
        };
        let mut held = bytes.to_vec();
        held.resize(PAGE as usize, 0);
        file.pages.insert(page, Page::Held(held));
        let end = page * PAGE + bytes.len() as u64;
        if (bytes.len() as u64) < PAGE && end < file.size && file.version <= since {
            self.set_size(ino, end);
        }
    }

    /// A notification drops pages; `false`: one of them is locked.
    pub fn notified(&mut self, ino: Ino, from: u64, len: u64) -> bool {
        self.version += 1;
        if let Some(file) = self.files.get_mut(&ino) {
            file.version = self.version;
        }
        self.drop_pages(ino, from, len)
    }

    /// Drops pages; `false`: one of them is locked.
    pub fn drop_pages(&mut self, ino: Ino, from: u64, len: u64) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return true };
        let last = if len == 0 { u64::MAX } else { (from + len - 1) / PAGE };
        let mut locked = false;
        file.pages.retain(|page, state| {
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
            self.notified(ino, from, len);
        }
    }
}

/// The kernel of a client's life.
pub fn kernel<R>(hub: &HubRef, life: u32, f: impl FnOnce(&mut Kernel) -> R) -> R {
    f(hub.borrow_mut().kernels.entry(life).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the model does what makes the real one dangerous: a longer size shows zeros of an old page, an answer to
    /// an older question is not believed, a short fill makes the file shorter, a locked page is not dropped.
    #[test]
    fn pages_and_sizes() {
        let (mut kernel, ino) = (Kernel::default(), Ino(7));
        kernel.told(ino, 3, 0);
        assert_eq!(kernel.read(ino, 0, 0), Found::Nothing);
        assert_eq!(kernel.read(ino, 0, 0), Found::Locked);
        assert!(!kernel.drop_pages(ino, 0, 0));
        kernel.filled(ino, 0, Some(b"abc"), kernel.asks());
        let since = kernel.asks();
        kernel.told(ino, 5, since);
        assert_eq!(kernel.read(ino, 0, 0), Found::Bytes(b"abc\0\0".to_vec()));
        kernel.told(ino, 1, since);
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
        let since = kernel.asks();
        assert!(!kernel.notified(ino, 0, 0), "locked");
        assert!(!kernel.told(ino, 9, since), "the drop moved the version");
        assert!(
            !kernel.lengthened(ino, 9) && kernel.told(ino, 9, since),
            "the size is there before its page is free"
        );
        kernel.filled(ino, 0, None, since);
        assert!(kernel.lengthened(ino, 9) && kernel.lengthened(ino, 7) && kernel.size(ino) == 9);
    }
}
