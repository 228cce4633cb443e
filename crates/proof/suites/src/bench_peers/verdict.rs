//! What was to be reached, and whether it was. Ratios are medians of the rounds' ratios.

use super::result::Samples;
use super::rows::{ROWS, Row, Target, Unit};
use super::systems::{BEFORE, EMPTY, GLUSTER, MOOSE, SKEP};
use crate::bench::result::{Rates, ceilings, median, ratio};
use crate::bench::system::LOCAL;
use serde::{Deserialize, Serialize};

/// Allowed beyond what the parts of an operation take.
const SLACK: f64 = 1.2;
/// RPCs that are none: closes of other files, told late.
const SOME: f64 = 0.05;

/// One target of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The row.
    pub row: String,
    /// Processes at once.
    pub processes: usize,
    /// What is compared.
    pub target: String,
    /// What was measured.
    pub measured: String,
    /// Is it so?
    pub reached: bool,
}

/// What else was measured in the run.
pub struct Besides<'a> {
    /// Microseconds of an RPC.
    pub rpc_us: Option<f64>,
    /// MiB/s of a socket, by round.
    pub socket: &'a Rates,
}

/// All targets of all rows that Skep ran. A target that cannot be judged is missed, and says why.
pub fn verdicts(samples: Samples<'_>, besides: &Besides<'_>) -> Vec<Verdict> {
    let mut found = Vec::new();
    for row in ROWS {
        for processes in samples.processes(row.name) {
            if samples.of(SKEP, row.name, processes).is_empty() {
                continue;
            }
            let one = One { samples, besides, row, processes };
            found.extend(row.targets.iter().filter_map(|target| one.verdict(*target)));
        }
    }
    found
}

/// One row with a number of processes.
struct One<'a> {
    samples: Samples<'a>,
    besides: &'a Besides<'a>,
    row: &'static Row,
    processes: usize,
}

