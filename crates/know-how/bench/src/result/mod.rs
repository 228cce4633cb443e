//! What came of a job: per phase and repetition, and summed up.

mod csv;
mod remark;

pub use csv::{steps_csv, summary_csv};

use crate::histogram::{Histogram, Latency};
use crate::job::Job;
use crate::summary::Spread;
use serde::{Deserialize, Serialize};

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunResult {
    /// What was done.
    pub job: Job,
    /// Where.
    pub hosts: Vec<HostResult>,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long all of it took, preparation and cleaning included.
    pub seconds: f64,
    /// Every phase of every repetition, in order.
    pub steps: Vec<StepResult>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A run as programs read it: what was measured, and summed up.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document {
    /// One line per phase, over all repetitions.
    pub phases: Vec<Summary>,
    /// How figures came about that are easily taken for something else.
    pub remarks: Vec<String>,
    /// The run.
    #[serde(flatten)]
    pub run: RunResult,
}

/// A host of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostResult {
    /// Its name.
    pub name: String,
    /// Worker processes on it.
    pub processes: u32,
    /// How uncertain its clock is against the director's, microseconds.
    pub clock_error_us: f64,
}

/// One phase of one repetition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepResult {
    /// Its name.
    pub phase: String,
    /// From 1.
    pub repetition: u32,
    /// Bytes moved by all workers.
    pub bytes: u64,
    /// Operations of all workers: transfers, files, entries.
    pub ops: u64,
    /// From the first start to the last end.
    pub seconds: f64,
    /// Between the first worker's start and the last's, microseconds.
    pub start_skew_us: f64,
    /// Of single operations.
    pub latency: Option<Latency>,
    /// Where everything stood when the first worker was ready.
    pub stonewall: Option<Cut>,
    /// Each worker.
    pub workers: Vec<WorkerResult>,
    /// Latencies in full.
    #[serde(skip)]
    pub histogram: Histogram,
}

/// What was done up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cut {
    /// Since the first start.
    pub seconds: f64,
    /// Bytes of all workers.
    pub bytes: u64,
    /// Operations of all workers.
    pub ops: u64,
}

/// One worker in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerResult {
    /// Its number.
    pub worker: u32,
    /// Its host.
    pub host: String,
    /// Start after the first worker's, microseconds.
    pub start_us: f64,
    /// From its start to its end.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Operations.
    pub ops: u64,
}

/// One phase over all repetitions: a line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Its name.
    pub phase: String,
    /// How many.
    pub repetitions: u32,
    /// Bytes moved, mean.
    pub bytes: f64,
    /// Operations, mean.
    pub ops: f64,
    /// Seconds it took.
    pub seconds: Spread,
    /// Bytes per second.
    pub bytes_per_second: Spread,
    /// Operations per second.
    pub ops_per_second: Spread,
    /// Bytes per second up to the moment the first worker was ready.
    pub stonewall_bytes_per_second: Option<Spread>,
    /// Operations per second up to that moment.
    pub stonewall_ops_per_second: Option<Spread>,
    /// Largest start skew, microseconds.
    pub start_skew_us: f64,
    /// Latencies of all repetitions.
    pub latency: Option<Latency>,
}

/// A rate, 0 in no time.
fn rate(amount: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount as f64 / seconds } else { 0.0 }
}

impl StepResult {
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.bytes, self.seconds)
    }

    pub fn ops_per_second(&self) -> f64 {
        rate(self.ops, self.seconds)
    }
}

impl RunResult {
    /// An empty one.
    pub fn new(job: Job, hosts: Vec<HostResult>, started_unix_ms: u64) -> Self {
        Self { job, hosts, started_unix_ms, seconds: 0.0, steps: Vec::new(), warnings: Vec::new() }
    }

    /// One line per phase, in the order in which they first came.
    pub fn summary(&self) -> Vec<Summary> {
        let mut names: Vec<&str> = Vec::new();
        for step in &self.steps {
            if !names.contains(&step.phase.as_str()) {
                names.push(&step.phase);
            }
        }
        names.into_iter().map(|name| self.summary_of(name)).collect()
    }

    /// How figures came about that are easily taken for something else.
    pub fn remarks(&self) -> Vec<String> {
        remark::remarks(self)
    }

    /// With its summary.
    pub fn document(self) -> Document {
        Document { phases: self.summary(), remarks: self.remarks(), run: self }
    }

    fn summary_of(&self, name: &str) -> Summary {
        let steps: Vec<&StepResult> = self.steps.iter().filter(|step| step.phase == name).collect();
        let spread = |of: &dyn Fn(&StepResult) -> f64| {
            Spread::of(&steps.iter().map(|step| of(step)).collect::<Vec<_>>())
        };
        let cuts: Vec<Cut> = steps.iter().filter_map(|step| step.stonewall).collect();
        let cut = |of: &dyn Fn(&Cut) -> u64| {
            let rates: Vec<f64> = cuts.iter().map(|cut| rate(of(cut), cut.seconds)).collect();
            (!rates.is_empty()).then(|| Spread::of(&rates))
        };
        let mut histogram = Histogram::new();
        steps.iter().for_each(|step| histogram.merge(&step.histogram));
        Summary {
            phase: name.to_owned(),
            repetitions: steps.len() as u32,
            bytes: spread(&|step| step.bytes as f64).mean,
            ops: spread(&|step| step.ops as f64).mean,
            seconds: spread(&|step| step.seconds),
            bytes_per_second: spread(&StepResult::bytes_per_second),
            ops_per_second: spread(&StepResult::ops_per_second),
            stonewall_bytes_per_second: cut(&|cut| cut.bytes),
            stonewall_ops_per_second: cut(&|cut| cut.ops),
            start_skew_us: spread(&|step| step.start_skew_us).max,
            latency: histogram.latency(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{IoJob, Work};

    pub(super) fn run_of(seconds: &[f64]) -> RunResult {
        let mut run = RunResult::new(Job::new(Work::Io(IoJob::new("/tmp"))), Vec::new(), 0);
        for (at, seconds) in seconds.iter().enumerate() {
            let mut histogram = Histogram::new();
            histogram.record(1000 * (at as u64 + 1));
            run.steps.push(StepResult {
                phase: "write".to_owned(),
                repetition: at as u32 + 1,
                bytes: 100,
                ops: 10,
                seconds: *seconds,
                start_skew_us: at as f64,
                latency: histogram.latency(),
                stonewall: Some(Cut { seconds: seconds / 2.0, bytes: 60, ops: 6 }),
                workers: Vec::new(),
                histogram,
            });
        }
        run
    }

    /// Goal: rates are spread over repetitions; latencies are merged, not averaged.
    #[test]
    fn summary() {
        let summary = run_of(&[1.0, 2.0]).summary().remove(0);
        let rates = summary.bytes_per_second;
        assert_eq!((rates.min, rates.mean, rates.max, summary.repetitions), (50.0, 75.0, 100.0, 2));
        assert_eq!(summary.stonewall_bytes_per_second.unwrap().max, 120.0);
        assert_eq!(summary.latency.unwrap().count, 2);
        assert_eq!(summary.start_skew_us, 1.0);
    }

    /// Goal: a result can be read back as it was written.
    #[test]
    fn travels() {
        let run = run_of(&[1.0]);
        let text = serde_json::to_string(&run).unwrap();
        let back: RunResult = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
