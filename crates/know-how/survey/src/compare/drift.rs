//! How sure a difference between two surveys is, given that the same cluster measured twice differs, too.
//!
//! Samples of one survey lie close together in time; what drifts from one survey to the next (other guests of the
//! machine, placement of files, temperature) is not in their spread. All arithmetic is on logarithms.

use skep_bench::significance::{Ratio, deviation, mean, median, robust_deviation};

/// Standard deviation from one survey to the next that is assumed at least while nobody repeated a survey.
pub const DRIFT_LEAST: f64 = 0.10;
/// What is assumed at most on quiet machines, so that a change of everything can still be told.
pub const DRIFT_MOST: f64 = 0.20;
/// What is assumed at most when a machine was busy before a survey began.
pub const DRIFT_MOST_BUSY: f64 = 0.40;
/// No drift goes farther: what one survey on a side shows is certain only if it stands against this one, which takes
/// a change of everything by a factor of three, or of a single place by about six.
pub const DRIFT_FARTHEST: f64 = 0.40;
/// Degrees of freedom given to an assumed deviation: real drift has longer tails than a normal one.
const ASSUMED_FREEDOM: f64 = 30.0;
/// Deviation between repeated surveys that is taken at least: what clocks and rounding resolve.
const RESOLUTION: f64 = 0.01;
/// Weight of what all places show together beside the few repetitions of one place, in degrees of freedom.
const PRIOR_FREEDOM: f64 = 4.0;

/// Samples of one place: a list of each survey of a side, empty where a survey lacks it.
pub struct Runs {
    /// Of the earlier surveys.
    pub before: Vec<Vec<f64>>,
    /// Of the later ones.
    pub after: Vec<Vec<f64>>,
}

/// Middle and spread of one survey's samples.
#[derive(Clone, Copy)]
struct Run {
    middle: f64,
    /// Standard deviation of one sample.
    spread: f64,
}

/// The surveys of one side at one place, without those that lack it; none when a sample is not above zero.
fn side(runs: &[Vec<f64>]) -> Option<Vec<Option<Run>>> {
    let run = |samples: &Vec<f64>| {
        if samples.is_empty() {
            return Some(None);
        }
        let usable = samples.iter().all(|x| x.is_finite() && *x > 0.0);
        let logs: Vec<f64> = samples.iter().map(|x| x.ln()).collect();
        let spread = deviation(&logs).unwrap_or(0.0);
        usable.then(|| mean(&logs).map(|middle| Run { middle, spread }))
    };
    runs.iter().map(run).collect()
}

/// What the ratios are ones of: the geometric mean of each survey, and of those of a side; none of nothing, or when a
/// sample is not above zero.
pub fn geometric(runs: &[Vec<f64>]) -> Option<f64> {
    middle(&present(runs)?).map(f64::exp)
}

/// A place's surveys before and after; none where a sample is not above zero.
type Sides = Option<[Vec<Option<Run>>; 2]>;
/// A sum of squares and its degrees of freedom.
type Squares = (f64, f64);

/// How a place compares.
#[derive(Clone, Copy)]
pub struct Found {
    /// With the drift that was measured, or is likely.
    pub likely: Ratio,
    /// With the farthest that drift may go; the same where it was measured.
    pub certain: Ratio,
}

/// What was assumed or found about the drift.
pub enum Drift {
    /// One survey on a side at least: this standard deviation from one survey to the next.
    Assumed(f64),
    /// Each side has repetitions: the typical deviation of a place between them.
    Measured(f64),
}

/// The ratio of every place, second over first; none where too little is known.
pub fn ratios(places: &[Runs], busy: bool) -> (Vec<Option<Found>>, Drift) {
    let count = |of: fn(&Runs) -> &Vec<Vec<f64>>| places.iter().map(|p| of(p).len()).max().unwrap_or(0);
    if count(|p| &p.before) > 1 && count(|p| &p.after) > 1 {
        let (ratios, drift) = repeated(places);
        let both = |ratio: Option<Ratio>| ratio.map(|ratio| Found { likely: ratio, certain: ratio });
        return (ratios.into_iter().map(both).collect(), drift);
    }
    let known: Vec<Option<Single>> = places.iter().map(single).collect();
    let steps: Vec<f64> = known.iter().flatten().map(|one| one.step.abs()).collect();
    // Around zero, not around the middle: what moves everything may be drift as well.
    let mirrored: Vec<f64> = steps.iter().flat_map(|step| [*step, -*step]).collect();
    let seen = robust_deviation(&mirrored).unwrap_or(0.0) / std::f64::consts::SQRT_2;
    let drift = seen.clamp(DRIFT_LEAST, if busy { DRIFT_MOST_BUSY } else { DRIFT_MOST });
    let found = known.iter().map(|one| {
        let one = one.as_ref()?;
        let with = |drift: f64| {
            let error = (drift.powi(2) * one.share + one.spread).sqrt();
            Ratio::from_logs(one.step, error, ASSUMED_FREEDOM)
        };
        Some(Found { likely: with(drift), certain: with(DRIFT_FARTHEST) })
    });
    (found.collect(), Drift::Assumed(drift))
}

