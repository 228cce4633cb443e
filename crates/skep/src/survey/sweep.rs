//! `skep survey sweep`: the best settings of a stream, found by measurement.

use super::load::{MEGABYTE, Place, run_job};
use super::{Run, document, facts};
use crate::admin::access::{AccessArgs, mount_of};
use crate::admin::{Failure, Outcome};
use crate::bench::HostsArgs;
use crate::cli::output::{self, Format, OutputArgs, Row};
use crate::units::Size;
use clap::{Args, ValueEnum};
use serde::Serialize;
use skep_bench::job::{IoJob, Job, Readers, Share, Striping, Work, format_size};
use skep_bench::significance::{mean, median};
use skep_survey::model::{Curve, FORMAT, Layer, LayerId, Point, Survey, Verdict};
use skep_survey::search::{Axis, Budget, Found, Place as At, climb};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Transfer sizes that are tried.
const TRANSFERS: [u64; 7] = [MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB];
/// Chunk sizes that are tried.
const CHUNKS: [u64; 5] = [256 << 10, 512 << 10, MIB, 2 * MIB, 4 * MIB];
/// The axes, in the order in which they are searched.
const PROCESSES: usize = 0;
const TRANSFER: usize = 1;
const DIRECT: usize = 2;
const CHUNK: usize = 3;
const TARGETS: usize = 4;

/// What shall be fast.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Writing
    Write,
    /// Reading
    Read,
    /// Both: the rate of writing everything and reading it again
    #[default]
    Both,
}

/// Flags of `skep survey sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// What shall be fast
    #[arg(long, value_enum, default_value_t)]
    goal: Goal,
    /// A directory on a mount of the cluster, or on any other file system
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
    /// Bytes that all processes together move in one measurement
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: Size,
    /// Most processes
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: u32,
    /// Most measurements
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    budget: u32,
    /// One shared file instead of one per process
    #[arg(long)]
    shared: bool,
    /// Where survey.json, report.html and report.pdf are put
    #[arg(long, value_name = "DIR", default_value = "skep-survey")]
    out: PathBuf,
    #[command(flatten)]
    hosts: HostsArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What one measurement is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    processes: u64,
    transfer: u64,
    direct: bool,
    /// Chunk size and targets, where the file system has them.
    striping: Option<(u64, u64)>,
}

impl Setting {
    fn at(axes: &[Axis], place: &At) -> Self {
        let value =
            |axis: usize| place.get(axis).and_then(|at| axes.get(axis)?.values.get(*at)).map(|v| *v as u64);
        Self {
            processes: value(PROCESSES).unwrap_or(1),
            transfer: value(TRANSFER).unwrap_or(MIB),
            direct: value(DIRECT) == Some(1),
            striping: value(CHUNK).zip(value(TARGETS)),
        }
    }

    fn describe(&self) -> String {
        let how = if self.direct { "O_DIRECT" } else { "buffered" };
        let stripes = self.striping.map_or_else(String::new, |(chunk, targets)| {
            format!(", chunks of {} on {targets} targets", format_size(chunk))
        });
        format!("{} processes, transfers of {}, {how}{stripes}", self.processes, format_size(self.transfer))
    }

    fn job(&self, dir: &str, size: u64, shared: bool) -> Job {
        let block = (size / self.processes).max(self.transfer) / self.transfer * self.transfer;
        let mut job = Job::new(Work::Io(IoJob {
            share: if shared { Share::Segmented } else { Share::PerWorker },
            transfer: self.transfer,
            block,
            direct: self.direct,
            invalidate: true,
            readers: Readers::Shift { workers: 1 },
            striping: self
                .striping
                .map(|(chunk, targets)| Striping { chunk_size: Some(chunk), targets: Some(targets as u32) }),
            ..IoJob::new(dir)
        }));
        job.workers.processes = self.processes as u32;
        job
    }
}

/// The axes of a file system; without targets there is no striping.
fn axes(processes: u32, targets: usize) -> Vec<Axis> {
    let axis = |name: &str, values: Vec<f64>| Axis { name: name.to_owned(), values };
    let numbers = |values: &[u64]| values.iter().map(|v| *v as f64).collect::<Vec<f64>>();
    let mut all = vec![
        axis("processes", numbers(&super::load::doublings(processes))),
        axis("transfer size (bytes)", numbers(&TRANSFERS)),
        axis("past the page cache (0 no, 1 yes)", vec![0.0, 1.0]),
    ];
    if targets > 0 {
        let mut counts = super::load::doublings(targets as u32);
        if counts.last() != Some(&(targets as u64)) {
            counts.push(targets as u64);
        }
        all.push(axis("chunk size (bytes)", numbers(&CHUNKS)));
        all.push(axis("targets of a file", numbers(&counts)));
    }
    all
}

