//! What a file may hold after power was lost: what the last good fsync vouched for, or anything written since.

/// Bytes of a block, of which every write is a whole number.
pub const BLOCK: usize = 4096;

/// The number of a write; its blocks hold it. 0 is a block that nobody wrote: zeros.
pub type Version = u32;

/// What is known of one block, or of the size of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known<T> {
    /// What is on stable storage may be any of these; one: it is certain.
    possible: Vec<T>,
    /// Changes that no fsync has vouched for yet.
    since: Vec<T>,
}

impl Known<bool> {
    fn made() -> Self {
        Self { possible: vec![false], since: vec![true] }
    }
}

impl<T: Copy + PartialEq> Known<T> {
    fn new(value: T) -> Self {
        Self { possible: vec![value], since: Vec::new() }
    }

    fn synced(&mut self) {
        if let Some(last) = self.since.last() {
            self.possible = vec![*last];
            self.since.clear();
        }
    }

    fn doubtful(&mut self) {
        self.possible.append(&mut self.since);
    }

    fn is_certain(&self) -> bool {
        self.possible.len() == 1 && self.since.is_empty()
    }

    fn allows(&self, found: T) -> bool {
        self.possible.contains(&found) || self.since.contains(&found)
    }
}

/// What is known of one file.
#[derive(Debug)]
pub struct Book {
    /// Number of the file, in every block of it.
    file: u64,
    blocks: Vec<Known<Version>>,
    /// In blocks.
    size: Known<usize>,
    /// Whether it has a name.
    name: Known<bool>,
    now: usize,
}

impl Book {
    /// An empty file that was just made.
    pub fn new(file: u64) -> Self {
        Self { file, blocks: Vec::new(), size: Known::new(0), name: Known::made(), now: 0 }
    }

    /// Its size for whoever has it open, in blocks.
    pub fn len(&self) -> usize {
        self.now
    }

    /// Blocks were written, or perhaps not: the program was told of an error.
    pub fn wrote(&mut self, first: usize, count: usize, version: Version) {
        let end = first + count;
        if self.blocks.len() < end {
            self.blocks.resize_with(end, || Known::new(0));
        }
        self.blocks[first..end].iter_mut().for_each(|block| block.since.push(version));
        // Power may go in the middle of a write.
        (self.now + 1..=end).for_each(|len| self.resized(len));
    }

    /// Cut, or made longer.
    pub fn truncated(&mut self, len: usize) {
        self.blocks.iter_mut().skip(len).for_each(|block| block.since.push(0));
        self.resized(len);
    }

    fn resized(&mut self, len: usize) {
        self.now = len;
        self.size.since.push(len);
    }

    /// A good fsync through the handle of all changes.
    pub fn synced(&mut self) {
        self.blocks.iter_mut().for_each(Known::synced);
        self.size.synced();
        self.name.synced();
    }

    /// An error was told, or the handle was closed: no later fsync vouches for what was written until now.
    pub fn doubtful(&mut self) {
        self.blocks.iter_mut().for_each(Known::doubtful);
        self.size.doubtful();
        self.name.doubtful();
    }

    /// May the name be gone?
    pub fn may_be_missing(&self) -> bool {
        !self.name.is_certain()
    }

    /// May the file be so long?
    pub fn size(&self, bytes: u64) -> Result<(), String> {
        let allowed = |blocks: &&usize| (**blocks * BLOCK) as u64 == bytes;
        match self.size.possible.iter().chain(&self.size.since).any(|blocks| allowed(&blocks)) {
            true => Ok(()),
            false => Err(format!("{bytes} bytes long; {:?} blocks are allowed", self.size)),
        }
    }

    /// May block `number` read so? An error is good where something may have been lost.
    pub fn block(&self, number: usize, read: Result<&[u8], &std::io::Error>) -> Result<(), String> {
        let known = self.blocks.get(number);
        let certain = known.is_none_or(Known::is_certain);
        let found = match read {
            Err(_) if !certain || (self.is_hole(number) && self.is_doubtful()) => return Ok(()),
            Err(e) => return Err(format!("block {number}: {e}; {known:?} is known")),
            Ok(bytes) => self.version_of(number, bytes),
        };
        // A block that grew and was never synced may be a hole.
        let allowed =
            |found| known.map_or(found == 0, |known| known.allows(found) || (found == 0 && !certain));
        match found {
            Some(found) if allowed(found) => Ok(()),
            Some(found) => Err(format!("block {number} holds write {found}; {known:?} is known")),
            None => Err(format!("block {number} holds what nobody wrote")),
        }
    }

