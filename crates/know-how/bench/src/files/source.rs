//! A synthetic source tree: names, sizes and text follow from a seed.

use crate::engine::mix;
use crate::job::SourceTree;

/// The word that grep looks for.
pub(super) const WORD: &[u8] = b"lease_epoch";
/// Endings of files.
pub(super) const ENDINGS: [&str; 4] = ["c", "h", "rs", "txt"];
/// Children of a directory.
const BRANCHING: u64 = 4;
/// Spread of the logarithm of sizes (natural): with it the mean is three times the median, as in a
/// kernel's source.
const SIGMA: f64 = 1.48;
/// Text from which files are cut.
const TEXT: usize = 256 << 10;
/// Words of which it is made.
const WORDS: [&str; 24] = [
    "static",
    "int",
    "struct",
    "return",
    "if",
    "else",
    "for",
    "chunk",
    "target",
    "stripe",
    "inode",
    "entry",
    "offset",
    "length",
    "buffer",
    "error",
    "lock",
    "page",
    "list",
    "node",
    "size",
    "flags",
    "lease_epoch",
    "goto",
];

/// One tree.
pub(crate) struct Source {
    shape: SourceTree,
    seed: u64,
    directories: Vec<String>,
    text: Vec<u8>,
    bytes: Vec<u8>,
}

impl Source {
    pub fn new(shape: &SourceTree, seed: u64) -> Self {
        let mut directories: Vec<String> = Vec::new();
        for index in 0..shape.directories() {
            let name = format!("dir{index}");
            let path = match index.checked_sub(BRANCHING) {
                None => name,
                Some(_) => format!("{}/{name}", directories[(index / BRANCHING - 1) as usize]),
            };
            directories.push(path);
        }
        let mut text = Vec::with_capacity(TEXT + 64);
        let mut draw = 0;
        while text.len() < TEXT {
            let random = mix(seed ^ mix(draw));
            // Words are not equally frequent: the square of a uniform number.
            let share = (random % 1000) as f64 / 1000.0;
            let word = WORDS[(share * share * WORDS.len() as f64) as usize % WORDS.len()];
            text.extend_from_slice(word.as_bytes());
            text.push(if random >> 40 & 7 == 0 { b'\n' } else { b' ' });
            draw += 1;
        }
        text.truncate(TEXT);
        Self { shape: *shape, seed, directories, text, bytes: Vec::new() }
    }

    /// Directories, parents first.
    pub fn directories(&self) -> &[String] {
        &self.directories
    }

    /// The path of a file.
    pub fn name(&self, file: u64) -> String {
        let directory = file / self.shape.per_directory.max(1) % self.directories.len() as u64;
        let ending = ENDINGS[(mix(self.seed ^ file) % 4) as usize];
        format!("{}/file{file}.{ending}", self.directories[directory as usize])
    }

    /// Its size: log-normal around the median.
    pub fn size(&self, file: u64) -> u64 {
        // The sum of twelve uniform numbers is as good as normal.
        let uniform =
            |n: u64| (mix(self.seed ^ mix(file.wrapping_mul(16) + n)) >> 11) as f64 / (1u64 << 53) as f64;
        let normal = (0..12).map(uniform).sum::<f64>() - 6.0;
        let size = self.shape.median_bytes as f64 * (normal * SIGMA).exp();
        (size as u64).clamp(1, self.shape.largest_bytes)
    }

    /// Its bytes, and how often [`WORD`] stands in them.
    pub fn contents(&mut self, file: u64) -> (&[u8], u64) {
        let size = self.size(file) as usize;
        let mut from = (mix(self.seed ^ file.rotate_left(32)) % TEXT as u64) as usize;
        self.bytes.clear();
        while self.bytes.len() < size {
            let piece = (size - self.bytes.len()).min(TEXT - from);
            self.bytes.extend_from_slice(&self.text[from..from + piece]);
            from = 0;
        }
        (&self.bytes, super::count(&self.bytes, WORD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the same seed makes the same tree, another makes another.
    #[test]
    fn follows_from_the_seed() {
        let shape = SourceTree::default();
        let (mut a, mut b, c) = (Source::new(&shape, 1), Source::new(&shape, 1), Source::new(&shape, 2));
        for file in 0..50 {
            assert_eq!(a.name(file), b.name(file));
            assert_eq!(a.contents(file), b.contents(file));
        }
        assert!((0..50).any(|file| a.size(file) != c.size(file)));
    }

    /// Goal: sizes have the median asked for and a mean of about three times that, and the word occurs.
    #[test]
    fn sizes() {
        let shape = SourceTree::default();
        let mut source = Source::new(&shape, 3);
        let mut sizes: Vec<u64> = (0..2000).map(|file| source.size(file)).collect();
        sizes.sort_unstable();
        assert!((3_700..5_000).contains(&sizes[1000]), "{}", sizes[1000]);
        let mean = sizes.iter().sum::<u64>() / 2000;
        assert!((9_000..18_000).contains(&mean), "{mean}");
        let words: u64 = (0..100).map(|file| source.contents(file).1).sum();
        assert!(words > 100, "{words}");
    }

    /// Goal: every directory comes after its parent.
    #[test]
    fn parents_first() {
        let source = Source::new(&SourceTree::default(), 0);
        for (index, path) in source.directories().iter().enumerate() {
            if let Some((parent, _)) = path.rsplit_once('/') {
                assert!(source.directories()[..index].iter().any(|before| before == parent), "{path}");
            }
        }
    }
}
