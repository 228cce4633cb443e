//! What each host of clients delivered while all of them worked at once.

use super::super::facts::client_name;
use super::Figure;
use skep_bench::result::{StepResult, WorkerResult};
use skep_survey::model::MemberResult;

/// Rates of every host, a round for each step in which all hosts had as many workers.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    hosts: Vec<String>,
    samples: Vec<Vec<f64>>,
}

impl Rounds {
    /// For these hosts; fewer than two have nobody to be compared with.
    pub fn of(hosts: &[String]) -> Self {
        let hosts = if hosts.len() < 2 { Vec::new() } else { hosts.to_vec() };
        Self { samples: vec![Vec::new(); hosts.len()], hosts }
    }

    /// One more step.
    pub fn add(&mut self, step: &StepResult, figure: Figure) {
        let of = |host: &String| -> Vec<&WorkerResult> {
            step.workers.iter().filter(|worker| worker.host == *host).collect()
        };
        let workers: Vec<Vec<&WorkerResult>> = self.hosts.iter().map(of).collect();
        let count = workers.first().map_or(0, Vec::len);
        if count == 0 || workers.iter().any(|own| own.len() != count) {
            return;
        }
        for (samples, own) in self.samples.iter_mut().zip(workers) {
            samples.push(rate(&own, figure));
        }
    }

    /// Each host with its rounds; nobody when there was no round.
    pub fn members(&self) -> Vec<MemberResult> {
        let member = |(host, samples): (&String, &Vec<f64>)| MemberResult {
            name: client_name(host),
            samples: samples.clone(),
            outlier: None,
        };
        self.hosts.iter().zip(&self.samples).filter(|(_, samples)| !samples.is_empty()).map(member).collect()
    }
}

/// From the first start to the last end on this host.
fn rate(workers: &[&WorkerResult], figure: Figure) -> f64 {
    let start = workers.iter().map(|worker| worker.start_us / 1e6).fold(f64::INFINITY, f64::min);
    let end = workers.iter().map(|worker| worker.start_us / 1e6 + worker.seconds).fold(0.0, f64::max);
    let sum = |of: fn(&WorkerResult) -> u64| workers.iter().map(|worker| of(worker)).sum();
    figure.rate(sum(|worker| worker.bytes), sum(|worker| worker.ops), end - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::histogram::Histogram;
    use skep_survey::lag::laggards;
    use skep_survey::model::SideBySide;

    /// A step in which every worker moved 100 MB, each at its own pace.
    fn step(workers: &[(&str, f64)]) -> StepResult {
        let worker = |(number, (host, seconds)): (usize, &(&str, f64))| WorkerResult {
            worker: number as u32,
            host: (*host).to_owned(),
            start_us: 1_000.0 * number as f64,
            seconds: *seconds,
            bytes: 100_000_000,
            ops: 100,
        };
        StepResult {
            phase: "write".to_owned(),
            repetition: 1,
            bytes: 0,
            ops: 0,
            seconds: 1.0,
            start_skew_us: 0.0,
            latency: None,
            stonewall: None,
            workers: workers.iter().enumerate().map(worker).collect(),
            histogram: Histogram::new(),
        }
    }

    /// Goal: a host that takes three times as long is the one that lags; steps in which hosts have different numbers of
    /// workers are no rounds; one host has nobody beside it.
    #[test]
    fn the_slow_host_stands_out() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let mut rounds = Rounds::of(&hosts);
        for (at, pace) in [1.0, 1.05, 0.97, 1.02].into_iter().enumerate() {
            let wobble = 1.0 + 0.02 * at as f64;
            let slow = ("b", 3.0 * wobble);
            let all = [("a", pace), slow, ("c", wobble), ("a", pace), slow, ("c", wobble)];
            rounds.add(&step(&all[..if at % 2 == 0 { 3 } else { 6 }]), Figure::Bytes);
            rounds.add(&step(&all[..4]), Figure::Bytes);
            rounds.add(&step(&all[..1]), Figure::Bytes);
        }
        let side = SideBySide {
            id: String::new(),
            title: String::new(),
            unit: "MB/s".to_owned(),
            more_is_better: true,
            members: rounds.members(),
            command: String::new(),
        };
        let named: Vec<(&str, usize)> =
            side.members.iter().map(|member| (member.name.as_str(), member.samples.len())).collect();
        assert_eq!(named, [("client a", 4), ("client b", 4), ("client c", 4)]);
        assert!((side.members[0].samples[0] - 100.0).abs() < 0.1, "{side:?}");
        assert_eq!(laggards(&side).iter().map(|lag| lag.at).collect::<Vec<_>>(), [1]);
        let mut lone = Rounds::of(&hosts[..1]);
        lone.add(&step(&[("a", 1.0)]), Figure::Operations);
        assert!(lone.members().is_empty());
    }
}
