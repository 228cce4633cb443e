//! Orders drawn at random without a table: a permutation of 0..n as a function.

/// A mixer of 64 bits: every bit of the input moves about half of the output. One to one.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What [`mix`] was given.
pub fn unmix(x: u64) -> u64 {
    let x = x ^ (x >> 31) ^ (x >> 62);
    let x = x.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let x = x ^ (x >> 27) ^ (x >> 54);
    let x = x.wrapping_mul(0x96de_1b17_3f11_9089);
    let x = x ^ (x >> 30) ^ (x >> 60);
    x.wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

/// A permutation of `0..count`: a Feistel network over the next power of four, walked until it is in
/// range again (less than four steps on average).
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    count: u64,
    half: u32,
    seed: u64,
}

/// Rounds of the network; four are enough to look random.
const ROUNDS: u64 = 4;

impl Permutation {
    /// The permutation that follows from a seed.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Self { count, half: bits.div_ceil(2).max(1), seed }
    }

    /// Where `index` (below the count) goes.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let mut x = index;
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for round in 0..ROUNDS {
                let f = mix(right ^ self.seed.rotate_left(round as u32 * 13) ^ (round << 56)) & mask;
                (left, right) = (right, left ^ f);
            }
            x = (left << self.half) | right;
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every index comes exactly once, for counts around powers of two, and not in order.
    #[test]
    fn each_once() {
        for count in [1u64, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            let permutation = Permutation::new(count, 42);
            let mut seen: Vec<u64> = (0..count).map(|i| permutation.at(i)).collect();
            if count > 100 {
                let in_place = seen.iter().enumerate().filter(|(i, x)| *i as u64 == **x).count();
                assert!(in_place < 20, "{in_place} of {count} stayed");
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }

    /// Goal: the mixer can be undone: a block found in the wrong place tells where it belongs.
    #[test]
    fn undone() {
        for x in [0, 1, 77, u64::MAX, 1 << 63, 0x1234_5678_9abc_def0] {
            assert_eq!(unmix(mix(x)), x);
        }
    }
}
