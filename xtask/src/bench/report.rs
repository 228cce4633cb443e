//! Medians, ratios and the composed ceiling, as a table and as JSON.

use super::measure::{GROUPS, Sample};
use comfy_table::{Table, presets::NOTHING};
use serde::Serialize;

/// One row: a phase with a number of processes.
#[derive(Serialize)]
struct Row {
    phase: String,
    processes: usize,
    unit: &'static str,
    tmpfs: Option<f64>,
    empty: Option<f64>,
    skep: Option<f64>,
    /// Lowest and highest round of Skep.
    skep_min: Option<f64>,
    skep_max: Option<f64>,
    /// How many times slower Skep is than the empty file system.
    empty_over_skep: Option<f64>,
    /// 1 / (1/FUSE + 1/socket + 1/local file system), for streams.
    ceiling: Option<f64>,
    /// Share of the ceiling that Skep reaches.
    of_ceiling: Option<f64>,
}

/// The whole result.
#[derive(Serialize)]
pub struct Result {
    pinned_to: Option<usize>,
    rounds: usize,
    socket_mib_per_s: Option<f64>,
    rows: Vec<Row>,
}

impl Result {
    /// Medians over the rounds.
    pub fn of(samples: &[Sample], pinned_to: Option<usize>, rounds: usize) -> Self {
        let rates = |system: &str, phase: &str, processes: usize| {
            let mut rates: Vec<f64> = samples
                .iter()
                .filter(|s| s.system == system && s.phase == phase && s.processes == processes)
                .map(|s| s.rate)
                .collect();
            rates.sort_by(f64::total_cmp);
            rates
        };
        let socket = median(&rates("socket", "stream 1 MiB", 1));
        let mut processes: Vec<usize> =
            samples.iter().filter(|s| s.system != "socket").map(|s| s.processes).collect();
        processes.sort_unstable();
        processes.dedup();
        let mut rows = Vec::new();
        for phase in GROUPS.iter().flat_map(|group| group.phases) {
            for processes in &processes {
                let of = |system| median(&rates(system, phase.name, *processes));
                let (tmpfs, empty, skep) = (of("tmpfs"), of("empty"), of("skep"));
                let all = rates("skep", phase.name, *processes);
                if skep.is_none() {
                    continue;
                }
                let stream = phase.name.contains("1 MiB");
                let parts = [empty, socket, tmpfs];
                let ceiling = (stream && parts.iter().all(Option::is_some))
                    .then(|| 1.0 / parts.iter().flatten().map(|rate| 1.0 / rate).sum::<f64>());
                rows.push(Row {
                    phase: phase.name.to_owned(),
                    processes: *processes,
                    unit: if stream { "MiB/s" } else { "op/s" },
                    tmpfs,
                    empty,
                    skep,
                    skep_min: all.first().copied(),
                    skep_max: all.last().copied(),
                    empty_over_skep: empty.zip(skep).map(|(empty, skep)| empty / skep),
                    ceiling,
                    of_ceiling: ceiling.zip(skep).map(|(ceiling, skep)| skep / ceiling),
                });
            }
        }
        Self { pinned_to, rounds, socket_mib_per_s: socket, rows }
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header([
            "phase",
            "processes",
            "unit",
            "tmpfs",
            "empty FUSE",
            "skep",
            "(min-max)",
            "empty/skep",
            "ceiling",
            "of ceiling",
        ]);
        let number = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        for row in &self.rows {
            table.add_row([
                row.phase.clone(),
                row.processes.to_string(),
                row.unit.to_owned(),
                number(row.tmpfs),
                number(row.empty),
                number(row.skep),
                format!("({}-{})", number(row.skep_min), number(row.skep_max)),
                row.empty_over_skep.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                number(row.ceiling),
                row.of_ceiling.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            ]);
        }
        let place = self.pinned_to.map_or("free placement".to_owned(), |cpu| format!("pinned to core {cpu}"));
        format!(
            "median of {} rounds, {place}; socket alone {} MiB/s\n{table}\n",
            self.rounds,
            number(self.socket_mib_per_s)
        )
    }

    /// For machines.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|e| format!("{{\"error\": \"{e}\"}}"))
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: medians and the ceiling are computed as the design defines them.
    #[test]
    fn medians_and_ceiling() {
        let sample = |system, rate| Sample {
            system,
            phase: "read 1 MiB (one shared file)".into(),
            processes: 1,
            rate,
        };
        let mut samples =
            vec![Sample { system: "socket", phase: "stream 1 MiB".into(), processes: 1, rate: 4_000.0 }];
        samples.extend([100.0, 900.0, 1_000.0].map(|rate| sample("skep", rate)));
        samples.extend([sample("empty", 4_000.0), sample("tmpfs", 2_000.0)]);
        let result = Result::of(&samples, None, 3);
        assert_eq!(result.rows.len(), 1);
        let row = &result.rows[0];
        assert_eq!((row.skep, row.skep_min, row.skep_max), (Some(900.0), Some(100.0), Some(1_000.0)));
        assert_eq!(row.ceiling, Some(1_000.0));
        assert_eq!(row.of_ceiling, Some(0.9));
    }
}
