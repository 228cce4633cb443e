//! The generator of the simulation: the same seed, the same run, on every machine.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed; other parts of one run take other streams.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// At least 0, less than `below` (0 gives 0).
    pub fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(below)) >> 64) as u64
    }

    /// More than 0, at most 1.
    pub fn share(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Time to the next of events that come at random, on average every `mean` nanoseconds.
    pub fn exponential(&mut self, mean: f64) -> u64 {
        (-self.share().ln() * mean) as u64
    }
}
