//! What a run found: medians over the rounds, and the costs of an operation.

use super::load::Measured;
use super::rows::{ROWS, Row, Unit};
use super::systems::{self, Absent};
use super::verdict::Verdict;
use crate::bench::place::Place;
use crate::bench::result::{Machine, Rates, median};
use serde::{Deserialize, Serialize};

/// One measured row of one system in one round.
pub struct Sample {
    /// Where everything ran.
    pub place: Place,
    /// The round.
    pub round: usize,
    /// Which system.
    pub system: &'static str,
    /// What it did.
    pub of: Measured,
}

/// All of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The day.
    pub date: String,
    /// The command line.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// The core of the pinned part.
    pub pinned_to: usize,
    /// Rounds; those of trees.
    pub rounds: (usize, usize),
    /// Files of the rows about names; of a tree; of a large directory.
    pub files: (u64, usize, u64),
    /// What an RPC of 200 bytes takes, pinned, in microseconds.
    pub rpc_us: Option<f64>,
    /// What did not run.
    pub absent: Vec<Absent>,
    /// Pinned, free.
    pub places: Vec<Placed>,
}

/// All of one place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placed {
    /// Which.
    pub place: Place,
    /// The rows that were measured.
    pub rows: Vec<Line>,
    /// What was to be reached.
    pub verdicts: Vec<Verdict>,
}

/// One row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub row: String,
    /// Processes at once.
    pub processes: usize,
    /// Op/s, MiB/s or s.
    pub unit: String,
    /// Each system.
    pub cells: Vec<Cell>,
}

/// One system in one row: medians.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Which.
    pub system: String,
    /// In the row's unit.
    pub value: f64,
    /// Lowest round.
    pub min: f64,
    /// Highest round.
    pub max: f64,
    /// It was ended before it was done, in some round.
    pub cut_off: bool,
    /// Processor time of everything per operation, in microseconds.
    pub cpu_us: f64,
    /// Messages of the kernel per operation.
    pub messages: Option<f64>,
    /// RPCs of mounts per operation.
    pub rpcs: Option<f64>,
}

impl Unit {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "op/s",
            Self::Stream => "MiB/s",
            Self::Seconds => "s",
        }
    }
}

/// The samples of one place.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    /// Of all places.
    pub all: &'a [Sample],
    /// The one.
    pub place: Place,
}

impl<'a> Samples<'a> {
    /// Of one system in one row.
    pub fn of(self, system: &str, row: &str, processes: usize) -> Vec<&'a Sample> {
        let is_it = |s: &&Sample| {
            s.place == self.place && s.system == system && s.of.row == row && s.of.processes == processes
        };
        self.all.iter().filter(is_it).collect()
    }

    /// Operations per second of each round, whatever the unit.
    pub fn speeds(self, system: &str, row: &Row, processes: usize) -> Rates {
        let speed = |s: &Sample| match row.unit {
            Unit::Seconds => 1.0 / s.of.seconds,
            _ => s.of.operations / s.of.seconds,
        };
        self.of(system, row.name, processes).into_iter().map(|s| (s.round, speed(s))).collect()
    }

    /// Numbers of processes that a row was measured with.
    pub fn processes(self, row: &str) -> Vec<usize> {
        let of_row = self.all.iter().filter(|s| s.place == self.place && s.of.row == row);
        let mut processes: Vec<usize> = of_row.map(|s| s.of.processes).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    fn cell(self, system: &str, row: &Row, processes: usize) -> Option<Cell> {
        let samples = self.of(system, row.name, processes);
        let by_round = |value: &dyn Fn(&Measured) -> Option<f64>| {
            median(&samples.iter().filter_map(|s| Some((s.round, value(&s.of)?))).collect())
        };
        let value = |of: &Measured| match row.unit {
            Unit::Seconds => of.seconds,
            _ => of.operations / of.seconds,
        };
        let values = || samples.iter().map(|s| value(&s.of));
        Some(Cell {
            system: system.to_owned(),
            value: by_round(&|of| Some(value(of)))?,
            min: values().reduce(f64::min)?,
            max: values().reduce(f64::max)?,
            cut_off: samples.iter().any(|s| s.of.cut_off),
            cpu_us: by_round(&|of| Some(of.cpu * 1e6 / of.operations))?,
            messages: by_round(&|of| Some(of.messages? / of.operations)),
            rpcs: by_round(&|of| Some(of.rpcs? / of.operations)),
        })
    }

    /// All rows that were measured.
    pub fn lines(self) -> Vec<Line> {
        let line = |row: &Row, processes: usize| Line {
            row: row.name.to_owned(),
            processes,
            unit: row.unit.name().to_owned(),
            cells: systems::ALL.iter().filter_map(|system| self.cell(system, row, processes)).collect(),
        };
        let of_row = |row: &'static Row| {
            self.processes(row.name)
                .into_iter()
                .map(move |processes| line(row, processes))
                .collect::<Vec<_>>()
        };
        ROWS.iter().flat_map(of_row).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench_peers::rows;

    /// So many operations in so many seconds, with one message and two RPCs each.
    pub fn sample(
        system: &'static str,
        row: &'static str,
        round: usize,
        operations: f64,
        seconds: f64,
    ) -> Sample {
        let (messages, rpcs) = (Some(operations), Some(operations * 2.0));
        let (processes, cpu, cut_off) = (1, seconds / 2.0, false);
        let of = Measured { row, processes, operations, seconds, cut_off, cpu, messages, rpcs };
        Sample { place: Place::Pinned, round, system, of }
    }

    /// Goal: medians of the rounds, rates and seconds, costs of one operation.
    #[test]
    fn cells() {
        let seconds = [1.0, 4.0, 2.0];
        let mut all = Vec::new();
        for (round, seconds) in seconds.into_iter().enumerate() {
            all.push(sample(systems::SKEP, rows::CREATE, round, 100.0, seconds));
            all.push(sample(systems::SKEP, rows::UNTAR, round, 100.0, seconds));
        }
        let lines = Samples { all: &all, place: Place::Pinned }.lines();
        let figures: Vec<_> = lines.iter().map(|line| (line.cells[0].value, line.cells[0].min)).collect();
        assert_eq!(figures, [(50.0, 25.0), (2.0, 1.0)]);
        let cell = &lines[0].cells[0];
        assert_eq!((cell.messages, cell.rpcs, cell.cpu_us), (Some(1.0), Some(2.0), 10_000.0));
        assert!(Samples { all: &all, place: Place::Free }.lines().is_empty());
    }
}
