//! `skep stats`: counters since the start, or what happens now.

mod live;
mod rates;
mod screen;

pub use rates::RateRow;

use clap::Args;
use serde::Serialize;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::output::{self, OutputArgs, Row};
use skep_base::units::Period;
use skep_base::{Failure, Outcome};
use skep_types::{ServiceKind, ShardId};
use skep_wire::meta::GroupStats;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use skep_wire::storage::{TargetStat, TargetStats};
use std::io::Write;

/// Flags of `skep stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only this node (alias)
    #[arg(long, value_name = "ALIAS")]
    node: Option<String>,
    /// Show what happens now, again and again; on a terminal as a live view (q ends it)
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s")]
    watch: Option<Period>,
    /// With --watch: end after so many rounds
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One counter since the start of its daemon.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterRow {
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
        ("read_ns", stat.read_ns),
        ("write_ns", stat.write_ns),
        ("syncs", stat.syncs),
        ("sync_ns", stat.sync_ns),
    ];
    // Older daemons promise nothing.
    let promised = stat.promised.map(|promised| ("promised_bytes", promised));
    let row = |(counter, value): (&str, u64)| CounterRow {
        node: node.alias.clone(),
        service: node.service.as_str(),
        target: alias.clone(),
        counter: counter.to_owned(),
        value,
    };
    counters.into_iter().chain(promised).map(row).collect()
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
            let stats = link.ask_shard(ShardId::default(), &GroupStats {});
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

/// Nodes that are asked at the same time.
const ASKED_AT_ONCE: usize = 32;

/// Counters of all nodes that are wanted, and why some did not answer.
pub fn collect(
    cluster: &Cluster,
    status: &StatusReply,
    wanted: &dyn Fn(&NodeEntry) -> bool,
) -> (Vec<CounterRow>, Vec<Failure>) {
    let nodes: Vec<_> = status.nodes.iter().map(|node| &node.node).filter(|node| wanted(node)).collect();
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for some in nodes.chunks(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|node| scope.spawn(|| ask(cluster, status, node))).collect();
            for answer in asked {
                match answer.join() {
                    Ok(Ok(more)) => rows.extend(more),
                    Ok(Err(failure)) => failures.push(failure),
                    Err(_) => failures.push(Failure::new("the question was lost (a bug: please report it)")),
                }
            }
        });
    }
    (rows, failures)
}

/// Does it. What answered is shown even if some daemon did not.
pub fn run(args: &StatsArgs, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    let status = cluster.status()?;
    let wanted = |node: &NodeEntry| args.node.as_ref().is_none_or(|alias| *alias == node.alias);
    if let (Some(alias), false) = (&args.node, status.nodes.iter().any(|node| wanted(&node.node))) {
        return Err(Failure::new(format!("there is no node \"{alias}\"; see `skep node list`")));
    }
    if let Some(every) = args.watch {
        return live::watch(&mut cluster, args, every, &wanted, out);
    }
    let (rows, mut failures) = collect(&cluster, &status, &wanted);
    output::rows(args.output.output, &rows, out)?;
    let last = failures.pop();
    failures.iter().for_each(|failure| eprintln!("skep: {failure}"));
    last.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::namespace::samples;
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
            read_ns: 7,
            write_ns: 8,
            syncs: 9,
            sync_ns: 10,
            promised: Some(11),
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
                ("in_flight", 6),
                ("read_ns", 7),
                ("write_ns", 8),
                ("syncs", 9),
                ("sync_ns", 10),
                ("promised_bytes", 11)
            ]
        );
        assert!(rows.iter().all(|row| row.target == "target-101" && row.node == "storaged-2"));
        assert_eq!(rows[0].cells().len(), CounterRow::TITLES.len());
    }
}
