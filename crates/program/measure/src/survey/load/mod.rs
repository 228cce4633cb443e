//! The layers above: one client, all clients, names. The load is that of `skep bench`.

mod client;
mod clients;
mod foreign;
mod hosts;
mod metadata;
mod mount;
mod place;

pub use client::measure as client;
pub use clients::measure as clients;
pub use foreign::Foreign;
use hosts::Rounds;
pub use metadata::measure as metadata;
pub use place::{PREFIX, Place, need};

use super::Run;
use super::interrupt::came;
use crate::bench::HostsArgs;
use skep_base::{Failure, Outcome};
use skep_bench::engine::Silent;
use skep_bench::job::Job;
use skep_bench::result::{RunResult, StepResult};
use skep_bench::significance::median;
use skep_instruments::client::INTERRUPTED;
use skep_survey::ids::EACH;
use skep_survey::model::{Curve, Layer, LayerId, Point, SideBySide};
use skep_survey::search::{FLAT, GAIN};

/// Rates are told in these.
pub const MEGABYTE: f64 = 1e6;

/// When so many places in a row fail, there is no other tried.
const FAILURES_MOST: usize = 2;

/// Does a job: with processes of this machine, or of the hosts that are named (as many of them as it has processes).
pub fn run_job(hosts: &HostsArgs, job: &Job) -> Outcome<RunResult> {
    if came() {
        return Err(Failure::new("interrupted"));
    }
    let mut names = hosts.names().map_err(Failure::new)?;
    names.truncate(job.workers.processes as usize);
    let chosen = HostsArgs { hosts: names, host_file: None, ..hosts.clone() };
    let mut crew = chosen.crew(job).map_err(Failure::new)?;
    skep_bench::engine::run(job, crew.as_mut(), &mut Silent, &INTERRUPTED)
        .map_err(|e| Failure::new(e.to_string()))
}

/// What is taken of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// MB/s.
    Bytes,
    Operations,
}

impl Figure {
    /// Of a whole step.
    pub fn of(self, step: &StepResult) -> f64 {
        match self {
            Self::Bytes => step.bytes_per_second() / MEGABYTE,
            Self::Operations => step.ops_per_second(),
        }
    }

    /// Of what a worker did in that many seconds.
    fn rate(self, bytes: u64, ops: u64, seconds: f64) -> f64 {
        let amount = match self {
            Self::Bytes => bytes as f64 / MEGABYTE,
            Self::Operations => ops as f64,
        };
        if seconds > 0.0 { amount / seconds } else { 0.0 }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Bytes => "MB/s",
            Self::Operations => "operations/s",
        }
    }
}

/// A curve to be: which phase of a job it shows.
pub struct Shown {
    /// Name of the phase in results.
    pub phase: &'static str,
    /// Name of the curve.
    pub id: String,
    /// For people.
    pub title: String,
}

/// What is measured over an axis.
pub struct Load<'a> {
    pub hosts: &'a HostsArgs,
    /// Places on the axis, in rising order.
    pub places: Vec<u64>,
    /// What the axis counts.
    pub axis: &'static str,
    /// What is taken of every step.
    pub figure: Figure,
    /// A curve for each.
    pub shown: Vec<Shown>,
}

/// What came of a [`Load`]: the places that were measured, the curves' points and the hosts' rounds, in the order of
/// what is shown.
pub struct Measured {
    /// Until none of the figures grew any more.
    pub places: Vec<u64>,
    /// Places that could not be measured, and why.
    pub failed: Vec<(u64, String)>,
    points: Vec<Vec<Point>>,
    rounds: Vec<Rounds>,
}

