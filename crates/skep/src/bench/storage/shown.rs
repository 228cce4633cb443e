//! How measurements of targets are shown: a row for each, and what they are together.

use crate::admin::{Failure, Outcome};
use crate::bench::report::{self, ReportArgs};
use crate::cli::output::{Row, human};
use crate::instruments::question::{Direction, JobState, Latency, Path, StorageTest, TargetFound};
use serde::Serialize;
use skep_wire::mgmt::TargetEntry;
use std::io::Write;

/// A target that delivers less than this part of what the middle one does is named.
const SLOW_BELOW: f64 = 0.75;

/// What one target delivered.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TargetRow {
    target: u32,
    alias: String,
    node_alias: String,
    /// `write` or `read`.
    direction: &'static str,
    /// `target` (through the daemon's code) or `raw`.
    path: &'static str,
    state: JobState,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// Of the sync at the end, inside the time.
    sync_ms: f64,
    latency: Latency,
    error: Option<String>,
}

/// Targets together, one direction.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    direction: &'static str,
    path: &'static str,
    targets: usize,
    minimum: f64,
    minimum_target: String,
    maximum: f64,
    maximum_target: String,
    average: f64,
    /// All of them added up, in bytes a second.
    aggregate: f64,
    /// Targets that deliver less than three quarters of what the middle one does.
    slow: Vec<String>,
}

/// A measurement of targets.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StorageReport {
    targets: Vec<TargetRow>,
    summaries: Vec<Summary>,
}

fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", human(bytes_per_second as u64))
}

impl Row for TargetRow {
    const TITLES: &'static [&'static str] = &[
        ">ID", "TARGET", "NODE", "WAY", "PATH", "STATE", ">BYTES", ">SECONDS", ">RATE", ">P50 US", ">P99 US",
        ">MAX US", "ERROR",
    ];

    fn cells(&self) -> Vec<String> {
        let state = match self.state {
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Stopped => "stopped",
            JobState::Failed => "FAILED",
        };
        let us = |value: f64| format!("{value:.0}");
        vec![
            self.target.to_string(),
            self.alias.clone(),
            self.node_alias.clone(),
            self.direction.to_owned(),
            self.path.to_owned(),
            state.to_owned(),
            human(self.bytes),
            format!("{:.2}", self.seconds),
            rate(self.bytes_per_second),
            us(self.latency.p50_us),
            us(self.latency.p99_us),
            us(self.latency.max_us),
            self.error.clone().unwrap_or_default(),
        ]
    }
}

impl StorageReport {
    /// One more target.
    pub fn add(
        &mut self,
        node_alias: &str,
        target: &TargetEntry,
        test: &StorageTest,
        job: JobState,
        found: Option<&TargetFound>,
        error: Option<String>,
    ) {
        let flow = found.map(|one| one.flow).unwrap_or_default();
        let state = found.map_or(job, |one| one.state);
        self.targets.push(TargetRow {
            target: target.target.0,
            alias: target.alias.clone(),
            node_alias: node_alias.to_owned(),
            direction: match test.direction {
                Direction::Write => "write",
                Direction::Read => "read",
            },
            path: match test.path {
                Path::Raw => "raw",
                Path::Target => "target",
            },
            state: if error.is_some() { JobState::Failed } else { state },
            bytes: flow.bytes,
            seconds: flow.seconds,
            bytes_per_second: flow.rate(),
            sync_ms: found.map_or(0.0, |one| one.sync_ms),
            latency: found.map(|one| one.latency.clone()).unwrap_or_default(),
            error,
        });
    }

    /// Adds up what the targets delivered; those that failed count for nothing.
    pub fn conclude(&mut self) {
        self.summaries = ["write", "read"].iter().filter_map(|direction| self.summary(direction)).collect();
    }

