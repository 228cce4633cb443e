//! Other load generators, if they are installed, beside this program's own: over processes, as its own curves.

use super::super::{Run, RunArgs, commands};
use super::{FAILURES_MOST, MEGABYTE, Place, came, doublings, is_flat};
use clap::ValueEnum;
use skep_base::{Failure, Outcome};
use skep_bench::dialect::Tool;
use skep_bench::foreign::{Drive, Found, find, fio_arguments};
use skep_bench::job::IoJob;
use skep_bench::result::Summary;
use skep_instruments::client::INTERRUPTED;
use skep_survey::ids::{CLIENTS, METADATA};
use skep_survey::model::{Curve, Point};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Transfer size.
const TRANSFER: u64 = 1 << 20;
/// Longest run of a program.
const LIMIT: Duration = Duration::from_secs(3_600);
/// Programs that start the processes of IOR and mdtest.
const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];
/// Open MPI refuses root and more processes than processors unless it is told otherwise; others pass these over.
const MPI_ENVIRONMENT: [&str; 6] = [
    "env",
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_rmaps_base_oversubscribe=1",
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
    "PRTE_ALLOW_RUN_AS_ROOT=1",
];

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

/// What one repetition runs: launcher and words of each run.
type Runs = Vec<(Vec<String>, Vec<String>)>;

fn split(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

impl Foreign {
    pub fn name(self) -> &'static str {
        self.tool().name()
    }

    fn tool(self) -> Tool {
        match self {
            Self::Fio => Tool::Fio,
            Self::Ior => Tool::Ior,
            Self::Iozone => Tool::Iozone,
            Self::Mdtest => Tool::Mdtest,
        }
    }

    /// It needs somebody else to start several processes of it.
    fn is_launched(self) -> bool {
        matches!(self, Self::Ior | Self::Mdtest)
    }

    /// The runs of one repetition with so many processes. Each process has a file of its own, or files in a directory of
    /// its own, as in this program's own curves.
    fn runs(self, place: &Place, processes: u64, launcher: Option<&Path>, size: u64, files: u64) -> Runs {
        let dir = place.path();
        let mut mpi: Vec<String> = Vec::new();
        if let Some(launcher) = launcher.filter(|_| self.is_launched()) {
            mpi = MPI_ENVIRONMENT.map(str::to_owned).into();
            mpi.extend([launcher.display().to_string(), "-np".to_owned(), processes.to_string()]);
        }
        match self {
            Self::Fio => {
                let name = "skep-survey-fio".to_owned();
                let job =
                    IoJob { transfer: TRANSFER, block: size, invalidate: true, name, ..IoJob::new(&dir) };
                let words = (0..job.phases.len()).filter_map(|at| fio_arguments(&job, processes as u32, at));
                words.map(|words| (Vec::new(), words)).collect()
            }
            // -C: each reads what the next one wrote.
            Self::Ior => {
                vec![(mpi, split(&format!("-a POSIX -w -r -C -F -e -t {TRANSFER} -b {size} -o {dir}/ior")))]
            }
            Self::Iozone => {
                let (record, kib) = (TRANSFER / 1024, size / 1024);
                let mut words = split(&format!("-i 0 -i 1 -c -e -r {record}k -s {kib}k -t {processes} -F"));
                words.extend((0..processes).map(|number| format!("{dir}/iozone.{number}")));
                vec![(Vec::new(), words)]
            }
            // -N 1: each looks at what the next one created.
            Self::Mdtest => vec![(mpi, split(&format!("-F -C -T -r -n {files} -N 1 -u -d {dir}/mdtest")))],
        }
    }
}

/// A program in the directories of PATH.
fn launcher(path: &str) -> Option<PathBuf> {
    let executable = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let directories = path.split(':').filter(|directory| directory.starts_with('/'));
    let mut all = directories.flat_map(|directory| LAUNCHERS.map(|name| Path::new(directory).join(name)));
    all.find(executable)
}

/// All programs that were asked for, as far as they belong to a layer; what fails is a remark.
pub fn all(run: &mut Run<'_>, place: &Place, args: &RunArgs, fits: impl Fn(Foreign) -> bool) -> Vec<Curve> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut curves = Vec::new();
    for program in args.with.iter().copied().filter(|program| fits(*program)) {
        match over_processes(run, place, program, &path) {
            Ok(found) => curves.extend(found),
            Err(failure) => run.remark(format!("{}: {failure}", program.name())),
        }
    }
    curves
}

/// 1, 2, 4 ... processes until more bring nothing.
fn over_processes(run: &mut Run<'_>, place: &Place, program: Foreign, path: &str) -> Outcome<Vec<Curve>> {
    let found = find(program.tool(), path).ok_or_else(|| {
        Failure::new("is not installed here (not in PATH): install it, or leave out --with")
    })?;
    let launcher = launcher(path);
    let mut places = doublings(run.preset.processes);
    if program.is_launched() && launcher.is_none() {
        run.remark(format!(
            "{}: neither mpirun nor mpiexec is in PATH, so it was driven with one process only",
            program.name()
        ));
        places.truncate(1);
    }
    if !run.hosts.hosts.is_empty() {
        run.remark(format!("{}: was driven on this host only, agents run skep's own load", program.name()));
    }
    let mut told = Told::default();
    let mut failed: Vec<(u64, Failure)> = Vec::new();
    let mut in_a_row = 0;
    for processes in places {
        match told.place(run, place, program, &found, processes, launcher.as_deref()) {
            Ok(()) => in_a_row = 0,
            Err(failure) if came() => return Err(failure),
            Err(failure) => {
                failed.push((processes, failure));
                in_a_row += 1;
            }
        }
        if in_a_row == FAILURES_MOST || told.flat() {
            break;
        }
    }
    told.all(run, program, failed)
}

