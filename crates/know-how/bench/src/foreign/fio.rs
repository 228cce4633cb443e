//! fio: `--output-format=json`.

use super::{ForeignResult, row};
use crate::dialect::Tool;
use crate::histogram::Latency;
use crate::result::Summary;
use crate::summary::Spread;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "fio version")]
    version: Option<String>,
    #[serde(rename = "global options", default)]
    global: BTreeMap<String, String>,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    jobname: String,
    #[serde(default)]
    error: i64,
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, String>,
    read: Option<Side>,
    write: Option<Side>,
}

#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    #[serde(default)]
    total_ios: u64,
    bw_bytes: Option<f64>,
    #[serde(default)]
    bw: f64,
    #[serde(default)]
    iops: f64,
    /// Milliseconds.
    #[serde(default)]
    runtime: f64,
    #[serde(default)]
    lat_ns: Times,
    #[serde(default)]
    clat_ns: Times,
}

/// Nanoseconds.
#[derive(Deserialize, Default)]
struct Times {
    #[serde(default)]
    min: f64,
    #[serde(default)]
    max: f64,
    #[serde(default)]
    mean: f64,
    #[serde(rename = "N", default)]
    count: u64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

pub(super) fn parse(output: &str) -> Result<ForeignResult, String> {
    // Warnings may stand before the document.
    let start = output.find('{').ok_or("its output is not JSON: run it with --output-format=json")?;
    let mut documents = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Document>();
    let document = documents.next().ok_or("its output holds no document")?;
    let document = document.map_err(|error| format!("its JSON cannot be understood: {error}"))?;
    if document.jobs.iter().any(|job| job.jobname.is_empty()) {
        // fio 3.33 mixes up the jobs of a group of which only some are reported together, names and all.
        let why = "an entry has no job's name: jobs that run at the same time are reported together in part; give \
                   group_reporting to all of them or to none";
        return Err(why.to_owned());
    }
    let several = document.jobs.iter().any(|job| job.jobname != document.jobs[0].jobname);
    let mut rows: Vec<Summary> = Vec::new();
    let mut workers: BTreeMap<&str, u32> = BTreeMap::new();
    for job in &document.jobs {
        if job.error != 0 {
            let why = std::io::Error::from_raw_os_error(job.error as i32);
            return Err(format!("job {} failed: {why}", job.jobname));
        }
        let option =
            |name: &str| job.options.get(name).or_else(|| document.global.get(name)).map(String::as_str);
        // With group_reporting one entry stands for all its processes.
        let copies = option("numjobs").and_then(|count| count.parse().ok()).unwrap_or(1);
        let same = document.jobs.iter().filter(|other| other.jobname == job.jobname).count() as u32;
        workers.insert(&job.jobname, copies.max(same));
        let pattern = option("rw").or_else(|| option("readwrite")).unwrap_or("");
        let random = if pattern.starts_with("rand") { "random " } else { "" };
        let prefix = if several { format!("{}: ", job.jobname) } else { String::new() };
        for (name, side) in [("read", &job.read), ("write", &job.write)] {
            let Some(side) = side.as_ref().filter(|side| side.total_ios > 0) else { continue };
            add(&mut rows, &format!("{prefix}{random}{name}"), side);
        }
    }
    let workers = workers.values().max().copied();
    Ok(ForeignResult { tool: Tool::Fio, version: document.version, workers, rows })
}

/// Entries of one job and pattern are its processes: they ran together, so rates add up.
fn add(rows: &mut Vec<Summary>, phase: &str, side: &Side) {
    let at = rows.iter().position(|row| row.phase == phase).unwrap_or_else(|| {
        rows.push(row(phase));
        rows.len() - 1
    });
    let row = &mut rows[at];
    row.bytes += side.io_bytes as f64;
    row.ops += side.total_ios as f64;
    let grown = |spread: Spread, more: f64| single(spread.mean + more);
    row.bytes_per_second = grown(row.bytes_per_second, side.bw_bytes.unwrap_or(side.bw * 1024.0));
    row.ops_per_second = grown(row.ops_per_second, side.iops);
    row.seconds = single(row.seconds.max.max(side.runtime / 1e3));
    row.latency = Some(match row.latency {
        None => latency(side),
        Some(known) => worse(known, latency(side)),
    });
}

fn single(value: f64) -> Spread {
    Spread { min: value, mean: value, max: value, stddev: 0.0 }
}

fn latency(side: &Side) -> Latency {
    let percentiles =
        if side.lat_ns.percentile.is_empty() { &side.clat_ns.percentile } else { &side.lat_ns.percentile };
    let at = |name: &str| percentiles.get(name).map_or(0.0, |ns| ns / 1e3);
    Latency {
        count: side.lat_ns.count,
        min_us: side.lat_ns.min / 1e3,
        mean_us: side.lat_ns.mean / 1e3,
        p50_us: at("50.000000"),
        p90_us: at("90.000000"),
        p99_us: at("99.000000"),
        p999_us: at("99.900000"),
        max_us: side.lat_ns.max / 1e3,
    }
}

/// Percentiles cannot be added: of several processes the worst stands for all, which is said in the docs.
fn worse(a: Latency, b: Latency) -> Latency {
    let count = a.count + b.count;
    let weight = |x: f64, n: u64| x * n as f64 / count.max(1) as f64;
    Latency {
        count,
        min_us: a.min_us.min(b.min_us),
        mean_us: weight(a.mean_us, a.count) + weight(b.mean_us, b.count),
        p50_us: a.p50_us.max(b.p50_us),
        p90_us: a.p90_us.max(b.p90_us),
        p99_us: a.p99_us.max(b.p99_us),
        p999_us: a.p999_us.max(b.p999_us),
        max_us: a.max_us.max(b.max_us),
    }
}
