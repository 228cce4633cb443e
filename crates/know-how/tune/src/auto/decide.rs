//! Is the new one better? Pairs of measurements, the signs of their differences exchanged in every way.

/// Most pairs that are looked at in every way: 2^24 sums, by halves.
pub const PAIRS_MAX: usize = 24;
/// Differences beyond so many times the median one count no more than that: a stall is no measure of a setting.
const CUT: f64 = 1.0;

/// What pairs say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Median of new / old.
    pub ratio: f64,
    /// Probability of such a gain, or a larger one, if both were alike.
    pub p: f64,
    /// Is it kept?
    pub better: bool,
}

/// Of pairs (old, new) of positive numbers: better when so large a gain happens by chance with at most
/// probability `alpha`, and the median gain is at least `gain` (0.03: 3 %).
///
/// If both are alike, each pair's logarithmic difference is as likely to have the other sign, whatever the shape
/// of the noise and whatever drifts slower than a pair lasts: the test is exact. (Cutting differences at a bound
/// that does not depend on their signs leaves it so.)
pub fn decide(pairs: &[(f64, f64)], alpha: f64, gain: f64) -> Decision {
    let logs: Vec<f64> = sound(pairs).map(|(old, new)| (new / old).ln()).collect();
    if logs.is_empty() {
        return Decision { ratio: 1.0, p: 1.0, better: false };
    }
    let ratio = median(&logs).exp();
    let sizes: Vec<f64> = logs.iter().map(|log| log.abs()).collect();
    let bound = CUT * median(&sizes);
    let cut: Vec<f64> = logs.iter().map(|log| log.clamp(-bound, bound)).collect();
    let p = chance(&cut);
    Decision { ratio, p, better: p <= alpha && ratio >= 1.0 + gain }
}

/// Pairs that count.
fn sound(pairs: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let is_sound = |(old, new): &(f64, f64)| old.is_finite() && new.is_finite() && *old > 0.0 && *new > 0.0;
    pairs.iter().copied().filter(is_sound).take(PAIRS_MAX)
}

/// The pair whose new / old is the median; of an even number the geometric mean of the middle two. So the quotient of
/// what is shown is the ratio that is shown; medians of either side need not belong to it.
pub fn middle(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = sound(pairs).collect();
    sorted.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some(((lower.0 * upper.0).sqrt(), (lower.1 * upper.1).sqrt()))
}

/// Part of all ways to choose signs whose sum is at least as large.
fn chance(logs: &[f64]) -> f64 {
    let sum: f64 = logs.iter().sum();
    // Sums that differ by rounding alone are alike.
    let least = sum - 1e-12 * logs.iter().map(|log| log.abs()).sum::<f64>();
    let (first, second) = logs.split_at(logs.len() / 2);
    let (first, mut second) = (sums(first), sums(second));
    second.sort_by(f64::total_cmp);
    let reached = |a: &f64| second.len() - second.partition_point(|b| a + b < least);
    first.iter().map(reached).sum::<usize>() as f64 / (first.len() * second.len()) as f64
}

/// The sums of all ways to choose signs.
fn sums(logs: &[f64]) -> Vec<f64> {
    let add = |sums: Vec<f64>, log: &f64| sums.iter().flat_map(|sum| [sum + log, sum - log]).collect();
    logs.iter().fold(vec![0.0], add)
}

/// The middle one; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the pair that is shown beside the ratio has this ratio, of odd and even numbers, where the means and medians of
    /// either side have quite another; broken pairs count in neither.
    #[test]
    fn the_middle_pair_has_the_ratio() {
        let pairs =
            [(100.0, 130.0), (900.0, 910.0), (800.0, 990.0), (f64::NAN, 7.0), (200.0, 252.0), (850.0, 600.0)];
        for some in [&pairs[..], &pairs[..5], &pairs[..3], &pairs[..1]] {
            let (old, new) = middle(some).unwrap();
            assert!((new / old - decide(some, 0.01, 0.03).ratio).abs() < 1e-9, "{some:?}");
        }
        assert_eq!((middle(&pairs[3..4]), middle(&[])), (None, None));
    }

    /// Goal: known cases: all pairs better gives 1 in 2^n; alike, fewer, worse or broken ones are never kept.
    #[test]
    fn known_cases() {
        let all_better = vec![(100.0, 110.0); 8];
        let decision = decide(&all_better, 0.01, 0.03);
        assert!((decision.p - 1.0 / 256.0).abs() < 1e-9 && decision.better, "{decision:?}");
        assert!((decision.ratio - 1.1).abs() < 1e-9);
        assert!(!decide(&all_better[..6], 0.01, 0.03).better);
        assert!(!decide(&all_better, 0.01, 0.2).better);
        assert!(!decide(&[(100.0, 100.0); 12], 0.01, 0.0).better);
        assert!(!decide(&[(110.0, 100.0); 12], 0.01, 0.0).better);
        assert!(!decide(&[(0.0, 100.0), (f64::NAN, 1.0), (-1.0, 5.0)], 0.9, 0.0).better);
        assert!(!decide(&[], 1.0, 0.0).better);
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 2.0]), median(&[])), (2.0, 3.0, 0.0));
    }
}
