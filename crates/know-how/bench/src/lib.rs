//! Load generators for any POSIX file system: what to do (jobs), doing it, and what came of it.

pub mod dialect;
pub mod engine;
mod files;
pub mod foreign;
pub mod histogram;
mod io;
pub mod job;
mod meta;
pub mod result;
pub mod significance;
pub mod summary;

pub use io::{Supply, transfers};
