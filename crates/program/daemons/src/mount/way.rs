//! Which way the bytes of an opened file go: the table of `docs/design/data-path.md`.

use skep_base::config::mount::Io;
use skep_wire::meta::OpenMode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the kernel's page cache.
    Pages,
    /// Past it; mappings and `sendfile` fill pages all the same.
    Direct,
}

/// What is known of a file when it is opened.
#[derive(Debug, Clone, Copy)]
pub struct File {
    pub mode: OpenMode,
    /// O_APPEND.
    pub append: bool,
    /// Its content is in the metadata.
    pub small: bool,
    /// It has none.
    pub empty: bool,
}

impl File {
    /// `direct_with_mmap`: the kernel maps files that are opened for direct I/O (Linux 6.6).
    pub fn way(self, io: Io, direct_with_mmap: bool) -> Way {
        let pages = match io {
            Io::Direct => false,
            Io::Cached => true,
            Io::Auto if !direct_with_mmap => true,
            // Read again and again. Whoever writes goes past the pages: no page then has bytes of a write whose
            // place or neighbours the kernel does not know.
            Io::Auto => self.small && !self.empty && self.mode == OpenMode::Read && !self.append,
        };
        if pages { Way::Pages } else { Way::Direct }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the table of the data path.
    #[test]
    fn the_table() {
        let file = |mode, append, small| File { mode, append, small, empty: false };
        let auto = |of: File| of.way(Io::Auto, true);
        assert_eq!(auto(file(OpenMode::Read, false, true)), Way::Pages);
        assert_eq!(auto(file(OpenMode::Read, false, false)), Way::Direct);
        assert_eq!(auto(file(OpenMode::ReadWrite, false, true)), Way::Direct);
        assert_eq!(auto(file(OpenMode::Write, true, true)), Way::Direct);
        assert_eq!(auto(File { empty: true, ..file(OpenMode::Read, false, true) }), Way::Direct);
        let stream = file(OpenMode::ReadWrite, false, false);
        assert_eq!(stream.way(Io::Auto, false), Way::Pages, "no mapping without the cache");
        assert_eq!((stream.way(Io::Direct, true), stream.way(Io::Cached, true)), (Way::Direct, Way::Pages));
    }
}
