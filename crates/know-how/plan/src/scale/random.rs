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
        (-ln(self.share()) * mean) as u64
    }
}

/// The natural logarithm of a number from 2^-53 to 1, by sums and products only: the platform's own may differ in
/// the last bit, and then two machines would simulate different clusters.
fn ln(x: f64) -> f64 {
    let (mut mantissa, mut halvings) = (x, 0.0);
    while mantissa < 0.5 {
        mantissa *= 2.0;
        halvings += 1.0;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)); from 0.5 to 1 the argument is at most a third.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut power, mut sum) = (z, 0.0);
    for odd in (1..40).step_by(2) {
        sum += power / f64::from(odd);
        power *= z * z;
    }
    2.0 * sum - halvings * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the logarithm is the logarithm.
    #[test]
    fn logarithm() {
        for x in [1.0, 0.999, 0.75, 0.5, 0.3, 1e-3, 1e-9, 1.0 / (1u64 << 53) as f64] {
            assert!((ln(x) - x.ln()).abs() < 1e-12, "{x}");
        }
    }

    /// Goal: the first numbers of a seed are these, for ever: saved figures were made with them.
    #[test]
    fn the_same_numbers() {
        let mut random = Random::new(1, 0);
        assert_eq!([random.bits(), random.bits()], [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
        assert!((0..1_000).all(|_| random.below(10) < 10));
    }
}
