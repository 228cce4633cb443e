//! Load generators for any POSIX file system: what to do (jobs), doing it, and what came of it.

pub mod dialect;
pub mod job;
pub mod significance;
