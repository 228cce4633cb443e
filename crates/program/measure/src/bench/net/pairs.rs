//! `skep bench net pairs`.

use crate::bench::report::{self, ReportArgs};
use clap::Args;
use serde::Serialize;
use skep_base::access::{AccessArgs, Cluster};
use skep_base::output::{Row, human};
use skep_base::units::{Period, Size};
use skep_base::{Failure, Outcome, find};
use skep_instruments::client::{self, Transport};
use skep_instruments::question::{NetworkFound, NetworkTest};
use skep_survey::model::{MemberResult, SideBySide};
use skep_survey::pairs::{ARROW, Slow, slow};
use skep_types::Reachability;
use skep_types::limits::PAYLOAD_MAX;
use skep_wire::mgmt::{NodeEntry, StatusReply};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Arguments of `skep bench net pairs`.
#[derive(Debug, Args)]
pub struct PairsArgs {
    /// Daemons, by alias or number [default: all that are there]
    #[arg(long = "nodes", value_delimiter = ',', value_name = "NODE")]
    nodes: Vec<String>,
    /// Connections at once
    #[arg(long, value_name = "N", default_value = "4")]
    streams: u32,
    /// Bytes of one payload
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    block: Size,
    /// Length of each measurement (there are two for each pair and round)
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    time: Period,
    /// Rounds over all pairs
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: u32,
    /// Small messages for the latency of each pair and round
    #[arg(long, value_name = "N", default_value = "200")]
    pings: u32,
    /// Measure pairs that share no daemon at the same time: faster, but they may share a cable or a machine
    #[arg(long)]
    parallel: bool,
    /// Over which sockets
    #[arg(long, value_enum, default_value = "auto")]
    transport: Transport,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: ReportArgs,
}

/// One pair: what the first one sent and received.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairRow {
    from: String,
    to: String,
    /// Where the first one connected to.
    address: String,
    /// Bytes a second, from the first to the second, of each round.
    sent: Vec<f64>,
    /// ... and back.
    received: Vec<f64>,
    /// Microseconds there and back, half of the messages of each round were faster.
    p50_us: Vec<f64>,
    /// ... 99 of 100.
    p99_us: Vec<f64>,
    error: Option<String>,
}

/// Something slow.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowOne {
    /// A daemon, or a pair as `from -> to`.
    who: String,
    /// In words.
    finding: String,
    /// Share of what its likes reach.
    share: f64,
}

/// All pairs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairsReport {
    pairs: Vec<PairRow>,
    /// The worst first; empty when all are alike.
    slow: Vec<SlowOne>,
}

fn middle(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Row for PairRow {
    const TITLES: &'static [&'static str] =
        &["FROM", "TO", ">SENT", ">RECEIVED", ">P50 US", ">P99 US", "ADDRESS", "ERROR"];

    fn cells(&self) -> Vec<String> {
        let rate = |values: &[f64]| {
            middle(values).map_or_else(|| "-".to_owned(), |rate| format!("{}/s", human(rate as u64)))
        };
        let us = |values: &[f64]| middle(values).map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
        vec![
            self.from.clone(),
            self.to.clone(),
            rate(&self.sent),
            rate(&self.received),
            us(&self.p50_us),
            us(&self.p99_us),
            self.address.clone(),
            self.error.clone().unwrap_or_default(),
        ]
    }
}

impl PairRow {
    fn add(&mut self, found: NetworkFound) {
        self.address = found.peer;
        self.sent.extend(found.sent.map(|flow| flow.rate()));
        self.received.extend(found.received.map(|flow| flow.rate()));
        if let Some(latency) = found.latency {
            self.p50_us.push(latency.p50_us);
            self.p99_us.push(latency.p99_us);
        }
    }
}

/// Each direction of each pair as a member of one measurement.
fn judge(rows: &[PairRow]) -> Vec<SlowOne> {
    let member = |a: &str, b: &str, samples: &[f64]| MemberResult {
        name: format!("{a}{ARROW}{b}"),
        samples: samples.to_vec(),
        outlier: None,
    };
    let whole = rows.iter().filter(|row| row.error.is_none() && !row.sent.is_empty());
    let members = whole
        .flat_map(|row| [member(&row.from, &row.to, &row.sent), member(&row.to, &row.from, &row.received)]);
    let side = SideBySide {
        id: "pairs".to_owned(),
        title: String::new(),
        unit: "bytes/s".to_owned(),
        more_is_better: true,
        members: members.collect(),
        command: String::new(),
    };
    slow(&side).into_iter().map(|slow| told(&slow, &side)).collect()
}

