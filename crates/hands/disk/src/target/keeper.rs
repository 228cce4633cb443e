//! Keeps what a target is worth over restarts of the daemon: one small file on another disk than the target's.
//!
//! A failed disk takes no note of its failure, so the file lies in the daemon's state directory. It has two slots that
//! are written in turn, in place: a power cut leaves one of them whole, and a full disk has room for both.
//!
//! ```text
//! slot (512 bytes): u64 sequence, u32 length, u32 CRC32C of sequence and record, record
//! ```

use super::identity::TargetError;
use skep_storage::Standing;
use skep_types::formats::Formats;
use skep_types::{Decode, Encode, Uuid};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a slot: what a disk writes wholly or not at all.
const SLOT: usize = 512;
const HEAD: usize = 16;

pub(super) struct Keeper {
    file: File,
    path: PathBuf,
    sequence: u64,
}

impl Keeper {
    /// Opens, or makes, the file of the target `uuid` in `directory`: what was kept in it, if anything.
    pub fn open(directory: &Path, uuid: Uuid) -> Result<(Self, Option<Standing>), TargetError> {
        let path = directory.join(uuid.to_string());
        let failed = |e: io::Error| TargetError(format!("{}: {e}", path.display()));
        std::fs::create_dir_all(directory).map_err(failed)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        let mut slots = [0; 2 * SLOT];
        let whole = file.metadata().map_err(failed)?.len() == slots.len() as u64;
        if whole {
            file.read_exact_at(&mut slots, 0).map_err(failed)?;
        } else {
            // New, or its making was interrupted: nothing was ever kept.
            file.write_all_at(&slots, 0).map_err(failed)?;
            file.sync_all().and_then(|()| File::open(directory)?.sync_all()).map_err(failed)?;
        }
        let newest = slots.chunks(SLOT).filter_map(read).max_by_key(|(sequence, _)| *sequence);
        let sequence = newest.map_or(0, |(sequence, _)| sequence);
        Ok((Self { file, path, sequence }, newest.map(|(_, standing)| standing)))
    }

    /// Durable when it returns.
    pub fn keep(&mut self, standing: &Standing) -> Result<(), TargetError> {
        let sequence = self.sequence + 1;
        let at = (sequence % 2) * SLOT as u64;
        let written =
            self.file.write_all_at(&slot_of(sequence, standing), at).and_then(|()| self.file.sync_data());
        written.map_err(|e| TargetError(format!("{}: {e}", self.path.display())))?;
        self.sequence = sequence;
        Ok(())
    }
}

fn slot_of(sequence: u64, standing: &Standing) -> [u8; SLOT] {
    let record = standing.to_bytes();
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&sequence.to_le_bytes());
    slot[8..12].copy_from_slice(&(record.len() as u32).to_le_bytes());
    slot[12..16].copy_from_slice(&checksum(sequence, &record).to_le_bytes());
    slot[HEAD..HEAD + record.len()].copy_from_slice(&record);
    slot
}

/// See [`crate::formats`].
pub(super) fn formats(formats: &mut Formats) {
    let standing =
        Standing { life: 4, mount: Uuid([3; 16]), failures: 2, decisions: 1, bad: true, since: None };
    formats.bytes("target.standing", &slot_of(7, &standing), again);
}

fn again(slot: &[u8]) -> Option<Vec<u8>> {
    // The file has whole slots, and whole ones only.
    let mended = super::mended(slot.get(..SLOT)?, checksum)?;
    read(&mended).map(|(sequence, standing)| slot_of(sequence, &standing).to_vec())
}

fn checksum(sequence: u64, record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), record)
}

fn read(slot: &[u8]) -> Option<(u64, Standing)> {
    let sequence = u64::from_le_bytes(slot.get(..8)?.try_into().ok()?);
    let len = u32::from_le_bytes(slot.get(8..12)?.try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(slot.get(12..16)?.try_into().ok()?);
    let record = slot.get(HEAD..HEAD.checked_add(len)?)?;
    (sequence > 0 && checksum(sequence, record) == crc).then_some(())?;
    Standing::from_bytes(record).ok().map(|standing| (sequence, standing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(life: u64) -> Standing {
        Standing { life, mount: Uuid([3; 16]), failures: 2, decisions: 1, bad: true, since: None }
    }

    /// Goal: the newest is found again; a torn write leaves the one before; damage of both is like nothing kept.
    #[test]
    fn the_newest_whole_one_counts() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("targets");
        let uuid = Uuid([7; 16]);
        let kept = || Keeper::open(&directory, uuid).unwrap().1;
        assert_eq!(kept(), None);
        let mut keeper = Keeper::open(&directory, uuid).unwrap().0;
        for life in 1..=5 {
            keeper.keep(&standing(life)).unwrap();
            assert_eq!(kept(), Some(standing(life)));
        }
        let path = directory.join(uuid.to_string());
        let whole = std::fs::read(&path).unwrap();
        // The fifth stands in the second slot, the fourth in the first.
        for byte in 0..SLOT {
            let mut torn = whole.clone();
            torn[SLOT + byte] ^= 0xff;
            std::fs::write(&path, &torn).unwrap();
            let found = kept();
            assert!(found == Some(standing(4)) || found == Some(standing(5)), "byte {byte}: {found:?}");
        }
        std::fs::write(&path, vec![0xee; 2 * SLOT]).unwrap();
        assert_eq!(kept(), None);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(kept(), None);
    }
}
