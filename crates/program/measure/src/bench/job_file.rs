//! `skep bench job`: a load written down.

use super::coordinator::HostsArgs;
use super::load::{advised, perform};
use super::output::ShowArgs;
use clap::Args;
use skep_base::{Failure, Outcome};
use skep_bench::job::Job;
use std::io::{Read, Write};
use std::path::PathBuf;

/// Bytes of a job file.
const MAX_JOB: u64 = 16 << 20;

/// `skep bench job FILE`
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job as JSON; -: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where workers run.
    #[command(flatten)]
    hosts: HostsArgs,
    /// How to show it.
    #[command(flatten)]
    show: ShowArgs,
}

/// The job of the file; it may leave the processes of each host to the host file.
fn job(args: &JobArgs) -> Outcome<Job> {
    let name = args.file.display();
    let wrong = |error: &dyn std::fmt::Display| Failure::new(format!("{name}: {error}"));
    let mut text = String::new();
    let read = if args.file.as_os_str() == "-" {
        std::io::stdin().take(MAX_JOB).read_to_string(&mut text)
    } else {
        std::fs::File::open(&args.file).and_then(|file| file.take(MAX_JOB).read_to_string(&mut text))
    };
    read.map_err(|error| wrong(&error))?;
    let mut job: Job = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    if job.slots.is_empty() {
        job.slots = args.hosts.slots().map_err(Failure::new)?;
    }
    job.check().map_err(|error| wrong(&error))?;
    Ok(job)
}

pub fn run(args: &JobArgs, out: &mut dyn Write) -> Outcome {
    let job = job(args)?;
    let mut crew = args.hosts.crew(&job).map_err(Failure::new)?;
    let done = perform(&job, crew.as_mut(), &args.show, out);
    done.map_err(|failure| {
        advised(failure, "name another in the job, or have it used by `\"existing\": true`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use skep_bench::job::{IoJob, Work};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        job: JobArgs,
    }

    /// Goal: processes go to hosts as the host file says, unless the job itself says so; nonsense is refused with the
    /// file's name.
    #[test]
    fn slots() {
        let dir = tempfile::tempdir().unwrap();
        let (file, hosts) = (dir.path().join("job.json"), dir.path().join("hosts"));
        std::fs::write(&hosts, "a slots=3\nb slots=1\n").unwrap();
        let read = |slots: &[u32]| {
            let written = Job { slots: slots.to_vec(), ..Job::new(Work::Io(IoJob::new("/tmp"))) };
            std::fs::write(&file, serde_json::to_string(&written).unwrap()).unwrap();
            let words = ["job", file.to_str().unwrap(), "--host-file", hosts.to_str().unwrap()];
            job(&Line::try_parse_from(words).unwrap().job).unwrap().slots
        };
        assert_eq!(read(&[]), [3, 1]);
        assert_eq!(read(&[2, 5]), [2, 5]);
        std::fs::write(&file, "{}").unwrap();
        let line = Line::try_parse_from(["job", file.to_str().unwrap()]).unwrap();
        assert!(job(&line.job).unwrap_err().to_string().contains("job.json"));
    }
}