fn told(slow: &Slow, side: &SideBySide) -> SlowOne {
    let rate = |value: f64| format!("{}/s", human(value as u64));
    let share = slow.share();
    match slow {
        Slow::Node { node, sends, receives, value, expected, .. } => {
            let what = match (sends, receives) {
                (Some(_), Some(_)) => "what it sends and receives is slow",
                (Some(_), None) => "what it sends is slow",
                _ => "what it receives is slow",
            };
            let finding = format!("{what}: {} beside {} of the others", rate(*value), rate(*expected));
            SlowOne { who: node.clone(), finding, share }
        }
        Slow::Pair(lag) => {
            let who = side.members.get(lag.at).map_or_else(String::new, |member| member.name.clone());
            let finding = format!("{} beside {} of the others", rate(lag.value), rate(lag.expected));
            SlowOne { who, finding, share }
        }
    }
}

fn chosen(status: &StatusReply, names: &[String]) -> Outcome<Vec<NodeEntry>> {
    if names.is_empty() {
        let there = status.nodes.iter().filter(|one| one.node.reachability == Reachability::Online);
        return Ok(there.map(|one| one.node.clone()).collect());
    }
    let mut nodes: Vec<NodeEntry> = Vec::new();
    for name in names {
        let node = &find::node(status, name)?.node;
        if nodes.iter().all(|known| known.node != node.node) {
            nodes.push(node.clone());
        }
    }
    Ok(nodes)
}

fn measure(cluster: &Cluster, nodes: &[NodeEntry], args: &PairsArgs) -> Vec<PairRow> {
    let test = NetworkTest {
        endpoints: Vec::new(),
        streams: args.streams,
        block: u32::try_from(args.block.0).unwrap_or(u32::MAX),
        seconds: args.time.duration().as_secs_f64(),
        pings: args.pings,
        bandwidth: !args.time.duration().is_zero(),
    };
    let pairs = (0..nodes.len()).flat_map(|a| (a + 1..nodes.len()).map(move |b| (a, b)));
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let row = |(a, b): &(usize, usize)| {
        let (from, to) = (nodes[*a].alias.clone(), nodes[*b].alias.clone());
        PairRow { from, to, ..PairRow::default() }
    };
    let mut rows: Vec<PairRow> = pairs.iter().map(row).collect();
    let groups = match args.parallel {
        true => disjoint(&pairs, nodes.len()),
        false => (0..pairs.len()).map(|pair| vec![pair]).collect(),
    };
    let rounds = args.rounds.max(1);
    let mut progress = Progress::new(groups.len() * rounds as usize);
    // Round by round, so that what disturbs the whole machine for a while falls on all pairs alike.
    for round in 1..=rounds {
        for group in &groups {
            if let Some(first) = group.first().and_then(|pair| rows.get(*pair)) {
                progress.show(&format!("round {round} of {rounds}: {}{ARROW}{}", first.from, first.to));
            }
            let found = std::thread::scope(|scope| {
                let one = |pair: usize| {
                    let (a, b) = pairs[pair];
                    client::network(cluster, &nodes[a], &nodes[b], &test, args.transport)
                };
                let asked: Vec<_> =
                    group.iter().map(|pair| (*pair, scope.spawn(move || one(*pair)))).collect();
                let ended = |(pair, thread): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
                    let lost = || Err(Failure::new("a thread ended badly"));
                    (pair, thread.join().unwrap_or_else(|_| lost()))
                };
                asked.into_iter().map(ended).collect::<Vec<(usize, Outcome<NetworkFound>)>>()
            });
            for (pair, found) in found {
                match found {
                    Ok(NetworkFound { stuck: Some(stuck), peer, .. }) => {
                        let row = &mut rows[pair];
                        row.address = peer;
                        row.error = Some(stuck.told(&row.from, &row.to));
                    }
                    Ok(found) => rows[pair].add(found),
                    Err(failure) => rows[pair].error = Some(failure.to_string()),
                }
            }
        }
    }
    progress.end();
    rows
}

/// Groups of pairs in which no node appears twice: every node meets another one in each, as in a tournament.
fn disjoint(pairs: &[(usize, usize)], nodes: usize) -> Vec<Vec<usize>> {
    // One node stays where it is, the others go round it; of an odd number, one rests each time.
    let around = nodes + nodes % 2 - 1;
    let turn = |(a, b): (usize, usize)| if b == around { 2 * a % around } else { (a + b) % around };
    let mut groups = vec![Vec::new(); around];
    pairs.iter().enumerate().for_each(|(number, pair)| groups[turn(*pair)].push(number));
    groups.retain(|group| !group.is_empty());
    groups
}

