//! What a reader wants to know of a few samples.

/// Largest number that is drawn; beyond it sums would overflow.
const LARGEST: f64 = 1e300;

/// Samples that are numbers, summed up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub count: usize,
    /// Smallest.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The middle one.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// Standard deviation of the samples; 0 for a single one.
    pub deviation: f64,
}

impl Spread {
    /// Of the samples that are numbers; none when none is.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut values: Vec<f64> =
            samples.iter().filter(|v| v.is_finite()).map(|v| v.clamp(-LARGEST, LARGEST)).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let count = values.len();
        let n = count as f64;
        let mean = values.iter().map(|v| v / n).sum::<f64>();
        let median = (values[(count - 1) / 2] / 2.0) + (values[count / 2] / 2.0);
        let square = |v: &f64| (v - mean) * ((v - mean) / (n - 1.0));
        let deviation = if count > 1 { values.iter().map(square).sum::<f64>().sqrt() } else { 0.0 };
        Some(Self { count, min, mean, median, max, deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the numbers are right, and samples that are no numbers do not count.
    #[test]
    fn samples_are_summed_up() {
        let spread = Spread::of(&[4.0, f64::NAN, 1.0, 3.0, f64::INFINITY, 2.0]).expect("numbers");
        assert_eq!((spread.count, spread.min, spread.max), (4, 1.0, 4.0));
        assert_eq!((spread.mean, spread.median), (2.5, 2.5));
        assert!((spread.deviation - 1.290_994).abs() < 1e-6);
        assert_eq!(Spread::of(&[f64::NAN]), None);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[7.0]).map(|s| (s.mean, s.deviation)), Some((7.0, 0.0)));
    }
}
