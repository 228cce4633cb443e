//! `skep bench files`: many small files, as people and training use them.

use super::load::{LoadArgs, absolute, size};
use clap::Args;
use skep_base::{Failure, Outcome};
use skep_bench::job::{FilesJob, FilesPhase, SourceTree, Training, Work};
use std::io::Write;
use std::path::PathBuf;

/// `skep bench files DIR...`
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// Directories; workers take turns
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// What is done, in this order: untar, find, grep, copy, remove with a source tree for each worker;
    /// samples, train with samples that all share
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "untar,find,grep,copy,remove",
        value_name = "PHASES",
        value_parser = phase
    )]
    phases: Vec<FilesPhase>,
    /// Files of a source tree
    #[arg(long, default_value_t = SourceTree::default().files, value_name = "N")]
    files: u64,
    /// Files of a directory
    #[arg(long, default_value_t = SourceTree::default().per_directory, value_name = "N")]
    per_directory: u64,
    /// Half of the files are smaller
    #[arg(long, default_value = "4300", value_name = "SIZE", value_parser = size)]
    median: u64,
    /// None is larger
    #[arg(long, default_value = "1m", value_name = "SIZE", value_parser = size)]
    largest: u64,
    /// Samples, one file each
    #[arg(long, default_value_t = Training::default().samples, value_name = "N")]
    samples: u64,
    /// The smallest sample
    #[arg(long, default_value = "20k", value_name = "SIZE", value_parser = size)]
    smallest_sample: u64,
    /// The largest sample
    #[arg(long, default_value = "200k", value_name = "SIZE", value_parser = size)]
    largest_sample: u64,
    /// How often each sample is read
    #[arg(long, default_value_t = Training::default().epochs, value_name = "N")]
    epochs: u32,
    /// Training compares every byte it reads, not only the beginning of each call's
    #[arg(long)]
    verify: bool,
    /// Name of the directory that is made
    #[arg(long, default_value = "skep-bench-files", value_name = "NAME")]
    name: String,
    /// How it is done.
    #[command(flatten)]
    load: LoadArgs,
}

impl FilesArgs {
    /// The load these arguments mean.
    fn work(&self) -> Result<FilesJob, Failure> {
        Ok(FilesJob {
            paths: absolute(&self.paths)?,
            name: self.name.clone(),
            phases: self.phases.clone(),
            tree: SourceTree {
                files: self.files,
                per_directory: self.per_directory,
                median_bytes: self.median,
                largest_bytes: self.largest,
            },
            training: Training {
                samples: self.samples,
                smallest_bytes: self.smallest_sample,
                largest_bytes: self.largest_sample,
                epochs: self.epochs,
            },
            verify: self.verify,
        })
    }
}

pub fn run(args: &FilesArgs, out: &mut dyn Write) -> Outcome {
    args.load.perform(Work::Files(args.work()?), out)
}

fn phase(text: &str) -> Result<FilesPhase, String> {
    use FilesPhase::{Copy, Find, Grep, Remove, Samples, Train, Untar};
    let known = [Untar, Find, Grep, Copy, Remove, Samples, Train];
    let found = known.into_iter().find(|phase| phase.name() == text);
    found.ok_or_else(|| "write some of untar,find,grep,copy,remove,samples,train".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        files: FilesArgs,
    }

    /// Goal: without options it is the library's default, and the words reach the fields.
    #[test]
    fn fields() {
        let job = |words: &[&str]| {
            Line::try_parse_from([&["files", "/d"], words].concat()).unwrap().files.work().unwrap()
        };
        assert_eq!(job(&[]), FilesJob::new("/d"));
        let training = job(&[
            "--phases",
            "samples,train",
            "--samples",
            "9",
            "--epochs",
            "4",
            "--largest-sample",
            "1m",
            "--verify",
        ]);
        assert!(training.verify);
        assert_eq!((training.training.samples, training.training.epochs), (9, 4));
        assert_eq!(training.phases, [FilesPhase::Samples, FilesPhase::Train]);
    }
}