impl Load<'_> {
    /// Runs a job at the places, until none of its figures grows any more, or several places in a row fail. What was
    /// measured is kept, and what failed is a remark.
    pub fn run(&self, run: &mut Run<'_>, mut job: impl FnMut(u64) -> Job) -> Outcome<Measured> {
        let measured = self.over(|x| run_job(self.hosts, &job(x)))?;
        for (x, why) in &measured.failed {
            let titles: Vec<&str> = self.shown.iter().map(|one| one.title.as_str()).collect();
            run.remark(format!("{}: {} = {x}: not measured: {why}", titles.join("; "), self.axis));
        }
        Ok(measured)
    }

    fn over(&self, mut result: impl FnMut(u64) -> Outcome<RunResult>) -> Outcome<Measured> {
        let none = || self.shown.iter().map(|_| ());
        let mut measured = Measured {
            places: Vec::new(),
            failed: Vec::new(),
            points: none().map(|()| Vec::new()).collect(),
            rounds: none().map(|()| Rounds::of(&self.hosts.hosts)).collect(),
        };
        let mut in_a_row = 0;
        for &x in &self.places {
            let result = match result(x) {
                Ok(result) => result,
                Err(failure) if came() => return Err(failure),
                Err(failure) => {
                    measured.failed.push((x, failure.to_string()));
                    in_a_row += 1;
                    if in_a_row == FAILURES_MOST {
                        break;
                    }
                    continue;
                }
            };
            in_a_row = 0;
            measured.places.push(x);
            for (at, one) in self.shown.iter().enumerate() {
                let steps: Vec<&StepResult> =
                    result.steps.iter().filter(|step| step.phase == one.phase).collect();
                let samples: Vec<f64> = steps.iter().map(|step| self.figure.of(step)).collect();
                if !samples.is_empty() {
                    measured.points[at].push(Point { x: x as f64, samples });
                }
                steps.into_iter().for_each(|step| measured.rounds[at].add(step, self.figure));
            }
            if measured.points.iter().all(|points| points.is_empty() || is_flat(points)) {
                break;
            }
        }
        match (measured.points.iter().all(Vec::is_empty), measured.failed.first()) {
            (true, Some((_, why))) => Err(Failure::new(why.clone())),
            (true, None) => Err(Failure::new("the load generator told no figures")),
            (false, _) => Ok(measured),
        }
    }
}

/// Curves, and hosts of clients beside each other.
pub type Found = (Vec<Curve>, Vec<SideBySide>);

/// A layer of the parts of it that could be measured, each with what it is called in words; the others are remarks. It is
/// none when all of them failed.
pub fn of_parts(
    run: &mut Run<'_>,
    id: LayerId,
    about: String,
    parts: Vec<(&str, Outcome<Found>)>,
) -> Outcome<Layer> {
    let (mut layer, mut failed) = (Layer { id, about, curves: Vec::new(), sides: Vec::new() }, Vec::new());
    for (what, part) in parts {
        match part {
            Ok((curves, sides)) => {
                layer.curves.extend(curves);
                layer.sides.extend(sides);
            }
            Err(failure) => failed.push((what, failure)),
        }
    }
    match (layer.curves.is_empty() && layer.sides.is_empty(), failed.first()) {
        (true, Some((_, failure))) => return Err(failure.clone()),
        (true, None) => return Err(Failure::new("nothing was measured")),
        (false, _) => {}
    }
    failed.into_iter().for_each(|(what, failure)| run.remark(format!("{what}: not measured: {failure}")));
    Ok(layer)
}

impl Measured {
    /// A curve for each that was shown.
    pub fn curves(&self, load: &Load<'_>, command: &str) -> Vec<Curve> {
        let curve = |(one, points): (&Shown, &Vec<Point>)| Curve {
            id: one.id.clone(),
            title: one.title.clone(),
            unit: load.figure.unit().to_owned(),
            axis: load.axis.to_owned(),
            points: points.clone(),
            command: command.to_owned(),
        };
        load.shown.iter().zip(&self.points).filter(|(_, points)| !points.is_empty()).map(curve).collect()
    }

    /// Hosts of clients beside each other, at the places where each had as many processes.
    pub fn sides(&self, load: &Load<'_>, command: &str) -> Vec<SideBySide> {
        let side = |(one, rounds): (&Shown, &Rounds)| SideBySide {
            id: format!("{}{EACH}", one.id),
            title: format!("{}, by client host while all work at once", one.title),
            unit: load.figure.unit().to_owned(),
            more_is_better: true,
            members: rounds.members(),
            command: command.to_owned(),
        };
        let sides = load.shown.iter().zip(&self.rounds).map(side);
        sides.filter(|side| !side.members.is_empty()).collect()
    }
}

/// The last points brought nothing over the best before them.
fn is_flat(points: &[Point]) -> bool {
    let values: Vec<f64> = points.iter().filter_map(|point| median(&point.samples)).collect();
    if values.len() <= FLAT {
        return false;
    }
    let (before, last) = values.split_at(values.len() - FLAT);
    let best = before.iter().copied().fold(0.0, f64::max);
    last.iter().all(|value| *value <= best * (1.0 + GAIN))
}