/// A place without repetitions on both sides.
struct Single {
    step: f64,
    /// `1/surveys before + 1/surveys after`.
    share: f64,
    /// Variance of the step by the samples' spread. Samples of one survey stand for one: they are not independent.
    spread: f64,
}

fn single(place: &Runs) -> Option<Single> {
    // One sample says nothing of its spread.
    let enough = |runs: &[Vec<f64>]| runs.iter().any(|samples| samples.len() > 1);
    if !enough(&place.before) || !enough(&place.after) {
        return None;
    }
    let (a, b) = (present(&place.before)?, present(&place.after)?);
    let spread = |runs: &[Run]| {
        runs.iter().map(|run| run.spread.powi(2)).sum::<f64>() / (runs.len() * runs.len()) as f64
    };
    Some(Single { step: middle(&b)? - middle(&a)?, share: share(&a, &b), spread: spread(&a) + spread(&b) })
}

fn present(runs: &[Vec<f64>]) -> Option<Vec<Run>> {
    let runs: Vec<Run> = side(runs)?.into_iter().flatten().collect();
    (!runs.is_empty()).then_some(runs)
}

fn middle(runs: &[Run]) -> Option<f64> {
    mean(&runs.iter().map(|run| run.middle).collect::<Vec<f64>>())
}

fn share(a: &[Run], b: &[Run]) -> f64 {
    1.0 / a.len() as f64 + 1.0 / b.len() as f64
}

/// Sum of squares around the middle, and degrees of freedom.
fn squares(values: &[f64]) -> Squares {
    let middle = mean(values).unwrap_or(0.0);
    (values.iter().map(|x| (x - middle).powi(2)).sum(), values.len().saturating_sub(1) as f64)
}

/// Each side has repetitions: what all places have in common in a survey is told apart from what a place does.
fn repeated(places: &[Runs]) -> (Vec<Option<Ratio>>, Drift) {
    let known: Vec<Sides> =
        places.iter().map(|place| Some([side(&place.before)?, side(&place.after)?])).collect();
    let common = [0, 1].map(|which| common(&known, which));
    let (sums, freedoms): (Vec<f64>, Vec<f64>) = common.iter().map(|shifts| squares(shifts)).unzip();
    let common_freedom: f64 = freedoms.iter().sum();
    let common_variance = sums.iter().sum::<f64>() / common_freedom.max(1.0);
    // Of each place, what is left without the common part: squares and degrees of freedom.
    let left: Vec<Option<Squares>> = known
        .iter()
        .map(|place| {
            let of = place.as_ref()?.each_ref();
            let parts = [0, 1].map(|which| {
                let runs = of[which].iter().zip(&common[which]);
                let rest: Vec<f64> = runs.filter_map(|(run, shift)| Some((*run)?.middle - shift)).collect();
                squares(&rest)
            });
            let freedom = parts[0].1 + parts[1].1;
            (parts[0].1 > 0.0 && parts[1].1 > 0.0).then_some((parts[0].0 + parts[1].0, freedom))
        })
        .collect();
    let each: Vec<f64> = left.iter().flatten().map(|(sum, freedom)| sum / freedom).collect();
    let prior = mean(&each).unwrap_or(0.0).max(RESOLUTION.powi(2));
    let ratio = |(place, left): (&Sides, &Option<Squares>)| {
        let (Some([before, after]), Some((sum, freedom))) = (place, left) else { return None };
        let list = |runs: &[Option<Run>]| runs.iter().copied().flatten().collect::<Vec<Run>>();
        let (a, b) = (list(before), list(after));
        let own_freedom = PRIOR_FREEDOM + freedom;
        let own = (PRIOR_FREEDOM * prior + sum) / own_freedom;
        let total = own + common_variance;
        let each = own.powi(2) / own_freedom + common_variance.powi(2) / common_freedom.max(1.0);
        let error = (total * share(&a, &b)).sqrt();
        Some(Ratio::from_logs(middle(&b)? - middle(&a)?, error, total.powi(2) / each))
    };
    let found = known.iter().zip(&left).map(ratio).collect();
    (found, Drift::Measured((prior + common_variance).sqrt()))
}

/// How far each survey of a side lies from the others of its side, in the middle of all places.
fn common(known: &[Sides], which: usize) -> Vec<f64> {
    let surveys = known.iter().flatten().map(|sides| sides[which].len()).max().unwrap_or(0);
    let shift = |survey: usize| {
        let away: Vec<f64> = known
            .iter()
            .flatten()
            .filter_map(|sides| {
                let runs: Vec<Run> = sides[which].iter().copied().flatten().collect();
                Some((*sides[which].get(survey)?)?.middle - middle(&runs)?)
            })
            .collect();
        median(&away).unwrap_or(0.0)
    };
    (0..surveys).map(shift).collect()
}
