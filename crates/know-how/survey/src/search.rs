//! Finding the best setting by measurement, without measuring every combination.
//!
//! [`climb`] moves over several axes, along one axis at a time, to the neighbour that is better. Every measurement
//! errs: a difference that may be chance is measured again before it decides, and a budget ends the search. A step may
//! be taken on a difference that chance made, so what is found is the best that was seen; [`Found::lead`] says how
//! far it is ahead.

use skep_bench::significance::{Ratio, median, ratio};
use std::collections::BTreeMap;
use std::time::Instant;

/// A doubling that gains less than this share brings nothing.
pub const GAIN: f64 = 0.05;
/// So many doublings in a row that bring nothing end the search.
pub const FLAT: usize = 2;
/// A value is measured at most so often to tell it from another.
pub const REPEATS: usize = 5;
/// Samples of a point before it is compared.
const FIRST_SAMPLES: usize = 2;

/// One axis of a search: its name, the values it may take, in rising order.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// For people: "processes".
    pub name: String,
    /// What may be set.
    pub values: Vec<f64>,
}

/// A place: of each axis, which of its values.
pub type Place = Vec<usize>;

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best place.
    pub best: Place,
    /// Everything that was measured there and elsewhere.
    pub samples: BTreeMap<Place, Vec<f64>>,
    /// Measurements that were made.
    pub measured: usize,
    /// The budget ended before no neighbour was better.
    pub unfinished: bool,
}

/// How far the best place is ahead of the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Lead {
    /// The place whose median comes next.
    pub next: Place,
    /// The best over it; none when one of them was measured once only.
    pub ratio: Option<Ratio>,
}

impl Found {
    /// The best place beside the next one; none when nothing else was measured. The search chose both by the same
    /// samples, so fresh ones may bring them closer together.
    pub fn lead(&self) -> Option<Lead> {
        let best = self.samples.get(&self.best)?;
        let others = self.samples.iter().filter(|(place, _)| **place != self.best);
        let known = others.filter_map(|(place, samples)| Some((place, samples, median(samples)?)));
        let (next, samples, _) = known.max_by(|a, b| a.2.total_cmp(&b.2))?;
        Some(Lead { next: next.clone(), ratio: ratio(samples, best) })
    }

    /// The lead in words; `name` tells what a place stands for.
    pub fn told(&self, name: impl Fn(&Place) -> String) -> String {
        let Some(lead) = self.lead() else { return "nothing else was measured".to_owned() };
        let next = name(&lead.next);
        let Some(found) = lead.ratio else {
            return format!("next comes {next}; they were measured too seldom to be compared");
        };
        let interval = format!("95 % interval {:.2} to {:.2}", found.low, found.high);
        let ratio = found.ratio;
        match (found.differs(), ratio > 1.0) {
            (true, true) => format!("{ratio:.2} times what comes next, {next} ({interval})"),
            // Each axis compared samples of its own minutes; all together may say otherwise.
            (true, false) => format!(
                "over all samples behind {next} ({ratio:.2} times as much, {interval}), side by side not: search again to decide"
            ),
            (false, _) => format!("not told apart from {next} ({ratio:.2} times as much, {interval})"),
        }
    }
}

/// What a search may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most measurements.
    pub measurements: usize,
    /// No measurement begins after this, but for the first.
    pub until: Option<Instant>,
}

impl From<usize> for Budget {
    fn from(measurements: usize) -> Self {
        Self { measurements, until: None }
    }
}

/// Climbs from `start` to a place without a better neighbour along any axis. More is better; the
/// search ends with its budget.
pub fn climb<E>(
    axes: &[Axis],
    start: &Place,
    budget: impl Into<Budget>,
    mut measure: impl FnMut(&Place) -> Result<f64, E>,
) -> Result<Found, E> {
    let start =
        start.iter().zip(axes).map(|(at, axis)| (*at).min(axis.values.len().saturating_sub(1))).collect();
    let mut climber =
        Climber { measure: &mut measure, samples: BTreeMap::new(), measured: 0, budget: budget.into() };
    let mut best: Place = start;
    climber.fill(&best, FIRST_SAMPLES)?;
    // An axis is left alone once it brought nothing at the present place; any move makes all of them open again.
    let mut settled = vec![false; axes.len()];
    while let Some(axis) = settled.iter().position(|done| !done) {
        let reached = climber.along(&best, axis, axes[axis].values.len())?;
        if reached != best {
            settled.iter_mut().for_each(|done| *done = false);
            best = reached;
        }
        settled[axis] = true;
        if climber.spent() {
            break;
        }
    }
    let unfinished = climber.spent() && settled.iter().any(|done| !done);
    Ok(Found { best, samples: climber.samples, measured: climber.measured, unfinished })
}