impl One<'_> {
    fn speeds(&self, system: &str) -> Rates {
        self.samples.speeds(system, self.row, self.processes)
    }

    fn verdict(&self, target: Target) -> Option<Verdict> {
        let skep = self.speeds(SKEP);
        let cut_off = self.samples.of(SKEP, self.row.name, self.processes).iter().any(|s| s.of.cut_off);
        let (text, measured, reached) = match target {
            Target::OneRpc(extra) => self.one_rpc(extra, &skep),
            Target::Peer(least) => self.peer(least, &skep),
            Target::System(system, least) => {
                let against = ratio(&skep, &self.speeds(system));
                let (measured, reached) = at_least(against, least, &format!("{system} has not run"));
                (format!(">= {least} of {system}"), measured, reached)
            }
            Target::Ceiling(least) => {
                let ceiling = ceilings(&[&self.speeds(EMPTY), self.besides.socket, &self.speeds(LOCAL)]);
                let (measured, reached) = at_least(ratio(&skep, &ceiling), least, "a part has not run");
                (format!(">= {least} of the composed ceiling"), measured, reached)
            }
            Target::CeilingOf(bytes, least) => {
                let (measured, reached) =
                    at_least(self.of_ceiling(bytes, &skep), least, "a part has not run");
                (format!(">= {least} of the composed ceiling"), measured, reached)
            }
            Target::Row(row, least) => {
                let (measured, reached) = at_least(ratio(&skep, &self.row(SKEP, row)), least, "not measured");
                (format!(">= {least} of \"{row}\""), measured, reached)
            }
            Target::Shared(own, least) => {
                let (measured, reached) = at_least(self.of_shared(own, &skep), least, "a part has not run");
                (format!(">= {least} of a file for each, or of empty"), measured, reached)
            }
            Target::Seconds(most) => {
                let seconds = median(&skep).map(|speed| 1.0 / speed)?;
                (format!("<= {most} s"), format!("{seconds:.1} s"), seconds <= most)
            }
            Target::Rpcs(most) => {
                let counted = self.samples.of(SKEP, self.row.name, self.processes);
                let rpcs = counted.iter().filter_map(|s| Some((s.round, s.of.rpcs? / s.of.operations)));
                let rpcs = median(&rpcs.collect())?;
                (format!("RPCs <= {most}"), format!("{rpcs:.2}"), rpcs <= most + SOME)
            }
            // Nothing to be reached by the release that the next one is measured by.
            Target::Before(least) => {
                let (measured, reached) = at_least(Some(ratio(&skep, &self.speeds(BEFORE))?), least, "");
                (format!(">= {least} of the release before"), measured, reached)
            }
        };
        let measured = if cut_off { format!("not done: {measured}") } else { measured };
        let row = self.row.name.to_owned();
        Some(Verdict { row, processes: self.processes, target: text, measured, reached: reached && !cut_off })
    }

    /// Another row with as many processes.
    fn row(&self, system: &str, name: &str) -> Rates {
        let row = ROWS.iter().find(|row| row.name == name);
        row.map(|row| self.samples.speeds(system, row, self.processes)).unwrap_or_default()
    }

    /// One request after the other: the empty file system, an RPC with so many bytes more, and tmpfs.
    fn of_ceiling(&self, bytes: usize, skep: &Rates) -> Option<f64> {
        let rpc = self.besides.rpc_us?;
        let mib = bytes as f64 / (1 << 20) as f64;
        let asked = |mib_per_s: f64| 1e6 / (rpc + 1e6 * mib / mib_per_s);
        let socket: Rates =
            self.besides.socket.iter().map(|(round, speed)| (*round, asked(*speed))).collect();
        ratio(skep, &ceilings(&[&self.speeds(EMPTY), &socket, &self.speeds(LOCAL)]))
    }

    fn of_shared(&self, own: &str, skep: &Rates) -> Option<f64> {
        let (own, empty) = (self.row(SKEP, own), self.speeds(EMPTY));
        let least: Rates =
            own.into_iter().filter_map(|(round, own)| Some((round, own.min(*empty.get(&round)?)))).collect();
        ratio(skep, &least)
    }

    fn one_rpc(&self, extra: f64, skep: &Rates) -> (String, String, bool) {
        let text = format!("<= {SLACK} x (empty + 1 RPC + {extra:.0} us)");
        let Some(rpc) = self.besides.rpc_us else { return (text, "no RPC was measured".to_owned(), false) };
        let allowed = |speed: f64| SLACK * (1e6 / speed + rpc + extra);
        let empty: Rates =
            self.speeds(EMPTY).into_iter().map(|(n, speed)| (n, 1e6 / allowed(speed))).collect();
        let (Some(over), Some(skep), Some(empty)) = (ratio(&empty, skep), median(skep), median(&empty))
        else {
            return (text, "the empty file system has not run".to_owned(), false);
        };
        let measured = format!("{:.0} us of {:.0}: {over:.2} x", 1e6 / skep, 1e6 / empty);
        (text, measured, over <= 1.0)
    }

    /// The peer with the best median. Without MooseFS there is none.
    fn peer(&self, least: f64, skep: &Rates) -> (String, String, bool) {
        let text = match self.row.unit {
            Unit::Seconds => format!("<= {:.2} of the best peer's time", 1.0 / least),
            _ => format!(">= {least} x the best peer"),
        };
        let peers = [MOOSE, GLUSTER].map(|peer| (peer, self.speeds(peer)));
        if peers[0].1.is_empty() {
            return (text, "MooseFS has not run".to_owned(), false);
        }
        let by_median = |a: &&(&str, Rates), b: &&(&str, Rates)| {
            let of = |one: &(&str, Rates)| median(&one.1).unwrap_or(0.0);
            of(a).total_cmp(&of(b))
        };
        let best = peers.iter().max_by(by_median);
        let Some((name, against)) = best.and_then(|(name, speeds)| Some((name, ratio(skep, speeds)?))) else {
            return (text, "no common round".to_owned(), false);
        };
        let measured = match self.row.unit {
            Unit::Seconds => format!("{:.2} x the time of {name}", 1.0 / against),
            _ => format!("{against:.2} x {name}"),
        };
        (text, measured, against >= least)
    }
}

/// The words for a ratio, or why there is none.
fn at_least(value: Option<f64>, least: f64, why: &str) -> (String, bool) {
    value.map_or((why.to_owned(), false), |value| (format!("{value:.2}"), value >= least))
}

#[cfg(test)]
mod tests {
    use super::super::result::{Sample, tests::sample};
    use super::super::rows;
    use super::*;
    use crate::bench::place::Place;

