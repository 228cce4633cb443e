//! Whether a difference is one: medians, spreads, intervals of ratios.
//!
//! Times and rates of a computer are never below zero and err by factors, so all intervals are made from the
//! logarithms: what is called a ratio here is one of geometric means.

/// Turns a median of absolute deviations into what a standard deviation would be, were the samples normal.
const MAD_TO_DEVIATION: f64 = 1.4826;
/// Share of all repetitions of an experiment whose interval holds the truth.
pub const CONFIDENCE: f64 = 0.95;
/// Steps of the search for a quantile: halves an interval of 2,000 down to the precision of the numbers.
const BISECTIONS: u32 = 64;
/// Standard error of a logarithm that clocks and counters leave at least: samples that agree to the last digit
/// agree because they were rounded.
const RESOLUTION: f64 = 1e-3;
/// Terms of the continued fraction of the beta function: it converges within a few dozen.
const TERMS: u32 = 300;

/// The value in the middle; none of nothing, or when a sample is no number.
pub fn median(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() || samples.iter().any(|x| x.is_nan()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    Some(match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    })
}

/// The arithmetic mean; none of nothing.
pub fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Standard deviation of the population the samples were drawn from; none of fewer than two.
pub fn deviation(samples: &[f64]) -> Option<f64> {
    let mean = mean(samples)?;
    let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
    (samples.len() > 1).then(|| (squares / (samples.len() - 1) as f64).sqrt())
}

/// A standard deviation that a few wild samples do not move: from the median of absolute deviations.
pub fn robust_deviation(samples: &[f64]) -> Option<f64> {
    let middle = median(samples)?;
    let away: Vec<f64> = samples.iter().map(|x| (x - middle).abs()).collect();
    Some(median(&away)? * MAD_TO_DEVIATION)
}

/// How one set of samples compares with another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Second over first.
    pub ratio: f64,
    /// Lower end of the interval that holds the true ratio with [`CONFIDENCE`].
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How often chance alone would show a difference like this.
    pub p: f64,
}

impl Ratio {
    /// The interval excludes that nothing changed.
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// How wide the interval is, as a share of the ratio.
    pub fn width(&self) -> f64 {
        (self.high - self.low) / self.ratio
    }

    /// From the difference of the means of logarithms, its standard error and degrees of freedom.
    pub fn from_logs(mean: f64, error: f64, freedom: f64) -> Self {
        let error = error.max(RESOLUTION);
        let reach = t_quantile(f64::midpoint(1.0, CONFIDENCE), freedom) * error;
        Self {
            ratio: mean.exp(),
            low: (mean - reach).exp(),
            high: (mean + reach).exp(),
            p: two_sided(mean / error, freedom),
        }
    }
}

fn logs(samples: &[f64]) -> Option<Vec<f64>> {
    let positive = samples.len() > 1 && samples.iter().all(|x| x.is_finite() && *x > 0.0);
    positive.then(|| samples.iter().map(|x| x.ln()).collect())
}

/// `second / first` of samples that were taken independently (Welch's interval of the logarithms). None when
/// one side has fewer than two samples, or one that is not above zero.
pub fn ratio(first: &[f64], second: &[f64]) -> Option<Ratio> {
    let (a, b) = (logs(first)?, logs(second)?);
    let part = |x: &[f64]| Some(deviation(x)?.powi(2) / x.len() as f64);
    let (va, vb) = (part(&a)?, part(&b)?);
    let error = (va + vb).sqrt();
    let each = va.powi(2) / (a.len() - 1) as f64 + vb.powi(2) / (b.len() - 1) as f64;
    let freedom = if each > 0.0 { (va + vb).powi(2) / each } else { 1.0 };
    Some(Ratio::from_logs(mean(&b)? - mean(&a)?, error, freedom))
}

/// `second / first` of samples taken in pairs (the same place in both lists), so that what disturbs both at the
/// same time cancels. None when the lists differ in length or have fewer than two pairs.
pub fn paired_ratio(first: &[f64], second: &[f64]) -> Option<Ratio> {
    let (a, b) = (logs(first)?, logs(second)?);
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
    let count = differences.len() as f64;
    Some(Ratio::from_logs(mean(&differences)?, deviation(&differences)? / count.sqrt(), count - 1.0))
}

/// Which of many differences stand when at most `level` of those named may be chance (Benjamini and Hochberg).
pub fn discoveries(p: &[f64], level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let allowed = |rank: usize| level * (rank + 1) as f64 / p.len() as f64;
    let last = order.iter().enumerate().rev().find(|(rank, at)| p[**at] <= allowed(*rank));
    let mut stand = vec![false; p.len()];
    if let Some((last, _)) = last {
        order[..=last].iter().for_each(|at| stand[*at] = true);
    }
    stand
}

