//! Skep's own POSIX conformance suite: a committed table of calls x errnos x users, run over any directory.
//!
//! The table (`cases/*.toml`) holds what is expected; this crate expands it into single cases, runs each of
//! them in a fresh sub-directory with the credentials the case names, and reports what differed. Nothing in
//! here knows Skep: the same cases must pass on ext4 and tmpfs, which is how the table itself is validated.
//!
//! Invariants: a case never shares a directory, a descriptor, credentials or a umask with another one; a case
//! is left out only when the caller says so or when a probed capability is lacking, and both are reported.

pub mod calls;
pub mod capability;
pub mod deviation;
pub mod errno;
pub mod report;
pub mod runner;
pub mod scene;
pub mod scripts;
pub mod step;
pub mod symbols;
pub mod sys;
pub mod table;
pub mod users;

pub use report::Report;
pub use runner::{Options, run};
pub use table::Case;
