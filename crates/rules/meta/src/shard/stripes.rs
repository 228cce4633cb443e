//! What the targets of a stripe answered, as one answer: how many there are is nobody else's business. Why these rules
//! hold for copies: `docs/design/layout.md`.

use alloc::collections::BTreeMap;
use skep_types::{ChunkId, Layout};

/// Lengths and blocks of chunk files: of what the targets of one stripe say, the greatest counts.
#[derive(Debug, Default)]
pub struct Answers {
    stripes: BTreeMap<ChunkId, (u64, u64)>,
}

impl Answers {
    /// A target has so much of a chunk file.
    pub fn note(&mut self, chunk: ChunkId, size: u64, blocks: u64) {
        let known = self.stripes.entry(chunk).or_default();
        *known = (known.0.max(size), known.1.max(blocks));
    }

    /// Blocks of all of them: what the file takes once.
    pub fn blocks(&self) -> u64 {
        self.stripes.values().fold(0, |all, (_, blocks)| all.saturating_add(*blocks))
    }

    /// Where the file ends at least.
    pub fn end(&self, layout: &Layout) -> u64 {
        let of = |(chunk, (size, _)): (&ChunkId, &(u64, u64))| {
            layout.extent_of(chunk).map_or(0, |extent| extent.file_size(chunk.stripe.into(), *size))
        };
        self.stripes.iter().map(of).max().unwrap_or(0)
    }
}

/// Where a stripe is sealed: the lowest place that its targets say, and nowhere while one of them does not seal.
#[derive(Debug, Clone, Copy, Default)]
pub enum Limit {
    /// None has answered.
    #[default]
    Unknown,
    /// Those that have answered have sealed it.
    At(u64),
    /// It stays open.
    Open,
}

impl Limit {
    /// A target has sealed its chunk file there; `None`: it does not.
    pub fn note(&mut self, limit: Option<u64>) {
        *self = match (*self, limit) {
            (Self::Unknown, Some(limit)) => Self::At(limit),
            (Self::At(known), Some(limit)) => Self::At(known.min(limit)),
            (_, None) | (Self::Open, _) => Self::Open,
        };
    }

    /// Now that all have answered.
    pub fn of_all(self) -> Option<u64> {
        if let Self::At(limit) = self { Some(limit) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{Generation, Ino};

    /// Goal: answers of several targets count as one: no byte that one of them has is left out of the size, none is counted
    /// twice, and a stripe is closed only where all of its targets refuse what comes behind it.
    #[test]
    fn answers_of_a_stripe_are_one() {
        let chunk = |stripe| ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe };
        let mut answers = Answers::default();
        assert_eq!((answers.blocks(), answers.end(&Layout::default())), (0, 0));
        for (stripe, size, blocks) in [(0, 10, 8), (1, 20, 16), (0, 7, 24)] {
            answers.note(chunk(stripe), size, blocks);
        }
        assert_eq!(answers.blocks(), 24 + 16);
        assert_eq!(answers.stripes[&chunk(0)], (10, 24));
        let of = |each: &[Option<u64>]| {
            let mut limit = Limit::default();
            each.iter().for_each(|one| limit.note(*one));
            limit.of_all()
        };
        assert_eq!((of(&[]), of(&[Some(0)]), of(&[None])), (None, Some(0), None));
        assert_eq!(
            (of(&[Some(9), Some(7)]), of(&[Some(7), None]), of(&[None, Some(7)])),
            (Some(7), None, None)
        );
    }
}
