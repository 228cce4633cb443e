//! Numbers for synthetic surveys: the same seed draws the same ones.

/// A generator (splitmix64).
pub struct Draw(u64);

impl Draw {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to `limit`, without it.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit.max(1) as u64) as usize
    }

    /// Log-normal around `middle` (the sum of twelve is normal enough).
    pub fn noisy(&mut self, middle: f64, spread: f64) -> f64 {
        let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
        let normal: f64 = (0..12).map(|_| unit(self.bits())).sum::<f64>() - 6.0;
        middle * (spread * normal).exp()
    }
}
