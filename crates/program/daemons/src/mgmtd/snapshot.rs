//! The snapshot file: the registry as of a log index, so that the log before it can go.
//!
//! ```text
//!  0 8 bytes "SKEPMGR1"     24 u64 index
//!  8 u32 format version     32 u64 length of the state
//! 12 u32 CRC32C of 16..     40 state (the codec of skep-types)
//! 16 u64 term
//! ```

use super::identity::{FILE_MAX, read_file, replace_file};
use super::journal::JournalError;
use skep_cluster::State;
use skep_disk::disk::Disk;
use skep_types::{Decode, Encode, LogIndex, Reader, Term};
use std::path::Path;

/// Name of the snapshot file.
pub const SNAPSHOT_FILE: &str = "snapshot";
const MAGIC: &[u8; 8] = b"SKEPMGR1";
const FORMAT_VERSION: u32 = 1;
/// Bytes before those that the checksum covers.
const UNCHECKED: usize = 16;

/// The registry as of a log index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Last entry that is in it.
    pub index: LogIndex,
    /// Term of that entry.
    pub term: Term,
    /// The registry.
    pub state: State,
}

impl Snapshot {
    fn to_file(&self) -> Vec<u8> {
        let mut checked = Vec::new();
        self.term.encode(&mut checked);
        self.index.encode(&mut checked);
        let state = self.state.to_bytes();
        (state.len() as u64).encode(&mut checked);
        checked.extend_from_slice(&state);
        let mut out = MAGIC.to_vec();
        FORMAT_VERSION.encode(&mut out);
        crc32c::crc32c(&checked).encode(&mut out);
        out.extend_from_slice(&checked);
        out
    }

    fn from_file(bytes: &[u8]) -> Result<Self, String> {
        let Some((head, checked)) = bytes.split_at_checked(UNCHECKED) else {
            return Err("it is cut short".to_owned());
        };
        let mut head = Reader::new(head);
        let text = |e: skep_types::DecodeError| e.to_string();
        if head.take(MAGIC.len(), "magic").map_err(text)? != MAGIC {
            return Err("it is no snapshot of a registry".to_owned());
        }
        let version = u32::decode(&mut head).map_err(text)?;
        if version != FORMAT_VERSION {
            return Err(format!("its format {version} is not {FORMAT_VERSION}, the one this release knows"));
        }
        if u32::decode(&mut head).map_err(text)? != crc32c::crc32c(checked) {
            return Err("its checksum does not match: the disk damaged it".to_owned());
        }
        let mut r = Reader::new(checked);
        let (term, index) = (Term::decode(&mut r).map_err(text)?, LogIndex::decode(&mut r).map_err(text)?);
        let len = u64::decode(&mut r).map_err(text)?;
        if len != r.remaining() as u64 {
            return Err("its length does not match".to_owned());
        }
        let state = State::decode(&mut r).map_err(text)?;
        r.finish("snapshot").map_err(text)?;
        Ok(Self { index, term, state })
    }

    /// Reads the file; `None` when there is none.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, JournalError> {
        let path = dir.join(SNAPSHOT_FILE);
        let Some(bytes) = read_file(disk, &path)? else { return Ok(None) };
        Self::from_file(&bytes).map(Some).map_err(|what| {
            JournalError(format!(
                "{}: {what}; check the disk, then restore the state directory from a backup",
                path.display()
            ))
        })
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), JournalError> {
        let bytes = self.to_file();
        if bytes.len() as u64 > FILE_MAX {
            return Err(JournalError(format!(
                "the registry is longer than {FILE_MAX} bytes; lower its limits"
            )));
        }
        replace_file(disk, dir, SNAPSHOT_FILE, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::Uuid;

    /// Goal: a snapshot reads back what was written; every damaged or missing byte is noticed.
    #[test]
    fn round_trip_and_damage() {
        let state = State::format(Uuid([3; 16]), skep_types::NamesKey([6; 16]), 4);
        let snapshot = Snapshot { index: LogIndex(70), term: Term(3), state };
        let bytes = snapshot.to_file();
        assert_eq!(Snapshot::from_file(&bytes), Ok(snapshot));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(Snapshot::from_file(&bad).is_err(), "byte {at}");
            assert!(Snapshot::from_file(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
