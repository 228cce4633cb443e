//! `skep stats`.

use super::access::{AccessArgs, Cluster};
use super::failure::{Failure, Outcome};
use crate::cli::output::{self, OutputArgs, Row};
use clap::Args;
use serde::Serialize;
use skep_types::ServiceKind;
use skep_wire::meta::ShardStats;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use skep_wire::storage::{TargetStat, TargetStats};
use std::io::Write;

/// Flags of `skep stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only this node (alias)
    #[arg(long, value_name = "ALIAS")]
    node: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One counter since the start of its daemon.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct CounterRow {
    node: String,
    service: &'static str,
    /// Alias of the target; empty for the daemon as a whole.
    target: String,
    counter: String,
    value: u64,
}

impl Row for CounterRow {
    const TITLES: &'static [&'static str] = &["NODE", "SERVICE", "TARGET", "COUNTER", ">VALUE"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.node.clone(),
            self.service.to_owned(),
            self.target.clone(),
            self.counter.clone(),
            self.value.to_string(),
        ]
    }
}

fn target_rows(node: &NodeEntry, status: &StatusReply, stat: &TargetStat) -> Vec<CounterRow> {
    let alias = status.targets.iter().find(|target| target.target == stat.target);
    let alias = alias.map_or_else(|| format!("target {}", stat.target), |target| target.alias.clone());
    let counters = [
        ("reads", stat.reads),
        ("read_bytes", stat.read_bytes),
        ("writes", stat.writes),
        ("written_bytes", stat.written_bytes),
        ("errors", stat.errors),
        ("in_flight", stat.in_flight),
    ];
    let row = |(counter, value): (&str, u64)| CounterRow {
        node: node.alias.clone(),
        service: node.service.as_str(),
        target: alias.clone(),
        counter: counter.to_owned(),
        value,
    };
    counters.into_iter().map(row).collect()
}

/// The counters of one daemon.
fn ask(cluster: &Cluster, status: &StatusReply, node: &NodeEntry) -> Outcome<Vec<CounterRow>> {
    let mut link = cluster.node(node);
    match node.service {
        ServiceKind::Mgmtd => Ok(Vec::new()),
        ServiceKind::Storaged => {
            let stats = link.ask(&TargetStats {})?;
            Ok(stats.targets.iter().flat_map(|stat| target_rows(node, status, stat)).collect())
        }
        ServiceKind::Metad => {
            let led = status.shards.iter().find(|shard| shard.replicas.first() == Some(&node.node));
            let Some(led) = led else { return Ok(Vec::new()) };
            let stats = link.ask_shard(led.shard, &ShardStats {});
            let stats = stats.map_err(|e| Failure::call(&node.alias, &e))?;
            let row = |counter: skep_wire::meta::Counter| CounterRow {
                node: node.alias.clone(),
                service: node.service.as_str(),
                target: String::new(),
                counter: counter.name,
                value: counter.value,
            };
            Ok(stats.counters.into_iter().map(row).collect())
        }
    }
}

/// Does it. What answered is shown even if some daemon did not.
pub fn run(args: &StatsArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    let status = cluster.status()?;
    let wanted = |node: &&NodeEntry| args.node.as_ref().is_none_or(|alias| *alias == node.alias);
    let nodes: Vec<_> = status.nodes.iter().map(|node| &node.node).filter(wanted).collect();
    if let (Some(alias), true) = (&args.node, nodes.is_empty()) {
        return Err(Failure::new(format!("there is no node \"{alias}\"; see `skep node list`")));
    }
    let mut rows = Vec::new();
    let mut failed = None;
    for node in nodes {
        match ask(&cluster, &status, node) {
            Ok(more) => rows.extend(more),
            Err(failure) => {
                failed.inspect(|earlier: &Failure| eprintln!("skep: {earlier}"));
                failed = Some(failure);
            }
        }
    }
    output::rows(args.output.output, &rows, out)?;
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::namespace::samples;
    use skep_types::{Capacity, Consistency, TargetId};

    /// Goal: counters of a target carry its alias and the released names.
    #[test]
    fn counters_of_a_target() {
        let status = samples::status();
        let stat = TargetStat {
            target: TargetId(101),
            path: "/t".into(),
            consistency: Consistency::Good,
            capacity: Capacity::default(),
            reads: 1,
            read_bytes: 2,
            writes: 3,
            written_bytes: 4,
            errors: 5,
            in_flight: 6,
        };
        let rows = target_rows(&status.nodes[1].node, &status, &stat);
        let names: Vec<_> = rows.iter().map(|row| (row.counter.as_str(), row.value)).collect();
        assert_eq!(
            names,
            [
                ("reads", 1),
                ("read_bytes", 2),
                ("writes", 3),
                ("written_bytes", 4),
                ("errors", 5),
                ("in_flight", 6)
            ]
        );
        assert!(rows.iter().all(|row| row.target == "target-101" && row.node == "storaged-2"));
        assert_eq!(rows[0].cells().len(), CounterRow::TITLES.len());
    }
}
