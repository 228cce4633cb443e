#![no_std]
//! The oracle: a plain in-memory POSIX file system, and a seeded generator of histories for it.
//!
//! [`Fs`] answers every operation as Linux does once the path is resolved: inode + name in, result
//! or [`Errno`](skep_types::Errno) out. It decides no permissions (the kernel's work) except what a
//! server must decide itself. It is written to be obviously correct, not fast, and is itself held to
//! account by a differential test against the file systems of the machine (`crates/proof/rig/tests/host.rs`).
//!
//! Three layers, from the bottom:
//! - inode operations ([`Fs::create`], [`Fs::rename`], [`Fs::write`]...): for a simulated client, which
//!   works with inode numbers. Every creating operation takes the number to use, so that the model can
//!   carry the numbers that a real server chose.
//! - [`Op`] and [`Fs::apply`]: an operation with paths and handles as small indices, and its
//!   [`Outcome`], which can be compared with what any other implementation answered.
//! - [`Generator`]: random `Op`s of a seed, biased to the interesting cases.
//!
//! Time is logical: each operation is told what time it is.
extern crate alloc;

mod acl;
mod apply;
mod check;
mod content;
mod copy;
mod diff;
mod file;
mod fs;
mod generator;
mod lock;
mod namespace;
mod op;
mod rename;
mod rng;
mod setattr;
mod temp;
mod xattr;

pub use acl::{ACLS, acl_value};
pub use content::{Content, PAGE};
pub use diff::{Compare, diff};
pub use fs::{Access, Call, Fs, Handle, Stat};
pub use generator::{Calls, Generator, Profile};
pub use lock::{LOCK_END, LockFound, LockSpace};
pub use op::{At, DEPTH_MAX, Fill, NAMES, Op, OpenHow, Outcome, Path, XATTR_NAMES, path_name, xattr_name};
pub use rename::RenameHow;
pub use rng::Rng;
pub use setattr::{SETID, without_suidgid};
pub use xattr::XattrHow;
