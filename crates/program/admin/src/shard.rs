//! `skep shard list`, and the order of a move.

use crate::confirm;
use clap::{Args, Subcommand};
use serde::Serialize;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::namespace::Names;
use skep_base::output::{self, OutputArgs, Row};
use skep_base::{Failure, Outcome, find};
use skep_types::{NodeId, Reachability, ServiceKind, ShardId};
use skep_wire::mgmt::{GiveShard, NodeEntry, ShardEntry, ShardState, StatusReply};
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
    /// The server that has the shard is offline and gone for good: the new one serves the copy that it has itself, and what
    /// only the old one had is lost
    #[arg(long)]
    source_is_gone: bool,
    /// What other servers have of the shard that is newer is lost: the server serves the rows that it has or is told, though
    /// it knows of a server that had it later
    #[arg(long)]
    newer_are_lost: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
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
    /// Its metadata server; none before the shards of a new cluster are placed, when it is retired, and once its server is gone for good.
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
    if status.shards.iter().any(is_there) && !args.newer_are_lost {
        eprintln!("shard {shard} is at {} already", node.alias);
        return Ok(());
    }
    if args.newer_are_lost {
        confirm::ask(&what_is_given_up(shard, &node.alias), args.yes)?;
    }
    if args.source_is_gone {
        give_up_source(&mut cluster, &status, shard, node, args.yes)?;
    }
    let newer_are_lost = args.newer_are_lost.then_some(true);
    cluster.ask(&GiveShard { shard, node: node.node, newer_are_lost })?;
    eprintln!(
        "shard {shard} is on its way to {}; `skep shard list` shows it as active once it is there",
        node.alias
    );
    Ok(())
}

/// Says that who has the shard's rows is gone. Nobody serves it then until it is given to somebody, so who is to have it must be
/// there.
fn give_up_source(
    cluster: &mut Cluster,
    status: &StatusReply,
    shard: ShardId,
    node: &NodeEntry,
    yes: bool,
) -> Outcome {
    confirm::ask(&what_is_lost(status, shard, node)?, yes)?;
    cluster.ask(&GiveShard::to(shard, NodeId(0))).map(drop)
}

fn what_is_given_up(shard: ShardId, alias: &str) -> String {
    format!(
        "Whatever other servers have of shard {shard} that is newer than what {alias} has or is told is lost. None of them \
         may be serving it: where one runs that mgmtd does not hear, both serve the shard"
    )
}

fn what_is_lost(status: &StatusReply, shard: ShardId, node: &NodeEntry) -> Outcome<String> {
    if node.service != ServiceKind::Metad || node.reachability != Reachability::Online {
        let alias = &node.alias;
        return Err(Failure::new(format!(
            "{alias} is no metadata server that is online: nobody would serve shard {shard}. Nothing was done"
        )));
    }
    let entry = status.shards.iter().find(|entry| entry.shard == shard);
    let source = entry.and_then(|entry| entry.members.first());
    let source = source.map_or_else(|| "its server".to_owned(), |source| Names::of(status).node(*source));
    Ok(format!(
        "What only {source} has of shard {shard} is lost, and {source} must not run before `skep shard list` shows the shard as \
         active: where it runs unheard, both serve it. {} serves the copy that it has; if it has none, nobody is served until the shard is given to \
         another server",
        node.alias
    ))
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

    /// Goal: before a server is called gone it is said what is lost, and whose copy is served; nothing is done when that one
    /// could not serve.
    #[test]
    fn what_is_lost_is_said_first() {
        let mut status = samples::status();
        status.shards[0].members = vec![NodeId(77)];
        let mut node = status.nodes[0].node.clone();
        (node.service, node.reachability) = (ServiceKind::Metad, Reachability::Online);
        let text = what_is_lost(&status, ShardId(0), &node).unwrap();
        assert!(text.contains("77 has of shard 0 is lost") && text.contains("metad-1 serves"), "{text}");
        let text = what_is_given_up(ShardId(3), "metad-2");
        assert!(text.contains("shard 3 that is newer than what metad-2 has or is told is lost"), "{text}");
        node.reachability = Reachability::Offline;
        let refused = what_is_lost(&status, ShardId(0), &node).unwrap_err();
        assert!(refused.to_string().contains("Nothing was done"), "{refused}");
    }
}
