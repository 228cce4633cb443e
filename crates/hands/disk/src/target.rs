//! A storage target: one directory on one local file system.
//!
//! ```text
//! skep-target.toml      identity; written last when a target is formatted
//! skep-target.terms     highest term of each shard that was heard of
//! lock                  held (flock) by the daemon that serves the target
//! seals/                empty files, one for each sealed chunk file
//! chunks/<aa>/<bb>/     pieces of chunk files, `<ino>.<generation>.<extent>.<stripe>.<piece>`
//! ```
//! The directory is held open: a disk that is unmounted underneath keeps failing, instead of the
//! empty mount point being served.

mod chunks;
mod directories;
mod extents;
mod files;
mod identity;
mod keeper;
mod mount;
mod seals;
mod terms;

pub use chunks::TargetDir;
pub use files::OPEN_FILES_MAX;
pub use identity::{IDENTITY_FILE, Identity, TargetError, check_format};
pub use terms::Speaking;
