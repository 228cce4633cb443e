//! Spreads over repetitions.

use crate::significance::{deviation, mean};
use serde::{Deserialize, Serialize};

/// Least, mean, most and standard deviation of repetitions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Most.
    pub max: f64,
    /// Standard deviation of the sample; 0 of a single one.
    pub stddev: f64,
}

impl Spread {
    /// Of samples; all zero of none.
    pub fn of(samples: &[f64]) -> Self {
        let Some(mean) = mean(samples) else { return Self::default() };
        Self {
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            stddev: deviation(samples).unwrap_or(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: known numbers give known spreads; one sample has no deviation, none has nothing.
    #[test]
    fn spreads() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((spread.min, spread.mean, spread.max), (2.0, 5.0, 9.0));
        assert!((spread.stddev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of(&[3.0]), Spread { min: 3.0, mean: 3.0, max: 3.0, stddev: 0.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
