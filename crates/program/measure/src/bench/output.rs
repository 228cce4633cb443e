//! How results of `bench io`, `meta` and `files` are shown.

use clap::{Args, ValueEnum};
use serde::Serialize;
use skep_base::output::{self, Row};
use skep_bench::engine::{Progress, Watch};
use skep_bench::histogram::Latency;
use skep_bench::job::Work;
use skep_bench::result::{RunResult, StepResult, Summary, steps_csv, summary_csv};
use skep_bench::summary::Spread;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Bytes of a mebibyte.
const MIB: f64 = (1 << 20) as f64;

/// `--output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document: the job, every phase of every repetition, the summary
    Json,
    /// The same on one line
    Ndjson,
    /// Comma-separated values, one line per phase
    Csv,
}

/// How to show it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct ShowArgs {
    /// How to show it
    #[arg(long, short = 'O', value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
    /// Every repetition, not only the summary
    #[arg(long)]
    pub details: bool,
    /// No progress on the terminal
    #[arg(long)]
    pub quiet: bool,
}

/// A line of the summary. Rates are MiB/s for contents and operations per second for files.
#[derive(Serialize)]
struct Line {
    cells: Vec<String>,
}

impl Row for Line {
    const TITLES: &'static [&'static str] = &[
        "PHASE",
        ">REPS",
        "UNIT",
        ">MIN",
        ">MEAN",
        ">MAX",
        ">STDDEV",
        ">STONEWALL",
        ">ALSO",
        ">P50",
        ">P90",
        ">P99",
        ">P99.9",
        ">SLOWEST",
        ">SKEW",
    ];

    fn cells(&self) -> Vec<String> {
        self.cells.clone()
    }
}

/// Writes the result.
pub fn show(run: RunResult, args: &ShowArgs, out: &mut dyn Write) -> io::Result<()> {
    match (args.output, args.details) {
        (Format::Csv, false) => out.write_all(summary_csv(&run.summary()).as_bytes()),
        (Format::Csv, true) => out.write_all(steps_csv(&run).as_bytes()),
        (Format::Json, _) => {
            output::documents(output::Format::Json, &[run.document()], |_| String::new(), out)
        }
        (Format::Ndjson, _) => {
            output::documents(output::Format::Ndjson, &[run.document()], |_| String::new(), out)
        }
        (Format::Table, details) => {
            let by_bytes = matches!(run.job.work, Work::Io(_));
            if details {
                let mut steps: Vec<Line> = Vec::new();
                for step in &run.steps {
                    steps.push(step_line(step, by_bytes));
                }
                output::rows(output::Format::Table, &steps, out)?;
                writeln!(out)?;
            }
            let lines: Vec<Line> =
                run.summary().iter().map(|summary| summary_line(summary, by_bytes)).collect();
            output::rows(output::Format::Table, &lines, out)?;
            run.remarks().iter().try_for_each(|remark| writeln!(out, "\nremark: {remark}"))
        }
    }
}

fn summary_line(summary: &Summary, by_bytes: bool) -> Line {
    let (unit, rate, stonewall, also) = if by_bytes {
        let scaled = |spread: Spread| Spread {
            min: spread.min / MIB,
            mean: spread.mean / MIB,
            max: spread.max / MIB,
            stddev: spread.stddev / MIB,
        };
        let also = format!("{}/s", figure(summary.ops_per_second.mean));
        let wall = summary.stonewall_bytes_per_second.map(scaled);
        ("MiB/s", scaled(summary.bytes_per_second), wall, also)
    } else {
        let bytes = summary.bytes_per_second.mean;
        let also = if bytes > 0.0 { format!("{} MiB/s", figure(bytes / MIB)) } else { "-".to_owned() };
        ("ops/s", summary.ops_per_second, summary.stonewall_ops_per_second, also)
    };
    let mut cells = vec![summary.phase.clone(), summary.repetitions.to_string(), unit.to_owned()];
    cells.extend([rate.min, rate.mean, rate.max, rate.stddev].map(figure));
    cells.push(stonewall.map_or("-".to_owned(), |wall| figure(wall.mean)));
    cells.push(also);
    cells.extend(latencies(summary.latency));
    cells.push(time(summary.start_skew_us));
    Line { cells }
}

fn step_line(step: &StepResult, by_bytes: bool) -> Line {
    let one = RunResult {
        steps: vec![step.clone()],
        ..RunResult::new(skep_bench::job::Job::new(Work::Io(skep_bench::job::IoJob::new("/"))), Vec::new(), 0)
    };
    let mut line =
        one.summary().first().map_or(Line { cells: Vec::new() }, |summary| summary_line(summary, by_bytes));
    if let Some(cell) = line.cells.get_mut(1) {
        *cell = format!("#{}", step.repetition);
    }
    line
}

