//! What a run found: medians over the rounds, ratios within them, the composed ceiling.

use super::measure::{GROUPS, Phase, Sample};
use super::place::Place;
use super::profile::Profile;
use super::socket;
use super::system::LOCAL;
use super::transport::Transport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The machine that it was measured on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Processor.
    pub processor: String,
    /// Cores that could be used.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
}

/// A phase with a number of processes on one transport.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct On {
    /// Which.
    pub transport: Transport,
    /// The empty FUSE file system.
    pub empty: Option<f64>,
    /// Skep: median, lowest and highest round.
    pub skep: Option<f64>,
    /// Lowest round.
    pub skep_min: Option<f64>,
    /// Highest round.
    pub skep_max: Option<f64>,
    /// How many times slower Skep is than the empty file system.
    pub empty_over_skep: Option<f64>,
    /// 1 / (1/FUSE + 1/socket + 1/local file system), for streams.
    pub ceiling: Option<f64>,
    /// Share of the ceiling that Skep reaches.
    pub of_ceiling: Option<f64>,
    /// One shared file against a file per process (N-1 / N-N).
    pub shared_over_own: Option<f64>,
    /// Skep against another build of it.
    pub skep_over_beside: Option<f64>,
}

/// One row: a phase with a number of processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The phase.
    pub phase: String,
    /// How many processes.
    pub processes: usize,
    /// It moves data in order: MiB/s and not op/s.
    pub stream: bool,
    /// The local file system.
    pub local: Option<f64>,
    /// Each transport.
    pub on: Vec<On>,
    /// Skep on io_uring against Skep on /dev/fuse.
    pub uring_over_dev: Option<f64>,
    /// The same of the empty file system.
    pub empty_uring_over_dev: Option<f64>,
}

/// All of one place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placed {
    /// Which.
    pub place: Place,
    /// The socket alone.
    pub socket_mib_per_s: Option<f64>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The whole result.
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
    /// Rounds.
    pub rounds: usize,
    /// Pinned, free.
    pub places: Vec<Placed>,
    /// Where the time goes.
    #[serde(default)]
    pub profiles: Vec<Profile>,
}

/// Rates of one system in one phase, by round.
pub type Rates = BTreeMap<usize, f64>;

struct Samples<'a> {
    all: &'a [Sample],
    place: Place,
}

impl Samples<'_> {
    fn rates(&self, system: &str, phase: &str, processes: usize) -> Rates {
        let these = self.all.iter().filter(|s| {
            s.place == self.place && s.system == system && s.phase == phase && s.processes == processes
        });
        these.map(|s| (s.round, s.rate)).collect()
    }

    fn row(&self, phase: &Phase, processes: usize, transports: &[Transport], socket: &Rates) -> Option<Row> {
        let of = |system: &str| self.rates(system, phase.name, processes);
        let local = of(LOCAL);
        let stream = phase.is_stream();
        let on: Vec<On> = transports
            .iter()
            .map(|transport| {
                let (empty, skep) = (of(transport.empty()), of(transport.skep()));
                let ceiling = if stream { ceilings(&[&empty, socket, &local]) } else { Rates::new() };
                let own = phase.own_twin().map(|own| self.rates(transport.skep(), own, processes));
                On {
                    transport: *transport,
                    empty: median(&empty),
                    skep: median(&skep),
                    skep_min: skep.values().copied().reduce(f64::min),
                    skep_max: skep.values().copied().reduce(f64::max),
                    empty_over_skep: ratio(&empty, &skep),
                    ceiling: median(&ceiling),
                    of_ceiling: ratio(&skep, &ceiling),
                    shared_over_own: own.and_then(|own| ratio(&skep, &own)),
                    skep_over_beside: ratio(&skep, &of(transport.beside())),
                }
            })
            .collect();
        let against = |name: fn(Transport) -> &'static str| {
            ratio(&of(name(Transport::Uring)), &of(name(Transport::Dev)))
        };
        on.iter().any(|on| on.skep.is_some()).then(|| Row {
            phase: phase.name.to_owned(),
            processes,
            stream,
            local: median(&local),
            uring_over_dev: against(Transport::skep),
            empty_uring_over_dev: against(Transport::empty),
            on,
        })
    }
}