/// 1, 2, 4 ... up to a limit.
pub fn doublings(limit: u32) -> Vec<u64> {
    std::iter::successors(Some(1_u64), |n| n.checked_mul(2)).take_while(|n| *n <= u64::from(limit)).collect()
}

/// Numbers of processes up to a limit: with several hosts, from as many as there are hosts on, each has the same number.
fn over_hosts(limit: u32, hosts: usize) -> Vec<u64> {
    let hosts = hosts as u64;
    if hosts < 2 {
        return doublings(limit);
    }
    let below = doublings(limit).into_iter().filter(|n| *n < hosts);
    let even =
        std::iter::successors(Some(hosts), |n| n.checked_mul(2)).take_while(|n| *n <= u64::from(limit));
    below.chain(even).collect()
}

/// Numbers of processes of this survey.
pub fn places(run: &Run<'_>) -> Vec<u64> {
    over_hosts(run.preset.processes, run.hosts.hosts.len())
}

/// A command line ran, or could be run again.
pub fn note(run: &mut Run<'_>, command: String) -> String {
    run.commands.push(command.clone());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::histogram::Histogram;
    use skep_bench::job::{IoJob, Work};

    fn result(megabytes: u64) -> RunResult {
        let step = StepResult {
            phase: "write".to_owned(),
            repetition: 1,
            bytes: megabytes * 1_000_000,
            ops: 0,
            seconds: 1.0,
            start_skew_us: 0.0,
            latency: None,
            stonewall: None,
            workers: vec![],
            histogram: Histogram::new(),
        };
        RunResult {
            job: Job::new(Work::Io(IoJob::new("/x"))),
            hosts: vec![],
            started_unix_ms: 0,
            seconds: 1.0,
            steps: vec![step],
            warnings: vec![],
        }
    }

    /// Goal: a place that fails costs itself only; after two in a row no other is tried; nothing but failures is one.
    #[test]
    fn what_was_measured_is_kept() {
        let hosts = HostsArgs::default();
        let shown = Shown { phase: "write", id: "w".to_owned(), title: "Write".to_owned() };
        let places = doublings(64);
        let load =
            Load { hosts: &hosts, places, axis: "processes", figure: Figure::Bytes, shown: vec![shown] };
        let over = |broken: &[u64]| {
            let mut tried = Vec::new();
            let measured = load.over(|x| {
                tried.push(x);
                let fails = broken.contains(&x);
                if fails { Err(Failure::new(format!("no {x}"))) } else { Ok(result(100 * x)) }
            });
            (measured, tried)
        };
        let (measured, _) = over(&[1, 4]);
        let measured = measured.unwrap();
        assert_eq!(measured.places, [2, 8, 16, 32, 64]);
        assert_eq!(measured.failed, [(1, "no 1".to_owned()), (4, "no 4".to_owned())]);
        let points = &measured.curves(&load, "c")[0].points;
        assert_eq!(points.iter().map(|point| point.x as u64).collect::<Vec<_>>(), measured.places);
        let (measured, tried) = over(&[8, 16, 32, 64]);
        assert_eq!((measured.unwrap().places, tried), (vec![1, 2, 4], vec![1, 2, 4, 8, 16]));
        assert_eq!(over(&doublings(64)).0.err(), Some(Failure::new("no 1")));
    }

    /// Goal: the axis ends at the limit, and a curve ends two places after its top.
    #[test]
    fn places_and_ends() {
        assert_eq!(doublings(9), [1, 2, 4, 8]);
        assert_eq!((over_hosts(9, 0), over_hosts(9, 1)), (doublings(9), doublings(9)));
        assert_eq!(over_hosts(13, 3), [1, 2, 3, 6, 12]);
        assert_eq!(over_hosts(2, 3), [1, 2]);
        let of = |values: &[f64]| {
            let points: Vec<Point> =
                values.iter().enumerate().map(|(i, y)| Point { x: i as f64, samples: vec![*y] }).collect();
            is_flat(&points)
        };
        assert!(of(&[100.0, 101.0, 80.0]) && of(&[50.0, 100.0, 104.0, 90.0]));
        assert!(!of(&[100.0, 101.0]) && !of(&[50.0, 100.0, 120.0]) && !of(&[]));
    }
}