struct Climber<'a, F> {
    measure: &'a mut F,
    samples: BTreeMap<Place, Vec<f64>>,
    measured: usize,
    budget: Budget,
}

impl<E, F: FnMut(&Place) -> Result<f64, E>> Climber<'_, F> {
    fn spent(&self) -> bool {
        let late = |until: Instant| self.measured > 0 && Instant::now() >= until;
        self.measured >= self.budget.measurements || self.budget.until.is_some_and(late)
    }

    fn fill(&mut self, place: &Place, wanted: usize) -> Result<(), E> {
        while self.samples.get(place).map_or(0, Vec::len) < wanted && !self.spent() {
            let value = (self.measure)(place)?;
            self.measured += 1;
            self.samples.entry(place.clone()).or_default().push(value);
        }
        Ok(())
    }

    fn of(&self, place: &Place) -> &[f64] {
        self.samples.get(place).map_or(&[], Vec::as_slice)
    }

    /// To the place along one axis whose neighbours on both sides are not better.
    fn along(&mut self, from: &Place, axis: usize, count: usize) -> Result<Place, E> {
        let mut best = from.clone();
        loop {
            let before = best.clone();
            for up in [true, false] {
                best = self.stride(best, axis, count, up)?;
            }
            if best == before || self.spent() {
                return Ok(best);
            }
        }
    }

    /// One way along an axis, in strides that double while they help.
    fn stride(&mut self, mut best: Place, axis: usize, count: usize, up: bool) -> Result<Place, E> {
        let mut stride = 1;
        while !self.spent() {
            let better = match step(&best, axis, count, stride, up) {
                Some(next) => self.better(&best, &next)?.then_some(next),
                None => None,
            };
            match (better, stride) {
                (Some(next), _) => (best, stride) = (next, stride * 2),
                (None, 1) => break,
                // The stride may have gone over the top: its foot is tried before it is left.
                (None, _) => stride = 1,
            }
        }
        Ok(best)
    }

    /// Whether `next` beats `best`; what may be chance is measured again, both sides alike.
    fn better(&mut self, best: &Place, next: &Place) -> Result<bool, E> {
        for wanted in FIRST_SAMPLES..=REPEATS {
            self.fill(next, wanted)?;
            self.fill(best, wanted)?;
            match ratio(self.of(best), self.of(next)) {
                Some(found) if found.differs() => return Ok(found.ratio > 1.0),
                _ if self.spent() => break,
                _ => {}
            }
        }
        let (Some(old), Some(new)) = (median(self.of(best)), median(self.of(next))) else { return Ok(false) };
        Ok(new > old * (1.0 + GAIN))
    }
}

