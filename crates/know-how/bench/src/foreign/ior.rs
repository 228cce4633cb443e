//! IOR: the table under "Summary of all tests", and the older one of 2.10.

use super::{ForeignResult, MIB, figure, row, word_with};
use crate::dialect::Tool;
use crate::result::Summary;
use crate::summary::Spread;

pub(super) fn parse(output: &str) -> Result<ForeignResult, String> {
    let mut rows: Vec<Summary> = Vec::new();
    let mut columns: Option<Vec<String>> = None;
    let mut workers = None;
    for line in output.lines() {
        if let Some(found) = header(line) {
            columns = Some(found);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(columns) = &columns else { continue };
        match words.first().copied() {
            Some(name @ ("write" | "read")) => {
                let cells = Cells { columns, words: &words };
                let (row, tasks) =
                    cells.row(name).ok_or_else(|| format!("a line of its table is cut: {line}"))?;
                workers = workers.or(tasks);
                match rows.iter_mut().find(|known| known.phase == row.phase) {
                    // Several tests in one run: the later row is another test.
                    Some(_) => {
                        rows.push(Summary { phase: format!("{} {}", row.phase, rows.len() / 2 + 1), ..row })
                    }
                    None => rows.push(row),
                }
            }
            Some("remove") | None => {}
            Some(word) if word.starts_with("---") => {}
            _ => {}
        }
    }
    workers = workers.or_else(|| clients(output));
    // Without -v the old table says nothing of amounts; the summary before it does, of one test.
    let (amount, transfer) = (labelled_size(output, "aggregate filesize"), labelled_size(output, "xfersize"));
    for row in rows.iter_mut().filter(|row| row.bytes == 0.0) {
        row.bytes = amount.unwrap_or(0.0);
        row.ops = transfer.filter(|size| *size > 0.0).map_or(0.0, |size| row.bytes / size);
    }
    if let Some(repetitions) = labelled(output, "repetitions") {
        rows.iter_mut().filter(|row| row.repetitions <= 1).for_each(|row| row.repetitions = repetitions);
    }
    let version = word_with(output, "IOR-").map(|word| word.trim_end_matches(':').to_owned());
    Ok(ForeignResult { tool: Tool::Ior, version, workers, rows })
}

/// The table's head: `Max (MiB)` of 2.10 is `Max(MiB)` later.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim().replace(" (", "(").replace("Std Dev", "StdDev");
    // 2.10 announces two columns with -v that its lines do not have.
    let line = line.replace(" Op grep #Tasks", " #Tasks");
    let names: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    (names.first()? == "Operation" && names.iter().any(|name| name == "Max(MiB)")).then_some(names)
}

struct Cells<'a> {
    columns: &'a [String],
    words: &'a [&'a str],
}

impl Cells<'_> {
    fn at(&self, column: usize) -> Option<f64> {
        figure(self.words.get(column)?)
    }

    fn named(&self, name: &str) -> Option<f64> {
        self.at(self.columns.iter().position(|column| column == name)?)
    }

    /// Max, min, mean and the deviation beside them.
    fn spread(&self, unit: &str) -> Option<Spread> {
        let mean = self.columns.iter().position(|column| *column == format!("Mean({unit})"))?;
        let stddev = self.columns.get(mean + 1).filter(|name| *name == "StdDev").map(|_| mean + 1);
        Some(Spread {
            max: self.named(&format!("Max({unit})"))?,
            min: self.named(&format!("Min({unit})"))?,
            mean: self.at(mean)?,
            stddev: stddev.and_then(|column| self.at(column)).unwrap_or(0.0),
        })
    }

    fn row(&self, name: &str) -> Option<(Summary, Option<u32>)> {
        let rate = self.spread("MiB")?;
        let mut row = row(name);
        row.bytes_per_second = Spread {
            min: rate.min * MIB,
            mean: rate.mean * MIB,
            max: rate.max * MIB,
            stddev: rate.stddev * MIB,
        };
        row.ops_per_second = self.spread("OPs").unwrap_or_default();
        if let Some(mean) = self.named("Mean(s)") {
            row.seconds = Spread { min: 0.0, mean, max: 0.0, stddev: 0.0 };
        }
        let amount = self.named("aggs(MiB)").map(|mib| mib * MIB).or_else(|| self.named("aggsize"));
        row.bytes = amount.unwrap_or(0.0);
        if let Some(transfer) = self.named("xsize").filter(|transfer| *transfer > 0.0) {
            row.ops = row.bytes / transfer;
        }
        if let Some(repetitions) = self.named("reps") {
            row.repetitions = repetitions as u32;
        }
        Some((row, self.named("#Tasks").map(|tasks| tasks as u32)))
    }
}

/// `repetitions        : 5` or, in 2.10, `repetitions = 5`.
fn labelled(output: &str, label: &str) -> Option<u32> {
    let line = output.lines().find(|line| line.trim_start().starts_with(label))?;
    line.split(['=', ':']).nth(1)?.split_whitespace().next()?.parse().ok()
}

/// `xfersize           = 65536 bytes`, `aggregate filesize : 4 MiB`: bytes.
fn labelled_size(output: &str, label: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.trim_start().starts_with(label))?;
    let mut words = line.split(['=', ':']).nth(1)?.split_whitespace();
    let count = figure(words.next()?)?;
    let power = match words.next()? {
        "bytes" => 0,
        "KiB" => 1,
        "MiB" => 2,
        "GiB" => 3,
        "TiB" => 4,
        "PiB" => 5,
        _ => return None,
    };
    Some(count * 1024_f64.powi(power))
}

fn clients(output: &str) -> Option<u32> {
    labelled(output, "tasks").or_else(|| labelled(output, "clients"))
}
