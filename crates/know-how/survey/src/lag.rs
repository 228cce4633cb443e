//! Members that should be equal: which of them lags behind its likes, and is not merely unlucky.
//!
//! The samples of all members are taken in rounds, one of each member in every round, so that what disturbs the
//! machine disturbs all alike. A member is compared with the median of the others in the same round.

use crate::model::SideBySide;
use skep_bench::significance::{median, paired_ratio, robust_deviation};

/// A member lags when it reaches at most this share of its likes ...
pub const LAGS_AT: f64 = 0.6;
/// ... and the interval of that share ends below this.
pub const LAGS_SURELY: f64 = 0.8;
/// What seems to lag within these only hints at it: two different measurements must do so.
pub const HINT: Bounds = Bounds { at: 0.8, surely: 0.95 };
/// Where a member lags by one measurement.
const LAGS: Bounds = Bounds { at: LAGS_AT, surely: LAGS_SURELY };
/// How many deviations of its likes it must lie below them.
const DEVIATIONS: f64 = 4.0;
/// Deviation (of logarithms) that likes have at least: three members may agree by chance.
const SPREAD_FLOOR: f64 = 0.05;
/// What stands for nothing at all: logarithms of zero do not exist.
const FLOOR: f64 = 1e-4;

/// From where on a member is said to lag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// It reaches this share of its likes at most ...
    pub at: f64,
    /// ... and the interval of that share ends below this.
    pub surely: f64,
}

/// One member that lags.
#[derive(Debug, Clone, PartialEq)]
pub struct Lag {
    /// Its place among the members.
    pub at: usize,
    /// What it reaches of its likes: below 1.
    pub share: f64,
    /// What it reaches at most, as far as chance can tell: the upper end of the interval of that share.
    pub at_most: f64,
    /// Median of its samples.
    pub value: f64,
    /// Median of its likes' samples.
    pub expected: f64,
}

/// The members that lag, the worst first.
pub fn laggards(side: &SideBySide) -> Vec<Lag> {
    laggards_within(side, LAGS)
}

/// As [`laggards`], within other bounds.
pub fn laggards_within(side: &SideBySide, bounds: Bounds) -> Vec<Lag> {
    let samples: Vec<Vec<f64>> = side.members.iter().map(|m| m.samples.clone()).collect();
    let rows: Vec<Vec<f64>> = samples.iter().map(|s| goodness(s, side.more_is_better)).collect();
    let mut found: Vec<Lag> = (0..rows.len())
        .filter_map(|at| {
            let others: Vec<&[f64]> = all_but(&rows, at);
            let Behind { share, at_most } = behind_within(&rows[at], &others, bounds)?;
            let likes: Vec<f64> = all_but(&samples, at).concat();
            Some(Lag { at, share, at_most, value: median(&samples[at])?, expected: median(&likes)? })
        })
        .collect();
    found.sort_by(|a, b| a.share.total_cmp(&b.share));
    found
}

/// More is better from here on, and nothing is zero or no number.
pub(crate) fn goodness(samples: &[f64], more_is_better: bool) -> Vec<f64> {
    let usable = |x: &f64| if x.is_finite() { x.max(FLOOR) } else { FLOOR };
    samples.iter().map(|x| if more_is_better { usable(x) } else { 1.0 / usable(x) }).collect()
}

fn all_but(rows: &[Vec<f64>], at: usize) -> Vec<&[f64]> {
    rows.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, row)| row.as_slice()).collect()
}

/// How far one is behind others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Behind {
    /// See [`Lag::share`].
    pub share: f64,
    /// See [`Lag::at_most`].
    pub at_most: f64,
}

/// What `one` reaches of `others`, if it lags behind them.
pub(crate) fn behind(one: &[f64], others: &[&[f64]]) -> Option<Behind> {
    behind_within(one, others, LAGS)
}

fn behind_within(one: &[f64], others: &[&[f64]], bounds: Bounds) -> Option<Behind> {
    let rounds = others.iter().map(|row| row.len()).min()?.min(one.len());
    let typical: Option<Vec<f64>> =
        (0..rounds).map(|round| median(&others.iter().map(|row| row[round]).collect::<Vec<f64>>())).collect();
    let typical = typical?;
    let ratio = paired_ratio(&typical, &one[..rounds])?;
    let shares: Vec<f64> = one.iter().zip(&typical).map(|(a, b)| a / b).collect();
    let share = median(&shares)?;
    let spread = spread_of(others, rounds)?.max(SPREAD_FLOOR);
    let lags = share <= bounds.at && ratio.high < bounds.surely && -share.ln() > DEVIATIONS * spread;
    lags.then_some(Behind { share, at_most: ratio.high.max(share) })
}

