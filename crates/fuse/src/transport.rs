//! How requests and replies travel.

use crate::{Mount, MountError, Notifier};

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was unmounted, be it by force.
    Unmounted,
    /// It was aborted: through the control file system, or while every worker was busy, when the two ways to end
    /// look the same.
    Aborted,
}

/// Carries requests to a file system and replies back: [`crate::DevFuse`] today, `io_uring` queues later. Every
/// implementation calls [`crate::dispatch`] and nothing else of the file system.
pub trait Transport {
    /// Serves until the file system is unmounted or aborted.
    ///
    /// # Errors
    /// The kernel is too old, or the device failed.
    fn run<M: Mount>(self, mount: &M) -> Result<Ending, MountError>;

    /// A handle for invalidations, usable from any thread while the file system is mounted.
    fn notifier(&self) -> Notifier;
}