fn latencies(latency: Option<Latency>) -> [String; 5] {
    match latency {
        Some(l) => [l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us].map(time),
        None => ["-"; 5].map(str::to_owned),
    }
}

/// A rate with three digits at least.
pub fn figure(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A time given in microseconds.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} us", figure(us)),
        us if us < 1e6 => format!("{} ms", figure(us / 1e3)),
        us => format!("{} s", figure(us / 1e6)),
    }
}

/// Progress on one line of a terminal; elsewhere only warnings.
pub struct Live {
    shown: bool,
    last: Option<(Duration, u64, u64)>,
    dirty: bool,
}

impl Live {
    /// Shows progress where somebody sees it and has not forbidden it.
    pub fn new(args: &ShowArgs) -> Self {
        Self { shown: !args.quiet && io::stderr().is_terminal(), last: None, dirty: false }
    }

    /// Leaves an empty line for what comes next.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.dirty) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Watch for Live {
    fn progress(&mut self, progress: &Progress<'_>) {
        if !self.shown {
            return;
        }
        let (before, bytes, ops) = self.last.unwrap_or_default();
        let (before, bytes, ops) = if before > progress.elapsed || ops > progress.ops {
            (Duration::ZERO, 0, 0)
        } else {
            (before, bytes, ops)
        };
        let span = (progress.elapsed - before).as_secs_f64();
        // Reports of many workers come close together; a rate needs some time.
        if span < 0.25 {
            return;
        }
        self.last = Some((progress.elapsed, progress.bytes, progress.ops));
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / span;
        let moved = if progress.bytes > 0 {
            let now = figure(rate(progress.bytes, bytes) / MIB);
            format!("{}, {now} MiB/s, ", output::human(progress.bytes))
        } else {
            String::new()
        };
        eprint!(
            "\r\x1b[K{} {}/{}: {:.0} s, {moved}{} operations, {}/s",
            progress.phase,
            progress.repetition,
            progress.repetitions,
            progress.elapsed.as_secs_f64(),
            progress.ops,
            figure(rate(progress.ops, ops)),
        );
        self.dirty = true;
    }

    fn step(&mut self, _result: &StepResult) {
        self.clear();
        self.last = None;
    }

    fn warning(&mut self, text: &str) {
        self.clear();
        eprintln!("skep: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::engine::LocalCrew;
    use skep_bench::job::{IoJob, Job};
    use std::sync::atomic::AtomicBool;

    fn shown(output: Format, details: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut job = Job::new(Work::Io(IoJob {
            block: 1 << 16,
            transfer: 1 << 12,
            ..IoJob::new(dir.path().to_str().unwrap())
        }));
        job.repetitions = 2;
        let mut crew = LocalCrew::in_process(1, "here").unwrap();
        let mut live = Live { shown: false, last: None, dirty: false };
        let run = skep_bench::engine::run(&job, &mut crew, &mut live, &AtomicBool::new(false)).unwrap();
        let mut out = Vec::new();
        show(run, &ShowArgs { output, details, quiet: true }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Goal: each format shows every phase once, and every repetition where details are asked for.
    #[test]
    fn formats() {
        let table = shown(Format::Table, false);
        assert_eq!(table.lines().count(), 3 + 2, "{table}");
        assert!(table.contains("page cache"), "{table}");
        assert!(table.contains("write") && table.contains("MiB/s") && table.contains("P99.9"), "{table}");
        assert_eq!(shown(Format::Table, true).lines().count(), 5 + 1 + 3 + 2);
        assert_eq!(shown(Format::Csv, false).lines().count(), 3);
        assert_eq!(shown(Format::Csv, true).lines().count(), 5);
        let json: serde_json::Value = serde_json::from_str(&shown(Format::Json, false)).unwrap();
        assert_eq!(json[0]["phases"][1]["phase"], "read");
        assert_eq!(json[0]["steps"].as_array().unwrap().len(), 4);
        assert_eq!(json[0]["job"]["repetitions"], 2);
        assert!(json[0]["remarks"][0].as_str().unwrap().contains("page cache"));
        assert_eq!(shown(Format::Ndjson, false).lines().count(), 1);
    }

    /// Goal: figures keep three digits.
    #[test]
    fn figures() {
        assert_eq!(
            (figure(1.234), figure(12.34), figure(1234.5)),
            ("1.23".into(), "12.3".into(), "1234".into())
        );
        assert_eq!(
            (time(5.0), time(5_000.0), time(5e6)),
            ("5.00 us".into(), "5.00 ms".into(), "5.00 s".into())
        );
    }
}
