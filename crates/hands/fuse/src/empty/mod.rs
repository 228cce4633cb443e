//! An in-memory file system without data: names, inodes and sizes are kept, what is written is discarded, what is
//! read is zeros. It does the least a FUSE file system can do, so benchmarks measure others against it.

mod operations;
mod tree;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use skep_ring::Reactor;

use crate::{Mount, OpenFlags, RingThread};

use tree::Tree;

/// How the empty file system treats the kernel's caches.
#[derive(Clone, Copy, Debug)]
pub struct EmptyConfig {
    /// Cache time of names and attributes.
    pub valid: Duration,
    /// Flags of every opened file.
    pub open_flags: OpenFlags,
    /// Answer FLUSH, as a file system must that has something to do when a file is closed. Without it the
    /// kernel is told that there is no FLUSH, and sends none.
    pub flush: bool,
}

impl Default for EmptyConfig {
    /// Nothing cached.
    fn default() -> Self {
        EmptyConfig { valid: Duration::ZERO, open_flags: OpenFlags::default(), flush: false }
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
