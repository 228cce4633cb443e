//! `skep node list`.

use super::access::AccessArgs;
use super::failure::Outcome;
use crate::cli::output::{self, OutputArgs, Row, ago};
use clap::{Args, Subcommand};
use serde::Serialize;
use skep_wire::mgmt::{NodeStatus, StatusReply};
use std::io::Write;

/// `skep node ...`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List the daemons
    List(ListArgs),
}

/// Flags of `skep node list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A daemon.
#[derive(Debug, Serialize)]
struct NodeRow {
    id: u32,
    alias: String,
    service: &'static str,
    state: &'static str,
    silent_ms: Option<u64>,
    addresses: Vec<String>,
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
        shards: status.shards.iter().filter(|shard| shard.replicas.first() == Some(&entry.node)).count(),
        targets: status.targets.iter().filter(|target| target.node == entry.node).count(),
    }
}

/// Does it.
pub fn run(command: &NodeCommand, out: &mut dyn Write) -> Outcome {
    let NodeCommand::List(args) = command;
    let status = args.access.connect(None)?.status()?;
    let rows: Vec<_> = status.nodes.iter().map(|node| row(&status, node)).collect();
    Ok(output::rows(args.output.output, &rows, out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::namespace::samples;

    /// Goal: the field names of JSON are the released ones, and the counts are those of the node.
    #[test]
    fn field_names() {
        let status = samples::status();
        let row = serde_json::to_value(row(&status, &status.nodes[1])).unwrap();
        let names: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["addresses", "alias", "id", "service", "shards", "silent_ms", "state", "targets"]);
        assert_eq!((row["id"].as_u64(), row["targets"].as_u64()), (Some(2), Some(1)));
        assert_eq!(NodeRow::TITLES.len(), super::row(&status, &status.nodes[0]).cells().len());
    }
}
