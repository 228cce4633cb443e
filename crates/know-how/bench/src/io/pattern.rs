//! What is written, so that every wrong byte shows when it is read, and shows where it came from.
//!
//! Each word of eight bytes is a one-to-one function of (seed, file, pass, place). A word read elsewhere
//! can therefore be traced back: to another place, another file, an earlier pass, or to nobody.

mod kept;

use crate::engine::{mix, unmix};
use crate::job::IoJob;

/// Bytes of a word.
const WORD: u64 = 8;
/// Files searched for a block that is not where it belongs.
const FILES_SEARCHED: u64 = 4096;
/// Passes searched for data that is stale or lies elsewhere.
const PASSES_SEARCHED: u32 = 65_536;

/// The contents of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    seed: u64,
    file: u64,
    files: u64,
    words: u64,
}

/// Passes of an earlier run that are remembered.
const PASSES_REMEMBERED: usize = 64;

/// What is known of the passes that may have left what is in a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passes {
    /// They; of an earlier run's as many as were met.
    may: Vec<u32>,
    /// Parts of the file may be an earlier run's, of any pass.
    kept: bool,
}

impl Passes {
    /// Before anything is written. `kept`: an earlier run left the file.
    pub fn new(kept: bool) -> Self {
        Self { may: Vec::new(), kept }
    }

    /// A pass writes. `covers`: all of it, so that nothing else may be there any more.
    pub fn wrote(&mut self, pass: u32, covers: bool) {
        if covers {
            *self = Self::default();
        }
        self.may.push(pass);
    }

    fn learn(&mut self, pass: u32) {
        if self.may.last() != Some(&pass) && !self.may.contains(&pass) && self.may.len() < PASSES_REMEMBERED {
            self.may.push(pass);
        }
    }
}

/// A wrong place and what is known about it.
pub(crate) type Wrong = (u64, String);

fn key(seed: u64, file: u64, generation: u32) -> u64 {
    mix(seed ^ mix(file << 32 | u64::from(generation)))
}

/// Writes the words that follow from a key over `bytes`, which lie at `offset`.
pub(crate) fn fill(bytes: &mut [u8], key: u64, offset: u64) {
    let skew = (offset % WORD) as usize;
    let mut index = offset / WORD;
    let mut rest = bytes;
    if skew != 0 {
        let head = rest.len().min(WORD as usize - skew);
        let word = mix(key.wrapping_add(index)).to_le_bytes();
        let (first, more) = rest.split_at_mut(head);
        first.copy_from_slice(&word[skew..skew + head]);
        rest = more;
        index += 1;
    }
    let mut words = rest.chunks_exact_mut(WORD as usize);
    for word in &mut words {
        word.copy_from_slice(&mix(key.wrapping_add(index)).to_le_bytes());
        index += 1;
    }
    let tail = words.into_remainder();
    let word = mix(key.wrapping_add(index)).to_le_bytes();
    tail.copy_from_slice(&word[..tail.len()]);
}

/// The first byte that differs from what the key says.
pub(crate) fn first_wrong(bytes: &[u8], key: u64, offset: u64) -> Option<usize> {
    let skew = (offset % WORD) as usize;
    let mut index = offset / WORD;
    let mut at = 0;
    let differ = |part: &[u8], word: &[u8]| part.iter().zip(word).position(|(a, b)| a != b);
    if skew != 0 {
        let head = bytes.len().min(WORD as usize - skew);
        let word = mix(key.wrapping_add(index)).to_le_bytes();
        if let Some(inside) = differ(&bytes[..head], &word[skew..]) {
            return Some(inside);
        }
        (at, index) = (head, index + 1);
    }
    for part in bytes[at..].chunks(WORD as usize) {
        let word = mix(key.wrapping_add(index)).to_le_bytes();
        if part != &word[..part.len()] {
            return differ(part, &word).map(|inside| at + inside);
        }
        (at, index) = (at + part.len(), index + 1);
    }
    None
}

impl Pattern {
    /// That of the file a worker reads or writes.
    pub fn new(io: &IoJob, seed: u64, target: u32, workers: u32) -> Self {
        let shared = io.share.is_shared();
        Self {
            seed,
            file: if shared { 0 } else { u64::from(target) },
            files: if shared { 1 } else { u64::from(workers) },
            words: io.file_size(u64::from(workers)).div_ceil(WORD),
        }
    }

    /// Fills a transfer.
    pub fn fill(&self, bytes: &mut [u8], generation: u32, offset: u64) {
        fill(bytes, key(self.seed, self.file, generation), offset);
    }

    /// Checks a transfer against the passes that may have written it.
    pub fn verify(&self, bytes: &[u8], passes: &mut Passes, offset: u64) -> Result<(), Wrong> {
        if passes.kept {
            return self.verify_kept(bytes, passes, offset);
        }
        let generations = &passes.may;
        let mut best = (0, generations.first().copied().unwrap_or(1));
        for generation in generations.iter().rev() {
            match first_wrong(bytes, key(self.seed, self.file, *generation), offset) {
                None => return Ok(()),
                Some(at) if at >= best.0 => best = (at, *generation),
                Some(_) => {}
            }
        }
        self.word_by_word(bytes, generations, offset, best)
    }