    fn summary(&self, direction: &'static str) -> Option<Summary> {
        let good = |row: &&TargetRow| row.direction == direction && row.state != JobState::Failed;
        let mut rows: Vec<&TargetRow> = self.targets.iter().filter(good).collect();
        rows.sort_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second));
        let (first, last) = (rows.first()?, rows.last()?);
        let aggregate: f64 = rows.iter().map(|row| row.bytes_per_second).sum();
        // Of an even number the upper one: of two targets the slower one can be named.
        let middle = rows[rows.len() / 2].bytes_per_second;
        let slow = rows.iter().filter(|row| row.bytes_per_second < SLOW_BELOW * middle);
        Some(Summary {
            direction,
            path: first.path,
            targets: rows.len(),
            minimum: first.bytes_per_second,
            minimum_target: first.alias.clone(),
            maximum: last.bytes_per_second,
            maximum_target: last.alias.clone(),
            average: aggregate / rows.len() as f64,
            aggregate,
            slow: slow.map(|row| row.alias.clone()).collect(),
        })
    }

    /// Shows it.
    pub fn write(&self, args: ReportArgs, out: &mut dyn Write) -> Outcome {
        let words: Vec<String> =
            self.summaries.iter().map(|summary| format!("\n{}\n", summary.text())).collect();
        Ok(report::write(args, self, &self.targets, &words.concat(), out)?)
    }

    /// Fails when a target did.
    pub fn verdict(&self) -> Outcome {
        let failed: Vec<&TargetRow> =
            self.targets.iter().filter(|row| row.state == JobState::Failed).collect();
        let Some(first) = failed.first() else { return Ok(()) };
        let names: Vec<&str> = failed.iter().map(|row| row.alias.as_str()).collect();
        let why = first.error.as_deref().unwrap_or("no reason was told");
        Err(Failure::new(format!("could not be measured: {} ({}: {why})", names.join(", "), first.alias)))
    }
}

impl Summary {
    fn text(&self) -> String {
        let line = |name: &str, value: f64, of: &str| format!("  {name:<10} {:>12}  {of}\n", rate(value));
        let mut text = format!("{}, {} targets, path {}:\n", self.direction, self.targets, self.path);
        text.push_str(&line("minimum", self.minimum, &self.minimum_target));
        text.push_str(&line("maximum", self.maximum, &self.maximum_target));
        text.push_str(&line("average", self.average, ""));
        text.push_str(&line("aggregate", self.aggregate, ""));
        if !self.slow.is_empty() {
            text.push_str(&format!(
                "  slow: {} (less than {:.0} % of the middle one)\n",
                self.slow.join(", "),
                SLOW_BELOW * 100.0
            ));
        }
        text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::namespace::samples;
    use crate::instruments::question::Flow;

    fn report(rates: &[u64]) -> StorageReport {
        let status = samples::status();
        let mut report = StorageReport::default();
        for (number, rate) in rates.iter().enumerate() {
            let target = TargetEntry { alias: format!("target-{number}"), ..status.targets[0].clone() };
            let found = TargetFound {
                target: 101,
                state: JobState::Done,
                flow: Flow { bytes: *rate, seconds: 1.0 },
                latency: Latency::default(),
                sync_ms: 0.0,
                error: None,
            };
            let test = StorageTest::default();
            report.add("storaged-1", &target, &test, JobState::Done, Some(&found), None);
        }
        report.conclude();
        report
    }

    /// Goal: minimum, maximum, average and aggregate are right, and the slow target is named; equal ones are not.
    #[test]
    fn the_slow_one_is_named() {
        let summary = &report(&[100, 30, 110, 90]).summaries[0];
        assert_eq!((summary.minimum, summary.minimum_target.as_str()), (30.0, "target-1"));
        assert_eq!((summary.maximum, summary.average, summary.aggregate), (110.0, 82.5, 330.0));
        assert_eq!(summary.slow, ["target-1"]);
        assert!(summary.text().contains("slow: target-1"), "{}", summary.text());
        assert!(report(&[100, 90, 110, 95]).summaries[0].slow.is_empty());
        assert_eq!(report(&[20, 100]).summaries[0].slow, ["target-0"]);
    }

    /// Goal: a target that failed is shown with its reason, counts for nothing, and fails the command.
    #[test]
    fn failed_ones_do_not_count() {
        let mut report = report(&[100, 100]);
        let status = samples::status();
        let test = StorageTest::default();
        let why = Some("no space".to_owned());
        report.add("storaged-1", &status.targets[0], &test, JobState::Failed, None, why);
        report.conclude();
        assert_eq!((report.summaries[0].targets, report.summaries[0].minimum), (2, 100.0));
        assert!(report.verdict().unwrap_err().to_string().contains("target-101"));
        let mut out = Vec::new();
        report.write(ReportArgs::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("FAILED") && text.contains("no space") && text.contains("aggregate"), "{text}");
    }
}