    /// Nobody wrote it, or it was cut off: it may lie in a chunk file that was never synced and is gone, which is an error
    /// as a whole.
    fn is_hole(&self, number: usize) -> bool {
        self.blocks.get(number).is_none_or(|known| known.possible == [0])
    }

    fn is_doubtful(&self) -> bool {
        self.blocks.iter().any(|known| !known.is_certain()) || !self.size.is_certain()
    }

    /// The bytes of block `number`.
    pub fn fill(&self, number: usize, version: Version, out: &mut [u8]) {
        let mut rng = skep_model::Rng::new(seed(self.file, number, version));
        out[..4].copy_from_slice(&version.to_le_bytes());
        out[4..8].copy_from_slice(&0xb10c_u32.to_le_bytes());
        out[8..].chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
    }

    fn version_of(&self, number: usize, bytes: &[u8]) -> Option<Version> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(0);
        }
        let version = Version::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let mut expected = vec![0; BLOCK];
        self.fill(number, version, &mut expected);
        (expected == bytes).then_some(version)
    }
}

fn seed(file: u64, block: usize, version: Version) -> u64 {
    file.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((block as u64) << 32) ^ u64::from(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(book: &Book, number: usize, version: Version) -> Vec<u8> {
        let mut out = vec![0; BLOCK];
        book.fill(number, version, &mut out);
        out
    }

    /// Goal: what a good fsync vouched for must be there, without an error; what came after may be, or be an error; other
    /// bytes, other files' and other places' are never allowed.
    #[test]
    fn only_what_was_written_is_allowed() {
        let mut book = Book::new(7);
        book.wrote(0, 2, 1);
        assert!(book.may_be_missing());
        book.synced();
        assert!(!book.may_be_missing());
        book.wrote(1, 2, 2);
        let (old, new) = (bytes(&book, 1, 1), bytes(&book, 1, 2));
        let lost = std::io::Error::from_raw_os_error(5);
        assert!(book.block(1, Ok(&old)).is_ok() && book.block(1, Ok(&new)).is_ok());
        assert!(book.block(1, Err(&lost)).is_ok() && book.block(2, Ok(&[0; BLOCK])).is_ok());
        assert!(book.block(0, Ok(&bytes(&book, 0, 1))).is_ok());
        assert!(book.block(0, Err(&lost)).is_err() && book.block(0, Ok(&[0; BLOCK])).is_err());
        assert!(book.block(0, Ok(&new)).is_err(), "of another place");
        assert!(book.block(1, Ok(&bytes(&Book::new(8), 1, 1))).is_err(), "of another file");
        book.wrote(5, 1, 3);
        assert!(book.block(4, Err(&lost)).is_ok(), "a hole beside what was never synced");
        let mut torn = new.clone();
        torn[BLOCK - 1] ^= 1;
        assert!(book.block(1, Ok(&torn)).is_err());
        assert!((2..=6).all(|len| book.size(len * BLOCK as u64).is_ok()));
        assert!(book.size(BLOCK as u64).is_err());
        book.synced();
        assert!(
            book.block(4, Err(&lost)).is_err()
                && book.block(1, Ok(&old)).is_err()
                && book.block(1, Err(&lost)).is_err()
        );
        assert!(book.size(2 * BLOCK as u64).is_err());
    }

    /// Goal: a good fsync after an error vouches for nothing that was written before the error.
    #[test]
    fn what_is_doubtful_stays_so() {
        let mut book = Book::new(7);
        book.wrote(0, 1, 1);
        book.doubtful();
        book.synced();
        assert!(book.may_be_missing(), "its making was in doubt, too");
        assert!(book.block(0, Ok(&[0; BLOCK])).is_ok() && book.size(0).is_ok());
        book.wrote(0, 1, 2);
        book.synced();
        assert!(book.block(0, Ok(&[0; BLOCK])).is_err());
        book.truncated(0);
        book.synced();
        assert!(book.size(0).is_ok() && book.size(BLOCK as u64).is_err());
    }
}