    /// Several passes may have left parts of one transfer.
    fn word_by_word(
        &self,
        bytes: &[u8],
        generations: &[u32],
        offset: u64,
        best: (usize, u32),
    ) -> Result<(), Wrong> {
        if generations.len() < 2 {
            return Err(self.diagnose(bytes, offset, best));
        }
        let mut at = 0;
        while at < bytes.len() {
            let place = offset + at as u64;
            let step = (WORD - place % WORD).min((bytes.len() - at) as u64) as usize;
            let part = &bytes[at..at + step];
            let known =
                |generation: &u32| first_wrong(part, key(self.seed, self.file, *generation), place).is_none();
            if !generations.iter().any(known) {
                return Err(self.diagnose(bytes, offset, (at, best.1)));
            }
            at += step;
        }
        Ok(())
    }

    fn diagnose(&self, bytes: &[u8], offset: u64, (at, generation): (usize, u32)) -> Wrong {
        let place = offset + at as u64;
        let mut expected = [0];
        self.fill(&mut expected, generation, place);
        let byte = format!("byte {:#04x} instead of {:#04x}", bytes[at], expected[0]);
        // The first whole word at or after the wrong byte's.
        let word_at = (place / WORD * WORD).max(offset.div_ceil(WORD) * WORD);
        let from = (word_at - offset) as usize;
        let origin = match bytes.get(from..from + WORD as usize) {
            None => "too short to tell where it came from".to_owned(),
            Some([0, 0, 0, 0, 0, 0, 0, 0]) => "zeros: never written, or lost".to_owned(),
            Some(word) => {
                let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
                self.origin(unmix(word), word_at / WORD, generation)
            }
        };
        (place, format!("{byte}; {origin}"))
    }

    fn origin(&self, trace: u64, index: u64, generation: u32) -> String {
        let misplaced = |file: u64, pass: u32| {
            let found = trace.wrapping_sub(key(self.seed, file, pass));
            (found < self.words && (file, found) != (self.file, index)).then(|| found * WORD)
        };
        let near =
            generation.saturating_sub(PASSES_SEARCHED / 2)..=generation.saturating_add(PASSES_SEARCHED / 2);
        if let Some(pass) =
            near.clone().find(|pass| trace == key(self.seed, self.file, *pass).wrapping_add(index))
        {
            let age = if pass < generation { "stale: written by an earlier pass" } else { "of a later pass" };
            return format!("the data is {age} (number {pass}, expected {generation})");
        }
        let passes = near.into_iter();
        if let Some(from) = passes.into_iter().find_map(|pass| misplaced(self.file, pass)) {
            return format!("the data belongs to byte {from} of this file");
        }
        for file in 0..self.files.min(FILES_SEARCHED) {
            if let Some(from) = misplaced(file, generation) {
                return format!("the data belongs to byte {from} of worker {file}'s file");
            }
        }
        "nothing this job wrote (was it written with --verify?)".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(files: u64, file: u64) -> Pattern {
        Pattern { seed: 7, file, files, words: 100_000 }
    }

    fn of(may: &[u32]) -> Passes {
        Passes { may: may.to_vec(), kept: false }
    }

    /// Goal: what is filled verifies, at every alignment and length, whatever the transfer size was.
    #[test]
    fn round_trip() {
        let p = pattern(1, 0);
        let mut whole = vec![0; 300];
        p.fill(&mut whole, 3, 1000);
        for from in 0..20 {
            for length in [0, 1, 7, 8, 9, 63, 100] {
                let mut part = vec![0; length];
                p.fill(&mut part, 3, 1000 + from as u64);
                assert_eq!(part, whole[from..from + length]);
                p.verify(&part, &mut of(&[3]), 1000 + from as u64).unwrap();
            }
        }
    }

    /// Goal: a single wrong byte is found, wherever it is, and named by its place in the file.
    #[test]
    fn wrong_byte() {
        let p = pattern(1, 0);
        for at in 0..120 {
            let mut bytes = vec![0; 120];
            p.fill(&mut bytes, 1, 4093);
            bytes[at] ^= 0x10;
            let (place, text) = p.verify(&bytes, &mut of(&[1]), 4093).unwrap_err();
            assert_eq!(place, 4093 + at as u64);
            assert!(text.starts_with("byte 0x"), "{text}");
        }
    }

    /// Goal: zeros, shifted, stale and foreign blocks are told apart.
    #[test]
    fn origins() {
        let p = pattern(8, 2);
        let block = |p: &Pattern, pass, offset| {
            let mut bytes = vec![0; 4096];
            p.fill(&mut bytes, pass, offset);
            bytes
        };
        let cases = [
            (vec![0; 4096], "zeros"),
            (block(&p, 9, 12_288), "belongs to byte 12288 of this file"),
            (block(&p, 5, 8192), "stale"),
            (block(&pattern(8, 6), 9, 0), "belongs to byte 0 of worker 6's file"),
            (vec![0x5a; 4096], "nothing this job wrote (was it written with --verify?)"),
        ];
        for (bytes, words) in cases {
            let (place, text) = p.verify(&bytes, &mut of(&[9]), 8192).unwrap_err();
            assert_eq!(place, 8192);
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    /// Goal: where several passes may have written, each word may be of any of them, but of no other.
    #[test]
    fn several_passes() {
        let p = pattern(1, 0);
        let mut bytes = vec![0; 64];
        p.fill(&mut bytes, 1, 0);
        p.fill(&mut bytes[16..40], 2, 16);
        p.verify(&bytes, &mut of(&[1, 2]), 0).unwrap();
        p.fill(&mut bytes[40..48], 3, 40);
        assert_eq!(p.verify(&bytes, &mut of(&[1, 2]), 0).unwrap_err().0, 40);
    }
}