/// What a program told so far.
#[derive(Default)]
struct Told {
    points: BTreeMap<String, Vec<Point>>,
    lines: Vec<String>,
    version: Option<String>,
}

impl Told {
    fn place(
        &mut self,
        run: &Run<'_>,
        place: &Place,
        program: Foreign,
        found: &Found,
        processes: u64,
        launcher: Option<&Path>,
    ) -> Outcome {
        let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut lines = Vec::new();
        for repetition in 0..run.preset.repeats {
            let runs = program.runs(place, processes, launcher, run.preset.process_size, run.preset.files);
            for (launcher, words) in runs {
                let drive = Drive {
                    arguments: &words,
                    launcher: &launcher,
                    directory: &place.dir,
                    limit: LIMIT,
                    stop: &INTERRUPTED,
                };
                if repetition == 0 {
                    let line: Vec<String> = found.command_line(&drive).iter().map(commands::word).collect();
                    // The directory of the survey is gone when somebody measures again.
                    lines.push(line.join(" ").replace(&place.path(), &place.shown()));
                }
                let result = found.run(&drive).map_err(|e| Failure::new(e.to_string()))?;
                self.version = self.version.take().or(result.version);
                if let Some(other) = result.workers.filter(|workers| u64::from(*workers) != processes) {
                    return Err(Failure::new(format!(
                        "ran with {other} processes where {processes} were asked for"
                    )));
                }
                for row in &result.rows {
                    if let Some(value) = value(program, row) {
                        samples.entry(row.phase.clone()).or_default().push(value);
                    }
                }
            }
        }
        self.lines.extend(lines);
        for (phase, samples) in samples {
            self.points.entry(phase).or_default().push(Point { x: processes as f64, samples });
        }
        Ok(())
    }

    /// More processes bring nothing.
    fn flat(&self) -> bool {
        !self.points.is_empty() && self.points.values().all(|points| is_flat(points))
    }

    /// What was measured; what failed beside it is a remark.
    fn all(self, run: &mut Run<'_>, program: Foreign, failed: Vec<(u64, Failure)>) -> Outcome<Vec<Curve>> {
        if self.points.is_empty() {
            let first = failed.into_iter().next().map(|(_, why)| why);
            return Err(first.unwrap_or_else(|| Failure::new("told no figures")));
        }
        for (processes, why) in failed {
            run.remark(format!("{}: processes = {processes}: not measured: {why}", program.name()));
        }
        Ok(self.curves(run, program))
    }

    fn curves(self, run: &mut Run<'_>, program: Foreign) -> Vec<Curve> {
        let version = self.version.unwrap_or_else(|| program.name().to_owned());
        run.commands.extend(self.lines.iter().cloned());
        let command = self.lines.join("\n");
        let (layer, unit) = match program {
            Foreign::Mdtest => (METADATA, "operations/s"),
            _ => (CLIENTS, "MB/s"),
        };
        let curve = |(phase, points): (String, Vec<Point>)| Curve {
            id: format!("{layer}.{}.{}", phase.replace(' ', "-"), program.name()),
            title: format!("{phase}, by {version}"),
            unit: unit.to_owned(),
            axis: "processes".to_owned(),
            points,
            command: command.clone(),
        };
        self.points.into_iter().map(curve).collect()
    }
}

fn value(program: Foreign, row: &Summary) -> Option<f64> {
    let rate = match program {
        Foreign::Mdtest => row.ops_per_second.mean,
        _ => row.bytes_per_second.mean / MEGABYTE,
    };
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &Path) -> Place {
        Place::below(dir, dir.to_owned(), String::new()).unwrap()
    }

    /// Goal: every program is asked for as many processes as the place has, each with a file of its own.
    #[test]
    fn as_many_processes() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        let line = |program: Foreign, launcher: Option<&Path>| -> String {
            let runs = program.runs(&place, 3, launcher, 8 << 20, 50);
            runs.iter().map(|(before, words)| [before.join(" "), words.join(" ")].join(" ")).collect()
        };
        assert!(line(Foreign::Fio, None).contains("--numjobs=3"));
        let iozone = line(Foreign::Iozone, None);
        assert!(iozone.contains("-t 3 -F") && iozone.contains("iozone.0") && iozone.ends_with("iozone.2"));
        let mpirun = Path::new("/usr/bin/mpirun");
        for program in [Foreign::Ior, Foreign::Mdtest] {
            assert!(line(program, Some(mpirun)).contains("/usr/bin/mpirun -np 3 "), "{program:?}");
            assert!(!line(program, None).contains("mpirun"), "{program:?}");
        }
        assert!(!line(Foreign::Fio, Some(mpirun)).contains("mpirun"));
    }

    /// Goal: a launcher is found in the order of PATH, and a file that cannot be run is none.
    #[test]
    fn launchers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        assert_eq!(launcher(&path), None);
        std::fs::write(dir.path().join("mpirun"), "").unwrap();
        assert_eq!(launcher(&path), None);
        let other = dir.path().join("mpiexec");
        std::fs::write(&other, "").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(launcher(&path), Some(other));
    }
}
