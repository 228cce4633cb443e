//! Latencies: a histogram with three digits from a nanosecond to an hour (HDR).

use serde::{Deserialize, Serialize};

/// Longest latency told apart, nanoseconds; longer ones count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Digits kept.
const DIGITS: u8 = 3;

/// Latencies of many operations.
#[derive(Debug, Clone)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// What is said of latencies, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// Shortest.
    pub min_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Half are shorter.
    pub p50_us: f64,
    /// 90 of 100 are shorter.
    pub p90_us: f64,
    /// 99 of 100 are shorter.
    pub p99_us: f64,
    /// 999 of 1,000 are shorter.
    pub p999_us: f64,
    /// Longest.
    pub max_us: f64,
}

impl Histogram {
    /// An empty one.
    #[allow(clippy::missing_panics_doc)]
    pub fn new() -> Self {
        // The bounds are constants that the crate accepts; tests build one.
        let empty = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(empty.unwrap_or_else(|_| unreachable!("constant bounds")))
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.clamp(1, LONGEST_NS));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        // Same bounds everywhere, so nothing can be out of range.
        let _ = self.0.add(&other.0);
    }

    /// As pairs of nanoseconds and count, for the way.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// Adds such pairs.
    pub fn add_pairs(&mut self, pairs: &[(u64, u64)]) {
        for (nanoseconds, count) in pairs {
            self.0.saturating_record_n((*nanoseconds).clamp(1, LONGEST_NS), *count);
        }
    }

    /// The value below which that share (0 to 1) lies, nanoseconds.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// What is said of it; None of nothing.
    pub fn latency(&self) -> Option<Latency> {
        if self.0.is_empty() {
            return None;
        }
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        Some(Latency {
            count: self.0.len(),
            min_us: us(self.0.min()),
            mean_us: self.0.mean() / 1e3,
            p50_us: us(self.quantile(0.5)),
            p90_us: us(self.quantile(0.9)),
            p99_us: us(self.quantile(0.99)),
            p999_us: us(self.quantile(0.999)),
            max_us: us(self.0.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: percentiles are right within the digits kept, and pairs carry the whole histogram.
    #[test]
    fn percentiles() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.latency(), None);
        for us in 1..=1000u64 {
            histogram.record(us * 1000);
        }
        let mut copy = Histogram::new();
        copy.add_pairs(&histogram.pairs());
        copy.merge(&Histogram::new());
        for latency in [histogram.latency().unwrap(), copy.latency().unwrap()] {
            assert_eq!(latency.count, 1000);
            for (is, should) in [
                (latency.p50_us, 500.0),
                (latency.p90_us, 900.0),
                (latency.p999_us, 999.0),
                (latency.max_us, 1000.0),
                (latency.min_us, 1.0),
            ] {
                assert!((is / should - 1.0f64).abs() < 0.002, "{is} {should}");
            }
        }
    }

    /// Goal: nothing is lost at the ends of the range.
    #[test]
    fn ends() {
        let mut histogram = Histogram::new();
        histogram.record(0);
        histogram.record(u64::MAX);
        assert_eq!(histogram.latency().unwrap().count, 2);
    }
}
