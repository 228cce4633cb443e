//! What leases rely on of the kernel: K1 to K15 of `docs/design/leases.md`, section 7. A kernel that behaves otherwise
//! fails here, before anything of the mount does.
//!
//! Two kinds of assertion are made. What a mount needs for being right holds on every kernel. What it is careful *because of*
//! (an answer that is believed though it is old, say) is asserted for kernels where it was seen, up to [`SEEN`]: a newer
//! one may be better without failing a test.
//!
//! That an answer is applied when the thread that asked runs again (K1) is shown where something keeps that thread from
//! going on, and by the clock of a validity. Not shown: that jiffies stand still in a sleep.

/// Inodes of the scripted file system: `/d`, `/e`, `/d/x`, `/d/y`.
const ROOT: u64 = 1;
const D: u64 = 2;
const E: u64 = 3;
const X: u64 = 10;
const Y: u64 = 11;

mod attributes;
mod ends;
mod epochs;
mod evicted;
mod mapping;
mod mounted;
mod names;
mod operations;
mod own;
mod pages;
mod script;

/// Newest kernel on which the facts were seen that a mount has to be careful of.
const SEEN: (u32, u32) = (6, 18);

/// Version of the running kernel.
fn kernel() -> (u32, u32) {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().expect("a release").split(['.', '-']);
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).expect("a number");
    (next(), next())
}

/// Whether the running kernel is as careless as those that were looked at.
fn seen() -> bool {
    kernel() <= SEEN
}

/// Where INVAL_ENTRY of a name that is not there, or known as absent, waits for the lock of the directory. Kernels that do
/// not look for it without, say that they do not know it, and go on believing that it is absent. `None`: not looked at
/// in each version.
fn waits_for_what_is_absent() -> Option<bool> {
    match kernel() {
        (..=5, _) | (6, ..=18) | (7, 2..) | (8.., _) => Some(true),
        (6, _) | (7, 0) => Some(false),
        (7, 1) => None,
    }
}

/// A walk through a directory asks for its attributes when names of it were changed. Newer kernels know that its
/// permissions did not.
fn walks_ask_after_changes() -> bool {
    kernel() < (7, 2)
}
