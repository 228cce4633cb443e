//! mdtest: the table under "SUMMARY".

use super::{ForeignResult, figure, row, word_with};
use crate::dialect::Tool;
use crate::result::Summary;
use crate::summary::Spread;

pub(super) fn parse(output: &str) -> Result<ForeignResult, String> {
    let mut rows: Vec<Summary> = Vec::new();
    let mut repetitions = None;
    for line in output.lines() {
        let text = line.trim();
        if let Some(rest) = text.strip_prefix("SUMMARY") {
            // The table of times that later releases add holds the same phases once more.
            repetitions = (!rest.trim_start().starts_with("time")).then(|| iterations(rest));
            continue;
        }
        let Some(repetitions) = repetitions else { continue };
        if let Some(row) = of_line(text, repetitions) {
            rows.push(row);
        }
    }
    if rows.is_empty() && output.contains("SUMMARY time") {
        return Err("its output holds times only: leave -Z out".to_owned());
    }
    let version = word_with(output, "mdtest-").map(str::to_owned);
    let workers = output.split("total task(s)").next().filter(|before| before.len() < output.len());
    let workers = workers.and_then(|before| before.split_whitespace().last()?.parse().ok());
    let (tasks, items) = counts(output);
    for row in rows.iter_mut().filter(|row| row.phase.starts_with("file")) {
        row.ops = items.unwrap_or(0.0);
    }
    Ok(ForeignResult { tool: Tool::Mdtest, version, workers: workers.or(tasks), rows })
}

/// `rate (in ops/sec): (of 5 iterations)`
fn iterations(text: &str) -> u32 {
    let count = text.split("(of ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    count.unwrap_or(1)
}

/// `128 tasks, 1139968 files`
fn counts(output: &str) -> (Option<u32>, Option<f64>) {
    let line = output.lines().find(|line| line.contains(" tasks, "));
    let words: Vec<&str> = line.map(|line| line.split_whitespace().collect()).unwrap_or_default();
    let files = words.get(3).is_some_and(|what| what.starts_with("files"));
    (
        words.first().and_then(|word| word.parse().ok()),
        words.get(2).filter(|_| files).and_then(|word| figure(word)),
    )
}

/// `File creation     :      40784.448      40784.447      40784.448          0.001`
fn of_line(text: &str, repetitions: u32) -> Option<Summary> {
    let words: Vec<&str> = text.split_whitespace().filter(|word| *word != ":").collect();
    let figures: Vec<f64> = words.get(2..)?.iter().filter_map(|word| figure(word)).collect();
    let [max, min, mean, stddev] = figures[..] else { return None };
    let what = match *words.first()? {
        "File" => "file",
        "Directory" => "directory",
        "Tree" => "tree",
        _ => return None,
    };
    let phase = match words.get(1)?.trim_end_matches(':') {
        "creation" => "create",
        "stat" => "stat",
        "read" => "open-read",
        "rename" => "rename",
        "removal" => "remove",
        _ => return None,
    };
    // A phase that was not run is printed with zeros.
    if max == 0.0 {
        return None;
    }
    let mut row = row(&format!("{what} {phase}"));
    row.repetitions = repetitions;
    row.ops_per_second = Spread { min, mean, max, stddev };
    Some(row)
}
