//! From two looks at the counters: what happened between them.

use super::CounterRow;
use serde::Serialize;
use skep_base::output::{Row, human};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// One look at all counters.
pub struct Sample {
    at: Instant,
    time: SystemTime,
    /// (node, service, target) -> counter -> value.
    places: BTreeMap<Place, BTreeMap<String, u64>>,
}

/// Node, service, target.
type Place = (String, &'static str, String);

impl Sample {
    /// Taken now.
    pub fn new(rows: Vec<CounterRow>) -> Self {
        let mut places: BTreeMap<Place, BTreeMap<String, u64>> = BTreeMap::new();
        for row in rows {
            places.entry((row.node, row.service, row.target)).or_default().insert(row.counter, row.value);
        }
        Self { at: Instant::now(), time: SystemTime::now(), places }
    }

    /// As if it had been taken so long after another one.
    #[cfg(test)]
    fn after(mut self, other: &Self, by: Duration) -> Self {
        self.at = other.at + by;
        self
    }
}

/// What a metadata server or a target did in one second, on average.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RateRow {
    /// End of the interval, RFC 3339.
    pub time: String,
    pub node: String,
    pub service: &'static str,
    /// Alias of the target; empty for a metadata server.
    pub target: String,
    /// Requests, or reads and writes.
    pub operations_per_second: f64,
    /// Mean time of one; absent when there was none.
    pub latency_ms: Option<f64>,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    pub syncs_per_second: f64,
    pub sync_ms: Option<f64>,
    /// Requests in work at the end.
    pub in_flight: u64,
    /// Requests that failed on the disk, since the daemon started.
    pub errors: u64,
}

impl Row for RateRow {
    const TITLES: &'static [&'static str] = &[
        "TIME",
        "NODE",
        "TARGET",
        ">OPS/S",
        ">LATENCY",
        ">READ/S",
        ">WRITTEN/S",
        ">SYNCS/S",
        ">SYNC",
        ">IN WORK",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.time.clone(),
            self.node.clone(),
            self.target.clone(),
            count(self.operations_per_second),
            milliseconds(self.latency_ms),
            bytes(self.read_bytes_per_second),
            bytes(self.written_bytes_per_second),
            count(self.syncs_per_second),
            milliseconds(self.sync_ms),
            self.in_flight.to_string(),
        ]
    }
}

/// A number of things per second.
pub fn count(value: f64) -> String {
    if value > 0.0 && value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

pub fn bytes(value: f64) -> String {
    if value < 1.0 { "-".to_owned() } else { human(value as u64) }
}

/// A duration that may be absent.
pub fn milliseconds(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(ms) if ms < 1.0 => format!("{:.0} us", ms * 1e3),
        Some(ms) if ms < 100.0 => format!("{ms:.1} ms"),
        Some(ms) => format!("{ms:.0} ms"),
    }
}

/// How much a counter grew; from nothing when its daemon started anew.
fn growth(before: Option<&u64>, now: u64) -> u64 {
    now.checked_sub(before.copied().unwrap_or(now)).unwrap_or(now)
}

/// What happened between two looks, in the order of nodes and targets.
pub fn between(before: &Sample, now: &Sample) -> Vec<RateRow> {
    let seconds = now.at.saturating_duration_since(before.at).max(Duration::from_millis(1)).as_secs_f64();
    let time = skep_base::log::format_time(now.time);
    let row = |(place, counters): (&Place, &BTreeMap<String, u64>)| {
        let old = before.places.get(place);
        let grown = |name: &str| {
            let now = counters.get(name).copied().unwrap_or(0);
            growth(old.map(|old| old.get(name).unwrap_or(&0)), now)
        };
        let value = |name: &str| counters.get(name).copied().unwrap_or(0);
        let rate = |grown: u64| grown as f64 / seconds;
        let mean = |ns: u64, things: u64| (things > 0).then(|| ns as f64 / things as f64 / 1e6);
        let (operations, ns, syncs, sync_ns, in_flight) = match place.2.is_empty() {
            true => (
                grown("requests"),
                grown("request_ns"),
                grown("log_syncs"),
                grown("log_sync_ns"),
                value("waiting"),
            ),
            false => (
                grown("reads") + grown("writes"),
                grown("read_ns") + grown("write_ns"),
                grown("syncs"),
                grown("sync_ns"),
                value("in_flight"),
            ),
        };
        RateRow {
            time: time.clone(),
            node: place.0.clone(),
            service: place.1,
            target: place.2.clone(),
            operations_per_second: rate(operations),
            latency_ms: mean(ns, operations),
            read_bytes_per_second: rate(grown("read_bytes")),
            written_bytes_per_second: rate(grown("written_bytes")),
            syncs_per_second: rate(syncs),
            sync_ms: mean(sync_ns, syncs),
            in_flight,
            errors: value("errors"),
        }
    };
    now.places.iter().map(row).collect()
}

