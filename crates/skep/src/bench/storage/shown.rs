//! How measurements of targets are shown: a row for each, and what they are together.

use crate::admin::{Failure, Outcome};
use crate::bench::report::{self, ReportArgs};
use crate::cli::output::{Row, human};
use crate::instruments::question::{Direction, JobState, Latency, Path, StorageTest, TargetFound};
use serde::Serialize;
use skep_bench::significance::{discoveries, median, paired_ratio};
use skep_wire::mgmt::TargetEntry;
use std::io::Write;

/// A target that delivers less than this part of what the middle one does is named.
const SLOW_BELOW: f64 = 0.75;

/// Share of targets called slow that may be so by chance.
const CHANCE: f64 = 0.05;

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
    /// Bytes per second of each round; what stands beside it is the mean of all.
    rounds: Vec<f64>,
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
    /// How often each was measured.
    rounds: usize,
    /// Targets that deliver less than three quarters of what the middle one does, in all rounds taken together
    /// more clearly than chance would have it. One round names none.
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

impl TargetRow {
    /// Another round of the same.
    fn join(&mut self, round: Self) {
        let before = self.rounds.len() as f64;
        let mean = |all: f64, one: f64| (all * before + one) / (before + 1.0);
        self.bytes = mean(self.bytes as f64, round.bytes as f64) as u64;
        self.seconds = mean(self.seconds, round.seconds);
        self.sync_ms = mean(self.sync_ms, round.sync_ms);
        self.latency.count += round.latency.count;
        for (all, one) in [
            (&mut self.latency.mean_us, round.latency.mean_us),
            (&mut self.latency.p50_us, round.latency.p50_us),
            (&mut self.latency.p90_us, round.latency.p90_us),
            (&mut self.latency.p99_us, round.latency.p99_us),
            (&mut self.latency.p999_us, round.latency.p999_us),
        ] {
            *all = mean(*all, one);
        }
        self.latency.max_us = self.latency.max_us.max(round.latency.max_us);
        if self.seconds > 0.0 {
            self.bytes_per_second = self.bytes as f64 / self.seconds;
        }
        self.rounds.extend(round.rounds);
        if self.error.is_none() {
            (self.state, self.error) = (round.state, round.error);
        }
    }
}

/// The chance that a target delivers no less than the others: rounds are compared in pairs with the middle of all
/// others, as all targets are measured at the same time.
fn chance(row: &TargetRow, rows: &[&TargetRow]) -> f64 {
    let others = |round: usize| {
        let rates: Vec<f64> = rows
            .iter()
            .filter(|other| !std::ptr::eq(**other, row))
            .filter_map(|other| other.rounds.get(round).copied())
            .collect();
        median(&rates)
    };
    let likes: Option<Vec<f64>> = (0..row.rounds.len()).map(others).collect();
    likes.and_then(|likes| paired_ratio(&likes, &row.rounds)).map_or(1.0, |ratio| ratio.p)
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
        let row = TargetRow {
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
            rounds: vec![flow.rate()],
            sync_ms: found.map_or(0.0, |one| one.sync_ms),
            latency: found.map(|one| one.latency.clone()).unwrap_or_default(),
            error,
        };
        let same = |known: &&mut TargetRow| {
            known.target == row.target && known.alias == row.alias && known.direction == row.direction
        };
        match self.targets.iter_mut().find(same) {
            Some(known) => known.join(row),
            None => self.targets.push(row),
        }
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
        let below = |row: &&TargetRow| row.bytes_per_second < SLOW_BELOW * middle;
        let chances: Vec<f64> = rows.iter().map(|row| chance(row, &rows)).collect();
        let stands = discoveries(&chances, CHANCE);
        let stands = rows.iter().copied().zip(stands).filter(|(_, stands)| *stands).map(|(row, _)| row);
        let slow = stands.filter(below);
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
            rounds: rows.iter().map(|row| row.rounds.len()).max().unwrap_or(0),
            slow: slow.map(|row| row.alias.clone()).collect(),
        })
    }

    /// Is nothing known of any target?
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Could nothing be measured?
    pub fn is_void(&self) -> bool {
        self.targets.iter().all(|row| row.state == JobState::Failed && row.bytes == 0)
    }

    /// Shows it; for people not when nothing could be measured, for then the reasons say it all.
    pub fn write(&self, args: ReportArgs, out: &mut dyn Write) -> Outcome {
        if self.is_void() && !self.is_empty() && args.is_for_people() {
            return Ok(());
        }
        let words: Vec<String> =
            self.summaries.iter().map(|summary| format!("\n{}\n", summary.text())).collect();
        Ok(report::write(args, self, &self.targets, &words.concat(), out)?)
    }

    /// Fails when a target did.
    pub fn verdict(&self) -> Outcome {
        let failed: Vec<&TargetRow> =
            self.targets.iter().filter(|row| row.state == JobState::Failed).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let line = |row: &&TargetRow| {
            format!("\n  {}: {}", row.alias, row.error.as_deref().unwrap_or("no reason was told"))
        };
        let lines: Vec<String> = failed.iter().map(line).collect();
        Err(Failure::new(format!("could not be measured:{}", lines.concat())))
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
        if self.rounds == 1 && self.targets > 1 {
            text.push_str(
                "  slow: one round tells a slow target from noise no more than a throw of dice: --rounds 3\n",
            );
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
        report_of(rates, 3)
    }

    fn report_of(rates: &[u64], rounds: u64) -> StorageReport {
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
            for round in 0..rounds {
                let bytes = rate * (999 + round);
                let found = TargetFound { flow: Flow { bytes, seconds: 1_000.0 }, ..found.clone() };
                report.add("storaged-1", &target, &test, JobState::Done, Some(&found), None);
            }
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

    /// Goal: noise is no slow target: neither one round, nor rounds of which another target is the last each time.
    #[test]
    fn noise_is_not_slow() {
        let once = report_of(&[100, 30, 110, 90], 1);
        assert!(once.summaries[0].slow.is_empty());
        assert!(once.summaries[0].text().contains("--rounds"), "{}", once.summaries[0].text());
        let mut noisy = StorageReport::default();
        let status = samples::status();
        for round in [[100, 20, 90], [30, 110, 100], [95, 100, 25]] {
            for (number, rate) in round.into_iter().enumerate() {
                let target = TargetEntry { alias: format!("target-{number}"), ..status.targets[0].clone() };
                let found = TargetFound {
                    target: 101,
                    state: JobState::Done,
                    flow: Flow { bytes: rate, seconds: 1.0 },
                    latency: Latency::default(),
                    sync_ms: 0.0,
                    error: None,
                };
                noisy.add("n", &target, &StorageTest::default(), JobState::Done, Some(&found), None);
            }
        }
        noisy.conclude();
        assert_eq!((noisy.targets.len(), noisy.targets[0].rounds.len()), (3, 3));
        assert!(noisy.summaries[0].slow.is_empty(), "{:?}", noisy.summaries[0].slow);
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
