//! A few numbers that outlive a crash and can be written on a full disk: what a directory knows of its own age.
//!
//! Two slots of a sector each, written in turn and in place: a write that is torn by a power cut leaves the other
//! slot, and nothing has to be allocated. A slot is a line of text, so that people can read it:
//! `sequence number ... number crc32c`.

use skep_types::formats::Formats;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Numbers in a file.
pub const NUMBERS: usize = 5;
/// Bytes of a slot: disks write sectors whole.
const SLOT: usize = 512;

/// The file, open.
#[derive(Debug)]
pub struct Ages {
    file: File,
    sequence: u64,
    numbers: [u64; NUMBERS],
}

impl Ages {
    /// Opens the file; made with zeros when it is missing, which is an answer: who has no memory knows nothing.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut ages = Self { file, sequence: 0, numbers: [0; NUMBERS] };
        let mut bytes = [0; 2 * SLOT];
        let len = ages.read(&mut bytes)?;
        let newest = bytes[..len].chunks(SLOT).filter_map(parse).max_by_key(|(sequence, _)| *sequence);
        match newest {
            Some(newest) => (ages.sequence, ages.numbers) = newest,
            // Torn while it was made, or empty: nothing was ever kept in it. Damage looks the same, and then its
            // directory counts as an old one.
            None => ages.make(path)?,
        }
        Ok(ages)
    }

    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn make(&mut self, path: &Path) -> io::Result<()> {
        for slot in 0..2 {
            self.file.write_all_at(&line(0, &self.numbers), slot * SLOT as u64)?;
        }
        self.file.sync_all()?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }

    /// What was written last.
    pub fn numbers(&self) -> [u64; NUMBERS] {
        self.numbers
    }

    /// Writes them, on stable storage when it returns.
    pub fn write(&mut self, numbers: [u64; NUMBERS]) -> io::Result<()> {
        let sequence = self.sequence + 1;
        self.file.write_all_at(&line(sequence, &numbers), (sequence % 2) * SLOT as u64)?;
        self.file.sync_data()?;
        (self.sequence, self.numbers) = (sequence, numbers);
        Ok(())
    }
}

fn line(sequence: u64, numbers: &[u64; NUMBERS]) -> [u8; SLOT] {
    let [a, b, c, d, e] = numbers;
    let text = format!("{sequence} {a} {b} {c} {d} {e}");
    let text = format!("{text} {:08x}\n", crc32c::crc32c(text.as_bytes()));
    let mut slot = [b' '; SLOT];
    slot[..text.len()].copy_from_slice(text.as_bytes());
    slot[SLOT - 1] = b'\n';
    slot
}

/// See [`crate::formats`].
pub(crate) fn formats(formats: &mut Formats) {
    formats.bytes("ages", &line(3, &[9, 8, 7, 6, 5]), again);
}

fn again(slot: &[u8]) -> Option<Vec<u8>> {
    let (text, _) = std::str::from_utf8(slot).ok()?.lines().next()?.rsplit_once(' ')?;
    let mended = format!("{text} {:08x}\n", crc32c::crc32c(text.as_bytes()));
    parse(mended.as_bytes()).map(|(sequence, numbers)| line(sequence, &numbers).to_vec())
}

fn parse(slot: &[u8]) -> Option<(u64, [u64; NUMBERS])> {
    let text = std::str::from_utf8(slot).ok()?.lines().next()?;
    let (text, crc) = text.rsplit_once(' ')?;
    if u32::from_str_radix(crc, 16).ok()? != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
    let mut next = || words.next().flatten();
    Some((next()?, [next()?, next()?, next()?, next()?, next()?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was written last is read back; a torn or damaged write leaves what was there before.
    #[test]
    fn the_last_whole_write_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ages");
        let mut ages = Ages::open(&path).unwrap();
        assert_eq!(ages.numbers(), [0; NUMBERS]);
        for n in 1..=5u64 {
            ages.write([n, u64::MAX - n, 0, 7, 0]).unwrap();
            assert_eq!(Ages::open(&path).unwrap().numbers(), [n, u64::MAX - n, 0, 7, 0]);
        }
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 2 * SLOT, "never longer: a full disk takes it");
        // The fifth write went to the second slot.
        for at in SLOT..SLOT + 35 {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(Ages::open(&path).unwrap().numbers()[0], 4, "byte {at}");
        }
        std::fs::write(&path, "").unwrap();
        assert_eq!(Ages::open(&path).unwrap().numbers(), [0; NUMBERS]);
    }
}
