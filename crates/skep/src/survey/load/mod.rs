//! The layers above: one client, all clients, names. The load is that of `skep bench`.

mod client;
mod clients;
mod foreign;
mod hosts;
mod metadata;
mod place;

pub use client::measure as client;
pub use clients::measure as clients;
pub use foreign::Foreign;
use hosts::Rounds;
pub use metadata::measure as metadata;
pub use place::{PREFIX, Place, need};

use super::Run;
use crate::admin::{Failure, Outcome};
use crate::bench::HostsArgs;
use crate::instruments::client::INTERRUPTED;
use skep_bench::engine::Silent;
use skep_bench::job::Job;
use skep_bench::result::{RunResult, StepResult};
use skep_bench::significance::median;
use skep_survey::ids::EACH;
use skep_survey::model::{Curve, Point, SideBySide};
use skep_survey::search::{FLAT, GAIN};

/// Rates are told in these.
pub const MEGABYTE: f64 = 1e6;

/// Does a job: with processes of this machine, or of the hosts that are named (as many of them as it has processes).
pub fn run_job(hosts: &HostsArgs, job: &Job) -> Outcome<RunResult> {
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
    /// Operations per second.
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

    /// Its unit.
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
    /// Where.
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
    points: Vec<Vec<Point>>,
    rounds: Vec<Rounds>,
}

impl Load<'_> {
    /// Runs a job at the places, until none of its figures grows any more.
    pub fn run(&self, mut job: impl FnMut(u64) -> Job) -> Outcome<Measured> {
        let none = || self.shown.iter().map(|_| ());
        let mut measured = Measured {
            places: Vec::new(),
            points: none().map(|()| Vec::new()).collect(),
            rounds: none().map(|()| Rounds::of(&self.hosts.hosts)).collect(),
        };
        for &x in &self.places {
            let result = run_job(self.hosts, &job(x))?;
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
        match measured.points.iter().all(Vec::is_empty) {
            true => Err(Failure::new("the load generator told no figures")),
            false => Ok(measured),
        }
    }
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