/// How far the likes lie apart among themselves (of logarithms); nothing when there is one only.
fn spread_of(others: &[&[f64]], rounds: usize) -> Option<f64> {
    let middles: Option<Vec<f64>> = others.iter().map(|row| median(&row[..rounds]).map(f64::ln)).collect();
    robust_deviation(&middles?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::model::MemberResult;

    fn side(rows: &[Vec<f64>], more_is_better: bool) -> SideBySide {
        let members = rows
            .iter()
            .enumerate()
            .map(|(at, row)| MemberResult { name: format!("m{at}"), samples: row.clone(), outlier: None })
            .collect();
        SideBySide {
            id: "t".into(),
            title: String::new(),
            unit: String::new(),
            more_is_better,
            members,
            command: String::new(),
        }
    }

    /// Rounds of equal members, disturbed together by a busy machine and each by its own noise.
    fn rows(draw: &mut Draw, members: usize, rounds: usize, noise: f64) -> Vec<Vec<f64>> {
        let mut rows = vec![Vec::new(); members];
        for _ in 0..rounds {
            let machine = draw.noisy(400.0, 0.5);
            rows.iter_mut().for_each(|row| row.push(draw.noisy(machine, noise)));
        }
        rows
    }

    /// Goal: a member at a third of its likes is found among 2 to 12, on a busy machine, whichever it is.
    #[test]
    fn the_slow_one_is_found() {
        let mut draw = Draw::new(1);
        let mut missed = 0;
        for run in 0..500 {
            let members = 2 + run % 11;
            let mut rows = rows(&mut draw, members, 5, 0.1);
            let slow = draw.below(members);
            rows[slow].iter_mut().for_each(|x| *x /= 3.0);
            let found = laggards(&side(&rows, true));
            missed += usize::from(found.first().map(|lag| lag.at) != Some(slow) || found.len() != 1);
        }
        assert!(missed <= 5, "{missed} of 500");
    }

    /// Goal: equal members are left alone: at most one of 500 noisy families has a name called.
    #[test]
    fn equals_are_left_alone() {
        let mut draw = Draw::new(2);
        let blamed: usize = (0..500)
            .map(|run| laggards(&side(&rows(&mut draw, 2 + run % 11, 5, 0.15), true)).len().min(1))
            .sum();
        assert!(blamed <= 1, "{blamed} of 500");
    }

    /// Goal: of latencies the largest is the worst; a stalled member counts; no judgement without rounds.
    #[test]
    fn latencies_and_edges() {
        let slow = [vec![10.0, 11.0, 10.0], vec![60.0, 66.0, 61.0], vec![10.5, 10.0, 9.0]];
        assert_eq!(laggards(&side(&slow, false))[0].at, 1);
        assert!(laggards(&side(&slow, true)).iter().all(|lag| lag.at != 1));
        let stalled = [vec![9.0, 9.0, 9.0], vec![0.0, 0.0, 0.0], vec![9.0, 9.5, 9.0]];
        assert_eq!(laggards(&side(&stalled, true))[0].at, 1);
        assert!(laggards(&side(&[vec![1.0], vec![100.0]], true)).is_empty());
        assert!(laggards(&side(&[vec![1.0, 2.0, 3.0]], true)).is_empty());
        assert!(laggards(&side(&[], true)).is_empty());
        assert!(laggards(&side(&[vec![], vec![f64::NAN; 3]], true)).is_empty());
    }

    /// Goal: two slow members of one daemon are both found beside two fast ones.
    #[test]
    fn half_of_them_slow() {
        let rows =
            [vec![90.0, 95.0, 91.0], vec![20.0, 21.0, 19.0], vec![92.0, 93.0, 95.0], vec![19.0, 20.0, 20.0]];
        let mut found: Vec<usize> = laggards(&side(&rows, true)).iter().map(|lag| lag.at).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 3]);
    }
}
