//! `skep survey sweep`: the best settings of a stream, found by measurement.

mod amount;
mod line;
mod setting;

pub use amount::Amount;

use super::commands::Lines;
use super::document::Out;
use super::load::{MEGABYTE, Place, run_job};
use super::members::Members;
use super::preset::PresetName;
use super::{Run, document, facts, interrupt};
use crate::bench::HostsArgs;
use clap::{Args, ValueEnum};
use line::Line;
use serde::Serialize;
use setting::{Setting, axes, start};
use skep_base::access::{AccessArgs, mount_of};
use skep_base::deadline;
use skep_base::mounted;
use skep_base::output::{self, Format, OutputArgs, Row};
use skep_base::units::{Period, Size};
use skep_base::{Failure, Outcome};
use skep_bench::job::format_size;
use skep_bench::significance::{mean, median};
use skep_survey::model::{Curve, FORMAT, Layer, LayerId, Point, Survey, Verdict};
use skep_survey::search::{Axis, Budget, Found, Place as At, climb};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A search that could not measure so many places measures no more.
const FAILURES_MOST: usize = 3;
/// The rate of what was never measured: any other one is better.
const NOTHING: f64 = 0.0;
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
    /// Bytes that all processes together move in every measurement; only transfers of which two fit into each process's
    /// part are tried [default: enough for two of 64 MiB with most processes]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Most processes
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    processes: u32,
    /// Most measurements
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    budget: u32,
    /// Begin no measurement after this time; every axis is searched once, and has its share of it
    #[arg(long, value_name = "TIME")]
    time: Option<Period>,
    /// Leave chunk size and targets as the directory has them
    #[arg(long)]
    no_striping: bool,
    /// One shared file instead of one per process
    #[arg(long)]
    shared: bool,
    /// Where survey.json, report.html and report.pdf are put
    /// [default: skep-survey-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write over the survey that is there already
    #[arg(long, requires = "out")]
    force: bool,
    #[command(flatten)]
    hosts: HostsArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Goal {
    /// As the command line has it.
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Both => "both",
        }
    }
}

