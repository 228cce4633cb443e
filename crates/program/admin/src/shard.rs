//! `skep shard list`, and the order of a move.

use clap::{Args, Subcommand};
use serde::Serialize;
use skep_base::access::AccessArgs;
use skep_base::namespace::Names;
use skep_base::output::{self, OutputArgs, Row};
use skep_base::{Outcome, find};
use skep_types::ShardId;
use skep_wire::mgmt::{GiveShard, ShardEntry, ShardState, StatusReply};
use std::io::Write;

/// `skep shard ...`
#[derive(Debug, Subcommand)]
pub enum ShardCommand {
    /// List the parts of the namespace, and which metadata server has each
    List(ListArgs),
    /// Move a part of the namespace to another metadata server
    Give(GiveArgs),
}

/// Flags of `skep shard list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Flags of `skep shard give`.
#[derive(Debug, Args)]
pub struct GiveArgs {
    /// Number of the shard
    shard: u16,
    /// Alias or number of the metadata server
    node: String,
    #[command(flatten)]
    access: AccessArgs,
}

/// A shard.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShardRow {
    id: u16,
    /// new: not formatted yet; active; moving: its rows are on the way to its server, and nobody answers; retired: nobody answers for it any more.
    state: &'static str,
    /// Its metadata server; none before the shards of a new cluster are placed, and when it is retired.
    server: Option<String>,
    /// Is the server heard?
    reachability: &'static str,
    /// Raised with every change of its members, leader or state.
    epoch: u64,
    /// Times that an older copy of it was put back.
    era: u16,
}

impl Row for ShardRow {
    const TITLES: &'static [&'static str] = &[">ID", "STATE", "SERVER", "REACHABILITY", ">EPOCH", ">ERA"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.state.to_owned(),
            self.server.clone().unwrap_or_else(|| "-".to_owned()),
            self.reachability.to_owned(),
            self.epoch.to_string(),
            self.era.to_string(),
        ]
    }
}

fn rows(status: &StatusReply) -> Vec<ShardRow> {
    let names = Names::of(status);
    let row = |entry: &skep_wire::mgmt::ShardEntry| {
        let server = entry.led_by();
        ShardRow {
            id: entry.shard.0,
            state: entry.state.as_str(),
            server: server.map(|node| names.node(node)),
            reachability: server.map_or("-", |node| names.reachability(node)),
            epoch: entry.epoch,
            era: entry.era,
        }
    };
    status.shards.iter().map(row).collect()
}

fn give(args: &GiveArgs) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("moving a shard")?;
    let status = cluster.status()?;
    let node = &find::node(&status, &args.node)?.node;
    let shard = ShardId(args.shard);
    let is_there = |entry: &ShardEntry| {
        entry.shard == shard && entry.state == ShardState::Active && entry.is_led_by(node.node)
    };
    if status.shards.iter().any(is_there) {
        eprintln!("shard {shard} is at {} already", node.alias);
        return Ok(());
    }
    cluster.ask(&GiveShard { shard, node: node.node })?;
    eprintln!(
        "shard {shard} is on its way to {}; `skep shard list` shows it as active once it is there",
        node.alias
    );
    Ok(())
}

pub fn run(command: &ShardCommand, out: &mut dyn Write) -> Outcome {
    let args = match command {
        ShardCommand::List(args) => args,
        ShardCommand::Give(args) => return give(args),
    };
    let status = args.access.connect(None)?.status()?;
    Ok(output::rows(args.output.output, &rows(&status), out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: each shard has a row with the alias of its server; one that is not placed shows none.
    #[test]
    fn servers_are_named() {
        let mut status = samples::status();
        let placed = rows(&status);
        assert_eq!(placed.len(), status.shards.len());
        let server = placed[0].server.clone().unwrap();
        assert!(status.nodes.iter().any(|node| node.node.alias == server), "{server}");
        status.shards[0].leader = skep_types::NodeId(0);
        let row = serde_json::to_value(&rows(&status)[0]).unwrap();
        assert_eq!((&row["server"], &row["reachability"]), (&serde_json::Value::Null, &"-".into()));
    }
}