/// Probability that Student's t lies at least this far from zero.
fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// Where Student's distribution reaches `probability` (above a half).
fn t_quantile(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 2_000.0);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        match 1.0 - two_sided(middle, freedom) / 2.0 < probability {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// Logarithm of the gamma function (Lanczos, g = 7, nine terms).
fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = C.iter().enumerate().skip(1).fold(C[0], |sum, (i, c)| sum + c / (x + i as f64));
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete beta function, by its continued fraction (Lentz).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let off_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / off_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / off_zero(1.0 + term * d);
            c = off_zero(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of its own, so that a failing draw can be repeated.
    struct Draw(u64);

    impl Draw {
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Log-normal around `middle`: the sum of twelve is normal enough.
        fn noisy(&mut self, middle: f64, spread: f64) -> f64 {
            let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
            middle * (spread * normal).exp()
        }

        fn samples(&mut self, count: usize, middle: f64, spread: f64) -> Vec<f64> {
            (0..count).map(|_| self.noisy(middle, spread)).collect()
        }
    }

    /// Goal: the quantiles are those of the printed tables, from one degree of freedom to many.
    #[test]
    fn quantiles_of_student() {
        for (freedom, expected) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (9.0, 2.262), (1e6, 1.960)] {
            let found = t_quantile(0.975, freedom);
            assert!((found - expected).abs() < 0.001, "{freedom}: {found}");
        }
        assert!((two_sided(2.262, 9.0) - 0.05).abs() < 1e-4);
    }

    /// Goal: the interval holds the true ratio about as often as it says, with few samples and unequal spread.
    #[test]
    fn intervals_cover() {
        let mut draw = Draw(7);
        let (mut welch, mut paired) = (0, 0);
        const RUNS: u32 = 2_000;
        for _ in 0..RUNS {
            let (a, b) = (draw.samples(4, 100.0, 0.1), draw.samples(6, 130.0, 0.25));
            let found = ratio(&a, &b).unwrap();
            welch += u32::from(found.low <= 1.3 && 1.3 <= found.high);
            // A disturbance common to both of a pair, far larger than their own noise.
            let common = draw.samples(5, 1.0, 1.0);
            let a: Vec<f64> = common.iter().map(|c| c * draw.noisy(100.0, 0.02)).collect();
            let b: Vec<f64> = common.iter().map(|c| c * draw.noisy(90.0, 0.02)).collect();
            let found = paired_ratio(&a, &b).unwrap();
            paired += u32::from(found.low <= 0.9 && 0.9 <= found.high && found.width() < 0.3);
        }
        for share in [welch, paired].map(|n| f64::from(n) / f64::from(RUNS)) {
            assert!((0.92..=0.98).contains(&share), "{share}");
        }
    }

    /// Goal: nothing can be said of too few samples, of zero, and of what is no number.
    #[test]
    fn what_cannot_be_compared() {
        assert_eq!(ratio(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(ratio(&[1.0, 0.0], &[1.0, 2.0]), None);
        assert_eq!(ratio(&[1.0, f64::NAN], &[1.0, 2.0]), None);
        assert_eq!(paired_ratio(&[1.0, 2.0], &[1.0, 2.0, 3.0]), None);
        assert_eq!(
            (median(&[]), median(&[f64::NAN]), mean(&[]), deviation(&[1.0])),
            (None, None, None, None)
        );
        let same = ratio(&[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert!(!same.differs() && same.p == 1.0);
        assert!(ratio(&[2.0, 2.0], &[3.0, 3.0]).unwrap().differs());
        // Rounded to the same digits: no certainty comes of it.
        let rounded = ratio(&[2.0, 2.0], &[2.001, 2.001]).unwrap();
        assert!(!rounded.differs() && rounded.p > 0.05, "{rounded:?}");
    }

    /// Goal: medians of odd and even counts; a wild sample does not move the robust deviation.
    #[test]
    fn middles() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (Some(2.0), Some(2.5)));
        let spread = robust_deviation(&[10.0, 11.0, 9.0, 10.5, 1_000.0]).unwrap();
        assert!(spread < 2.0, "{spread}");
    }

    /// Goal: among many equal things at most the promised share is named, and a real difference stands.
    #[test]
    fn many_comparisons() {
        let mut draw = Draw(11);
        let (mut named, mut found) = (0, 0);
        for _ in 0..200 {
            let mut p: Vec<f64> = (0..40)
                .map(|_| ratio(&draw.samples(5, 50.0, 0.1), &draw.samples(5, 50.0, 0.1)).unwrap().p)
                .collect();
            named += usize::from(discoveries(&p, 0.05).contains(&true));
            p.push(ratio(&draw.samples(5, 50.0, 0.05), &draw.samples(5, 25.0, 0.05)).unwrap().p);
            found += usize::from(discoveries(&p, 0.05)[40]);
        }
        assert!(named <= 20, "{named} of 200 families without any difference");
        assert!(found >= 198, "{found}");
        assert!(discoveries(&[], 0.05).is_empty());
    }
}
