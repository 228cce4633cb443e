//! elbencho: its table with the columns FIRST DONE and LAST DONE.

use super::{ForeignResult, MIB, figure, row};
use crate::dialect::Tool;
use crate::histogram::Latency;
use crate::result::Summary;
use crate::summary::Spread;

/// What one table says of a phase: at the end of the first thread, and of the last.
#[derive(Default, Clone)]
struct Sample {
    phase: String,
    seconds: [f64; 2],
    rate: [Option<f64>; 2],
    ops_rate: [Option<f64>; 2],
    bytes: f64,
    ops: f64,
    latency: Option<Latency>,
}

pub(super) fn parse(output: &str) -> Result<ForeignResult, String> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut inside = false;
    for line in output.lines() {
        if line.starts_with("OPERATION") {
            inside = true;
            continue;
        }
        // "ISO DATE" and "COMMAND LINE" stand between tables of a results file.
        let Some((label, values)) = line.split_once(':').filter(|_| inside && !line.starts_with("ISO DATE"))
        else {
            continue;
        };
        let begins = !line.starts_with([' ', '\t']);
        let label = if begins {
            let (operation, label) = label.split_once(char::is_whitespace).unwrap_or((label, ""));
            if !operation.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit()) {
                continue;
            }
            samples.push(Sample { phase: phase(operation), ..Sample::default() });
            label.trim()
        } else {
            label.trim()
        };
        let Some(sample) = samples.last_mut() else { continue };
        read(sample, label, values.trim())?;
    }
    let version = super::word_with(output, "elbencho-").map(str::to_owned);
    Ok(ForeignResult { tool: Tool::Elbencho, version, workers: None, rows: rows(samples) })
}

fn phase(operation: &str) -> String {
    match operation {
        "MKDIRS" => "tree create".to_owned(),
        "RMDIRS" => "tree remove".to_owned(),
        "RMFILES" => "file remove".to_owned(),
        "STAT" => "file stat".to_owned(),
        other => other.to_ascii_lowercase(),
    }
}

fn read(sample: &mut Sample, label: &str, values: &str) -> Result<(), String> {
    if label.ends_with("latency") {
        sample.latency = latency(values).or(sample.latency);
        return Ok(());
    }
    if values.starts_with('[') {
        return Ok(());
    }
    let mut words = values.split_whitespace();
    let (first, last) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let pair = || Some([figure(first)?, figure(last)?]);
    let wrong = || format!("\"{label} : {values}\" cannot be understood");
    match label {
        "Elapsed time" => {
            sample.seconds = [span(first).ok_or_else(wrong)?, span(last).ok_or_else(wrong)?];
        }
        "Elapsed ms" => sample.seconds = pair().ok_or_else(wrong)?.map(|ms| ms / 1e3),
        "Throughput MiB/s" => sample.rate = pair().ok_or_else(wrong)?.map(|rate| Some(rate * MIB)),
        "Total MiB" => sample.bytes = pair().ok_or_else(wrong)?[1] * MIB,
        // Files count for more than calls where both are printed.
        "IOPS" if sample.ops_rate[1].is_some() => {}
        _ if label.ends_with("/s") => sample.ops_rate = pair().ok_or_else(wrong)?.map(Some),
        // "Files total" now, "Total files" formerly.
        _ if label.ends_with("total") || label.starts_with("Total") => {
            sample.ops = pair().ok_or_else(wrong)?[1];
        }
        _ => {}
    }
    Ok(())
}

/// `2m5.755s`, `586ms`, `108us`: seconds.
fn span(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut left = text;
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = left[..digits].parse().ok()?;
        let behind = &left[digits..];
        let units = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let factor = match &behind[..units] {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            _ => return None,
        };
        seconds += value * factor;
        left = &behind[units..];
    }
    (!text.is_empty()).then_some(seconds)
}

/// `[ min=108us avg=469us max=14.5ms ]`
fn latency(values: &str) -> Option<Latency> {
    let at = |name: &str| {
        let word = values.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        span(word).map(|seconds| seconds * 1e6)
    };
    Some(Latency { min_us: at("min=")?, mean_us: at("avg=")?, max_us: at("max=")?, ..Latency::default() })
}

/// Repetitions are printed one table after the other.
fn rows(samples: Vec<Sample>) -> Vec<Summary> {
    let mut names: Vec<String> = Vec::new();
    for sample in &samples {
        if !names.contains(&sample.phase) {
            names.push(sample.phase.clone());
        }
    }
    names
        .into_iter()
        .map(|name| {
            let of: Vec<&Sample> = samples.iter().filter(|sample| sample.phase == name).collect();
            let spread = |pick: &dyn Fn(&Sample) -> Option<f64>| {
                let values: Vec<f64> = of.iter().filter_map(|sample| pick(sample)).collect();
                (!values.is_empty()).then(|| Spread::of(&values))
            };
            let mut row = row(&name);
            row.repetitions = of.len() as u32;
            row.seconds = spread(&|sample| Some(sample.seconds[1])).unwrap_or_default();
            row.bytes_per_second = spread(&|sample| sample.rate[1]).unwrap_or_default();
            row.ops_per_second = spread(&|sample| sample.ops_rate[1]).unwrap_or_default();
            row.stonewall_bytes_per_second = spread(&|sample| sample.rate[0]);
            row.stonewall_ops_per_second = spread(&|sample| sample.ops_rate[0]);
            row.bytes = spread(&|sample| Some(sample.bytes)).map_or(0.0, |bytes| bytes.mean);
            row.ops = spread(&|sample| Some(sample.ops)).map_or(0.0, |ops| ops.mean);
            row.latency = of.last().and_then(|sample| sample.latency);
            row
        })
        .collect()
}
