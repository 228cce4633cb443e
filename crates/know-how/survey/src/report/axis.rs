//! Scales with round numbers on them.

use super::number;

/// How places on an axis follow from values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Equal steps.
    Linear,
    /// Each step doubles: processes, sizes.
    Log2,
    /// Each step is ten times the one before: rates that differ by orders of magnitude.
    Log10,
}

/// An axis with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    kind: Kind,
    low: f64,
    high: f64,
    /// Values with their labels, rising.
    pub ticks: Vec<(f64, String)>,
}

/// From this ratio of the largest to the smallest curve, the values stand on a logarithmic axis.
const ORDERS_APART: f64 = 30.0;
/// From this ratio on, places stand on a doubling axis.
const DOUBLINGS: f64 = 7.9;
/// Places that are all labelled; of more, round ones are.
const EVERY_PLACE: usize = 14;

impl Axis {
    /// Where a value lies: 0 at the low end, 1 at the high one.
    pub fn share(&self, value: f64) -> f32 {
        let turn = |v: f64| match self.kind {
            Kind::Linear => v,
            Kind::Log2 | Kind::Log10 => v.max(f64::MIN_POSITIVE).ln(),
        };
        let (low, high) = (turn(self.low), turn(self.high));
        let share = (turn(value) - low) / (high - low);
        if share.is_finite() { share.clamp(0.0, 1.0) as f32 } else { 0.0 }
    }

    /// For values, from zero; logarithmic when `typical` ones lie orders of magnitude apart.
    pub fn of_values(values: &[f64], typical: &[f64], steps: usize) -> Self {
        let (low, high) = ends(values);
        let (least, most) = ends(typical);
        if low > 0.0 && least > 0.0 && most / least > ORDERS_APART {
            return Self::log10(low, high);
        }
        Self::linear(low.min(0.0), high.max(0.0), steps)
    }

    /// For values, with equal steps.
    pub fn linear(low: f64, high: f64, steps: usize) -> Self {
        let high = if high > low { high } else { low + if low == 0.0 { 1.0 } else { low.abs() } };
        let step = round_step((high - low) / steps.max(1) as f64);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let count = (last - first).clamp(1.0, 100.0) as usize;
        let ticks = (0..=count).map(|i| (first + i as f64) * step).map(|v| (v, number::tick(v))).collect();
        Self { kind: Kind::Linear, low: first * step, high: last * step, ticks }
    }

    /// For positive values, with powers of ten.
    fn log10(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor(), (high.log10() - 1e-9).ceil());
        let last = last.max(first + 1.0);
        let every = ((last - first) / 8.0).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut at = first;
        while at <= last {
            ticks.push((10f64.powf(at), number::tick(10f64.powf(at))));
            at += every;
        }
        Self { kind: Kind::Log10, low: 10f64.powf(first), high: 10f64.powf(last), ticks }
    }

    /// For places of measurement: the places themselves are labelled as long as they are few.
    pub fn of_places(places: &[f64], name: &str) -> Self {
        let mut distinct: Vec<f64> = places.iter().copied().filter(|v| v.is_finite()).collect();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let (low, high) = ends(&distinct);
        let labelled = |v: &f64| (*v, number::place(*v, name));
        if low > 0.0 && high / low >= DOUBLINGS {
            let few = distinct.len() <= EVERY_PLACE;
            let wanted = if few { distinct } else { doublings(low, high) };
            let ticks = wanted.iter().map(labelled).collect();
            return Self { kind: Kind::Log2, low, high, ticks };
        }
        if distinct.len() <= EVERY_PLACE && !distinct.is_empty() {
            let margin = if high > low { 0.0 } else { high.abs().max(1.0) };
            let ticks = distinct.iter().map(labelled).collect();
            return Self { kind: Kind::Linear, low: low - margin, high: high + margin, ticks };
        }
        let mut axis = Self::linear(low, high, 6);
        axis.ticks = axis.ticks.iter().map(|(v, _)| labelled(v)).collect();
        axis
    }
}

fn doublings(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log2().ceil(), high.log2().floor());
    let every = ((last - first) / EVERY_PLACE as f64).ceil().max(1.0);
    let count = ((last - first) / every).clamp(0.0, 64.0) as usize;
    (0..=count).map(|i| (first + i as f64 * every).exp2()).collect()
}

fn ends(values: &[f64]) -> (f64, f64) {
    let numbers = || values.iter().copied().filter(|v| v.is_finite());
    let low = numbers().fold(f64::INFINITY, f64::min);
    let high = numbers().fold(f64::NEG_INFINITY, f64::max);
    if low <= high { (low, high) } else { (0.0, 0.0) }
}

/// 1, 2, 2.5 or 5 times a power of ten, not below `step`.
fn round_step(step: f64) -> f64 {
    let step = if step.is_finite() && step > 0.0 { step } else { 1.0 };
    let power = 10f64.powf(step.log10().floor());
    let rounded = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * power);
    rounded.into_iter().find(|v| *v >= step * (1.0 - 1e-9)).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    /// Goal: values get round steps from zero that cover them.
    #[test]
    fn linear_axes_are_round() {
        let axis = Axis::of_values(&[12.0, 812.0, 1730.0], &[812.0, 1730.0], 4);
        assert_eq!(labels(&axis), ["0", "500", "1,000", "1,500", "2,000"]);
        assert_eq!((axis.share(0.0), axis.share(2000.0), axis.share(1000.0)), (0.0, 1.0, 0.5));
    }

    /// Goal: values of different orders of magnitude get powers of ten.
    #[test]
    fn far_apart_values_are_logarithmic() {
        let axis = Axis::of_values(&[90.0, 100.0, 52_000.0], &[100.0, 52_000.0], 4);
        assert_eq!(labels(&axis), ["10", "100", "1,000", "10 k", "100 k"]);
        assert!((axis.share(1000.0) - 0.5).abs() < 1e-6);
    }

    /// Goal: powers of two are labelled as measured, sizes as bytes.
    #[test]
    fn places_double() {
        let axis = Axis::of_places(&[1.0, 2.0, 4.0, 8.0, 16.0], "processes");
        assert_eq!(labels(&axis), ["1", "2", "4", "8", "16"]);
        assert!((axis.share(4.0) - 0.5).abs() < 1e-6);
        let axis = Axis::of_places(&[1048576.0, 4194304.0, 67108864.0], "transfer size (bytes)");
        assert_eq!(labels(&axis), ["1 MiB", "4 MiB", "64 MiB"]);
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(labels(&Axis::of_places(&many, "x")), ["1", "2", "4", "8", "16", "32", "64"]);
    }

    /// Goal: nothing at all, equal, negative and huge values give an axis on which every place is a number.
    #[test]
    fn odd_values_have_an_axis() {
        let odd: [&[f64]; 8] = [
            &[],
            &[0.0],
            &[5.0, 5.0],
            &[-3.0, 4.0],
            &[-3.0],
            &[1e-300],
            &[1e300, -1e300],
            &[f64::NAN, f64::INFINITY],
        ];
        for values in odd {
            for axis in [Axis::of_values(values, values, 4), Axis::of_places(values, "x")] {
                assert!(axis.ticks.len() <= 101, "{values:?}: {}", axis.ticks.len());
                for value in values.iter().chain(&[0.0, 1.0]) {
                    assert!((0.0..=1.0).contains(&axis.share(*value)), "{values:?} {axis:?}");
                }
            }
        }
    }
}
