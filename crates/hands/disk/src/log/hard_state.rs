//! A side file that keeps the hard state while the log is cut back.
//!
//! It holds one record. While it is there and valid it is the hard state: it is written and
//! synced before the cut, and removed once the log holds the state again.

use super::record::{self, Record};
use super::segment;
use crate::disk::{Disk, DiskResult, OpenMode};
use skep_types::{ClusterId, LogIndex, ShardId};
use std::path::Path;

const NAME: &str = "hard-state";
/// More than any hard state takes.
const LIMIT: usize = 4096;

fn salt(cluster: ClusterId) -> u32 {
    // No segment starts at 0.
    segment::salt(cluster, LogIndex(0))
}

/// Writes it, durably.
pub(super) fn park(disk: &dyn Disk, dir: &Path, cluster: ClusterId, state: &Record) -> DiskResult<()> {
    let mut bytes = Vec::new();
    record::encode(&mut bytes, salt(cluster), &Record { shard: ShardId(0), ..state.clone() }, LogIndex(0));
    let file = disk.open(&dir.join(NAME), OpenMode::Fresh)?;
    file.write_at(&bytes, 0)?;
    file.sync_data()?;
    disk.sync_dir(dir)
}

/// Reads it. A torn one was not needed yet: the cut had not begun.
pub(super) fn parked(disk: &dyn Disk, dir: &Path, cluster: ClusterId) -> DiskResult<Option<Record>> {
    let file = match disk.open(&dir.join(NAME), OpenMode::Existing) {
        Err(e) if e.is_missing() => return Ok(None),
        file => file?,
    };
    let mut bytes = vec![0; LIMIT];
    let n = file.read_at(&mut bytes, 0)?;
    match record::decode(&bytes[..n], salt(cluster)) {
        Some(view) => Ok(Some(view.to_record())),
        None => clear(disk, dir).map(|()| None),
    }
}

/// Removes it.
pub(super) fn clear(disk: &dyn Disk, dir: &Path) -> DiskResult<()> {
    match disk.remove(&dir.join(NAME)) {
        Err(e) if !e.is_missing() => Err(e),
        _ => disk.sync_dir(dir),
    }
}
