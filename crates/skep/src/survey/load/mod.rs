//! The layers above: one client, all clients, names. The load is that of `skep bench`.

mod client;
mod clients;
mod foreign;
mod metadata;
mod place;

pub use client::measure as client;
pub use clients::measure as clients;
pub use foreign::Foreign;
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
use skep_survey::model::{Curve, Point};
use skep_survey::search::{FLAT, GAIN};
use std::collections::BTreeMap;

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
    fn of(self, step: &StepResult) -> f64 {
        match self {
            Self::Bytes => step.bytes_per_second() / MEGABYTE,
            Self::Operations => step.ops_per_second(),
        }
    }

    fn unit(self) -> &'static str {
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

/// Runs a job at places of an axis, until none of its figures grows any more; a curve for each of `shown`.
pub fn curves(
    hosts: &HostsArgs,
    places: &[u64],
    axis: &str,
    figure: Figure,
    shown: &[Shown],
    command: &str,
    mut job: impl FnMut(u64) -> Job,
) -> Outcome<Vec<Curve>> {
    let mut points: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    for &x in places {
        let result = run_job(hosts, &job(x))?;
        for one in shown {
            let samples: Vec<f64> = result
                .steps
                .iter()
                .filter(|step| step.phase == one.phase)
                .map(|step| figure.of(step))
                .collect();
            if !samples.is_empty() {
                points.entry(one.phase).or_default().push(Point { x: x as f64, samples });
            }
        }
        if points.values().all(|points| is_flat(points)) {
            break;
        }
    }
    let curve = |one: &Shown| {
        Some(Curve {
            id: one.id.clone(),
            title: one.title.clone(),
            unit: figure.unit().to_owned(),
            axis: axis.to_owned(),
            points: points.get(one.phase)?.clone(),
            command: command.to_owned(),
        })
    };
    let curves: Vec<Curve> = shown.iter().filter_map(curve).collect();
    match curves.is_empty() {
        true => Err(Failure::new("the load generator told no figures")),
        false => Ok(curves),
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
        let of = |values: &[f64]| {
            let points: Vec<Point> =
                values.iter().enumerate().map(|(i, y)| Point { x: i as f64, samples: vec![*y] }).collect();
            is_flat(&points)
        };
        assert!(of(&[100.0, 101.0, 80.0]) && of(&[50.0, 100.0, 104.0, 90.0]));
        assert!(!of(&[100.0, 101.0]) && !of(&[50.0, 100.0, 120.0]) && !of(&[]));
    }
}
