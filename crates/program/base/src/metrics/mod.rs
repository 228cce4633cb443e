//! Counters, gauges and histograms, and the text that Prometheus reads.
//!
//! Own atomics instead of a metrics crate: what is counted per request has labels that are known when
//! the program is built (message kinds, FUSE operations), so a request costs two relaxed additions and
//! no look-up by label; everything else is asked at the moment of the scrape from whoever owns it. What
//! a crate would add is the text format, which is [`Exposition`], and whose rules a strict parser
//! checks in the tests.

mod exposition;
#[cfg(any(test, feature = "testing"))]
pub mod parse;
pub mod process;
mod requests;
mod serving;

pub use exposition::{CONTENT_TYPE, Exposition, Kind};
pub use requests::Requests;
pub use serving::Serving;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Something that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// From nothing.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One more.
    pub fn one(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// How many by now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Something that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// It is so much now.
    pub fn set(&self, value: u64) {
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Relaxed);
    }

    /// Up or down.
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the buckets, in nanoseconds: 1, 2.5 and 5 from 5 us to 10 s.
pub const BOUNDS: [u64; 20] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// How long things took.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One more than there are bounds: the last is for everything longer.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// One thing took so long.
    pub fn observe(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS.partition_point(|bound| *bound < ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// How long all of them took together.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Relaxed)
    }

    /// How many took at most as long as each bound, the last one: all.
    fn cumulative(&self) -> [u64; BOUNDS.len() + 1] {
        let mut all = 0;
        std::array::from_fn(|at| {
            all += self.buckets[at].load(Relaxed);
            all
        })
    }
}

/// What is measured of the way to mgmtd. One per process, as there is one mgmtd.
pub static MGMTD: Contact = Contact::new();

/// Whether somebody answers.
#[derive(Debug)]
pub struct Contact {
    answers: Counter,
    failures: Counter,
    /// When the last answer came, in milliseconds since 1970; 0: never.
    last_ms: AtomicU64,
}

impl Contact {
    const fn new() -> Self {
        Self { answers: Counter::new(), failures: Counter::new(), last_ms: AtomicU64::new(0) }
    }

    pub fn answered(&self) {
        self.answers.one();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// It did not.
    pub fn failed(&self) {
        self.failures.one();
    }

    /// Adds the samples.
    pub fn expose(&self, service: &str, out: &mut Exposition) {
        let name = |what: &str| format!("skep_{service}_mgmtd_{what}");
        out.family(&name("answers_total"), Kind::Counter, "Heartbeats and renewals that mgmtd answered.")
            .value(&[], self.answers.get());
        out.family(&name("failures_total"), Kind::Counter, "Heartbeats and renewals that failed.")
            .value(&[], self.failures.get());
        out.family(&name("heard_timestamp_seconds"), Kind::Gauge, "When mgmtd answered last; 0: never.")
            .value(&[], self.last_ms.load(Relaxed) as f64 / 1e3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a value falls into the bucket whose bound it does not exceed, the longest into the last.
    #[test]
    fn buckets() {
        let histogram = Histogram::default();
        for ns in [0, 5_000, 5_001, 10_000_000_000, 10_000_000_001, u64::MAX / 4] {
            histogram.observe(Duration::from_nanos(ns));
        }
        let cumulative = histogram.cumulative();
        assert_eq!((cumulative[0], cumulative[1]), (2, 3));
        assert_eq!((cumulative[BOUNDS.len() - 1], cumulative[BOUNDS.len()]), (4, 6));
        assert_eq!(histogram.count(), 6);
    }

    /// Goal: bounds rise, or buckets would be skipped.
    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
    }
}
