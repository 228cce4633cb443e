//! The disk under the log of every metadata server, and how much of a file's time waits for it.

use super::load::Place;
use super::rounds::{any_may_lag, may_lag, side_by_side};
use super::{Run, commands};
use skep_base::{Failure, Outcome};
use skep_bench::job::format_size;
use skep_bench::significance::median;
use skep_instruments::client::ask;
use skep_instruments::question::{Findings, LogFound, LogTest, Measurement};
use skep_survey::ids::{LOG, LOG_SYNC, LOG_WRITE, WRITE};
use skep_survey::model::{Curve, Layer, LayerId, Point, SideBySide};
use skep_types::ServiceKind;
use skep_wire::mgmt::NodeEntry;
use std::io::Write;
use std::time::{Duration, Instant};

/// A daemon answers within this time.
const LIMIT: Duration = Duration::from_secs(60);
/// Small records of one measurement.
const RECORDS: u32 = 20;
/// Bytes of one stream.
const STREAM: u64 = 4 << 20;
/// Files of one look at what a file waits for; more than the metadata keep themselves.
const FILES: u32 = 8;
const FILE: usize = 64 << 10;
/// No file waits for less: clocks tell no better.
const LEAST: f64 = 1e-6;
const MEGABYTE: f64 = 1e6;

fn one(run: &Run<'_>, node: &NodeEntry, test: LogTest) -> Outcome<LogFound> {
    match ask(run.cluster, node, &Measurement::Log(test), LIMIT)? {
        Findings::Log(found) => Ok(found),
        _ => Err(Failure::new("the answer is to another question")),
    }
}

pub fn measure(run: &mut Run<'_>, place: Option<&Place>) -> Outcome<Layer> {
    let nodes: Vec<NodeEntry> =
        run.members.nodes.iter().filter(|node| node.service == ServiceKind::Metad).cloned().collect();
    let names: Vec<String> = nodes.iter().map(|node| node.alias.clone()).collect();
    let measure = |at: usize| {
        let found = one(run, &nodes[at], LogTest { records: RECORDS, bytes: STREAM })?;
        let middle = median(&found.records_us).ok_or_else(|| Failure::new("no record was measured"))?;
        Ok(vec![middle, found.stream.rate() / MEGABYTE])
    };
    let doubtful = |figure: usize, members: &[_]| match figure {
        0 => may_lag(members, false),
        _ => any_may_lag([names.as_slice()], members),
    };
    let (sides, failed) = side_by_side(&names, run.preset.rounds, 2, measure, doubtful);
    run.missing(LayerId::Log, failed);
    if sides.first().is_none_or(Vec::is_empty) {
        return Err(Failure::new("no metadata server could be asked"));
    }
    let command = run.lines.only("log");
    run.commands.push(command.clone());
    let titled = [
        (
            LOG_SYNC,
            "Time of a record of 4 KiB until it is durable, disk of each metadata server's log",
            "us",
            false,
        ),
        (
            LOG_WRITE,
            "Stream of 1 MiB records, each durable, disk of each metadata server's log",
            "MB/s",
            true,
        ),
    ];
    let side = |(members, (id, title, unit, more)): (Vec<_>, (&str, &str, &str, bool))| SideBySide {
        id: id.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        more_is_better: more,
        members,
        command: command.clone(),
    };
    let sides = sides.into_iter().zip(titled).map(side).collect();
    let curves = match place.map(|place| waits(run, place, &nodes, &command)) {
        None => Vec::new(),
        Some(Ok(curve)) => vec![curve],
        Some(Err(failure)) => {
            run.remark(format!("what files wait for at the logs: not measured: {failure}"));
            Vec::new()
        }
    };
    let about = format!(
        "Each metadata server wrote {RECORDS} records of 4 KiB to the disk of its log, each durable before the next, \
         and a stream; {} times in turn. Then one process wrote {FILES} files of {} with fsync, and the servers told how \
         long their logs were being made durable meanwhile: a file waits for no longer than that, whatever its size.",
        run.preset.rounds,
        format_size(FILE as u64)
    ) + groups_said(&names);
    Ok(Layer { id: LayerId::Log, about, curves, sides })
}

/// Groups of one server are members by themselves, and usually on one disk: a reader must not count it several times.
fn groups_said(names: &[String]) -> &'static str {
    let is_further = |name: &String| {
        let server = name.rsplit_once('.').filter(|(_, number)| number.parse::<u32>().is_ok());
        server.is_some_and(|(server, _)| names.iter().any(|other| other == server))
    };
    match names.iter().any(is_further) {
        true => {
            " Names with a number behind a dot are further groups of one server: unless their directories are mounts, they \
             stand on its disk, which was measured once for each."
        }
        false => "",
    }
}

/// Nanoseconds that all logs were being made durable.
fn spent(run: &Run<'_>, nodes: &[NodeEntry]) -> Outcome<u64> {
    nodes.iter().map(|node| one(run, node, LogTest::default()).map(|found| found.sync_ns)).sum()
}

/// What one process could write if it waited for nothing but the logs.
fn waits(run: &Run<'_>, place: &Place, nodes: &[NodeEntry], command: &str) -> Outcome<Curve> {
    let size = run.preset.process_size;
    let mut samples = Vec::new();
    for round in 0..run.preset.repeats {
        let (before, began) = (spent(run, nodes)?, Instant::now());
        for file in 0..FILES {
            write_one(place, round, file)?;
        }
        let took = began.elapsed().as_secs_f64();
        let logs = spent(run, nodes)?.saturating_sub(before) as f64 / 1e9;
        samples.push(rate(size, logs, took));
    }
    Ok(Curve {
        id: format!("{LOG}.{WRITE}"),
        title: format!("Write, if a process with files of {} waited for the logs only", format_size(size)),
        unit: "MB/s".to_owned(),
        axis: "processes".to_owned(),
        points: vec![Point { x: 1.0, samples }],
        command: command.to_owned(),
    })
}

/// MB/s of files of `size`, each of which waits its part of the time that the logs took, and no longer than it took itself.
fn rate(size: u64, logs: f64, took: f64) -> f64 {
    let each = (logs.min(took) / f64::from(FILES)).max(LEAST);
    size as f64 / MEGABYTE / each
}

fn write_one(place: &Place, round: u32, number: u32) -> Outcome<()> {
    let path = place.dir.join(format!("log-{round}-{number}"));
    let write = || {
        let mut file = std::fs::File::create(&path)?;
        file.write_all(&vec![0x5a; FILE])?;
        file.sync_all()?;
        drop(file);
        std::fs::remove_file(&path)
    };
    write().map_err(|e| Failure::local(commands::path(&path), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: groups of one server are not taken for servers with disks of their own, and no server for a group.
    #[test]
    fn groups_of_one_server() {
        let said =
            |names: &[&str]| groups_said(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert!(said(&["meta-1", "meta-1.1", "meta-2"]).contains("further groups of one server"));
        assert!(said(&["meta-1", "meta-2", "rack.7"]).is_empty());
    }

    /// Goal: what a file waits is the part of the logs' time, at most all of its own; a quick log costs nothing.
    #[test]
    fn what_a_file_waits_for() {
        // 8 files, 1.6 s of syncing: 0.2 s each.
        assert!((rate(16_000_000, 1.6, 2.0) - 80.0).abs() < 1e-6);
        assert!((rate(16_000_000, 9.0, 1.6) - 80.0).abs() < 1e-6, "several logs at once");
        assert!(rate(16_000_000, 0.0, 0.1) > 1e6);
    }
}
