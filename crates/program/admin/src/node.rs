//! `skep node list|set-alias|remove`.

use clap::{Args, Subcommand};
use serde::Serialize;
use skep_base::Outcome;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::find;
use skep_base::output::{self, OutputArgs, Row, ago};
use skep_types::NodeId;
use skep_wire::mgmt::{NodeStatus, RemoveNode, SetNodeAlias, StatusReply};
use std::io::Write;

/// `skep node ...`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List the daemons
    List(ListArgs),
    /// Give a daemon another alias
    SetAlias(SetAliasArgs),
    /// Take a daemon out of the cluster that is offline and has neither targets nor shards
    Remove(RemoveArgs),
}

/// Flags of `skep node list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep node set-alias`.
#[derive(Debug, Args)]
pub struct SetAliasArgs {
    /// Alias or number of the node
    node: String,
    /// Its new alias
    alias: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `skep node remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Alias or number of the node
    node: String,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A daemon.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRow {
    id: u32,
    alias: String,
    service: &'static str,
    state: &'static str,
    silent_ms: Option<u64>,
    addresses: Vec<String>,
    /// What fails together with it.
    domain: String,
    /// Newest map that it acts upon; 0: not known.
    map: u64,
    shards: usize,
    targets: usize,
}

impl Row for NodeRow {
    const TITLES: &'static [&'static str] =
        &[">ID", "ALIAS", "SERVICE", "STATE", "HEARD", ">SHARDS", ">TARGETS", "ADDRESSES"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.alias.clone(),
            self.service.to_owned(),
            self.state.to_owned(),
            ago(self.silent_ms),
            self.shards.to_string(),
            self.targets.to_string(),
            self.addresses.join(" "),
        ]
    }
}

fn row(status: &StatusReply, node: &NodeStatus) -> NodeRow {
    let entry = &node.node;
    NodeRow {
        id: entry.node.0,
        alias: entry.alias.clone(),
        service: entry.service.as_str(),
        state: entry.reachability.as_str(),
        silent_ms: node.silent_ms,
        addresses: entry.addresses.iter().map(|address| address.text.clone()).collect(),
        domain: entry.domain.clone(),
        map: node.map.0,
        shards: status.shards.iter().filter(|shard| shard.is_led_by(entry.node)).count(),
        targets: status.targets.iter().filter(|target| target.node == entry.node).count(),
    }
}

/// Programs get the changed node; people were told in words.
fn show(cluster: &mut Cluster, node: NodeId, output: OutputArgs, out: &mut dyn Write) -> Outcome {
    if output.output == output::Format::Table {
        return Ok(());
    }
    let status = cluster.status()?;
    let rows: Vec<_> =
        status.nodes.iter().filter(|one| one.node.node == node).map(|one| row(&status, one)).collect();
    Ok(output::rows(output.output, &rows, out)?)
}

fn set_alias(args: &SetAliasArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("changing a node")?;
    let status = cluster.status()?;
    let node = &find::node(&status, &args.node)?.node;
    cluster.ask(&SetNodeAlias { node: node.node, alias: args.alias.clone() })?;
    eprintln!("node {} is called {} from now on", node.alias, args.alias);
    show(&mut cluster, node.node, args.output, out)
}

fn remove(args: &RemoveArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("removing a node")?;
    let status = cluster.status()?;
    let node = find::node(&status, &args.node)?;
    cluster.ask(&RemoveNode { node: node.node.node })?;
    eprintln!("node {} ({}) is removed; its number is not given again", node.node.alias, node.node.node);
    match args.output.output {
        output::Format::Table => Ok(()),
        format => Ok(output::rows(format, &[row(&status, node)], out)?),
    }
}

/// All daemons.
pub fn rows(status: &StatusReply) -> Vec<NodeRow> {
    status.nodes.iter().map(|node| row(status, node)).collect()
}

pub fn run(command: &NodeCommand, out: &mut dyn Write) -> Outcome {
    match command {
        NodeCommand::List(args) => {
            let status = args.access.connect(None)?.status()?;
            Ok(output::rows(args.output.output, &rows(&status), out)?)
        }
        NodeCommand::SetAlias(args) => set_alias(args, out),
        NodeCommand::Remove(args) => remove(args, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;

    /// Goal: the field names of JSON are the released ones, and the counts are those of the node.
    #[test]
    fn field_names() {
        let status = samples::status();
        let row = serde_json::to_value(row(&status, &status.nodes[1])).unwrap();
        let names: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "addresses",
                "alias",
                "domain",
                "id",
                "map",
                "service",
                "shards",
                "silent_ms",
                "state",
                "targets"
            ]
        );
        assert_eq!((row["id"].as_u64(), row["targets"].as_u64()), (Some(2), Some(1)));
        assert_eq!(NodeRow::TITLES.len(), super::row(&status, &status.nodes[0]).cells().len());
    }
}