/// Rate of a goal, MB/s.
fn measure(setting: Setting, dir: &str, args: &Search) -> Outcome<f64> {
    let result = run_job(&args.hosts, &setting.job(dir, args.size, args.shared))?;
    let rate = |phase: &str| {
        let rates: Vec<f64> = result
            .steps
            .iter()
            .filter(|s| s.phase == phase)
            .map(|s| s.bytes_per_second() / MEGABYTE)
            .collect();
        mean(&rates).ok_or_else(|| Failure::new(format!("the load generator told nothing about {phase}")))
    };
    Ok(match args.goal {
        Goal::Write => rate("write")?,
        Goal::Read => rate("read")?,
        Goal::Both => 2.0 / (1.0 / rate("write")? + 1.0 / rate("read")?),
    })
}

/// One curve per axis through the best place.
pub fn curves(axes: &[Axis], found: &Found, goal: &str, command: &str) -> Vec<Curve> {
    let along = |(number, axis): (usize, &Axis)| {
        let same =
            |place: &At| (0..axes.len()).all(|other| other == number || place[other] == found.best[other]);
        let points: Vec<Point> = found
            .samples
            .iter()
            .filter(|(place, _)| same(place))
            .map(|(place, samples)| Point { x: axis.values[place[number]], samples: samples.clone() })
            .collect();
        (points.len() > 1).then(|| Curve {
            id: format!("sweep.{}", axis.name.split(' ').next().unwrap_or(&axis.name)),
            title: format!("{goal} over {}, the rest as found best", axis.name),
            unit: "MB/s".to_owned(),
            axis: axis.name.clone(),
            points,
            command: command.to_owned(),
        })
    };
    axes.iter().enumerate().filter_map(along).collect()
}

/// One place that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlaceRow {
    setting: String,
    samples: usize,
    median: f64,
    best: bool,
}

impl Row for PlaceRow {
    const TITLES: &'static [&'static str] = &["SETTING", ">SAMPLES", ">MB/s", ""];

    fn cells(&self) -> Vec<String> {
        let mark = if self.best { "best" } else { "" };
        vec![self.setting.clone(), self.samples.to_string(), format!("{:.0}", self.median), mark.to_owned()]
    }
}

/// Searches, and tells what was found.
pub fn search(
    dir: &str,
    targets: usize,
    args: &Search,
    mut told: impl FnMut(&str),
) -> Outcome<(Vec<Axis>, Found)> {
    let axes = axes(args.processes, targets);
    // Few processes, transfers of 1 MiB, buffered, chunks of 1 MiB on all targets: a usual setting.
    let start: At = axes
        .iter()
        .enumerate()
        .map(|(axis, a)| match axis {
            PROCESSES => 1,
            CHUNK => 2,
            TARGETS => a.values.len() - 1,
            _ => 0,
        })
        .collect();
    let found = climb(&axes, &start, args.budget, |place| {
        let setting = Setting::at(&axes, place);
        let value = measure(setting, dir, args)?;
        told(&format!("{value:>7.0} MB/s  {}", setting.describe()));
        Ok::<f64, Failure>(value)
    })?;
    Ok((axes, found))
}

/// What is searched.
pub struct Search {
    /// What shall be fast.
    pub goal: Goal,
    /// Bytes of one measurement.
    pub size: u64,
    /// Most processes.
    pub processes: u32,
    /// What it may cost.
    pub budget: Budget,
    /// One shared file.
    pub shared: bool,
    /// Where the processes run.
    pub hosts: HostsArgs,
}

fn place(mount: &Path) -> Outcome<(Place, bool)> {
    match mount_of(mount)? {
        Some(entry) => {
            Ok((Place::below(mount, entry.point, format!("{} {}", entry.kind, entry.source))?, true))
        }
        None => Ok((Place::below(mount, mount.to_owned(), "no mount of skep".to_owned())?, false)),
    }
}