/// Rate of a goal, MB/s.
fn measure(setting: Setting, dir: &str, args: &Search) -> Outcome<f64> {
    let result = run_job(&args.hosts, &setting.job(dir, args.amount.size, args.shared))?;
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

/// What a search found, and along which lines it looked.
pub struct Searched {
    pub axes: Vec<Axis>,
    /// The best place, and all that was measured.
    pub found: Found,
    /// For each axis that was searched by itself, the place on whose line that was.
    lines: Vec<At>,
    /// Places that could not be measured, and why.
    failed: Vec<(At, String)>,
}

impl Searched {
    /// What was found, in a line.
    fn sentence(&self, goal: &str) -> String {
        let found = &self.found;
        let best = Setting::at(&self.axes, &found.best);
        let value = found.samples.get(&found.best).and_then(|s| median(s)).unwrap_or(0.0);
        let lead = found.told(|place| Setting::at(&self.axes, place).describe());
        let measured = found.measured;
        format!(
            "Best seen for {goal}: {} ({value:.0} MB/s; {measured} measurements); {lead}",
            best.describe()
        )
    }

    /// What a reader must know of places that could not be measured.
    fn failures(&self) -> Option<String> {
        let (first, why) = self.failed.first()?;
        let all: Vec<String> =
            self.failed.iter().map(|(place, _)| Setting::at(&self.axes, place).describe()).collect();
        let end = if self.failed.len() >= FAILURES_MOST { "; no other was tried after that" } else { "" };
        let first = Setting::at(&self.axes, first).describe();
        Some(format!("the search could not measure {}{end}; {first}: {why}", all.join("; ")))
    }

    /// One curve per axis: through the best place, or where the axis was searched. The title says on which line, for
    /// curves of other lines are no likes of it.
    pub fn curves(&self, work: &str, command: &str) -> Vec<Curve> {
        let along = |(number, axis): (usize, &Axis)| {
            let on = self.lines.get(number).unwrap_or(&self.found.best);
            let same =
                |place: &At| (0..self.axes.len()).all(|other| other == number || place[other] == on[other]);
            let points: Vec<Point> = self
                .found
                .samples
                .iter()
                .filter(|(place, _)| same(place))
                .map(|(place, samples)| Point { x: axis.values[place[number]], samples: samples.clone() })
                .collect();
            (points.len() > 1).then(|| Curve {
                id: format!("sweep.{}", axis.name.split(' ').next().unwrap_or(&axis.name)),
                title: format!(
                    "{work} over {}, with {}",
                    axis.name,
                    Setting::at(&self.axes, on).beside(number)
                ),
                unit: "MB/s".to_owned(),
                axis: axis.name.clone(),
                points,
                command: command.to_owned(),
            })
        };
        self.axes.iter().enumerate().filter_map(along).collect()
    }
}

/// Every axis once, in order, each with its share of what is left of the budget: a search that ends by the clock has
/// looked at all of them, not only at the first ones.
fn in_turn<E>(
    axes: &[Axis],
    start: &At,
    budget: Budget,
    mut measure: impl FnMut(&At) -> Result<f64, E>,
) -> Result<(Found, Vec<At>), E> {
    let (mut best, mut lines) = (start.clone(), Vec::new());
    let (mut samples, mut measured, mut unfinished) = (BTreeMap::<At, Vec<f64>>::new(), 0, false);
    for (number, _) in axes.iter().enumerate() {
        let left = (axes.len() - number) as u32;
        let only = |(other, axis): (usize, &Axis)| match other == number {
            true => axis.clone(),
            false => Axis { values: vec![axis.values[best[other]]], ..axis.clone() },
        };
        let narrow: Vec<Axis> = axes.iter().enumerate().map(only).collect();
        let mut from = vec![0; axes.len()];
        from[number] = best[number];
        let until = budget.until.map(|until| {
            let now = Instant::now();
            now + until.saturating_duration_since(now) / left
        });
        let share = Budget {
            measurements: (budget.measurements.saturating_sub(measured) / left as usize).max(1),
            until,
        };
        let line = best.clone();
        let whole = |place: &At| {
            let mut whole = line.clone();
            whole[number] = place[number];
            whole
        };
        let found = climb(&narrow, &from, share, |place| measure(&whole(place)))?;
        for (place, more) in &found.samples {
            samples.entry(whole(place)).or_default().extend(more);
        }
        measured += found.measured;
        unfinished |= found.unfinished;
        best = whole(&found.best);
        lines.push(line);
    }
    Ok((Found { best, samples, measured, unfinished }, lines))
}

/// One place that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
pub fn search(dir: &str, targets: usize, args: &Search, told: impl FnMut(&str)) -> Outcome<Searched> {
    let axes = axes(args.processes, &args.amount.transfers, targets);
    over(axes, args.budget, told, |setting| measure(setting, dir, args))
}

/// Searches over axes. A setting that cannot be measured is none of the good ones, and the search goes on without it;
/// after several of them nothing more is measured, and what is known by then counts. One that was measured before it
/// failed keeps its rate.
fn over(
    axes: Vec<Axis>,
    budget: Budget,
    mut told: impl FnMut(&str),
    mut rate: impl FnMut(Setting) -> Outcome<f64>,
) -> Outcome<Searched> {
    let start = start(&axes);
    let mut seen = BTreeMap::<At, Vec<f64>>::new();
    let mut failed: Vec<(At, String)> = Vec::new();
    let measure = |place: &At| {
        let known =
            |seen: &BTreeMap<At, Vec<f64>>| seen.get(place).and_then(|s| median(s)).unwrap_or(NOTHING);
        if failed.len() >= FAILURES_MOST || failed.iter().any(|(failed, _)| failed == place) {
            return Ok(known(&seen));
        }
        let setting = Setting::at(&axes, place);
        match rate(setting) {
            Ok(value) => {
                told(&format!("{value:>7.0} MB/s  {}", setting.describe()));
                seen.entry(place.clone()).or_default().push(value);
                Ok(value)
            }
            Err(failure) if interrupt::came() => Err(failure),
            Err(failure) => {
                told(&format!(" failed       {}: {failure}", setting.describe()));
                failed.push((place.clone(), failure.to_string()));
                Ok(known(&seen))
            }
        }
    };
    let outcome = match budget.until {
        Some(_) => in_turn(&axes, &start, budget, measure),
        None => climb(&axes, &start, budget, measure).map(|found| (found, Vec::new())),
    };
    let (mut found, lines) = outcome.inspect_err(|_| told(&best_so_far(&axes, &seen)))?;
    if let Some((_, why)) = failed.first() {
        let (best, _) = best_of(&seen).ok_or_else(|| Failure::new(why.clone()))?;
        if !seen.contains_key(&found.best) {
            found.best = best.clone();
        }
        found.unfinished |= failed.len() >= FAILURES_MOST;
        found.measured = seen.values().map(Vec::len).sum();
        // Without the places at which nothing was measured.
        found.samples = seen;
    }
    Ok(Searched { axes, found, lines, failed })
}

/// The place with the best middle, and that.
fn best_of(seen: &BTreeMap<At, Vec<f64>>) -> Option<(&At, f64)> {
    let middles = seen.iter().filter_map(|(place, samples)| Some((place, median(samples)?)));
    middles.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What a search that did not come to its end had found until then.
fn best_so_far(axes: &[Axis], seen: &BTreeMap<At, Vec<f64>>) -> String {
    let measured: usize = seen.values().map(Vec::len).sum();
    match best_of(seen) {
        None => "the search ended before its first measurement did".to_owned(),
        Some((place, value)) => format!(
            "best so far: {} ({value:.0} MB/s; {measured} measurements, {} of it, so the lead may be chance)",
            Setting::at(axes, place).describe(),
            seen[place].len()
        ),
    }
}

/// What is searched.
pub struct Search {
    /// What shall be fast.
    pub goal: Goal,
    /// What every measurement moves.
    pub amount: Amount,
    /// Most processes.
    pub processes: u32,
    /// What it may cost.
    pub budget: Budget,
    /// One shared file.
    pub shared: bool,
    /// Where the processes run.
    pub hosts: HostsArgs,
}

impl Search {
    /// What every measurement does: curves of other work are no likes of it.
    fn work(&self) -> String {
        let shared = if self.shared { " in one file" } else { "" };
        format!("{} of {}{shared}", self.goal.name(), format_size(self.amount.size))
    }
}

fn place(mount: &Path) -> Outcome<(Place, bool)> {
    match mount_of(mount, deadline::ANSWER_LIMIT)? {
        Some(entry) => Ok((Place::below(mount, entry.point.clone(), entry.describe())?, true)),
        None => Ok((Place::below(mount, mount.to_owned(), "no mount of skep".to_owned())?, false)),
    }
}

fn until(time: Option<Duration>) -> Option<Instant> {
    time.map(|time| Instant::now() + time)
}

/// Targets that the axis of striping counts: none where chunk size and targets stay as the directory has them.
fn targets(args: &SweepArgs, place: &Place, own: bool) -> Outcome<usize> {
    match own && !args.no_striping {
        true => {
            Ok(Members::of(&args.access.connect(Some(&place.above))?.status()?)
                .that_take_files(&place.layout))
        }
        false => Ok(0),
    }
}

pub fn run(args: &SweepArgs) -> Outcome<ExitCode> {
    let (began, started) = (Instant::now(), facts::now());
    interrupt::listen()?;
    let out = Out::make(args.out.as_deref(), args.force, &started)?;
    let names = args.hosts.names().map_err(Failure::new)?;
    let lines = Lines::new(&args.access, &args.hosts, names, PresetName::default());
    let mount = mounted::real(&args.mount, args.access.timeout.duration())?;
    if args.access.is_explicit() {
        args.access.connect(Some(&mount))?.status()?;
    }
    let (place, own) = place(&mount)?;
    let targets = targets(args, &place, own)?;
    let goal = args.goal.name();
    let time = args.time.map(|time| time.duration());
    let wanted = Search {
        goal: args.goal,
        amount: Amount::of(args.size.map(Size::bytes), args.processes),
        processes: args.processes,
        budget: Budget { measurements: args.budget as usize, until: until(time) },
        shared: args.shared,
        hosts: args.hosts.clone(),
    };
    let flag = |set: bool, text: &'static str| if set { text } else { "" };
    let more = [flag(args.shared, " --shared"), flag(args.no_striping, " --no-striping")].concat();
    let command = Line {
        mount: place.shown(),
        goal: args.goal,
        size: wanted.amount.size,
        processes: args.processes,
        measurements: args.budget as usize,
        time,
        more: &more,
        lines: &lines,
    };
    let command = command.text();
    let searched = search(&place.path(), targets, &wanted, |line| eprintln!("{line}"));
    if interrupt::came() {
        // One that came to its end all the same.
        searched.iter().for_each(|searched| eprintln!("{}", searched.sentence(goal)));
        return Ok(interrupt::leave_place(place));
    }
    let searched = searched?;
    let mut survey = survey_of(args, &wanted, &searched, command);
    (survey.started, survey.seconds) = (started, began.elapsed().as_secs_f64());
    document::write(&survey, out.dir())?;
    show(args, &searched.axes, &searched.found, &survey)?;
    Ok(ExitCode::SUCCESS)
}

/// What was found, as a survey of one layer.
fn survey_of(args: &SweepArgs, wanted: &Search, searched: &Searched, command: String) -> Survey {
    let sentence = searched.sentence(wanted.goal.name());
    let mut remarks = vec![wanted.amount.describe()];
    remarks.extend(searched.failures());
    if searched.found.unfinished {
        remarks
            .push("the budget ended before all neighbours of the best place were tried: --budget".to_owned());
    }
    let curves = searched.curves(&wanted.work(), &command);
    let layer = Layer { id: LayerId::Clients, about: sentence.clone(), curves, sides: Vec::new() };
    Survey {
        format: FORMAT,
        title: format!("Sweep of {}", args.mount.display()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: String::new(),
        seconds: 0.0,
        preset: "sweep".to_owned(),
        commands: vec![command],
        hosts: Vec::new(),
        settings: Vec::new(),
        parts: Vec::new(),
        spread: None,
        absent: Vec::new(),
        layers: vec![layer],
        theory: Vec::new(),
        waterfalls: Vec::new(),
        verdict: Verdict { headline: sentence, culprit: None, also: Vec::new(), limits: Vec::new() },
        remarks,
    }
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

/// The search as a part of a survey.
pub fn within(run: &mut Run<'_>, place: &Place) -> Outcome<Vec<Curve>> {
    let Some(searched) = run.preset.search else { return Ok(Vec::new()) };
    let time = searched.seconds.map(Duration::from_secs);
    let wanted = Search {
        goal: Goal::Both,
        amount: searched.amount(run.preset.processes),
        processes: run.preset.processes,
        budget: Budget { measurements: searched.measurements as usize, until: until(time) },
        shared: false,
        hosts: run.hosts.clone(),
    };
    let command = Line {
        mount: place.shown(),
        goal: wanted.goal,
        size: wanted.amount.size,
        processes: wanted.processes,
        measurements: wanted.budget.measurements,
        time,
        more: "",
        lines: &run.lines,
    };
    let command = command.text();
    run.commands.push(command.clone());
    let searched = search(&place.path(), run.members.that_take_files(&place.layout), &wanted, |_| {})?;
    let found = &searched.found;
    let named = |place: &At| Setting::at(&searched.axes, place).describe();
    let (best, lead) = (named(&found.best), found.told(named));
    let end = match (searched.lines.is_empty(), found.unfinished) {
        (_, true) => "; the search ended before all neighbours of it were tried",
        (false, false) => "; each axis was searched once",
        (true, false) => "",
    };
    let amount = wanted.amount.describe();
    run.remark(format!(
        "of {} places searched the best that was seen for a stream has {best}: {lead}{end}; {amount}",
        found.samples.len()
    ));
    if let Some(failures) = searched.failures() {
        run.remark(failures);
    }
    Ok(searched.curves(&wanted.work(), &command))
}

#[cfg(test)]
use amount::TRANSFERS;

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
