//! An in-memory file system without data: names, inodes and sizes are kept, what is written is discarded, what is
//! read is zeros. It does the least a FUSE file system can do, so benchmarks measure others against it.

mod operations;
mod tree;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use skep_ring::Reactor;

use crate::{Mount, OpenFlags, RingThread};

use tree::Tree;

const O_ACCMODE: u32 = 0o3;
const O_RDONLY: u32 = 0;
const O_APPEND: u32 = 0o2000;

/// How the empty file system treats the kernel's caches.
#[derive(Clone, Copy, Debug)]
pub struct EmptyConfig {
    /// How long the kernel may use names.
    pub names: Duration,
    /// The same of attributes, in answers to look-ups, listings and questions for them.
    pub attributes: Duration,
    /// The same in answers to what makes or changes something.
    pub attributes_changed: Duration,
    /// Flags of every opened file.
    pub open_flags: OpenFlags,
    /// Files of at most this size, but not empty ones, that are opened for reading only are read through the
    /// kernel's pages, whatever `open_flags` says: as a mount treats files whose content is in the metadata.
    pub pages_up_to: u64,
    /// Answer FLUSH, as a file system must that has something to do when a file is closed. Without it the
    /// kernel is told that there is no FLUSH, and sends none.
    pub flush: bool,
}

impl Default for EmptyConfig {
    /// Nothing cached.
    fn default() -> Self {
        EmptyConfig::valid_for(Duration::ZERO)
    }
}

impl EmptyConfig {
    /// The kernel may use everything for so long.
    #[must_use]
    pub fn valid_for(time: Duration) -> Self {
        let open_flags = OpenFlags::default();
        let (names, attributes, attributes_changed) = (time, time, time);
        EmptyConfig { names, attributes, attributes_changed, open_flags, pages_up_to: 0, flush: false }
    }

    /// Flags of a file of this size, opened with these flags of `open(2)`.
    fn opened(&self, size: u64, flags: u32) -> OpenFlags {
        let reads_only = flags & (O_ACCMODE | O_APPEND) == O_RDONLY;
        if reads_only && (1..=self.pages_up_to).contains(&size) {
            return OpenFlags::KEEP_CACHE;
        }
        self.open_flags
    }
}

/// The empty file system.
pub struct EmptyMount {
    shared: Arc<Shared>,
}

struct Shared {
    config: EmptyConfig,
    tree: Mutex<Tree>,
}

impl EmptyMount {
    /// A file system with nothing but its root directory.
    #[must_use]
    pub fn new(config: EmptyConfig) -> Self {
        EmptyMount { shared: Arc::new(Shared { config, tree: Mutex::new(Tree::new()) }) }
    }
}

impl Mount for EmptyMount {
    type Worker = EmptyWorker;
    type Ring = EmptyRing;

    fn worker(&self, _index: usize) -> EmptyWorker {
        EmptyWorker { shared: Arc::clone(&self.shared) }
    }

    fn ring(&self, _thread: usize, _reactor: &Reactor) -> EmptyRing {
        EmptyRing { shared: Arc::clone(&self.shared) }
    }
}

/// Makes the workers of one ring thread.
pub struct EmptyRing {
    shared: Arc<Shared>,
}

impl RingThread for EmptyRing {
    type Worker = EmptyWorker;

    fn worker(&self) -> Option<EmptyWorker> {
        Some(EmptyWorker { shared: Arc::clone(&self.shared) })
    }
}

/// Answers requests, one at a time.
pub struct EmptyWorker {
    shared: Arc<Shared>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only what is opened for reading, small and not empty goes through pages.
    #[test]
    fn small_files_through_pages() {
        let direct = OpenFlags::DIRECT_IO | OpenFlags::KEEP_CACHE;
        let config = EmptyConfig { open_flags: direct, pages_up_to: 4_096, ..EmptyConfig::default() };
        assert_eq!(config.opened(4_096, O_RDONLY), OpenFlags::KEEP_CACHE);
        for (size, flags) in [(0, O_RDONLY), (4_097, O_RDONLY), (10, 1), (10, 2), (10, O_APPEND)] {
            assert_eq!(config.opened(size, flags), direct, "{size} bytes, {flags:o}");
        }
    }
}