impl Placed {
    /// Medians over the rounds.
    pub fn of(all: &[Sample], place: Place, transports: &[Transport]) -> Self {
        let samples = Samples { all, place };
        let socket = samples.rates(socket::NAME, socket::PHASE, 1);
        let mut processes: Vec<usize> = all.iter().map(|s| s.processes).collect();
        processes.sort_unstable();
        processes.dedup();
        let mut rows = Vec::new();
        for phase in GROUPS.iter().flat_map(|group| group.phases) {
            rows.extend(processes.iter().filter_map(|n| samples.row(phase, *n, transports, &socket)));
        }
        Self { place, socket_mib_per_s: median(&socket), rows }
    }
}

fn sorted_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Of all rounds.
pub fn median(rates: &Rates) -> Option<f64> {
    sorted_median(rates.values().copied().collect())
}

/// The median of the rounds' ratios: what slows a whole round down does not change it.
pub fn ratio(above: &Rates, below: &Rates) -> Option<f64> {
    sorted_median(above.iter().filter_map(|(round, a)| below.get(round).map(|b| a / b)).collect())
}

/// What all parts one after the other allow, by round.
pub fn ceilings(parts: &[&Rates]) -> Rates {
    let Some((first, rest)) = parts.split_first() else { return Rates::new() };
    let composed = |(round, rate): (&usize, &f64)| {
        let mut time = 1.0 / rate;
        for part in rest {
            time += 1.0 / part.get(round)?;
        }
        Some((*round, 1.0 / time))
    };
    first.iter().filter_map(composed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(system: &'static str, phase: &str, round: usize, rate: f64) -> Sample {
        Sample { place: Place::Pinned, round, system, phase: phase.into(), processes: 1, rate }
    }

    /// Goal: medians and the ceiling are computed as docs/design (8) defines them.
    #[test]
    fn medians_and_ceiling() {
        let phase = "read 1 MiB (one shared file)";
        let mut samples = Vec::new();
        for (round, rate) in [100.0, 900.0, 1_000.0].into_iter().enumerate() {
            samples.push(sample("skep-dev", phase, round, rate));
            samples.push(sample("skep-dev", "read 1 MiB (file per process)", round, rate * 2.0));
            samples.push(sample("empty-dev", phase, round, 4_000.0));
            samples.push(sample("tmpfs", phase, round, 2_000.0));
            samples.push(sample("socket", "stream 1 MiB", round, 4_000.0));
        }
        let placed = Placed::of(&samples, Place::Pinned, &[Transport::Dev]);
        assert_eq!(placed.rows.len(), 2);
        let on = &placed.rows[1].on[0];
        assert_eq!((on.skep, on.skep_min, on.skep_max), (Some(900.0), Some(100.0), Some(1_000.0)));
        assert_eq!((on.ceiling, on.of_ceiling), (Some(1_000.0), Some(0.9)));
        assert_eq!(on.shared_over_own, Some(0.5));
        assert!(Placed::of(&samples, Place::Free, &[Transport::Dev]).rows.is_empty());
    }

    /// Goal: a ratio is that of one round: a round in which the whole machine was slow changes nothing.
    #[test]
    fn ratios_within_rounds() {
        let phase = "stat (own directory)";
        let mut samples = Vec::new();
        for (round, speed) in [1.0, 0.2, 1.0].into_iter().enumerate() {
            for (system, rate) in
                [("skep-dev", 10.0), ("skep-uring", 13.0), ("empty-dev", 20.0), ("empty-uring", 40.0)]
            {
                samples.push(sample(system, phase, round, rate * speed));
            }
        }
        let placed = Placed::of(&samples, Place::Pinned, &[Transport::Dev, Transport::Uring]);
        let row = &placed.rows[0];
        assert_eq!((row.uring_over_dev, row.empty_uring_over_dev), (Some(1.3), Some(2.0)));
        assert_eq!(row.on[0].empty_over_skep, Some(2.0));
        assert_eq!(row.on[0].of_ceiling, None);
    }
}
