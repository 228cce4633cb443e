//! Files that an earlier run kept: which of its passes wrote what is not known here, but every word names its own.
//!
//! That it was the last pass that should have written there cannot be told. Everything else can: another file,
//! another place, zeros, a single wrong byte.

use super::{PASSES_SEARCHED, Passes, Pattern, WORD, Wrong, first_wrong, key};
use crate::engine::unmix;
use crate::job::{MAX_PHASES, MAX_REPETITIONS};

/// Passes have numbers up to here.
const PASS_MAX: u32 = (MAX_REPETITIONS + 1) * MAX_PHASES as u32 + 1;

/// Passes of the same repetition have numbers that are no further apart.
const PASSES_NEAR: u32 = MAX_PHASES as u32;

/// A transfer, cut where words end, with the place of each piece.
fn pieces(bytes: &[u8], offset: u64) -> impl Iterator<Item = (&[u8], u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let place = offset + at as u64;
        let step = (WORD - place % WORD).min((bytes.len() - at) as u64) as usize;
        at += step;
        (step > 0).then(|| (&bytes[at - step..at], place))
    })
}

impl Pattern {
    /// The pass that wrote a whole word of this file at this place.
    fn named(&self, word: &[u8], place: u64) -> Option<u32> {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let name = unmix(unmix(unmix(word).wrapping_sub(place / WORD)) ^ self.seed);
        let pass = name as u32;
        (name >> 32 == self.file && (1..=PASS_MAX).contains(&pass)).then_some(pass)
    }

    fn wrong_in(&self, part: &[u8], pass: u32, place: u64) -> Option<usize> {
        first_wrong(part, key(self.seed, self.file, pass), place)
    }

    /// Checks a transfer of which each word may be of a pass of its own.
    pub(super) fn verify_kept(&self, bytes: &[u8], passes: &mut Passes, offset: u64) -> Result<(), Wrong> {
        let head = ((WORD - offset % WORD) % WORD) as usize;
        let first = bytes.get(head..head + WORD as usize);
        // Nearly always one pass wrote all of a transfer.
        if let Some(pass) = first.and_then(|word| self.named(word, offset + head as u64))
            && self.wrong_in(bytes, pass, offset).is_none()
        {
            passes.learn(pass);
            return Ok(());
        }
        let all = || pieces(bytes, offset);
        all().filter_map(|(part, place)| self.named(part, place)).for_each(|pass| passes.learn(pass));
        let mut before = None;
        for (part, place) in all() {
            let named = self.named(part, place);
            before = match named {
                Some(_) => named,
                None => {
                    let end = (place - offset) as usize + part.len();
                    let after = pieces(&bytes[end..], place + part.len() as u64).next();
                    let after = after.and_then(|(part, place)| self.named(part, place));
                    self.torn(part, place, [before, after], passes).map_err(|(inside, pass)| {
                        self.diagnose(bytes, offset, ((place - offset) as usize + inside, pass))
                    })?;
                    after
                }
            };
        }
        Ok(())
    }

