//! The transport against the real kernel. These tests fail, rather than skip, where `/dev/fuse` is missing or the
//! user may not mount.

mod cache;
mod ending;
mod files;
mod interrupts;
mod served;
mod watched;