fn step(place: &Place, axis: usize, count: usize, stride: usize, up: bool) -> Option<Place> {
    let at = match up {
        true => place[axis].checked_add(stride).filter(|at| *at < count)?,
        false => place[axis].checked_sub(stride)?,
    };
    let mut next = place.clone();
    next[axis] = at;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;

    fn axes(sizes: &[usize]) -> Vec<Axis> {
        let axis = |n: &usize| Axis { name: "axis".into(), values: (0..*n).map(|v| v as f64).collect() };
        sizes.iter().map(axis).collect()
    }

    /// Smooth hills with one top, steepness drawn; axes weigh on each other a little.
    fn hill(draw: &mut Draw, sizes: &[usize]) -> (Place, impl Fn(&Place) -> f64 + use<>) {
        let top: Place = sizes.iter().map(|n| draw.below(*n)).collect();
        let steep: Vec<f64> = sizes.iter().map(|_| 0.1 + 0.05 * draw.below(6) as f64).collect();
        let summit = top.clone();
        let height = move |place: &Place| {
            let far = place.iter().zip(&summit).zip(&steep);
            1_000.0 * (-far.map(|((a, b), s)| s * (*a as f64 - *b as f64).abs()).sum::<f64>()).exp()
        };
        (top, height)
    }

    /// Goal: on noisy hills over five axes the search ends within a tenth of the top, with a small part of the grid.
    #[test]
    fn climbs_noisy_hills() {
        let mut draw = Draw::new(41);
        let sizes = [8, 7, 2, 6, 4];
        let grid: usize = sizes.iter().product();
        let (mut low, mut most) = (Vec::new(), 0);
        for run in 0..300 {
            let (top, height) = hill(&mut draw, &sizes);
            let start: Place = sizes.iter().map(|n| draw.below(*n)).collect();
            let found =
                climb(&axes(&sizes), &start, 300, |place| Ok::<_, ()>(draw.noisy(height(place), 0.05)));
            let found = found.unwrap();
            let reached = height(&found.best) / height(&top);
            if reached < 0.9 {
                low.push((run, reached));
            }
            most = most.max(found.measured);
            assert!(found.measured <= 300 && found.samples.len() < grid / 8, "{}", found.samples.len());
        }
        assert!(low.len() <= 15, "{} of 300 too low, such as {:?}; {most} measured", low.len(), low.first());
    }

    /// Goal: without noise the very top is reached, from every corner, and a plateau ends the search.
    #[test]
    fn exact_without_noise() {
        let mut draw = Draw::new(42);
        for _ in 0..100 {
            let (top, height) = hill(&mut draw, &[9, 5]);
            for start in [vec![0, 0], vec![8, 4], vec![0, 4], vec![99, 99]] {
                let found = climb(&axes(&[9, 5]), &start, 400, |place| Ok::<_, ()>(height(place))).unwrap();
                assert_eq!((&found.best, found.unfinished), (&top, false));
            }
        }
        let flat = climb(&axes(&[9, 5]), &vec![4, 2], 400, |_| Ok::<_, ()>(5.0)).unwrap();
        assert_eq!(flat.best, [4, 2]);
    }

    /// Goal: what is called the best says how far it is ahead: told apart from the next one, or not, or too seldom
    /// measured, or alone.
    #[test]
    fn the_best_says_how_far_it_is_ahead() {
        let told = |samples: &[(usize, &[f64])]| {
            let samples: BTreeMap<Place, Vec<f64>> =
                samples.iter().map(|(at, samples)| (vec![*at], samples.to_vec())).collect();
            let found = Found { best: vec![0], samples, measured: 9, unfinished: false };
            found.told(|place| format!("place {}", place[0]))
        };
        let best: (usize, &[f64]) = (0, &[120.0, 121.0, 119.0, 120.5, 120.0]);
        let far: (usize, &[f64]) = (1, &[50.0, 51.0, 49.0]);
        let sure = told(&[best, far, (2, &[100.0, 101.0, 99.0, 100.0, 100.5])]);
        assert!(sure.starts_with("1.20 times what comes next, place 2 (95 % interval 1.1"), "{sure}");
        let close = told(&[best, far, (2, &[110.0, 131.0, 119.0, 105.0, 127.0])]);
        assert!(close.starts_with("not told apart from place 2 (1.0"), "{close}");
        // A few wild samples may leave another place ahead of the one that was chosen.
        let behind = told(&[best, (2, &[130.0, 131.0, 129.0])]);
        assert!(behind.starts_with("over all samples behind place 2 (0.9"), "{behind}");
        assert!(told(&[best, (1, &[118.0])]).contains("too seldom"));
        assert_eq!(told(&[best]), "nothing else was measured");
    }

    /// Goal: the budget holds, what is unfinished is said, and a failing measurement ends it with its reason.
    #[test]
    fn budgets_and_failures() {
        let mut count = 0;
        let found = climb(&axes(&[20, 20]), &vec![0, 0], 7, |place| {
            count += 1;
            Ok::<_, ()>((place[0] + place[1]) as f64 + 1.0)
        });
        let found = found.unwrap();
        assert_eq!((found.measured, count), (7, 7));
        assert!(found.unfinished && found.best != [0, 0]);
        assert_eq!(climb(&axes(&[3]), &vec![0], 9, |_| Err::<f64, _>("no space")), Err("no space"));
    }

    /// Goal: a search ends when its time is over, with what it knows.
    #[test]
    fn time_is_over() {
        let until = Instant::now();
        let found =
            climb(&axes(&[20, 20]), &vec![3, 3], Budget { measurements: 900, until: Some(until) }, |place| {
                Ok::<_, ()>(place[0] as f64 + 1.0)
            })
            .unwrap();
        assert!(found.unfinished && found.measured == 1 && found.best == [3, 3], "{found:?}");
    }
}
