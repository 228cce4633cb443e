//! `skep target list`, `skep target set-state`.

use super::access::AccessArgs;
use super::failure::{Failure, Outcome};
use super::namespace::Names;
use crate::cli::output::{self, OutputArgs, Row, human};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use skep_types::{Consistency, TargetId};
use skep_wire::mgmt::{SetTargetState, StatusReply, TargetEntry};
use std::io::Write;

/// `skep target ...`
#[derive(Debug, Subcommand)]
pub enum TargetCommand {
    /// List the targets
    List(ListArgs),
    /// Say what a target's content is worth (a disk that failed stays bad until you do)
    SetState(SetStateArgs),
}

/// Flags of `skep target list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep target set-state`.
#[derive(Debug, Args)]
pub struct SetStateArgs {
    /// Alias or number of the target
    target: String,
    /// Its state
    state: State,
    #[command(flatten)]
    access: AccessArgs,
}

/// States that an administrator may give.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    /// Its content can be trusted
    Good,
    /// It missed changes
    NeedsResync,
    /// Its disk failed
    Bad,
}

/// A target.
#[derive(Debug, Serialize)]
struct TargetRow {
    id: u32,
    alias: String,
    node: u32,
    node_alias: String,
    reachability: &'static str,
    consistency: &'static str,
    bytes: u64,
    bytes_free: u64,
    inodes: u64,
    inodes_free: u64,
}

impl Row for TargetRow {
    const TITLES: &'static [&'static str] =
        &[">ID", "ALIAS", "NODE", "REACHABILITY", "CONSISTENCY", ">SIZE", ">FREE", ">FREE INODES"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.alias.clone(),
            self.node_alias.clone(),
            self.reachability.to_owned(),
            self.consistency.to_owned(),
            human(self.bytes),
            human(self.bytes_free),
            self.inodes_free.to_string(),
        ]
    }
}

fn row(names: &Names<'_>, target: &TargetEntry) -> TargetRow {
    TargetRow {
        id: target.target.0,
        alias: target.alias.clone(),
        node: target.node.0,
        node_alias: names.node(target.node),
        reachability: names.reachability(target.node),
        consistency: target.consistency.as_str(),
        bytes: target.capacity.bytes,
        bytes_free: target.capacity.bytes_free,
        inodes: target.capacity.inodes,
        inodes_free: target.capacity.inodes_free,
    }
}

fn find(status: &StatusReply, text: &str) -> Outcome<TargetId> {
    let number = text.parse().ok().map(TargetId);
    let found = status.targets.iter().find(|t| t.alias == text || Some(t.target) == number);
    found
        .map(|target| target.target)
        .ok_or_else(|| Failure::new(format!("there is no target \"{text}\"; see `skep target list`")))
}

/// Does it.
pub fn run(command: &TargetCommand, out: &mut dyn Write) -> Outcome {
    match command {
        TargetCommand::List(args) => {
            let status = args.access.connect(None)?.status()?;
            let names = Names::of(&status);
            let rows: Vec<_> = status.targets.iter().map(|target| row(&names, target)).collect();
            Ok(output::rows(args.output.output, &rows, out)?)
        }
        TargetCommand::SetState(args) => {
            let mut cluster = args.access.connect(None)?;
            cluster.require_admin("changing a target")?;
            let target = find(&cluster.status()?, &args.target)?;
            let consistency = match args.state {
                State::Good => Consistency::Good,
                State::NeedsResync => Consistency::NeedsResync,
                State::Bad => Consistency::Bad,
            };
            cluster.ask(&SetTargetState { target, consistency })?;
            eprintln!("target {} is {}", args.target, consistency.as_str());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::namespace::samples;

    /// Goal: a target is found by alias and by number; the row's names are the released ones.
    #[test]
    fn found_and_shown() {
        let status = samples::status();
        assert_eq!(find(&status, "target-101"), Ok(TargetId(101)));
        assert_eq!(find(&status, "101"), Ok(TargetId(101)));
        assert!(find(&status, "102").unwrap_err().to_string().contains("target list"));
        let names = Names::of(&status);
        let row = row(&names, &status.targets[0]);
        assert_eq!(row.cells().len(), TargetRow::TITLES.len());
        let json = serde_json::to_string(&row).unwrap();
        assert!(json.starts_with(
            r#"{"id":101,"alias":"target-101","node":2,"node_alias":"storaged-2","reachability":"#
        ));
    }
}
