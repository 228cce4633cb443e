//! Which way the bytes of an opened file go: the table of `docs/design/data-path.md`.

use skep_base::config::mount::Io;
use skep_wire::meta::OpenMode;

/// Longer files are streams, which come faster past the pages in large requests: the kernel fills pages 128 KiB at a time.
const PAGED_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the kernel's page cache.
    Pages,
    /// Past it; mappings and `sendfile` fill pages all the same.
    Direct,
}

/// What a kernel does with files.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// It maps those that are opened for direct I/O (Linux 6.6).
    pub direct_with_mmap: bool,
    /// It asks for attributes before it reads from a page, unless it has valid ones.
    pub checks: bool,
}

/// What is known of a file when it is opened.
#[derive(Debug, Clone, Copy)]
pub struct File {
    pub mode: OpenMode,
    /// O_APPEND.
    pub append: bool,
    /// Its content is in the metadata.
    pub small: bool,
    pub size: u64,
    /// By a lease, and nobody may write to it.
    pub covered: bool,
}

impl File {
    pub fn way(self, io: Io, kernel: Kernel) -> Way {
        let pages = match io {
            Io::Direct => false,
            Io::Cached => true,
            Io::Auto if !kernel.direct_with_mmap => true,
            // Whoever writes goes past the pages: no page then has bytes of a write whose place or neighbours the kernel does not
            // know.
            Io::Auto if self.mode != OpenMode::Read || self.append || self.size == 0 => false,
            // A page costs nothing as long as nobody else writes, and a question for each read where that is not known.
            Io::Auto if kernel.checks => self.covered && self.size <= PAGED_MAX,
            // Read again and again.
            Io::Auto => self.small,
        };
        if pages { Way::Pages } else { Way::Direct }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Kernel = Kernel { direct_with_mmap: true, checks: true };
    const UNLEASED: Kernel = Kernel { checks: false, ..NEW };
    const OLD: Kernel = Kernel { direct_with_mmap: false, checks: false };

    /// Goal: the table of the data path.
    #[test]
    fn the_table() {
        let file = |mode, append, small| File { mode, append, small, size: 100, covered: true };
        let auto = |of: File| of.way(Io::Auto, NEW);
        let read = file(OpenMode::Read, false, true);
        assert_eq!([auto(read), read.way(Io::Auto, UNLEASED)], [Way::Pages; 2]);
        let chunks = File { small: false, ..read };
        assert_eq!([auto(chunks), chunks.way(Io::Auto, UNLEASED)], [Way::Pages, Way::Direct]);
        let uncovered = File { covered: false, ..read };
        assert_eq!([auto(uncovered), uncovered.way(Io::Auto, UNLEASED)], [Way::Direct, Way::Pages]);
        assert_eq!(auto(File { size: PAGED_MAX, ..chunks }), Way::Pages);
        assert_eq!(auto(File { size: PAGED_MAX + 1, ..chunks }), Way::Direct);
        for kernel in [NEW, UNLEASED] {
            let auto = |of: File| of.way(Io::Auto, kernel);
            assert_eq!(auto(file(OpenMode::ReadWrite, false, true)), Way::Direct);
            assert_eq!(auto(file(OpenMode::Write, true, true)), Way::Direct);
            assert_eq!(auto(file(OpenMode::Read, true, true)), Way::Direct);
            assert_eq!(auto(File { size: 0, ..read }), Way::Direct);
        }
        let stream = file(OpenMode::ReadWrite, false, false);
        assert_eq!(stream.way(Io::Auto, OLD), Way::Pages, "no mapping without the cache");
        assert_eq!((stream.way(Io::Direct, OLD), stream.way(Io::Cached, NEW)), (Way::Direct, Way::Pages));
    }
}
