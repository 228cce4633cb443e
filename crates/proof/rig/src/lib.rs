//! Proof: real clusters for tests.
//!
//! - [`Cluster`]: `skep up` in a directory of its own, its processes by name, kill -9, start again,
//!   more mounts. Dropped, it ends every process, takes every mount away and removes the directory,
//!   also after a panic; then it prints the last lines of the daemons' logs.
//! - [`Driver`]: carries out operations of the oracle's histories (`skep_model::Op`) by system calls.
//! - [`compare_tree`]: a directory against the oracle, name by name and byte by byte.
//! - [`Mapping`]: a shared mapping of a file.
//! - [`until`]: waits for a condition that can be looked at, with a deadline.

mod attributes;
mod cluster;
mod daemon;
mod driver;
mod extended;
mod locks;
mod mapping;
mod mounts;
mod pages;
mod runner;
mod scratch;
mod sockets;
mod tree;
mod wait;

pub use cluster::{Cluster, Plan};
pub use daemon::Daemon;
pub use driver::Driver;
pub use mapping::Mapping;
pub use mounts::{is_mounted, mounted_below, unmount_by_force, unmount_lazily};
pub use pages::begins_in_memory;
pub use runner::Runner;
pub use scratch::{MemoryDisk, Scratch};
pub use tree::compare_tree;
pub use wait::{PATIENCE, patiently, until};