    /// Three rounds, the last one slow for all; each system's operations per second.
    fn samples(row: &'static str, rates: &[(&'static str, f64)]) -> Vec<Sample> {
        let rounds = [1.0, 1.0, 0.1].into_iter().enumerate();
        let of = |(round, speed): (usize, f64)| {
            rates.iter().map(move |(system, rate)| sample(system, row, round, rate * speed, 1.0))
        };
        rounds.flat_map(of).collect()
    }

    fn judged(all: &[Sample]) -> Vec<(String, String, bool)> {
        let socket = Rates::from([(0, 3_000.0), (1, 3_000.0), (2, 300.0)]);
        let besides = Besides { rpc_us: Some(20.0), socket: &socket };
        let all = verdicts(Samples { all, place: Place::Pinned }, &besides);
        all.into_iter().map(|verdict| (verdict.target, verdict.measured, verdict.reached)).collect()
    }

    /// Goal: the targets of a create; without MooseFS "best peer" is missed, whatever the other peer does.
    #[test]
    fn a_create() {
        let rates = |skep| [(SKEP, skep), (EMPTY, 10_000.0), (MOOSE, 3_000.0), (GLUSTER, 1_000.0)];
        let found = judged(&samples(rows::CREATE, &rates(6_500.0)));
        assert_eq!(found[0].1, "154 us of 156: 0.99 x");
        assert_eq!(found[1], (">= 2 x the best peer".to_owned(), "2.17 x MooseFS".to_owned(), true));
        assert_eq!(found[2], ("RPCs <= 1".to_owned(), "2.00".to_owned(), false));
        assert!(found[0].2 && !judged(&samples(rows::CREATE, &rates(6_000.0)))[0].2);
        let without = judged(&samples(rows::CREATE, &[(SKEP, 6_500.0), (EMPTY, 10_000.0), (GLUSTER, 1.0)]));
        assert_eq!((without[1].1.as_str(), without[1].2), ("MooseFS has not run", false));
    }

    /// Goal: seconds are compared the other way round, and the best peer is the quickest one.
    #[test]
    fn seconds() {
        let tree = |system, seconds| sample(system, rows::UNTAR, 0, 3_000.0, seconds);
        let found = judged(&[tree(SKEP, 2.0), tree(MOOSE, 12.0), tree(GLUSTER, 8.0)]);
        assert_eq!(
            found,
            [("<= 0.25 of the best peer's time".into(), "0.25 x the time of GlusterFS".into(), true)]
        );
    }

    /// Goal: what was cut off has reached nothing; there is no base for the first release.
    #[test]
    fn cut_off_and_base() {
        let mut listing = sample(SKEP, rows::LISTING, 0, 1e5, 2.0);
        listing.of.cut_off = true;
        let found = judged(&[listing, sample(MOOSE, rows::LISTING, 0, 1e5, 22.0)]);
        assert!(found.iter().all(|(_, measured, reached)| measured.starts_with("not done") && !reached));
        assert!(judged(&samples(rows::APPEND, &[(SKEP, 1.0)])).is_empty());
        assert!(!judged(&samples(rows::APPEND, &[(SKEP, 0.9), (BEFORE, 1.0)]))[0].2);
    }

    /// Goal: one file for all is compared with a file for each, or with what the kernel lets through; small requests with
    /// the parts of one.
    #[test]
    fn shared_files_and_small_requests() {
        let mut all = samples(rows::ONE, &[(SKEP, 800.0), (EMPTY, 900.0)]);
        all.extend(samples(rows::OWN, &[(SKEP, 1_000.0)]));
        assert_eq!(judged(&all)[0].1, "0.89");
        all = samples(rows::ONE, &[(SKEP, 960.0), (EMPTY, 5_000.0)]);
        all.extend(samples(rows::OWN, &[(SKEP, 1_000.0)]));
        assert_eq!((judged(&all)[0].1.as_str(), judged(&all)[0].2), ("0.96", true));
        all = samples(rows::IN_TURN_LISTED, &[(SKEP, 90.0)]);
        all.extend(samples(rows::IN_TURN, &[(SKEP, 100.0)]));
        assert_eq!((judged(&all)[0].1.as_str(), judged(&all)[0].2), ("0.90", false));
        // 20 us of an RPC, 1.3 of its bytes, 25 of the kernel, 5 of tmpfs.
        let rates = [(SKEP, 15_000.0), (EMPTY, 40_000.0), (LOCAL, 200_000.0)];
        assert_eq!(judged(&samples(rows::MANY_READ, &rates))[0].1, "0.77");
        assert_eq!(judged(&samples(rows::MANY_READ, &rates[..2]))[0].1, "a part has not run");
    }

    /// Goal: the composed ceiling is of one round: all parts one after the other.
    #[test]
    fn ceiling() {
        let rates = [(SKEP, 800.0), (EMPTY, 3_000.0), (LOCAL, 3_000.0), (MOOSE, 300.0)];
        let found = judged(&samples(rows::WRITE, &rates));
        assert_eq!(found[0], (">= 0.8 of the composed ceiling".to_owned(), "0.80".to_owned(), true));
    }
}