/// The messages that metadata servers were asked most, with how many per second.
pub fn busiest(before: &Sample, now: &Sample, most: usize) -> Vec<(String, f64)> {
    let seconds = now.at.saturating_duration_since(before.at).max(Duration::from_millis(1)).as_secs_f64();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, counters) in &now.places {
        let old = before.places.get(place);
        // Messages have names in capitals; what is counted otherwise has not.
        let messages = counters.iter().filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_uppercase()));
        for (name, value) in messages {
            let before = old.map(|old| old.get(name).unwrap_or(&0));
            *sums.entry(name).or_default() += growth(before, *value);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    sums.into_iter().take(most).map(|(name, sum)| (name.to_owned(), sum as f64 / seconds)).collect()
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// Two looks, two seconds apart, at a metadata server and at `targets` targets.
    pub fn two(targets: u64) -> (Sample, Sample) {
        let row = |node: &str, service, target: &str, counter: &str, value| CounterRow {
            node: node.to_owned(),
            service,
            target: target.to_owned(),
            counter: counter.to_owned(),
            value,
        };
        let look = |times: u64| {
            let mut rows: Vec<_> = [
                ("requests", 200),
                ("request_ns", 4_000_000),
                ("Lookup", 150),
                ("Create", 50),
                ("waiting", 1),
            ]
            .into_iter()
            .map(|(counter, value)| row("metad-1", "metad", "", counter, value * times))
            .collect();
            for target in 1..=targets {
                let alias = format!("target-{target}");
                for (counter, value) in [("writes", 8), ("write_ns", 16_000_000), ("written_bytes", 8 << 20)]
                {
                    rows.push(row("storaged-1", "storaged", &alias, counter, value * times * target));
                }
            }
            Sample::new(rows)
        };
        let before = look(1);
        let now = look(2).after(&before, Duration::from_secs(2));
        (before, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < expected * 0.01
    }

    /// Goal: rates are growth over time, means are time over things.
    #[test]
    fn rates() {
        let (before, now) = samples::two(1);
        let rows = between(&before, &now);
        assert_eq!(rows.len(), 2);
        assert!(near(rows[0].operations_per_second, 100.0), "{rows:?}");
        assert!(near(rows[0].latency_ms.unwrap(), 0.02) && rows[0].in_flight == 2);
        assert!(near(rows[1].written_bytes_per_second, f64::from(4 << 20)));
        assert!(near(rows[1].latency_ms.unwrap(), 2.0));
        assert_eq!((rows[1].read_bytes_per_second, rows[1].sync_ms), (0.0, None));
        assert_eq!(rows[0].cells().len(), RateRow::TITLES.len());
        let top = busiest(&before, &now, 1);
        assert!(top[0].0 == "Lookup" && near(top[0].1, 75.0), "{top:?}");
    }

    /// Goal: a daemon that started anew, or was not there before, gives no nonsense.
    #[test]
    fn restarts() {
        assert_eq!((growth(Some(&5), 7), growth(Some(&7), 5), growth(None, 9)), (2, 5, 0));
    }

    /// Goal: numbers fit their columns.
    #[test]
    fn numbers() {
        assert_eq!((count(0.0), count(3.25), count(1234.5)), ("0".into(), "3.2".into(), "1234".into()));
        assert_eq!((milliseconds(Some(0.02)), milliseconds(Some(2.0))), ("20 us".into(), "2.0 ms".into()));
    }
}
