//! Vocabulary of the program: what its daemons, its mount and its commands share.
//!
//! How a command fails ([`Failure`]), how it reaches a cluster ([`access`], [`namespace`]) or a path on a mount
//! ([`mounted`], [`deadline`]), how it shows what it found ([`output`]); configuration, log and command line of a
//! daemon, its place in a cluster ([`membership`]), and what it shows over HTTP.
#[macro_use]
pub mod log;
pub mod access;
pub mod asking;
pub mod attributes;
pub mod caller;
pub mod cli;
pub mod cluster_file;
pub mod config;
pub mod control;
pub mod daemon;
pub mod deadline;
mod failure;
pub mod find;
pub mod http;
pub mod identity;
pub mod listen;
pub mod membership;
pub mod metrics;
pub mod mount_options;
pub mod mount_table;
pub mod mounted;
pub mod namespace;
pub mod output;
pub mod process;
pub mod units;
pub mod unmount;

pub use failure::{EXIT_INTERRUPTED, Failure, Outcome};
