//! IOzone in throughput mode: "Children see throughput for 64 readers = ... kB/sec".

use super::{ForeignResult, figure, row, word_with};
use crate::dialect::Tool;
use crate::summary::Spread;

pub(super) fn parse(output: &str) -> Result<ForeignResult, String> {
    // As a stream of words: reports that quote it break its lines anywhere.
    let words: Vec<&str> = output.split_whitespace().collect();
    let mut rows = Vec::new();
    let mut workers = None;
    for (at, window) in words.windows(4).enumerate() {
        if window != ["Children", "see", "throughput", "for"] {
            continue;
        }
        let behind = &words[at + 4..];
        let count: u32 =
            behind.first().and_then(|word| word.parse().ok()).ok_or("the number of processes is missing")?;
        let equals = behind.iter().take(8).position(|word| *word == "=").ok_or("a throughput is missing")?;
        let name = behind[1..equals].join(" ");
        let value =
            behind.get(equals + 1).and_then(|word| figure(word)).ok_or("a throughput is no number")?;
        let unit = behind.get(equals + 2).copied().unwrap_or("");
        let mut row = row(&phase(&name));
        let spread = |value| Spread { min: value, mean: value, max: value, stddev: 0.0 };
        match unit.to_ascii_lowercase().as_str() {
            // IOzone's kilobytes have 1024 bytes.
            "kb/sec" | "kb/s" | "kbytes/sec" => row.bytes_per_second = spread(value * 1024.0),
            "ops/sec" | "ops/s" => row.ops_per_second = spread(value),
            _ => return Err(format!("\"{unit}\" is no unit that is known: leave -N out")),
        }
        if workers.is_some_and(|known| known != count) {
            return Err(
                "its output is of several numbers of processes: run it with -t, once for each".to_owned()
            );
        }
        workers = Some(count);
        rows.push(row);
    }
    if rows.is_empty() && output.contains("reclen") {
        return Err("its output is a table of single files: run it with -t".to_owned());
    }
    let version =
        words.windows(2).find(|pair| pair[0] == "$Revision:").map(|pair| format!("iozone-{}", pair[1]));
    let version = version.or_else(|| word_with(output, "iozone-").map(str::to_owned));
    Ok(ForeignResult { tool: Tool::Iozone, version, workers, rows })
}

/// Its phases in our words.
fn phase(name: &str) -> String {
    match name {
        "initial writers" | "writers" => "write",
        "rewriters" => "rewrite",
        "readers" => "read",
        "re-readers" => "reread",
        // -i 9 and -i 10 can stand beside -i 0 and -i 1.
        "pwrite writers" => "pwrite",
        "re-pwrite writers" => "repwrite",
        "pread readers" => "pread",
        "re-pread readers" => "repread",
        "fwriters" => "fwrite",
        "freaders" => "fread",
        "random readers" => "random read",
        "random writers" => "random rewrite",
        "reverse readers" => "backward read",
        "stride readers" => "stride read",
        other => other,
    }
    .to_owned()
}
