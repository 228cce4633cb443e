//! How measurements of targets are shown: a row for each, and what they are together.

use crate::bench::report::{self, ReportArgs};
use serde::Serialize;
use skep_base::output::{Row, human};
use skep_base::{Failure, Outcome};
use skep_bench::significance::{discoveries, median, paired_ratio};
use skep_instruments::Times;
use skep_instruments::question::{Direction, JobState, Latency, Path, StorageTest, TargetFound};
use skep_survey::together::busy_ns;
use skep_wire::mgmt::TargetEntry;
use std::io::Write;

/// A target that delivers less than this part of what the middle one does is named.
const SLOW_BELOW: f64 = 0.75;

/// Share of targets called slow that may be so by chance.
const CHANCE: f64 = 0.05;

/// When a target was at work in a round, by this machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// From then on.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// Give or take so much: clocks cannot be compared any better.
    pub error_ns: u64,
}

/// What one target delivered.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The requests of all rounds.
    #[serde(skip)]
    times: Times,
    /// Bytes of each round, and when they were moved.
    #[serde(skip)]
    moved: Vec<(u64, Option<Window>)>,
}

/// Targets together, one direction.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    direction: &'static str,
    path: &'static str,
    targets: usize,
    minimum: f64,
    minimum_target: String,
    maximum: f64,
    maximum_target: String,
    average: f64,
    /// All of them together, in bytes a second: all bytes over `seconds`.
    aggregate: f64,
    /// Time in which at least one of them was at work, in all rounds.
    seconds: f64,
    /// The last target began so much later than the first one, in the worst round ...
    start_skew_ms: f64,
    /// ... give or take so much: clocks of daemons cannot be compared any better.
    clock_error_ms: f64,
    /// How often each was measured.
    rounds: usize,
    /// Targets that deliver less than three quarters of what the middle one does, in all rounds taken together
    /// more clearly than chance would have it. One round names none.
    slow: Vec<String>,
}

/// A measurement of targets.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        self.times.merge(&round.times);
        self.latency = joined(&self.latency, &round.latency, &self.times.latency());
        self.moved.extend(round.moved);
        if self.seconds > 0.0 {
            self.bytes_per_second = self.bytes as f64 / self.seconds;
        }
        self.rounds.extend(round.rounds);
        if self.error.is_none() {
            (self.state, self.error) = (round.state, round.error);
        }
    }
}

/// Requests of two sets of rounds, and the percentiles of all of them together. Those of each round say nothing of the
/// percentiles of all.
fn joined(a: &Latency, b: &Latency, all: &Latency) -> Latency {
    let (count, max_us) = (a.count + b.count, a.max_us.max(b.max_us));
    let sum_us = a.mean_us * a.count as f64 + b.mean_us * b.count as f64;
    Latency {
        count,
        mean_us: if count > 0 { sum_us / count as f64 } else { 0.0 },
        p50_us: all.p50_us.min(max_us),
        p90_us: all.p90_us.min(max_us),
        p99_us: all.p99_us.min(max_us),
        p999_us: all.p999_us.min(max_us),
        max_us,
    }
}

/// All targets together.
#[derive(Debug, Default, PartialEq)]
struct Together {
    bytes: u64,
    /// In which at least one was at work.
    busy_ns: u64,
    skew_ns: u64,
    error_ns: u64,
}

impl Together {
    /// Round by round.
    fn of(rows: &[&TargetRow]) -> Self {
        let mut all = Self::default();
        for round in 0..rows.iter().map(|row| row.moved.len()).max().unwrap_or(0) {
            let of_round = rows.iter().filter_map(|row| row.moved.get(round));
            let mut windows: Vec<Window> = Vec::new();
            for (bytes, window) in of_round {
                all.bytes += bytes;
                windows.extend(*window);
            }
            let begins = windows.iter().map(|window| window.from_ns);
            if let (Some(first), Some(last)) = (begins.clone().min(), begins.max()) {
                all.skew_ns = all.skew_ns.max(last - first);
            }
            all.busy_ns += busy_ns(windows.iter().map(|window| (window.from_ns, window.to_ns)));
            let errors = windows.iter().map(|window| window.error_ns);
            all.error_ns = all.error_ns.max(errors.max().unwrap_or(0));
        }
        all
    }

    fn rate(&self) -> f64 {
        skep_survey::together::rate(self.bytes, self.busy_ns)
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
        found: Option<(&TargetFound, Option<Window>)>,
        error: Option<String>,
    ) {
        let (found, window) = found.unzip();
        let mut times = Times::default();
        times.add_buckets(found.map_or(&[], |one| &one.buckets));
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
            times,
            moved: vec![(flow.bytes, window.flatten())],
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
        let rates: f64 = rows.iter().map(|row| row.bytes_per_second).sum();
        let together = Together::of(&rows);
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
            average: rates / rows.len() as f64,
            aggregate: together.rate(),
            seconds: together.busy_ns as f64 / 1e9,
            start_skew_ms: together.skew_ns as f64 / 1e6,
            clock_error_ms: together.error_ns as f64 / 1e6,
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
        let over = format!("all bytes over the {:.2} s in which any target was at work", self.seconds);
        text.push_str(&line("aggregate", self.aggregate, &over));
        if self.start_skew_ms > 0.0 {
            text.push_str(&format!(
                "  began      within {:.2} ms of each other (clocks of daemons compared to {:.2} ms)\n",
                self.start_skew_ms, self.clock_error_ms
            ));
        }
        if !self.slow.is_empty() {
            text.push_str(&format!(
                "  slow: {} (less than {:.0} % of the middle one)\n",
                self.slow.join(", "),
                SLOW_BELOW * 100.0
            ));
        }
        if self.rounds == 1 && self.targets > 1 {
            text.push_str("  note: one round cannot tell a slow target from noise: --rounds 3 can\n");
        }
        text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
