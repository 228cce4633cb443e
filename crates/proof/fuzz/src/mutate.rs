//! Inputs from inputs.

/// splitmix64: the same in every run.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `limit`; 0 where there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 1) as usize % limit.max(1)
    }
}

/// Longest input.
const LENGTH_MAX: usize = 4096;
/// Numbers at which readers turn.
const EDGES: [u64; 10] = [0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// One of `kept`, changed in a few places. Its first `fixed` bytes, which choose the reader, stay.
pub fn changed(dice: &mut Dice, kept: &[Vec<u8>], fixed: usize) -> Vec<u8> {
    let mut bytes = kept[dice.below(kept.len())].clone();
    let other = &kept[dice.below(kept.len())];
    for _ in 0..=dice.below(4) {
        change(dice, &mut bytes, other, fixed);
    }
    // Most of what is read begins with its length: with a wrong one little gets further.
    if bytes.len() >= fixed + 4 && dice.below(3) == 0 {
        let (from, add) = [(fixed, 4), (fixed, 0)][dice.below(2)];
        let length = (bytes.len() - from - add) as u32;
        bytes[from..from + 4].copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

fn change(dice: &mut Dice, bytes: &mut Vec<u8>, other: &[u8], fixed: usize) {
    let at = (fixed + dice.below(bytes.len().saturating_sub(fixed))).min(bytes.len());
    match dice.below(8) {
        0 => bytes.truncate(at),
        1 if bytes.len() < LENGTH_MAX => bytes.insert(at, dice.below(256) as u8),
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 => {
            // A piece of another input goes here, or over what is here.
            let from = dice.below(other.len());
            let piece = &other[from..other.len().min(from + 1 + dice.below(32))];
            let end = if dice.below(2) == 0 { at } else { bytes.len().min(at + piece.len()) };
            bytes.splice(at..end, piece.iter().copied());
            bytes.truncate(LENGTH_MAX);
        }
        4 => {
            let width = 1 << dice.below(4);
            let number = EDGES[dice.below(EDGES.len())].to_le_bytes();
            let places = bytes.iter_mut().skip(at).take(width);
            places.zip(number).for_each(|(byte, new)| *byte = new);
        }
        5 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        6 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add([1, 255, 2, 254][dice.below(4)]),
        _ if at < bytes.len() => bytes[at] = dice.below(256) as u8,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the same dice give the same inputs, which differ, stay below the limit and keep what chooses the reader.
    #[test]
    fn inputs_are_repeatable() {
        let kept = [b"\x07\x00first of two".to_vec(), b"\x07\x00another".to_vec(), b"\x07\x00".to_vec()];
        let inputs = || {
            let mut dice = Dice(9);
            (0..2_000).map(|_| changed(&mut dice, &kept, 2)).collect::<Vec<_>>()
        };
        let first = inputs();
        assert_eq!(first, inputs());
        assert!(first.iter().all(|input| input.starts_with(b"\x07\x00") && input.len() <= LENGTH_MAX + 8));
        assert!(first.iter().collect::<std::collections::BTreeSet<_>>().len() > 1_000);
    }
}