    /// A part of a word, or one that the ends of two transfers share: of the passes beside it. Otherwise where it is
    /// wrong, and for which pass.
    fn torn(
        &self,
        part: &[u8],
        place: u64,
        beside: [Option<u32>; 2],
        passes: &Passes,
    ) -> Result<(), (usize, u32)> {
        let [left, right] = beside.map(|pass| pass.map_or_else(|| passes.may.clone(), |pass| vec![pass]));
        // How far it is right at most, with the pass of what comes then.
        let mut best = (0, passes.may.first().copied().unwrap_or(1));
        for split in 0..=part.len() {
            let (first, rest) = part.split_at(split);
            if !first.is_empty() && left.iter().all(|pass| self.wrong_in(first, *pass, place).is_some()) {
                continue;
            }
            if rest.is_empty() {
                return Ok(());
            }
            for pass in left.iter().chain(&right) {
                match self.wrong_in(rest, *pass, place + split as u64) {
                    None => return Ok(()),
                    Some(inside) => best = best.max((split + inside, *pass)),
                }
            }
        }
        // Cut off by the transfer, it may be of a pass that was not met yet.
        let near = match (passes.may.iter().min(), passes.may.iter().max()) {
            (Some(least), Some(most)) => least.saturating_sub(PASSES_NEAR).max(1)..=most + PASSES_NEAR,
            _ => 1..=PASSES_SEARCHED,
        };
        let cut_off = (part.len() as u64) < WORD;
        if cut_off && near.into_iter().any(|pass| self.wrong_in(part, pass, place).is_none()) {
            return Ok(());
        }
        Err(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(file: u64) -> Pattern {
        Pattern { seed: 7, file, files: 8, words: 100_000 }
    }

    fn written(pass: u32, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        pattern(0).fill(&mut bytes, pass, offset);
        bytes
    }

    fn kept(bytes: &[u8], offset: u64) -> Result<(), Wrong> {
        pattern(0).verify(bytes, &mut Passes::new(true), offset)
    }

    /// Goal: what several passes of an earlier run have left verifies, wherever one ends and the next begins and
    /// however it is cut into transfers.
    #[test]
    fn several_passes() {
        let others = &[15, 16, 47, 64, 400][..];
        for (cut, transfers) in [(8, others), (16, others), (104, others), (17, &[17, 400]), (47, &[47, 400])]
        {
            let mut file = written(65, 0, 400);
            for from in (cut..400 - cut).step_by(3 * cut) {
                file[from..from + cut].copy_from_slice(&written(66, from as u64, cut));
            }
            for transfer in transfers {
                let mut passes = Passes::new(true);
                for (at, bytes) in file.chunks(*transfer).enumerate() {
                    let offset = (at * transfer) as u64;
                    let verified = pattern(0).verify(bytes, &mut passes, offset);
                    verified.unwrap_or_else(|wrong| panic!("{cut} {transfer}: {wrong:?}"));
                }
            }
        }
    }

    /// Goal: a wrong byte anywhere, zeros, a block of another place, of another file, and contents of nobody are
    /// found where they are, also beside words of several passes.
    #[test]
    fn damage() {
        let mut exact = 0;
        for at in 0..120 {
            let mut bytes = written(5, 4093, 120);
            bytes[48..80].copy_from_slice(&written(6, 4141, 32));
            bytes[at] ^= 0x10;
            let place = (kept(&bytes, 4093).unwrap_err().0 - 4093) as usize;
            // In a word that two passes share, the wrong byte may by chance be right for the other.
            assert!((at..at + WORD as usize).contains(&place), "{at}: {place}");
            exact += usize::from(place == at);
        }
        assert!(exact > 110, "{exact}");
        let mut other = vec![0; 64];
        pattern(3).fill(&mut other, 5, 64);
        let cases = [
            (vec![0; 64], "zeros"),
            (written(5, 4096, 64), "belongs to byte 4096 of this file"),
            (other, "belongs to byte 64 of worker 3's file"),
            (vec![0x5a; 64], "written with --verify?"),
        ];
        for (block, words) in cases {
            let mut bytes = written(5, 0, 256);
            bytes[64..128].copy_from_slice(&block);
            let (place, text) = kept(&bytes, 0).unwrap_err();
            assert!(place == 64 && text.contains(words), "{words}: {place} {text}");
        }
        assert!(kept(&[0x5a; 4], 0).unwrap_err().1.contains("too short"));
    }

    /// Goal: what this run writes over all of it ends the guessing: an earlier run's words are stale then.
    #[test]
    fn written_over() {
        let mut passes = Passes::new(true);
        pattern(0).verify(&written(9, 0, 64), &mut passes, 0).unwrap();
        passes.wrote(2, false);
        pattern(0).verify(&written(9, 64, 64), &mut passes, 64).unwrap();
        passes.wrote(3, true);
        pattern(0).verify(&written(3, 0, 64), &mut passes, 0).unwrap();
        assert!(pattern(0).verify(&written(9, 0, 64), &mut passes, 0).unwrap_err().1.contains("later pass"));
    }
}