/// What is told on a terminal meanwhile.
struct Progress {
    told: bool,
    began: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    fn new(all: usize) -> Self {
        Self { told: std::io::stderr().is_terminal(), began: Instant::now(), done: 0, all }
    }

    /// One more begins.
    fn show(&mut self, what: &str) {
        if self.told {
            eprint!("\r\x1b[K{} of {}, {what}{}", self.done + 1, self.all, self.left(self.began.elapsed()));
        }
        self.done += 1;
    }

    /// The time that those that are left will take, if they are like those that are done.
    fn left(&self, elapsed: Duration) -> String {
        match self.done {
            0 => String::new(),
            done => {
                let seconds = elapsed.as_secs_f64() / done as f64 * (self.all - done) as f64;
                format!(", about {} s left", seconds.ceil() as u64)
            }
        }
    }

    fn end(&self) {
        if self.told {
            eprint!("\r\x1b[K");
        }
    }
}

pub fn run(args: &PairsArgs, out: &mut dyn Write) -> Outcome {
    if args.block.0 > PAYLOAD_MAX as u64 {
        return Err(Failure::usage(format!("--block: {PAYLOAD_MAX} bytes at most fit into a frame")));
    }
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring the network")?;
    let nodes = chosen(&cluster.status()?, &args.nodes)?;
    if nodes.len() < 2 {
        return Err(Failure::new("a pair has two daemons: see `skep node list`"));
    }
    let pairs = measure(&cluster, &nodes, args);
    let slow = judge(&pairs);
    let report = PairsReport { pairs, slow };
    let words: Vec<String> =
        report.slow.iter().map(|one| format!("slow: {}: {}\n", one.who, one.finding)).collect();
    report::write(args.output, &report, &report.pairs, &words.concat(), out)?;
    let failed = report.pairs.iter().filter(|row| row.error.is_some()).count();
    match failed {
        0 => Ok(()),
        n => Err(Failure::new(format!("{n} of {} pairs could not be measured", report.pairs.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: &str, to: &str, rate: f64) -> PairRow {
        let around = |rate: f64| vec![rate, rate * 1.02, rate * 0.98];
        PairRow {
            from: from.to_owned(),
            to: to.to_owned(),
            sent: around(rate),
            received: around(rate),
            ..PairRow::default()
        }
    }

    /// Goal: groups hold every pair once and no node twice, as few of them as there can be.
    #[test]
    fn groups_are_disjoint() {
        for nodes in 2..9_usize {
            let pairs: Vec<(usize, usize)> =
                (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))).collect();
            let groups = disjoint(&pairs, nodes);
            assert_eq!(groups.len(), nodes + nodes % 2 - 1);
            let mut all: Vec<usize> = groups.concat();
            all.sort_unstable();
            assert_eq!(all, (0..pairs.len()).collect::<Vec<_>>());
            for group in groups {
                let mut ends: Vec<usize> =
                    group.iter().flat_map(|pair| [pairs[*pair].0, pairs[*pair].1]).collect();
                ends.sort_unstable();
                ends.dedup();
                assert_eq!(ends.len(), 2 * group.len(), "{nodes}");
            }
        }
    }

    /// Goal: the estimate is that of the pairs that are done.
    #[test]
    fn estimates() {
        let progress = |done| Progress { told: false, began: Instant::now(), done, all: 10 };
        assert_eq!(progress(0).left(Duration::from_secs(4)), "");
        assert_eq!(progress(2).left(Duration::from_secs(4)), ", about 16 s left");
    }

    /// Goal: a slow daemon is named by its alias, and nothing when all pairs are alike or fail.
    #[test]
    fn the_slow_daemon_is_named() {
        let names = ["a", "b", "c", "d"];
        let pairs = |rate: fn(&str, &str) -> f64| -> Vec<PairRow> {
            let all = (0..4).flat_map(|a| (a + 1..4).map(move |b| (names[a], names[b])));
            all.map(|(a, b)| row(a, b, rate(a, b))).collect()
        };
        let slow = judge(&pairs(|a, b| if a == "c" || b == "c" { 1e8 } else { 1e9 }));
        assert_eq!((slow.len(), slow[0].who.as_str()), (1, "c"));
        assert!(slow[0].finding.contains("sends and receives"), "{}", slow[0].finding);
        assert!(judge(&pairs(|_, _| 1e9)).is_empty());
        let failed = PairRow { error: Some("no".to_owned()), ..row("a", "b", 1.0) };
        assert!(judge(&[failed]).is_empty());
    }
}
