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
mod clock;
mod directories;
mod extents;
mod files;
mod identity;
mod keeper;
mod mount;
mod seals;
mod terms;

use skep_types::formats::Formats;

pub use chunks::TargetDir;
pub use files::OPEN_FILES_MAX;
pub use identity::{IDENTITY_FILE, Identity, TargetError, check_format};
pub use terms::Speaking;

/// See [`crate::formats`].
pub(crate) fn formats(formats: &mut Formats) {
    identity::formats(formats);
    keeper::formats(formats);
    terms::formats(formats);
}

/// A slot (`u64 sequence, u32 length, u32 checksum, record`) with the right checksum, for fuzzing.
fn mended(slot: &[u8], checksum: fn(u64, &[u8]) -> u32) -> Option<Vec<u8>> {
    let sequence = u64::from_le_bytes(slot.get(..8)?.try_into().ok()?);
    let length = u32::from_le_bytes(slot.get(8..12)?.try_into().ok()?) as usize;
    let record = slot.get(16..16_usize.checked_add(length)?)?;
    let mut mended = slot.to_vec();
    mended[12..16].copy_from_slice(&checksum(sequence, record).to_le_bytes());
    Some(mended)
}
