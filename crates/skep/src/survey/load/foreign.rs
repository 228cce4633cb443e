//! Other load generators, if they are installed, beside this program's own.

use super::super::Run;
use super::{MEGABYTE, Place, note};
use crate::admin::{Failure, Outcome};
use clap::ValueEnum;
use skep_bench::dialect::Tool;
use skep_bench::foreign::{Drive, Found, find, fio_arguments};
use skep_bench::job::IoJob;
use skep_bench::result::Summary;
use skep_survey::ids::{CLIENT, METADATA};
use skep_survey::model::{Curve, Point};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Transfer size.
const TRANSFER: u64 = 1 << 20;
/// Longest run of a program.
const LIMIT: Duration = Duration::from_secs(3_600);

/// Programs that can be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Foreign {
    /// fio
    Fio,
    /// IOR
    Ior,
    /// IOzone
    Iozone,
    /// mdtest
    Mdtest,
}

/// What one run of a program does: its words, and which of its phases are taken.
type Words = Vec<Vec<String>>;

impl Foreign {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Ior => "ior",
            Self::Iozone => "iozone",
            Self::Mdtest => "mdtest",
        }
    }

    fn tool(self) -> Tool {
        match self {
            Self::Fio => Tool::Fio,
            Self::Ior => Tool::Ior,
            Self::Iozone => Tool::Iozone,
            Self::Mdtest => Tool::Mdtest,
        }
    }

    fn find(self) -> Outcome<Found> {
        let path = std::env::var("PATH").unwrap_or_default();
        find(self.tool(), &path).ok_or_else(|| {
            Failure::new("is not installed here (not in PATH): install it, or leave out --with")
        })
    }

    /// The runs of one repetition.
    fn words(self, place: &Place, size: u64, files: u64) -> Words {
        let dir = place.path();
        let split = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        match self {
            Self::Fio => {
                let name = "skep-survey-fio".to_owned();
                let job =
                    IoJob { transfer: TRANSFER, block: size, invalidate: true, name, ..IoJob::new(&dir) };
                (0..job.phases.len()).filter_map(|at| fio_arguments(&job, 1, at)).collect()
            }
            Self::Ior => vec![split(format!("-a POSIX -w -r -F -e -t {TRANSFER} -b {size} -o {dir}/ior"))],
            Self::Iozone => {
                let (record, kib) = (TRANSFER / 1024, size / 1024);
                vec![split(format!("-i 0 -i 1 -c -e -r {record}k -s {kib}k -t 1 -F {dir}/iozone"))]
            }
            Self::Mdtest => vec![split(format!("-F -C -T -r -n {files} -u -d {dir}/mdtest"))],
        }
    }
}

/// Streams of one process; of mdtest, its rates of files.
pub fn stream(run: &mut Run<'_>, place: &Place, program: Foreign) -> Outcome<Vec<Curve>> {
    let found = program.find()?;
    let stop = AtomicBool::new(false);
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut commands = Vec::new();
    for repetition in 0..run.preset.repeats {
        for words in program.words(place, run.preset.process_size, run.preset.files) {
            let drive =
                Drive { arguments: &words, launcher: &[], directory: &place.dir, limit: LIMIT, stop: &stop };
            if repetition == 0 {
                commands.push(found.command_line(&drive).join(" "));
            }
            let result = found.run(&drive).map_err(|e| Failure::new(e.to_string()))?;
            for row in &result.rows {
                if let Some(value) = value(program, row) {
                    samples.entry(row.phase.clone()).or_default().push(value);
                }
            }
        }
    }
    let commands: Vec<String> = commands.into_iter().map(|command| note(run, command)).collect();
    let command = commands.join(" && ");
    let (layer, unit, axis, x) = match program {
        Foreign::Mdtest => (METADATA, "operations/s", "processes", 1.0),
        _ => (CLIENT, "MB/s", "transfer size (bytes)", TRANSFER as f64),
    };
    let curve = |(phase, samples): (String, Vec<f64>)| Curve {
        id: format!("{layer}.{}.{}", phase.replace(' ', "-"), program.name()),
        title: format!("{phase}, by {}", program.name()),
        unit: unit.to_owned(),
        axis: axis.to_owned(),
        points: vec![Point { x, samples }],
        command: command.clone(),
    };
    let curves: Vec<Curve> = samples.into_iter().map(curve).collect();
    if curves.is_empty() { Err(Failure::new("told no figures")) } else { Ok(curves) }
}

fn value(program: Foreign, row: &Summary) -> Option<f64> {
    let rate = match program {
        Foreign::Mdtest => row.ops_per_second.mean,
        _ => row.bytes_per_second.mean / MEGABYTE,
    };
    (rate.is_finite() && rate > 0.0).then_some(rate)
}
