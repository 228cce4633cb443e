//! `skep entry info`, `skep entry set`.

use super::access::AccessArgs;
use super::entry_info::{EntryInfo, gather};
use super::failure::{Failure, Outcome};
use super::namespace::Namespace;
use crate::cli::output::{self, OutputArgs};
use crate::units::Size;
use clap::{Args, Subcommand};
use skep_types::Policy;
use skep_types::limits::TARGETS_MAX;
use skep_wire::meta::{Inspect, SetPolicy};
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

/// `skep entry ...`
#[derive(Debug, Subcommand)]
pub enum EntryCommand {
    /// Show where entries and their bytes are
    Info(InfoArgs),
    /// Set the striping of new files in a directory, or of a file without chunks
    Set(SetArgs),
}

/// Arguments of `skep entry info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Paths on a mount; with --cluster or --mgmtd also absolute paths in the namespace
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep entry set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Paths, as for `entry info`
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Bytes of a chunk, a power of two from 64KiB on
    #[arg(long, value_name = "SIZE")]
    chunk_size: Option<Size>,
    /// Targets of a file: a number, or "progressive" (more as the file grows)
    #[arg(long, value_name = "N")]
    targets: Option<Targets>,
    /// Largest file kept in the metadata; 0: none
    #[arg(long, value_name = "SIZE")]
    inline_limit: Option<Size>,
    /// Back to the defaults of the cluster
    #[arg(long, conflicts_with_all = ["chunk_size", "targets", "inline_limit"])]
    default: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// Value of `--targets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Targets(u32);

impl FromStr for Targets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u32>() {
            _ if text == "progressive" => Ok(Self(0)),
            Ok(count) if count >= 1 && count as usize <= TARGETS_MAX => Ok(Self(count)),
            _ => Err(format!("write \"progressive\" or a number from 1 to {TARGETS_MAX}")),
        }
    }
}

impl SetArgs {
    /// What was asked for, laid over what holds.
    fn policy(&self, now: Policy) -> Outcome<Policy> {
        if self.default {
            return Ok(Policy::default());
        }
        if self.chunk_size.is_none() && self.targets.is_none() && self.inline_limit.is_none() {
            return Err(Failure::new(
                "nothing to set; give --chunk-size, --targets, --inline-limit or --default",
            ));
        }
        let fits = |name: &str, size: Size| {
            u32::try_from(size.bytes()).map_err(|_| Failure::new(format!("{name} {size} is too large")))
        };
        Ok(Policy {
            pool: skep_types::PoolId(0),
            chunk_size: match self.chunk_size {
                Some(size) => fits("--chunk-size", size)?,
                None => now.chunk_size,
            },
            targets: self.targets.map_or(now.targets, |targets| targets.0),
            inline_limit: match self.inline_limit {
                Some(size) => Some(fits("--inline-limit", size)?),
                None => now.inline_limit,
            },
        })
    }
}

fn info(args: &InfoArgs, out: &mut dyn Write) -> Outcome {
    let mut found = Vec::new();
    let mut failed = Vec::new();
    for path in &args.paths {
        match gather(&args.access, path) {
            Ok(info) => found.push(info),
            Err(failure) => failed.push(failure),
        }
    }
    output::documents(args.output.output, &found, EntryInfo::text, out)?;
    match failed.split_last() {
        None => Ok(()),
        Some((last, before)) => {
            before.iter().for_each(|failure| eprintln!("skep: {failure}"));
            Err(last.clone())
        }
    }
}

fn set(args: &SetArgs) -> Outcome {
    for path in &args.paths {
        let mut namespace = Namespace::connect(&args.access, path)?;
        let ino = namespace.resolve(path)?;
        let named = |e: Failure| Failure::new(format!("{}: {e}", path.display()));
        let now = namespace.ask(ino, &Inspect { ino }).map_err(named)?.policy;
        let policy = args.policy(now)?;
        namespace.ask(ino, &SetPolicy { ino, policy }).map_err(named)?;
        let online = namespace.status.targets.len();
        if policy.targets as usize > online {
            let path = path.display();
            eprintln!(
                "note: {path}: {} targets wanted, the cluster has {online}: files get as many as there are",
                policy.targets
            );
        }
    }
    Ok(())
}

/// Does it.
pub fn run(command: &EntryCommand, out: &mut dyn Write) -> Outcome {
    match command {
        EntryCommand::Info(args) => info(args, out),
        EntryCommand::Set(args) => set(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SetArgs,
    }

    fn line(words: &[&str]) -> Result<SetArgs, String> {
        let words = ["set", "/x"].iter().chain(words);
        Line::try_parse_from(words).map(|line| line.args).map_err(|e| e.to_string())
    }

    /// Goal: what is not given stays, `--default` clears, nonsense is refused with the right form.
    #[test]
    fn policies() {
        let now =
            Policy { pool: skep_types::PoolId(0), chunk_size: 1 << 20, targets: 4, inline_limit: Some(0) };
        let policy = |words: &[&str]| line(words).unwrap().policy(now);
        assert_eq!(policy(&["--chunk-size", "512KiB"]), Ok(Policy { chunk_size: 512 << 10, ..now }));
        assert_eq!(policy(&["--targets", "progressive"]), Ok(Policy { targets: 0, ..now }));
        assert_eq!(policy(&["--inline-limit", "4KiB"]), Ok(Policy { inline_limit: Some(4096), ..now }));
        assert_eq!(policy(&["--default"]), Ok(Policy::default()));
        assert!(policy(&[]).unwrap_err().to_string().contains("--chunk-size"));
        assert!(policy(&["--chunk-size", "8GiB"]).is_err());
        for wrong in ["0", "257", "all"] {
            assert!(line(&["--targets", wrong]).unwrap_err().contains("progressive"), "{wrong}");
        }
        assert!(line(&["--default", "--targets", "2"]).is_err());
    }
}
