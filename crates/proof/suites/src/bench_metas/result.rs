//! What was measured.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One turn of one cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Metadata servers.
    pub servers: u32,
    /// How long it took.
    pub seconds: f64,
    /// What was done in this time.
    pub operations: u64,
    /// Seconds of processor of each server.
    pub cpu: Vec<f64>,
}

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// How to repeat it.
    pub command: String,
    /// Part of a processor that each server had, in percent.
    pub percent: u32,
    /// Threads of the load for each server.
    pub threads: u32,
    /// Turns of each cluster.
    pub rounds: u32,
    /// In the order of the turns.
    pub samples: Vec<Sample>,
}

/// Medians of the turns of one number of servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Metadata servers.
    pub servers: u32,
    /// Operations per second.
    pub rate: f64,
    /// Its slowest and its fastest turn.
    pub range: (f64, f64),
    /// Part of their limit that the servers used.
    pub used: f64,
    /// The busiest server's seconds of processor over the mean.
    pub busiest: f64,
    /// Microseconds of processor of all servers for one operation.
    pub cost_us: f64,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    fn all_cpu(&self) -> f64 {
        self.cpu.iter().sum()
    }

    fn busiest(&self) -> f64 {
        let most = self.cpu.iter().copied().fold(0.0, f64::max);
        most * self.cpu.len() as f64 / self.all_cpu()
    }

    fn cost_us(&self) -> f64 {
        self.all_cpu() * 1e6 / self.operations as f64
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, rate, busiest, cost) = (self.servers, self.rate(), self.busiest(), self.cost_us());
        write!(
            f,
            "{servers} servers: {rate:.0} operations/s, busiest {busiest:.2} of the mean, {cost:.1} us each"
        )
    }
}

impl Results {
    /// One row for each number of servers, the lowest first.
    pub fn rows(&self) -> Vec<Row> {
        let mut numbers: Vec<u32> = self.samples.iter().map(|sample| sample.servers).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|servers| self.row(servers)).collect()
    }

    fn row(&self, servers: u32) -> Row {
        let of = |what: &dyn Fn(&Sample) -> f64| {
            let samples = self.samples.iter().filter(|sample| sample.servers == servers);
            let mut values: Vec<f64> = samples.map(what).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let middle = |values: Vec<f64>| values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
        let rates = of(&Sample::rate);
        let range = (rates.first().copied().unwrap_or(f64::NAN), rates.last().copied().unwrap_or(f64::NAN));
        let share =
            |sample: &Sample| sample.all_cpu() / sample.seconds / f64::from(servers * self.percent) * 100.0;
        Row {
            servers,
            rate: middle(rates),
            range,
            used: middle(of(&share)),
            busiest: middle(of(&Sample::busiest)),
            cost_us: middle(of(&Sample::cost_us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a row is made of medians of its own turns, and of nobody else's.
    #[test]
    fn rows_are_medians() {
        let sample = |servers, operations, cpu: &[f64]| Sample {
            servers,
            seconds: 2.0,
            operations,
            cpu: cpu.to_vec(),
        };
        let samples = vec![
            sample(2, 4_000, &[0.3, 0.1]),
            sample(1, 1_000, &[0.4]),
            sample(1, 3_000, &[0.3]),
            sample(1, 2_000, &[0.2]),
        ];
        let results = Results { command: String::new(), percent: 20, threads: 1, rounds: 3, samples };
        let rows = results.rows();
        let one = rows[0];
        assert_eq!((one.servers, one.rate, one.range, one.busiest), (1, 1_000.0, (500.0, 1_500.0), 1.0));
        assert!((one.cost_us - 100.0).abs() < 1e-6 && (one.used - 0.75).abs() < 1e-6, "{one:?}");
        assert!((rows[1].busiest - 1.5).abs() < 1e-6 && rows.len() == 2, "{:?}", rows[1]);
    }
}
