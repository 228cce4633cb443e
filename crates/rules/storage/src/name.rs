//! Names of chunk files on a target.

use alloc::format;
use alloc::string::String;
use core::fmt;
use skep_types::{ChunkId, Generation, Ino};

/// A chunk file's name without its piece: `<ino hex>.<generation>.<extent>.<stripe>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkName(pub ChunkId);

/// One file of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceName {
    /// The chunk file.
    pub chunk: ChunkId,
    /// Which TiB of it.
    pub piece: u32,
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChunkId { ino, generation, extent, stripe } = self.0;
        write!(f, "{ino}.{generation}.{extent}.{stripe}")
    }
}

impl ChunkName {
    /// The two directory levels below `chunks/`: 65,536 directories keep each one short.
    pub fn directory(&self) -> (u8, u8) {
        // Fibonacci hashing: neighbouring inode numbers go to different directories.
        let hash = (self.0.ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16;
        ((hash >> 8) as u8, hash as u8)
    }

    /// Marks a chunk file that has pieces beyond the first. Written before the first such piece.
    pub fn marker(&self) -> String {
        format!("{self}.more")
    }

    /// Path relative to the target.
    pub fn directory_path(&self) -> String {
        let (a, b) = self.directory();
        format!("chunks/{a:02x}/{b:02x}")
    }
}

impl PieceName {
    /// The first piece of a chunk file.
    pub fn first(chunk: ChunkId) -> Self {
        Self { chunk, piece: 0 }
    }

    /// The file's name in its directory.
    pub fn file_name(&self) -> String {
        format!("{}.{}", ChunkName(self.chunk), self.piece)
    }

    /// Path relative to the target, as `skep entry info` shows it.
    pub fn path(&self) -> String {
        format!("{}/{}", ChunkName(self.chunk).directory_path(), self.file_name())
    }

    /// Reads a file name; `None` for anything that is no piece (markers, strangers' files).
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let ino = Ino(u64::from_str_radix(parts.next()?, 16).ok()?);
        let generation = Generation(parts.next()?.parse().ok()?);
        let extent = parts.next()?.parse().ok()?;
        let stripe = parts.next()?.parse().ok()?;
        let piece = parts.next()?.parse().ok()?;
        let parsed = Self { chunk: ChunkId { ino, generation, extent, stripe }, piece };
        // `007` or `+7` would be another file than the one this name stands for.
        (parts.next().is_none() && parsed.file_name() == name).then_some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names read back what was written; everything else is refused.
    #[test]
    fn names_round_trip() {
        let chunk =
            ChunkId { ino: Ino(0xabc_0000_0000_0001), generation: Generation(3), extent: 1, stripe: 7 };
        let piece = PieceName { chunk, piece: 12 };
        assert_eq!(piece.file_name(), "abc000000000001.3.1.7.12");
        assert_eq!(PieceName::parse(&piece.file_name()), Some(piece));
        for bad in [
            "",
            "1.2.3.4",
            "1.2.3.4.5.6",
            "1.2.3.4.more",
            "01.2.3.4.5",
            "1.+2.3.4.5",
            "x.2.3.4.5",
            "lost+found",
        ] {
            assert_eq!(PieceName::parse(bad), None, "{bad}");
        }
    }

    /// Goal: inode numbers in a row do not share a directory.
    #[test]
    fn neighbours_are_spread() {
        let directory = |ino| {
            ChunkName(ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }).directory()
        };
        let mut seen: alloc::vec::Vec<_> = (0..1_000).map(directory).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 900, "{} directories for 1,000 files", seen.len());
    }
}