/// Does it.
pub fn run(args: &SweepArgs) -> Outcome<ExitCode> {
    let (began, started) = (Instant::now(), facts::now());
    let (place, own) = place(&args.mount)?;
    let targets = if own { args.access.connect(Some(&args.mount))?.status()?.targets.len() } else { 0 };
    let goal = args.goal.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    let command = format!(
        "skep survey sweep --mount {} --goal {goal} --size {} --processes {} --budget {}{}",
        args.mount.display(),
        format_size(args.size.bytes()),
        args.processes,
        args.budget,
        if args.shared { " --shared" } else { "" }
    );
    let wanted = Search {
        goal: args.goal,
        size: args.size.bytes(),
        processes: args.processes,
        budget: (args.budget as usize).into(),
        shared: args.shared,
        hosts: args.hosts.clone(),
    };
    let (axes, found) = search(&place.path(), targets, &wanted, |line| eprintln!("{line}"))?;
    let best = Setting::at(&axes, &found.best);
    let value = found.samples.get(&found.best).and_then(|s| median(s)).unwrap_or(0.0);
    let sentence =
        format!("Best for {goal}: {} ({value:.0} MB/s; {} measurements)", best.describe(), found.measured);
    let mut remarks = Vec::new();
    if found.unfinished {
        remarks
            .push("the budget ended before all neighbours of the best place were tried: --budget".to_owned());
    }
    let curves = curves(&axes, &found, &goal, &command);
    let layer = Layer { id: LayerId::Clients, about: sentence.clone(), curves, sides: Vec::new() };
    let survey = Survey {
        format: FORMAT,
        title: format!("Sweep of {}", args.mount.display()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        seconds: began.elapsed().as_secs_f64(),
        preset: "sweep".to_owned(),
        commands: vec![command],
        hosts: Vec::new(),
        settings: Vec::new(),
        parts: Vec::new(),
        absent: Vec::new(),
        layers: vec![layer],
        waterfalls: Vec::new(),
        verdict: Verdict { headline: sentence.clone(), culprit: None, also: Vec::new(), limits: Vec::new() },
        remarks,
    };
    std::fs::create_dir_all(&args.out).map_err(|e| Failure::local(args.out.display(), e))?;
    document::write(&survey, &args.out)?;
    show(args, &axes, &found, &survey)?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &SweepArgs, axes: &[Axis], found: &Found, survey: &Survey) -> Outcome {
    let row = |(place, samples): (&At, &Vec<f64>)| PlaceRow {
        setting: Setting::at(axes, place).describe(),
        samples: samples.len(),
        median: median(samples).unwrap_or(0.0),
        best: *place == found.best,
    };
    let mut rows: Vec<PlaceRow> = found.samples.iter().map(row).collect();
    rows.sort_by(|a, b| b.median.total_cmp(&a.median));
    let stdout = &mut output::stdout();
    output::rows(args.output.output, &rows, stdout)?;
    if args.output.output == Format::Table {
        writeln!(stdout, "\n{}", survey.verdict.headline)?;
        survey.remarks.iter().try_for_each(|remark| writeln!(stdout, "Note: {remark}"))?;
    }
    Ok(())
}

/// The search as a part of a survey: what the larger presets do besides.
pub fn within(run: &mut Run<'_>, place: &Place) -> Outcome<Vec<Curve>> {
    let Some(searched) = run.preset.search else { return Ok(Vec::new()) };
    let wanted = Search {
        goal: Goal::Both,
        size: run.preset.process_size,
        processes: run.preset.processes,
        budget: Budget {
            measurements: searched.measurements as usize,
            until: searched.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        },
        shared: false,
        hosts: run.hosts.clone(),
    };
    let command = format!(
        "skep survey sweep --mount {} --size {} --processes {} --budget {}",
        place.mount.display(),
        format_size(wanted.size),
        wanted.processes,
        wanted.budget.measurements
    );
    run.commands.push(command.clone());
    let targets = if searched.striping { run.members.targets.len() } else { 0 };
    let (axes, found) = search(&place.path(), targets, &wanted, |_| {})?;
    let best = Setting::at(&axes, &found.best).describe();
    let end = if found.unfinished { "; the search ended before all neighbours of it were tried" } else { "" };
    run.remark(format!("of {} places searched the best for a stream has {best}{end}", found.samples.len()));
    Ok(curves(&axes, &found, "both", &command))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: places become settings, blocks are whole transfers, and a file system without targets has no striping.
    #[test]
    fn settings() {
        let with = axes(8, 3);
        assert_eq!(with[TARGETS].values, [1.0, 2.0, 3.0]);
        let setting = Setting::at(&with, &vec![3, 6, 1, 4, 2]);
        assert_eq!(
            setting,
            Setting { processes: 8, transfer: 64 * MIB, direct: true, striping: Some((4 * MIB, 3)) }
        );
        let Work::Io(io) = setting.job("/x", 256 * MIB, false).work else { panic!("not io") };
        assert_eq!((io.block, io.transfer), (64 * MIB, 64 * MIB));
        let without = axes(8, 0);
        assert_eq!(without.len(), 3);
        assert_eq!(Setting::at(&without, &vec![0, 0, 0]).striping, None);
    }

    /// Goal: the curves of a search go through its best place, along each axis with two places at least.
    #[test]
    fn slices() {
        let axes = axes(4, 0);
        let samples =
            [(vec![1, 0, 0], 10.0), (vec![2, 0, 0], 12.0), (vec![2, 1, 0], 11.0), (vec![0, 3, 1], 1.0)];
        let found = Found {
            best: vec![2, 0, 0],
            samples: samples.into_iter().map(|(place, v)| (place, vec![v, v])).collect(),
            measured: 8,
            unfinished: false,
        };
        let curves = curves(&axes, &found, "write", "c");
        let shown: Vec<(&str, usize)> = curves.iter().map(|c| (c.id.as_str(), c.points.len())).collect();
        assert_eq!(shown, [("sweep.processes", 2), ("sweep.transfer", 2)]);
    }
}
